"""Write ``docs/errors.md``: what goes wrong at the command line, and the message a user then sees.

    python tools/errors_page.py            # run every case and write the page
    python tools/errors_page.py --check    # run every case; fail if the page says something else

Each case is a command as typed, in a folder of its own with the files it needs. It runs in this process, as the
``toporo`` command does, and counts only if it ends as a user's mistake should: with the expected exit code, nothing on
standard output, a message that names what was found, no traceback, no path of this machine, and a folder that holds
what it held before. A case that does not is printed and keeps the page from being written.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from toporo import cli
from toporo.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"
MISTAKE, MISTYPED = 1, 2
#: Width that messages are folded to on the page.
WIDTH = 100

Files = Mapping[str, bytes]
Row = list[str]


@dataclass(frozen=True)
class Case:
    """One mistake: in a user's words, as typed, and what the message must name."""

    title: str
    command: str
    names: str
    files: Files
    code: int = MISTAKE
    look: int = 0  # first lines of the table to show above the command


@dataclass(frozen=True)
class Seen:
    """What a command left behind."""

    code: int
    out: str
    err: str
    files: Files


# ---------------------------------------------------------------- files that the cases need

HEADER = ["state", "price", "visits", "colour", "sold"]
STATES = ["AZ", "CA", "ID", "NV", "OR", "UT"]
BORDERS = ["AZ,CA", "AZ,NV", "AZ,UT", "CA,NV", "CA,OR", "ID,NV", "ID,OR", "ID,UT", "NV,OR", "NV,UT"]


def rows() -> list[Row]:
    """Sales in six states, eight rows each."""
    return [
        [
            STATES[i % 6],
            str(10 + 7 * i % 13),
            str(100 + 37 * i % 90),
            ("red", "blue", "green")[i % 7 % 3],
            str(20 + 5 * i % 43),
        ]
        for i in range(48)
    ]


def table(lines: Iterable[Sequence[str]] | None = None, header: Sequence[str] = HEADER, sign: str = ",") -> bytes:
    """A CSV file."""
    return "".join(f"{sign.join(line)}\n" for line in [header, *(rows() if lines is None else lines)]).encode()


def changed(column: str, cell: str | Callable[[int], str], *places: int) -> bytes:
    """The sales with other cells in these rows (all, if none is named), counted from 1."""
    found = rows()
    for number in places or range(1, len(found) + 1):
        found[number - 1][HEADER.index(column)] = cell if isinstance(cell, str) else cell(number)
    return table(found)


def without(*columns: str) -> bytes:
    """The sales less some columns."""
    kept = [place for place, name in enumerate(HEADER) if name not in columns]
    return table([[row[place] for place in kept] for row in rows()], [HEADER[place] for place in kept])


def with_column(name: str, cell: str | Callable[[int], str]) -> bytes:
    """The sales and one more column."""
    cells = [cell if isinstance(cell, str) else cell(number) for number in range(1, 49)]
    return table([[*row, value] for row, value in zip(rows(), cells, strict=True)], [*HEADER, name])


def edges(*lines: str) -> bytes:
    """A file of edges."""
    return "".join(f"{line}\n" for line in ("from,to", *lines)).encode()


@cache
def model() -> Files:
    """A model folder, fitted to the sales."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "sales.csv").write_bytes(table())
        done = typed("toporo fit sales.csv --target sold --group state --penalty 1 --out model", folder)
        if done.code:
            raise SystemExit(f"the model that cases rely on could not be fitted:\n{done.err}")
        return {name: content for name, content in done.files.items() if name.startswith("model/")}


def edited(**entries: object) -> Files:
    """The model folder with other entries in model.json, as after a careless edit."""
    content = json.loads(model()["model/model.json"]) | entries
    return {**model(), "model/model.json": json.dumps(content, indent=1).encode()}


def damaged(name: str, change: Callable[[bytes], bytes]) -> Files:
    """The model folder with one file's bytes changed."""
    return {**model(), f"model/{name}": change(model()[f"model/{name}"])}


