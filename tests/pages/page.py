"""Page as tests read it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files

VOID = ("meta", "br", "hr", "img", "link", "input")
#: Elements that are a line of text, and those whose text nobody reads.
BLOCKS = ("h1", "h2", "h3", "p", "li", "tr", "summary", "pre", "title")
UNREAD = ("style", "svg")
#: Numbers, which depend on the processor in their last digits.
NUMBER = re.compile(r"[−-]?\d+(?:[.,]\d+)*(?:e[+−-]?\d+)?|∞")


def without_script(html: str) -> str:
    """Return the page without its one script, which must be the package's own."""
    script = f"<script>\n{files('toporo.pages').joinpath('page.js').read_text(encoding='utf-8').rstrip()}</script>"
    assert html.count(script) == 1
    return html.replace(script, "")


def loads_nothing(html: str) -> bool:
    """Return whether the page refers to nothing outside of itself."""
    rest = without_script(html)
    targets = re.findall(r'(?:src|href)="([^"]*)"', rest)
    foreign = [target for target in targets if not target.startswith(("#", "data:image/png;base64,"))]
    return not foreign and not re.search(r"<script|<link|<iframe|url\(http|@import", rest)


def figures(html: str) -> int:
    """Return the number of figures."""
    return html.count("<figure>")


class Page(HTMLParser):
    """Parsed page, whose tags must be balanced.

    Attributes
    ----------
    tags : every tag with its attributes.
    text : all of the text.
    by_tag : the pieces of text by the tag they are in.
    lines : the visible text by block, with descriptions of figures; cells of a row are separated by ``|``.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.by_tag: dict[str, list[str]] = {}
        self.lines: list[str] = []
        self.feed(without_script(html))
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in BLOCKS:
            self.lines.append("")
        elif tag in ("td", "th") and self.lines[-1]:
            self.lines[-1] += " |"
        elif dict(attrs).get("role") == "img":
            self.lines.append(f"[{dict(attrs)['aria-label']}]")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and data.strip():
            self.by_tag.setdefault(self.open[-1], []).append(data.strip())
            if not set(UNREAD) & set(self.open):
                self.lines[-1] = f"{self.lines[-1]} {' '.join(data.split())}".strip()

    @property
    def sections(self) -> list[str | None]:
        return [attrs.get("id") for tag, attrs in self.tags if tag == "section"]

    @property
    def snapshot(self) -> str:
        """Visible text with ``#`` in place of numbers."""
        return "\n".join(NUMBER.sub("#", line) for line in self.lines if line) + "\n"
