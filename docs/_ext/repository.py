"""The repository's Markdown as pages of the site, as it stands.

CONTRIBUTING, CHANGELOG and the tables of measurements lie outside docs/; they are copied into docs/_pages/ before a
build. guide.md, one long page on GitHub, is a page for each of its sections here. Links between files are written for
GitHub: here they lead to the page that shows the file, to the gallery for an example, and are plain text where no page
shows what they lead to.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import toporo

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COPIES = DOCS / "_pages"
FENCE = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)
GUIDE = DOCS / "guide.md"
#: Under the title of every section of the guide, as its first lines say.
TAKEN = "*The code runs in a test. `tr` is `import toporo as tr`; other names that it takes for granted are yours.*"
LINK = re.compile(r"(\!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def copied() -> dict[Path, Path]:
    """Files of the repository to where they are copied for the site."""
    measured = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
    return {
        ROOT / "CONTRIBUTING.md": COPIES / "contributing.md",
        ROOT / "CHANGELOG.md": COPIES / "changelog.md",
        **{path: COPIES / "measured" / path.name for path in measured},
    }


def anchor_of(title: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def guide_pages() -> dict[Path, str]:
    """The sections of the guide, each a page by the name of its anchor."""
    _, *sections = re.split(r"^## ", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    pages = {}
    for section in sections:
        title, text = section.split("\n", 1)
        pages[COPIES / "guides" / f"{anchor_of(title)}.md"] = f"# {title}\n\n{TAKEN}\n{text}"
    return pages


def page_of(path: Path, anchor: str = "") -> Path | None:
    """The source of the page that shows a file or folder of the repository, if one does."""
    copies = copied()
    if path == GUIDE:
        return COPIES / "guides" / f"{anchor or 'a-table'}.md"
    if path in copies:
        return copies[path]
    if path in (ROOT / "README.md", DOCS / "README.md"):
        return DOCS / "index.md"
    if path == ROOT / "examples":
        return DOCS / "gallery" / "index.rst"
    if path.parent == ROOT / "examples":
        return DOCS / "gallery" / f"{path.stem}.rst"
    if path == ROOT / "benchmarks" / "results":
        return COPIES / "measured" / "index.md"
    return path if path.is_relative_to(DOCS) and path.suffix in (".md", ".rst") else None


def relinked(text: str, original: Path, here: Path) -> str:
    """A page's text with links to files turned into links to pages, outside of code."""

    def mended(match: re.Match[str]) -> str:
        picture, title, target = match.groups()
        file, mark, anchor = target.partition("#")
        if "://" in target or not (file or original == GUIDE):
            return match[0]
        if picture:
            return f"![{title}]({os.path.relpath(original.parent / file, here.parent)})"
        page = page_of((original.parent / file).resolve() if file else original, anchor)
        if page is None:
            return title
        if page.parent == COPIES / "guides":
            mark = anchor = ""  # the section is the page
        return f"[{title}]({os.path.relpath(page, here.parent)}{mark}{anchor})"

    kept = FENCE.findall(text)
    parts = [LINK.sub(mended, part) for part in FENCE.split(text)]
    return "".join(part + fence for part, fence in zip(parts, [*kept, ""], strict=True))


def with_pictures(text: str) -> str:
    """A page's text with the thumbnails of the examples that it links to at its end."""
    names = dict.fromkeys(re.findall(r"\]\([./]*examples/(\w+\.py)\)", FENCE.sub("", text)))
    if not names:
        return text
    files = "\n   ".join(f"../examples/{name}" for name in names)
    return f"{text.rstrip()}\n\n## Examples\n\n```{{eval-rst}}\n.. minigallery::\n\n   {files}\n```\n"


def copy_pages() -> None:
    """Write what lies outside docs/ into docs/_pages/, where it has changed."""
    texts = guide_pages() | {to: path.read_text(encoding="utf-8") for path, to in copied().items()}
    listed = "\n".join(to.stem for to in texts if to.parent.name == "measured")
    texts[COPIES / "measured" / "index.md"] = (
        "# Measurements\n\nEvery table that the pages cite, as `benchmarks/` printed it.\n\n"
        f"```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n"
    )
    _sweep(set(texts))
    for to, text in texts.items():
        if not to.exists() or to.read_text(encoding="utf-8") != text:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(text, encoding="utf-8")


def _sweep(pages: set[Path]) -> None:
    """Remove what an earlier build left of pages, examples and names that are no more."""
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")} | {
        "index",
        "sg_api_usage",
        "sg_execution_times",
    }
    names = {f"toporo.{name}" for name in toporo.__all__}
    stale = [path for path in COPIES.rglob("*.md") if path not in pages]
    stale += [path for path in (DOCS / "gallery").glob("*.rst") if path.stem not in examples]
    stale += [path for path in (DOCS / "api" / "names").glob("*.rst") if path.stem not in names]
    for path in stale:
        path.unlink()


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    here = Path(app.env.doc2path(docname))
    if here.suffix == ".md":
        originals = dict.fromkeys(guide_pages(), GUIDE) | {to: path for path, to in copied().items()}
        source[0] = relinked(with_pictures(source[0]), originals.get(here, here), here)


def setup(app: Sphinx) -> dict[str, Any]:
    """Copy before pages are looked for, mend links as each is read."""
    app.connect("config-inited", lambda app, config: copy_pages())
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