# ---------------------------------------------------------------- cases


def fit_cases() -> list[Case]:
    """Mistakes with ``toporo fit``; the likely ones first."""
    plain = {"sales.csv": table(), "borders.csv": edges(*BORDERS)}
    usual = "--target sold --group state --out model"

    def case(title: str, command: str, names: str, sales: bytes | None = None, **more: object) -> Case:
        files = {**plain, **({} if sales is None else {"sales.csv": sales}), **more.pop("files", {})}  # type: ignore[dict-item]
        return Case(title, f"toporo fit {command}", names, files, **more)  # type: ignore[arg-type]

    return [
        case("The target column is misspelt", "sales.csv --target sould --group state --out model", "'sould'"),
        case("The group column has another name", "sales.csv --target sold --group State --out model", "'State'"),
        case("`--target` was forgotten", "sales.csv --group state --out model", "--target", code=MISTYPED),
        case("An option is misspelt", f"sales.csv {usual} --penality 1", "--penality", code=MISTYPED),
        case("The table is somewhere else", f"data/sales.csv {usual}", "data/sales.csv"),
        case("The table is a spreadsheet", f"sales.xlsx {usual}", ".xlsx", files={"sales.xlsx": b"PK\x03\x04"}),
        case("Semicolons stand between the cells", f"sales.csv {usual}", "';'", table(sign=";"), look=2),
        case("A cell holds a comma", f"sales.csv {usual}", "row 2", changed("price", "1,250", 2), look=3),
        case("The file is empty", f"sales.csv {usual}", "empty", b""),
        case("The file has a header and nothing else", f"sales.csv {usual}", "no rows", table([]), look=2),
        case("Two columns have the same name", f"sales.csv {usual}", "'price'", table(header=["state", "price", "price", "colour", "sold"]), look=2),
        case("The file is not in UTF-8", f"sales.csv {usual}", "UTF-8", changed("colour", "café", 3).decode().encode("latin-1")),
        case("A quote is not closed", f"sales.csv {usual}", "quote", changed("colour", '"red', 48)),
        case("A value is infinite", f"sales.csv {usual}", "'visits'", changed("visits", "inf", 5)),
        case("The ending says Parquet, the content does not", f"sales.parquet {usual}", "sales.parquet", files={"sales.parquet": table()}),
        case("The ending says CSV, the content does not", f"sales.csv {usual}", "sales.csv", b"PAR1\x15\x04\x15\x10PAR1"),
        case("The table arrives on standard input, but nothing arrives", f"- {usual} < /dev/null", "standard input"),
        case("Some rows have no target", f"sales.csv {usual}", "row 4", changed("sold", "", 4, 9)),
        case("Some rows have no group", f"sales.csv {usual}", "row 7", changed("state", "NA", 7)),
        case("A number to predict has a unit in one cell", f"sales.csv {usual} --task regression", "'sold'", changed("sold", "31 pcs", 2), look=3),
        case("The target is the same everywhere", f"sales.csv {usual}", "'sold'", changed("sold", "12")),
        case("There is only one class", f"sales.csv {usual}", "'yes'", changed("sold", "yes")),
        case("Names were taken for classes", f"sales.csv {usual}", "48 different values", changed("sold", lambda n: f"order {n:03}"), look=3),
        case("There is only one group", f"sales.csv {usual}", "'CA'", changed("state", "CA")),
        case("Every other column is constant", f"sales.csv {usual} --features price", "'price'", changed("price", "9.99")),
        case("Target and group are the same column", "sales.csv --target state --group state --out model", "'state'"),
        case("The target is named as a feature", f"sales.csv {usual} --features price,sold", "'sold'"),
        case("A feature is misspelt", f"sales.csv {usual} --features price,visit", "'visit'"),
        case("A list of names has a gap", f"sales.csv {usual} --features price,,visits", "price,,visits", code=MISTYPED),
        case("A group of the table is not in the graph", f"sales.csv {usual} --graph borders.csv", "'UT'", files={"borders.csv": edges(*(line for line in BORDERS if "UT" not in line))}),
        case("A test group is misspelt", f"sales.csv {usual} --graph borders.csv --test-groups UH", "'UH'"),
        case("A test group has no rows, and there is no graph", f"sales.csv {usual} --test-groups WY", "'WY'"),
        case("Every group is a test group", f"sales.csv {usual} --test-groups AZ,CA,ID,NV,OR,UT", "test group"),
        case("The file of test groups is not there", f"sales.csv {usual} --test-groups @south.txt", "south.txt"),
        case("The graph file is not there", f"sales.csv {usual} --graph border.csv", "border.csv"),
        case("A line of the graph file is broken", f"sales.csv {usual} --graph borders.csv", "line 4", files={"borders.csv": edges("AZ,CA", "AZ,NV", "UT", "CA,NV")}),
        case("A length in the graph file is no number", f"sales.csv {usual} --graph borders.csv", "'far'", files={"borders.csv": b"from,to,length\nAZ,CA,far\nCA,NV,1\n"}),
        case("A length in the graph file is negative", f"sales.csv {usual} --graph borders.csv", "-1", files={"borders.csv": b"from,to,length\nAZ,CA,1\nCA,NV,-1\n"}),
        case("The graph file is damaged JSON", f"sales.csv {usual} --graph graph.json", "graph.json", files={"graph.json": b'{"names": ["AZ", "CA"'}),
        case("A graph is given and another is to be learned", f"sales.csv {usual} --graph borders.csv --learn-graph", "graph"),
        case("A prior that needs a graph", f"sales.csv {usual} --prior betweenness", "betweenness"),
        case("The penalty is not a number", f"sales.csv {usual} --penalty strong", "'strong'", code=MISTYPED),
        case("The penalty is negative", f"sales.csv {usual} --penalty -1", "-1", code=MISTYPED),
        case("Penalty and distance are both given", f"sales.csv {usual} --penalty 1 --tau 0.1", "tau"),
        case("A method is misspelt", f"sales.csv {usual} --method dro", "'dro'", code=MISTYPED),
        case("A method that takes no penalty", f"sales.csv {usual} --method group-dro --penalty 1", "penalty"),
        case("A penalty cannot be chosen for a network", f"sales.csv {usual} --model mlp", "mlp"),
        case("A weight is negative", f"sales.csv {usual} --weight count", "-3", with_column("count", lambda n: "-3" if n == 2 else "1"), look=3),
        case("Weights are words", f"sales.csv {usual} --weight colour", "'colour'"),
        case("All weights are zero", f"sales.csv {usual} --weight count", "'count'", with_column("count", "0")),
        case("There is a model already", f"sales.csv {usual}", "model", files=model()),
        case("The folder for the model holds something else", "sales.csv --target sold --group state --out notes", "todo.txt", files={"notes/todo.txt": b"call Ida\n"}),
        case("The name of the model is that of a file", "sales.csv --target sold --group state --out sales.csv", "sales.csv"),
        case("The model cannot be written there", "sales.csv --target sold --group state --out sales.csv/model", "sales.csv"),
    ]  # fmt: skip


