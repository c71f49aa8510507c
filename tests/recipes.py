"""The code that CONTRIBUTING.md shows, for tests that follow it word for word."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def recipes(title):
    """The Python blocks of a section, in order."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert section, f"CONTRIBUTING.md has no section {title!r}"
    return re.findall(r"^```python\n(.*?)^```$", section[1], re.DOTALL | re.MULTILINE)
