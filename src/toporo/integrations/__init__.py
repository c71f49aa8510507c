"""Bridges to other people's tools; each needs an extra, and nothing in the library needs any of them."""