def predict_cases() -> list[Case]:
    """Mistakes with ``toporo predict``."""

    def case(title: str, command: str, names: str, new: bytes | None = None, **more: object) -> Case:
        files = {**more.pop("folder", model()), "new.csv": table() if new is None else new}  # type: ignore[dict-item]
        return Case(title, f"toporo predict {command}", names, {**files, **more.pop("files", {})}, **more)  # type: ignore[arg-type, dict-item]

    return [
        case("A column is missing", "model new.csv", "'visits'", without("visits")),
        case("Columns have other names", "model new.csv", "'price'", table(header=["State", "Price", "Visits", "Colour", "Sold"]), look=2),
        case("Text stands where a number was in training", "model new.csv", "'on sale'", changed("price", "on sale", 3), look=4),
        case("A number is written with a sign for thousands", "model new.csv", "1_200", changed("visits", "1_200", 3)),
        case("The model folder is not there", "modle new.csv", "modle"),
        case("The folder is not a model", "notes new.csv", "notes", files={"notes/todo.txt": b"call Ida\n"}),
        case("Model and table are swapped", "new.csv model", "new.csv"),
        case("A file of the model is given instead of the folder", "model/model.json new.csv", "model.json"),
        case("The table was forgotten", "model", "DATA", code=MISTYPED),
        case("The table is not there", "model nwe.csv", "nwe.csv"),
        case("The model was edited by hand", "model new.csv", "checksum", folder=edited(target="price")),
        case("The model's description is damaged", "model new.csv", "model.json", folder=damaged("model.json", lambda content: content[:200])),
        case("The model's weights are damaged", "model new.csv", "weights.safetensors", folder=damaged("weights.safetensors", lambda content: content[:-1] + b"?")),
        case("The model's weights are missing", "model new.csv", "weights.safetensors", folder={"model/model.json": model()["model/model.json"]}),
        case("The model is of a newer toporo", "model new.csv", "newer", folder=edited(schema="toporo.model/2", toporo="2.0.0")),
        case("The folder is a model of something else", "model new.csv", "model.json", folder={"model/model.json": b'{"format": "other"}'}),
        case("Semicolons stand between the cells", "model new.csv", "';'", table(sign=";")),
        case("A row is too short", "model new.csv", "row 3", table([*rows()[:2], ["AZ", "12", "110"]]), look=4),
        case("The file is empty", "model new.csv", "empty", b""),
        case("The file has a header and nothing else", "model new.csv", "no rows", table([])),
        case("Nothing arrives on standard input", "model - < /dev/null", "standard input"),
        case("A value is infinite", "model new.csv", "'visits'", changed("visits", "-inf", 2)),
        case("The file is not in UTF-8", "model new.csv", "UTF-8", changed("colour", "café", 3).decode().encode("latin-1")),
        case("The ending says Feather, the content does not", "model new.feather", "new.feather", files={"new.feather": table()}),
        case("A column to keep is not there", "model new.csv --keep order", "'order'"),
        case("A column to keep has a name that the output needs", "model new.csv --keep prediction", "'prediction'", table(header=[*HEADER[:4], "prediction"])),
        case("The output's ending is not known", "model new.csv --out predictions.xlsx", "predictions.xlsx"),
        case("The output would replace the table", "model new.csv --out new.csv", "new.csv"),
        case("The output's folder is not there", "model new.csv --out out/predictions.csv", "out"),
        case("JSON on standard output, and a file", "model new.csv --json --out predictions.csv", "--json", code=MISTYPED),
        case("The delimiter has two characters", "model new.csv --delimiter ::", "'::'", code=MISTYPED),
    ]  # fmt: skip


