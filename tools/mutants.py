"""Mutation testing: measure how many small changes to the code the tests notice.

``make mutants PACKAGES="topology robust" COUNT=100`` draws places in the code of each package at random, the same ones
for the same code and seed, and changes each as cosmic-ray does: another operator, another number, a condition turned
around. Then it runs the tests that execute the line. A mutant is killed if one of them fails or does not end in time.
Results are appended to ``runs/mutants.jsonl``, so an interrupted run continues where it stopped. The kill rates are
printed at the end.

Mutants are made in a copy of the repository. Slow tests take no part. On one core a mutant takes about ten seconds.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import subprocess
import tempfile
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import copy2

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv" / "bin" / "python"
PYTEST = (PYTHON, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow")
#: A mutant whose tests take longer is killed: it loops.
SECONDS = 150

Position = tuple[int, int]


@dataclass(frozen=True)
class Mutant:
    """One operator of cosmic-ray at one place; ``occurrence`` counts the operator's places in the file."""

    file: str
    first_line: int
    last_line: int
    operator: str
    occurrence: int


def find_places(path: Path) -> dict[tuple[Position, Position], list[tuple[str, int]]]:
    """Return the operators that apply at each place of a file, without type annotations."""
    annotations = [
        ((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(part, ast.expr)
    ]
    nodes = list(ast_nodes(get_ast_from_path(path)))
    places = defaultdict(list)
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments():
            continue
        found = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, end) in enumerate(found):
            if not any(low <= tuple(start) <= high for low, high in annotations):
                places[tuple(start), tuple(end)].append((name, occurrence))
    return places


def draw(root: Path, package: str, count: int, seed: int) -> list[Mutant]:
    """Draw mutants of a package: places first, so that one with many operators is not drawn more often."""
    generator = random.Random(seed)
    paths = sorted(path for path in (root / "src/toporo" / package).glob("*.py") if path.name != "gpu.py")
    every = [(path, *each) for path in paths for each in sorted(find_places(path).items())]
    chosen = generator.sample(every, min(count, len(every)))
    return [
        Mutant(path.relative_to(root).as_posix(), start[0], end[0], *generator.choice(sorted(operators)))
        for path, (start, end), operators in chosen
    ]


def environment(root: Path) -> dict[str, str]:
    """Return variables for tests of the sources in ``root``, without stale bytecode and on one thread."""
    return os.environ | {"PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


def tests_by_line(root: Path, package: str) -> dict[str, dict[int, list[str]]]:
    """Run the tests of a package once, and return those that execute each line of each file."""
    data, report, settings = (root / f"{package}.{kind}" for kind in ("coverage", "json", "ini"))
    settings.write_text(f"[run]\ndata_file = {data}\n[json]\nshow_contexts = true\n", encoding="utf-8")
    coverage = (
        f"--cov=toporo.{package}",
        f"--cov-config={settings}",
        f"--cov-report=json:{report}",
        "--cov-context=test",
    )
    subprocess.run([*PYTEST, f"tests/{package}", *coverage], cwd=root, env=environment(root), check=True)
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {
        Path(name).as_posix(): {
            int(line): sorted({context.rpartition("|")[0] for context in contexts if context})
            for line, contexts in about["contexts"].items()
        }
        for name, about in files.items()
    }


def judge(root: Path, mutant: Mutant, lines: dict[int, list[str]]) -> str:
    """Return "killed", "out of time" or "survived"."""
    path = root / mutant.file
    source = path.read_text(encoding="utf-8")
    changed = mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence)
    tests = {test for line in range(mutant.first_line, mutant.last_line + 1) for test in lines.get(line, ())}
    chosen = sorted(tests) or [f"tests/{path.parent.name}"]  # compiled, or executed at import
    random.Random(0).shuffle(chosen)  # parametrised tests of one kind are alike: mix them
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(chosen))
        file.flush()
        path.write_text(changed, encoding="utf-8")
        try:
            command = [*PYTEST, "-x", f"@{file.name}"]
            run = subprocess.run(command, cwd=root, env=environment(root), capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return "out of time"
        finally:
            path.write_text(source, encoding="utf-8")
    return "killed" if run.returncode else "survived"


def copy_repository(target: Path) -> None:
    """Copy the files that git tracks, as they are in the working tree."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy2(ROOT / name, target / name)


def main() -> None:
    """Draw, judge and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="packages of toporo, such as topology")
    parser.add_argument("--count", type=int, default=100, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutants.jsonl")
    asked = parser.parse_args()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        copy_repository(root)
        for package in asked.packages:
            known = {Mutant(**row["mutant"]) for row in rows}
            missing = [mutant for mutant in draw(root, package, asked.count, asked.seed) if mutant not in known]
            lines = tests_by_line(root, package) if missing else {}
            for mutant in missing:
                outcome = judge(root, mutant, lines.get(mutant.file, {}))
                rows.append({"mutant": asdict(mutant), "outcome": outcome})
                with asked.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(rows[-1]) + "\n")
                print(f"{outcome:11} {mutant.file}:{mutant.first_line} {mutant.operator}", flush=True)
    for package in asked.packages:
        counts = Counter(row["outcome"] for row in rows if f"/{package}/" in row["mutant"]["file"])
        share = 1.0 - counts["survived"] / max(counts.total(), 1)
        print(f"{package}: {share:.1%} of {counts.total()} mutants killed ({dict(counts)})")


if __name__ == "__main__":
    main()
