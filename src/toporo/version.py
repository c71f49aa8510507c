"""The version, for whoever must not import the package."""

__version__ = "0.1.0"