def evaluate_cases() -> list[Case]:
    """Mistakes with ``toporo evaluate``."""

    def case(title: str, command: str, names: str, new: bytes | None = None, code: int = MISTAKE) -> Case:
        files = {**model(), "new.csv": table() if new is None else new}
        return Case(title, f"toporo evaluate {command}", names, files, code)

    return [
        case("The table has no target to compare with", "model new.csv", "'sold'", without("sold")),
        case("No row has a target", "model new.csv", "'sold'", changed("sold", "")),
        case("The table has no groups", "model new.csv", "'state'", without("state")),
        case("A row has no group", "model new.csv", "row 5", changed("state", "", 5)),
        case("A target is text, in training it was a number", "model new.csv", "'many'", changed("sold", "many", 2)),
        case("A level in percent", "model new.csv --level 95", "95", code=MISTYPED),
        case("Too few resamples for an interval", "model new.csv --resamples 5", "5", code=MISTYPED),
        case("The output would replace the table", "model new.csv --out new.csv", "new.csv"),
    ]


def topology_cases() -> list[Case]:
    """Mistakes with ``toporo topology``."""

    def case(title: str, command: str, names: str, sales: bytes | None = None, code: int = MISTAKE, look: int = 0) -> Case:
        return Case(title, f"toporo topology {command}", names, {"sales.csv": table() if sales is None else sales}, code, look)

    return [
        case("The group column is misspelt", "sales.csv --group stat", "'stat'"),
        case("`--group` was forgotten", "sales.csv", "--group", code=MISTYPED),
        case("The table is not there", "sale.csv --group state", "sale.csv"),
        case("Tabs stand between the cells", "sales.csv --group state", "tab", table(sign="\t")),
        case("A feature holds words", "sales.csv --group state --features price,colour", "'red'"),
        case("A feature is misspelt", "sales.csv --group state --features prices", "'prices'"),
        case("No column holds numbers", "sales.csv --group state", "'colour'", table([[row[0], row[3]] for row in rows()], ["state", "colour"]), look=3),
        case("Values are missing", "sales.csv --group state", "'visits'", changed("visits", "", 3, 4)),
        case("A value is infinite", "sales.csv --group state", "'price'", changed("price", "inf", 6)),
        case("A row is too long", "sales.csv --group state", "line 3", table([rows()[0], [*rows()[1], "?"], *rows()[2:]]), look=3),
        case("There is only one group", "sales.csv --group state", "'CA'", changed("state", "CA")),
        case("All features are constant", "sales.csv --group state --features price", "'price'", changed("price", "9.99")),
        case("A test group is misspelt", "sales.csv --group state --test-groups UH", "'UH'"),
        case("Every group is a test group", "sales.csv --group state --test-groups AZ,CA,ID,NV,OR,UT", "test group"),
        case("A column is both used and excluded", "sales.csv --group state --features price --exclude price", "'price'"),
        case("There are fewer points than neighbours", "sales.csv --group state --kernel knn --neighbors 60", "60"),
        case("The picture's ending is not known", "sales.csv --group state --plot states.bmp", "states.bmp"),
        case("The graph's folder is not there", "sales.csv --group state --out graphs/states.json", "graphs"),
        case("Two outputs have the same name", "sales.csv --group state --out states.csv --distances states.csv", "states.csv"),
        case("A cut that does not exist", "sales.csv --group state --cut tree", "'tree'", code=MISTYPED),
        case("A width that is no width", "sales.csv --group state --sigma wide", "'wide'", code=MISTYPED),
        case("One resample says nothing", "sales.csv --group state --resamples 1", "1", code=MISTYPED),
        case("A size of memory that is none", "sales.csv --group state --memory-limit plenty", "'plenty'"),
        case("A device that does not exist", "sales.csv --group state --device gpu", "'gpu'"),
    ]  # fmt: skip


