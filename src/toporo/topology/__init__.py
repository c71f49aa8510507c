"""Phase 1: how the groups are related, and what prior follows from it."""

from __future__ import annotations

import lazy_loader

# Names are listed in __init__.pyi and imported when first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
