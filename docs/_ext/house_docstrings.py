"""The house's docstrings as reStructuredText.

They have numpy's sections, but say what a parameter is on its line, ``penalty : what it is``, where numpy has its type.
Each section becomes a heading and a list of definitions.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

DEFINED = ("Parameters", "Attributes")
FREE = ("Returns", "Yields", "Raises", "Warns", "Notes", "References", "Examples", "See Also")


def sections(lines: list[str]) -> list[str]:
    """The lines with every section that is underlined with dashes turned into a heading and a list."""
    done: list[str] = []
    at = 0
    while at < len(lines):
        title = lines[at].strip()
        underlined = at + 1 < len(lines) and re.fullmatch(r"\s*-{3,}\s*", lines[at + 1]) is not None
        if not underlined or title not in (*DEFINED, *FREE):
            done.append(lines[at])
            at += 1
            continue
        indent = len(lines[at]) - len(lines[at].lstrip())
        end = at + 2
        while end < len(lines) and not _ends(lines, end, indent, defined=title in DEFINED):
            end += 1
        body = [line[indent:] for line in lines[at + 2 : end]]
        done += ["", f".. rubric:: {title}", ""]
        done += _definitions(body) if title in DEFINED else body
        done.append("")
        at = end
    return done


def _ends(lines: list[str], at: int, indent: int, *, defined: bool) -> bool:
    """Whether a section is over: another begins, or the text after an empty line is not a definition."""
    line = lines[at]
    if at + 1 < len(lines) and line.strip() and re.fullmatch(r"\s*-{3,}\s*", lines[at + 1]):
        return True
    if not defined or lines[at - 1].strip() or not line.strip():
        return False
    return len(line) - len(line.lstrip()) <= indent and re.match(r"\s*[\w*, ]+ : ", line) is None


def _definitions(body: list[str]) -> list[str]:
    done: list[str] = []
    whole: list[str] = []
    for line in body:
        if whole and whole[-1].endswith(",") and not whole[-1].startswith(" "):
            whole[-1] += f" {line.strip()}"  # names that take two lines
        else:
            whole.append(line)
    hanging = ""  # the indent of the rest of a point in a list
    for line in whole:
        indent = line[: len(line) - len(line.lstrip())]
        hanging = f"{indent}  " if line.lstrip().startswith("- ") else hanging if indent == hanging else ""
        named = re.match(r"([\w*][\w*, .=]*?)\s+: (.*)", line)
        if named:
            names = ", ".join(f"**{each.strip().lstrip('*')}**" for each in named[1].split(","))
            done += [names, f"    {named[2]}"]
        elif line.strip() and not line.startswith(" "):
            done += [f"**{line.strip()}**"]
        else:
            done.append(f"    {'  ' * bool(hanging and indent == hanging)}{line.strip()}" if line.strip() else "")
    return done


def _process(*arguments: Any) -> None:
    lines = arguments[-1]
    lines[:] = _numbered(sections(lines))


def _numbered(lines: list[str]) -> list[str]:
    """References by number as plain text: several docstrings share a page, and each counts from one."""
    done: list[str] = []
    listed = False
    for line in lines:
        number = re.match(r"\.\. (\[\d+\]) (.*)", line)
        listed = number is not None or (listed and line.startswith(" "))
        if number is not None:
            done.append(f"- {number[1]} {number[2]}")
        else:
            done.append(f"  {line.strip()}" if listed else re.sub(r"(\[\d+\])_(?!\w)", r"\1", line))
    return done


def setup(app: Sphinx) -> dict[str, Any]:
    """Before autodoc turns docstrings into pages."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