def doctor_cases() -> list[Case]:
    """Mistakes with ``toporo doctor``."""
    plain = {"sales.csv": table(), "borders.csv": edges(*BORDERS)}

    def case(title: str, command: str, names: str, sales: bytes | None = None, **more: object) -> Case:
        files = {**plain, **({} if sales is None else {"sales.csv": sales}), **more.pop("files", {})}  # type: ignore[dict-item]
        return Case(title, f"toporo doctor {command}", names, files, **more)  # type: ignore[arg-type]

    return [
        case("The group column is misspelt", "sales.csv --group sate", "'sate'"),
        case("`--group` was forgotten", "sales.csv --target sold", "--group", code=MISTYPED),
        case("The target column is not there", "sales.csv --group state --target revenue", "'revenue'"),
        case("The table is not there", "sale.csv --group state", "sale.csv"),
        case("The table is packed", "sales.csv.gz --group state", "sales.csv.gz", files={"sales.csv.gz": b"\x1f\x8b\x08\x00"}),
        case("Semicolons stand between the cells", "sales.csv --group state", "';'", table(sign=";")),
        case("The file is empty", "sales.csv --group state", "empty", b""),
        case("The file has a header and nothing else", "sales.csv --group state", "no rows", table([])),
        case("A row is too short", "sales.csv --group state", "row 2", table([rows()[0], rows()[1][:4], *rows()[2:]]), look=3),
        case("A value is infinite", "sales.csv --group state", "'price'", changed("price", "Infinity", 8)),
        case("The group column is empty", "sales.csv --group state", "'state'", changed("state", "")),
        case("Group and target are the same column", "sales.csv --group state --target state", "'state'"),
        case("A feature is misspelt", "sales.csv --group state --features price,visit", "'visit'"),
        case("Every group is a test group", "sales.csv --group state --test-groups AZ,CA,ID,NV,OR,UT", "test group"),
        case("The file of test groups is empty", "sales.csv --group state --test-groups @south.txt", "south.txt", files={"south.txt": b"\n"}, code=MISTYPED),
        case("The graph file is not there", "sales.csv --group state --graph border.csv", "border.csv"),
        case("A line of the graph file is broken", "sales.csv --group state --graph borders.csv", "line 3", files={"borders.csv": edges("AZ,CA", "NV", "CA,NV")}),
        case("The graph file is damaged JSON", "sales.csv --group state --graph graph.json", "graph.json", files={"graph.json": b"[1, 2"}),
        case("The page's ending is not known", "sales.csv --group state --out doctor.pdf", "doctor.pdf"),
        case("The picture's ending is not known", "sales.csv --group state --plot groups.gif", "groups.gif"),
        case("There is nothing to draw", "sales.csv --group state --plot groups.png", "groups.png", changed("state", "CA")),
        case("The task does not exist", "sales.csv --group state --target sold --task ranking", "'ranking'", code=MISTYPED),
    ]  # fmt: skip


