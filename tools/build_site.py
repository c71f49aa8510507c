"""Build the documentation site, offline and with warnings as errors: ``make docs``.

Prints how long it took, how many pages it has and how large it is. Ends with 1 where Sphinx warns of anything, where an
example fails, or where a page would ask the net for something.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS, OUT = ROOT / "docs", ROOT / "docs" / "_build" / "html"
#: What a browser fetches by itself: sources of pictures, scripts and frames, style sheets, and what styles import.
FETCHED = re.compile(
    r"""<(?:img|script|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data)\s*=\s*["'](?:https?:)?//[^"']+"""
    r"""|<link\b(?=[^>]*\brel=["'](?:stylesheet|preload|icon|preconnect))[^>]*\bhref=["'](?:https?:)?//[^"']+"""
    r"""|url\(\s*["']?(?:https?:)?//[^)]+|@import\s+["'](?:https?:)?//[^"']+""",
    flags=re.IGNORECASE,
)


def requests_of(text: str) -> list[str]:
    """What a page or a style sheet would fetch from the net.

    >>> requests_of('<img src="a.png"><a href="https://example.org">read</a>')
    []
    >>> requests_of('<script src="https://example.org/a.js"></script>')
    ['<script src="https://example.org/a.js']
    """
    return FETCHED.findall(text)


def build() -> int:
    """Sphinx, in a process of its own; its exit code."""
    environment = os.environ | {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    flags = ["-W", "--keep-going", "-n", "-q", "-b", "html", "-d", str(OUT.parent / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *flags, str(DOCS), str(OUT)]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def main() -> int:
    """Build, look for requests, and say what came out."""
    start = time.perf_counter()
    if build() != 0:
        print("the site was not built without warnings: see above", file=sys.stderr)
        return 1
    files = [path for path in OUT.rglob("*") if path.is_file()]
    texts = [path for path in files if path.suffix in (".html", ".css")]
    asking = {path: requests_of(path.read_text(encoding="utf-8")) for path in texts}
    for path, asked in asking.items():
        for each in asked:
            print(f"{path.relative_to(OUT)} would ask the net: {each}", file=sys.stderr)
    pages = sum(path.suffix == ".html" for path in files)
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"{pages} pages, {size:.1f} MB, in {time.perf_counter() - start:.0f} s: {OUT.relative_to(ROOT)}/index.html")
    return int(any(asking.values()))


if __name__ == "__main__":
    sys.exit(main())
