"""The version, where everybody can ask for it."""

#: As in ``pyproject.toml``.
__version__ = "0.1.0"