def explain_cases() -> list[Case]:
    """Mistakes with ``toporo explain``."""
    return [
        Case("The model folder is not there", "toporo explain modle", "modle", model()),
        Case("The picture's ending is not known", "toporo explain model --plot weights.jpg", "weights.jpg", model()),
    ]


def report_cases() -> list[Case]:
    """Mistakes with ``toporo report``."""
    files = {**model(), "new.csv": table()}
    return [
        Case("The model folder is not there", "toporo report modle", "modle", files),
        Case("The table has no target", "toporo report model new.csv", "'sold'", {**files, "new.csv": without("sold")}),
        Case("The page would replace the table", "toporo report model new.csv --out new.csv", "new.csv", files),
        Case("The page would replace the model", "toporo report model --out model/model.json", "model.json", files),
    ]


def cases() -> tuple[Case, ...]:
    """All of them, by command."""
    parts = (
        fit_cases,
        predict_cases,
        evaluate_cases,
        topology_cases,
        doctor_cases,
        explain_cases,
        report_cases,
    )
    return tuple(case for part in parts for case in part())


# ---------------------------------------------------------------- running them


def typed(command: str, folder: Path) -> Seen:
    """Run a command in a folder as a shell would; ``< FILE`` at its end is standard input."""
    words = shlex.split(command)
    given = b""
    if "<" in words:
        words, source = words[: words.index("<")], words[words.index("<") + 1]
        given = Path(folder, source).read_bytes()
    out, err = io.StringIO(), io.StringIO()
    code = 0
    # Wide enough that a message stays on one line whoever runs this, and wherever.
    with (
        chdir(folder),
        patch.dict(os.environ, {"COLUMNS": "500", "TERMINAL_WIDTH": "500"}),
        patch.object(sys, "argv", words),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given))),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Seen(code, out.getvalue(), err.getvalue(), content(folder))


