"""Figures and one-file HTML pages. A module is loaded when it is first used: matplotlib takes half a second."""

from __future__ import annotations

import lazy_loader

# Names are listed in __init__.pyi and imported when first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
