"""What the theme and the gallery leave out for people who read by keyboard or by ear, put into the finished pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

#: What is mended, and by what; none of it matches what it has become.
MENDED = (
    (re.compile(r'<p class="caption" role="heading">'), '<p class="caption" role="heading" aria-level="2">'),
    (re.compile(r'<aside class="sidebar-drawer">'), '<aside class="sidebar-drawer" aria-label="All pages">'),
    (re.compile(r'<aside class="toc-drawer">'), '<aside class="toc-drawer" aria-label="On this page">'),
    (re.compile(r"<pre>"), '<pre tabindex="0">'),  # long lines scroll by arrow keys
    (re.compile(r'<th class="head"><p></p></th>'), '<td class="head"></td>'),
    (  # the text of a thumbnail's link is hidden behind its picture
        re.compile(r'<a class="reference internal" href="([^"]*)"><span class="doc">([^<"]*)</span></a>'),
        r'<a class="reference internal" href="\1" aria-label="\2"><span class="doc">\2</span></a>',
    ),
)


def mended(page: str) -> str:
    """A page with all of it."""
    for old, new in MENDED:
        page = old.sub(new, page)
    return page


def _finish(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            text = path.read_text(encoding="utf-8")
            if mended(text) != text:
                path.write_text(mended(text), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """When all pages are written."""
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