def content(folder: Path) -> Files:
    """Every file below a folder, hidden ones too, and every empty folder."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {name: path.read_bytes() if path.is_file() else b"" for name, path in found.items()}


def run(case: Case) -> str:
    """The message that a case ends with; anything but an orderly end is a ``ValueError`` that says what was seen."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        for name, data in case.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        before = content(folder)
        try:
            seen = typed(case.command, folder)
        except Exception as error:
            raise ValueError(f"{type(error).__name__} came through: {error}") from error
        message = plain(seen.err)
        problems = [
            problem
            for wrong, problem in (
                (seen.code != case.code, f"exit code {seen.code}, expected {case.code}"),
                (bool(seen.out), f"standard output holds {seen.out[:200]!r}"),
                ("Traceback" in seen.err, "a traceback"),
                (".py:" in seen.err or place in seen.err, "a path of this machine"),
                (case.names not in message, f"the message does not name {case.names!r}"),
                (seen.files != before, f"files differ: {sorted(set(seen.files.items()) ^ set(before.items()))!r:.200}"),
            )
            if wrong
        ]
    if problems:
        raise ValueError(f"{'; '.join(problems)}. Standard error:\n{seen.err.strip()}")
    return message


def plain(text: str) -> str:
    """A message without colours and frames; of a mistyped command only what is in the frame."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    framed = re.findall(r"^│ (.*) │$", text, flags=re.MULTILINE)
    return f"Error: {' '.join(line.strip() for line in framed)}" if framed else text.strip()


# ---------------------------------------------------------------- the page

INTRODUCTION = """\
<!-- Written by tools/errors_page.py, which runs every case. Do not edit: run `python tools/errors_page.py`. -->
# What can go wrong, and what toporo then says

Every message below was printed by the command above it: {count} mistakes, by command, the likely ones first. If you
came here with a message, search the page for a few words of it that are not your own names.

A message says what was found, what was expected and what to do next. It goes to standard error, as results go to
standard output, so that a pipe never carries one for the other. The exit code says who should act:

| exit code | meaning |
|---|---|
| 0 | All went well. Warnings (`toporo: warning: …`) may have been printed: legal, but probably not what was meant. |
| 1 | Something about the files, the columns, the groups or a setting is wrong; see the message. |
| 2 | The command was mistyped. The message stands in a frame below the usage; here the frame is left out. |
| 130 | You interrupted it (Ctrl-C). |

Nothing is half-written: after an error the folder holds what it held before, and a model or file of the same name is
still the old one. From Python the same messages come as exceptions, all of them kinds of `toporo.TopoRoError`.
Lines are folded here to {width} characters.

The files are small: `sales.csv` has sales in six states, `borders.csv` says which of them touch, and `model` was fitted
to the sales. What is known to be legal but risky about a table is no error: `toporo doctor` lists it.
"""


def page(messages: Mapping[Case, str]) -> str:
    """The whole page."""
    commands = list(dict.fromkeys(case.command.split()[1] for case in messages))
    parts = [INTRODUCTION.format(count=len(messages), width=WIDTH)]
    parts.append("Jump to " + ", ".join(f"[{name}](#toporo-{name})" for name in commands) + ".\n")
    for name in commands:
        parts.append(f"## toporo {name}\n")
        parts += [_entry(case, said) for case, said in messages.items() if case.command.split()[1] == name]
    return "\n".join(parts)


def _entry(case: Case, message: str) -> str:
    lines = [_folded(line) for line in message.splitlines()]
    if case.look:
        words = case.command.split()
        source = next(word for word in words[2:] if word in case.files)
        head = case.files[source].decode().splitlines()[: case.look]
        lines = [f"$ head -n {case.look} {source}", *head, f"$ {case.command}", *lines]
    else:
        lines = [f"$ {case.command}", *lines]
    return "\n".join([f"**{case.title}** (exit code {case.code})\n", "```console", *lines, "```\n"])


def _folded(line: str) -> str:
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)
