"""A page as tests read it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files

VOID = ("meta", "br", "hr", "img", "link")


def without_script(html: str) -> str:
    """The page without the one script that it may have, which is the package's own to the letter."""
    script = f"<script>\n{files('toporo.pages').joinpath('page.js').read_text(encoding='utf-8').rstrip()}</script>"
    assert html.count(script) == 1
    return html.replace(script, "")


def loads_nothing(html: str) -> bool:
    """Whether the page asks nobody for anything."""
    rest = without_script(html)
    targets = re.findall(r'(?:src|href)="([^"]*)"', rest)
    foreign = [target for target in targets if not target.startswith(("#", "data:"))]
    return not foreign and not re.search(r"<script|<link|<iframe|url\(http|@import", rest)


def figures(html: str) -> int:
    """How many figures it has."""
    return html.count("<figure>")


class Page(HTMLParser):
    """Closes every tag that has to be closed; keeps tags and text.

    Attributes
    ----------
    tags : every tag with its attributes.
    text : all of the text.
    by_tag : the pieces of text by the tag they stand in.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.by_tag: dict[str, list[str]] = {}
        self.feed(without_script(text))
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and data.strip():
            self.by_tag.setdefault(self.open[-1], []).append(data.strip())

    @property
    def sections(self) -> list[str | None]:
        return [attrs.get("id") for tag, attrs in self.tags if tag == "section"]
