"""The mistakes that ``docs/errors.md`` shows: commands as typed, and the small files they are typed next to.

``errors_page.py`` runs them. A new case is one more entry below, under its command: what happened in a user's words,
the command, a few words that the message must hold to name what was found, and the files that differ from the usual.
"""

from __future__ import annotations

import gzip
import io
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import tifffile
import torch
from PIL import Image
from safetensors.torch import save

from toporo.bench.domainbed import SPECS
from toporo.tables import fit_table

#: Exit codes: something about the files or settings is wrong, or the command was mistyped.
MISTAKE, MISTYPED = 1, 2

Files = Mapping[str, bytes]
Row = list[str]


@dataclass(frozen=True, eq=False)
class Case:
    """One mistake.

    ``look`` is a command of the form ``head -n 3 FILE``, shown above to make the mistake visible.
    """

    title: str
    command: str
    names: str
    files: Files = field(default_factory=dict)
    code: int = MISTAKE
    look: str = ""


def beside(usual: Files, cases: Iterable[Case]) -> list[Case]:
    """The cases, each with the usual files unless it has its own of that name."""
    return [replace(case, files={**usual, **case.files}) for case in cases]


# ---------------------------------------------------------------- files

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
    """A CSV file: the sales, unless other lines are given."""
    return "".join(f"{sign.join(line)}\n" for line in [header, *(rows() if lines is None else lines)]).encode()


def changed(column: str, cell: str | Callable[[int], str], *places: int) -> bytes:
    """The sales with other cells in these rows, counted from 1; in all, if none is named."""
    lines = rows()
    for number in places or range(1, len(lines) + 1):
        lines[number - 1][HEADER.index(column)] = cell if isinstance(cell, str) else cell(number)
    return table(lines)


def without(*columns: str) -> bytes:
    """The sales less some columns."""
    kept = [place for place, name in enumerate(HEADER) if name not in columns]
    return table([[row[place] for place in kept] for row in rows()], [HEADER[place] for place in kept])


def counted(*counts: int) -> bytes:
    """The sales with one more column, ``count``, that repeats these numbers."""
    lines = [[*row, str(counts[number % len(counts)])] for number, row in enumerate(rows())]
    return table(lines, [*HEADER, "count"])


def latin1(text: bytes) -> bytes:
    """A text as an old spreadsheet program saves it."""
    return text.decode().encode("latin-1")


def edges(*lines: str, header: str = "from,to") -> bytes:
    """A file of edges."""
    return "".join(f"{line}\n" for line in (header, *lines)).encode()


@cache
def model(name: str = "model") -> Files:
    """A model folder, fitted to the sales; called kriged or mlp, it is."""
    others: dict[str, dict[str, object]] = {
        "kriged": {"model": "kriged", "graph": [line.split(",") for line in BORDERS]},
        "mlp": {"model": "mlp", "epochs": 1},
    }
    with TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* are in effect")  # the table is short, so that it can be read
        data, folder = Path(place, "sales.csv"), Path(place, "model")
        data.write_bytes(table())
        fit_table(data, target="sold", group="state", **others.get(name, {"penalty": 1.0})).save(folder)
        return {f"{name}/{path.name}": path.read_bytes() for path in folder.iterdir()}


def edited(**entries: object) -> Files:
    """``model.json`` with other entries, as after a careless edit."""
    content = json.loads(model()["model/model.json"]) | entries
    return {"model/model.json": json.dumps(content, indent=1).encode()}


def picture(seed: int) -> bytes:
    """A PNG file of coloured noise."""
    made = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(made, "PNG")
    return made.getvalue()


@cache
def pictures() -> Files:
    """PACS, were it tiny: four domains, two classes, a picture each."""
    return {
        f"data/PACS/{domain}/{label}/pic_001.png": picture(place)
        for domain in SPECS["pacs"].domains
        for place, label in enumerate(("dog", "horse"))
    }


def tiff(pixels: np.ndarray) -> bytes:
    """A TIFF file of one channel or several."""
    made = io.BytesIO()
    tifffile.imwrite(made, pixels, compression="lzw", photometric="minisblack", metadata=None)
    return made.getvalue()


FLOODS = "data/sen1floods11/v1.1"
CHIPS = {"Ghana_1": "train", "India_1": "train", "Spain_1": "test", "Bolivia_1": "bolivia"}


def image_of(chip: str) -> str:
    """Where a chip's image is."""
    return f"{FLOODS}/data/flood_events/HandLabeled/S1Hand/{chip}_S1Hand.tif"


def label_of(chip: str) -> str:
    """Where a chip's label is."""
    return f"{FLOODS}/data/flood_events/HandLabeled/LabelHand/{chip}_LabelHand.tif"


def radar(channels: int = 2, side: int = 16) -> np.ndarray:
    """Decibels: dark water on the left, bright land on the right."""
    image = np.full((channels, side, side), -9.0, dtype=np.float32)
    image[..., : side // 2] = -20.0
    return image


def water(side: int = 16) -> np.ndarray:
    """Labels: 1 on the left, 0 on the right."""
    return np.repeat(np.arange(side)[None] < side // 2, side, axis=0).astype(np.int16)


@cache
def floods() -> Files:
    """Sen1Floods11's bucket, were it tiny: four chips and the lists."""
    lists = {
        f"{FLOODS}/splits/flood_handlabeled/flood_{role}_data.csv": "".join(
            f"{chip}_S1Hand.tif,{chip}_LabelHand.tif\n" for chip, used in CHIPS.items() if used == role
        ).encode()
        for role in ("train", "valid", "test", "bolivia")
    }
    chips = {image_of(chip): tiff(radar()) for chip in CHIPS} | {label_of(chip): tiff(water()) for chip in CHIPS}
    return {**lists, **chips}


def weights(*names: str) -> bytes:
    """A safetensors file with tensors of these names."""
    return save({name: torch.zeros(1) for name in names})


def resnet18() -> bytes:
    """A file with the names, if not the shapes, of a ResNet-18."""
    blocks = [f"layer{layer}.{block}.conv{number}" for layer in (1, 2, 3, 4) for block in (0, 1) for number in (1, 2)]
    return weights("conv1.weight", *(f"{block}.weight" for block in blocks))


def pickled() -> bytes:
    """What torch.save writes."""
    made = io.BytesIO()
    torch.save({"conv1.weight": torch.zeros(1)}, made)
    return made.getvalue()


# ---------------------------------------------------------------- cases, the likely ones first

FIT = "toporo fit sales.csv --target sold --group state --out model"
PREDICT = "toporo predict model new.csv"
EVALUATE = "toporo evaluate model new.csv"
COMPARE = "toporo compare sales.csv --target sold --group state --fast"
TOPOLOGY = "toporo topology sales.csv --group state"
DOCTOR = "toporo doctor sales.csv --group state"
PACS = "toporo reproduce pacs --data data --device cpu --steps 2 --size 16"
SEN1FLOODS11 = "toporo reproduce sen1floods11 --data data --device cpu --network unet --steps 2 --size 16"
ALL = ",".join(STATES)


def fit_cases() -> list[Case]:
    """Mistakes with ``toporo fit``: in the command, the table, the columns, the groups and their graph, the output."""
    return beside(
        {"sales.csv": table(), "borders.csv": edges(*BORDERS)},
        [
            Case(
                "The target column is misspelt",
                "toporo fit sales.csv --target sould --group state --out model",
                "'sould'",
            ),
            Case(
                "The group column is spelt otherwise",
                "toporo fit sales.csv --target sold --group State --out model",
                "'State'",
            ),
            Case(
                "`--target` was forgotten", "toporo fit sales.csv --group state --out model", "--target", code=MISTYPED
            ),
            Case("An option is misspelt", f"{FIT} --penality 1", "--penality", code=MISTYPED),
            Case("The table is somewhere else", FIT.replace("sales", "data/sales"), "data/sales.csv"),
            Case("The table is a spreadsheet", FIT.replace("csv", "xlsx"), ".xlsx", {"sales.xlsx": b"PK\x03\x04"}),
            Case(
                "Semicolons stand between the cells",
                FIT,
                "';'",
                {"sales.csv": table(sign=";")},
                look="head -n 2 sales.csv",
            ),
            Case(
                "A cell holds a comma",
                FIT,
                "row 2",
                {"sales.csv": changed("price", "1,250", 2)},
                look="head -n 3 sales.csv",
            ),
            Case("The file is empty", FIT, "empty", {"sales.csv": b""}),
            Case("The file has a header and nothing else", FIT, "no rows", {"sales.csv": table([])}),
            Case(
                "Two columns have the same name",
                FIT,
                "'price'",
                {"sales.csv": table(header=["state", "price", "price", "colour", "sold"])},
                look="head -n 2 sales.csv",
            ),
            Case("The file is not in UTF-8", FIT, "UTF-8", {"sales.csv": latin1(changed("colour", "café", 3))}),
            Case("A value is infinite", FIT, "row 5, column 'visits'", {"sales.csv": changed("visits", "inf", 5)}),
            Case(
                "The name says Parquet, the content does not",
                FIT.replace("csv", "parquet"),
                "sales.parquet",
                {"sales.parquet": table()},
            ),
            Case(
                "The name says CSV, the content does not",
                FIT,
                "sales.csv is a Parquet file",
                {"sales.csv": b"PAR1\x15\x04\x15\x10PAR1"},
            ),
            Case(
                "The table was to come on standard input, and nothing came",
                f"{FIT.replace('sales.csv', '-')} < nothing.csv",
                "standard input",
                {"nothing.csv": b""},
            ),
            Case("The folder of the table holds other files too", FIT.replace("sales.csv", "."), "other columns"),
            Case("Some rows have no target", FIT, "row 4", {"sales.csv": changed("sold", "", 4, 9)}),
            Case("A row has no group", FIT, "row 7", {"sales.csv": changed("state", "", 7)}),
            Case(
                "A number to predict has a unit in one cell",
                f"{FIT} --task regression",
                "'sold'",
                {"sales.csv": changed("sold", "31 pcs", 2)},
                look="head -n 3 sales.csv",
            ),
            Case("The target is the same in every row", FIT, "'12'", {"sales.csv": changed("sold", "12")}),
            Case("There is only one class", FIT, "'yes'", {"sales.csv": changed("sold", "yes")}),
            Case(
                "The target is a name, different in every row",
                FIT,
                "48 different values",
                {"sales.csv": changed("sold", lambda number: f"order {number:03}")},
                look="head -n 3 sales.csv",
            ),
            Case(
                "The only feature is constant",
                f"{FIT} --features price",
                "'price'",
                {"sales.csv": changed("price", "9.99")},
            ),
            Case(
                "Target and group are the same column",
                "toporo fit sales.csv --target state --group state --out model",
                "'state'",
            ),
            Case("The target is named as a feature", f"{FIT} --features price,sold", "'sold'"),
            Case("A feature is misspelt", f"{FIT} --features price,visit", "'visit'"),
            Case("A column to leave out is misspelt", f"{FIT} --exclude color", "'color'"),
            Case("A list of names has a gap", f"{FIT} --features price,,visits", "'price,,visits'", code=MISTYPED),
            Case(
                "A weight is negative",
                f"{FIT} --weight count",
                "-3",
                {"sales.csv": counted(2, -3)},
                look="head -n 3 sales.csv",
            ),
            Case("Weights are words", f"{FIT} --weight colour", "'colour'"),
            Case("All weights are zero", f"{FIT} --weight count", "zero", {"sales.csv": counted(0)}),
            Case(
                "A group of the table is not in the graph",
                f"{FIT} --graph borders.csv",
                "'UT'",
                {"borders.csv": edges(*(line for line in BORDERS if "UT" not in line))},
            ),
            Case("A test group is misspelt", f"{FIT} --graph borders.csv --test-groups Ut", "'Ut'"),
            Case("A test group has no rows, and there is no graph", f"{FIT} --test-groups WY", "'WY'"),
            Case("Every group is a test group", f"{FIT} --test-groups {ALL}", "test group"),
            Case("The file of test groups is not there", f"{FIT} --test-groups @south.txt", "south.txt"),
            Case("The graph file is not there", f"{FIT} --graph border.csv", "border.csv"),
            Case(
                "A line of the graph file is broken",
                f"{FIT} --graph borders.csv",
                "line 3",
                {"borders.csv": edges("AZ,CA", "NV;UT", "CA,NV")},
                look="head -n 3 borders.csv",
            ),
            Case(
                "A length in the graph file is not a number",
                f"{FIT} --graph borders.csv",
                "'far'",
                {"borders.csv": edges("AZ,CA,far", "CA,NV,1", header="from,to,length")},
                look="head -n 2 borders.csv",
            ),
            Case(
                "A length in the graph file is negative",
                f"{FIT} --graph borders.csv",
                "-1",
                {"borders.csv": edges("AZ,CA,-1", "CA,NV,1", header="from,to,length")},
            ),
            Case(
                "Two lengths for one border",
                f"{FIT} --graph borders.csv",
                "'CA'–'AZ'",
                {"borders.csv": edges("AZ,CA,1", "CA,AZ,2", header="from,to,length")},
            ),
            Case("The table is given as the graph", f"{FIT} --graph sales.csv", "'visits'"),
            Case("The graph file is a spreadsheet", f"{FIT} --graph borders.xlsx", "borders.xlsx"),
            Case("The graph file is damaged", f"{FIT} --graph map.json", "map.json", {"map.json": b'{"nodes": ["AZ"'}),
            Case(
                "The graph file is JSON of something else",
                f"{FIT} --graph map.json",
                "map.json",
                {"map.json": b'{"AZ": ["CA", "NV"]}'},
            ),
            Case("A graph is given, and one is to be learned", f"{FIT} --graph borders.csv --learn-graph", "graph"),
            Case(
                "Coordinates in the wrong order",
                f"{FIT} --graph borders.csv --coordinates places.csv",
                "-111.7",
                {"places.csv": b"state,lat,lon\nAZ,-111.7,34.3\nCA,-119.5,37.2\n"},
                look="head -n 2 places.csv",
            ),
            Case(
                "Coordinates in columns of other names",
                f"{FIT} --graph borders.csv --coordinates places.csv",
                "'north'",
                {"places.csv": b"state,north,east\nAZ,34.3,-111.7\n"},
            ),
            Case(
                "Coordinates, and no graph to draw",
                f"{FIT} --coordinates places.csv",
                "--graph",
                {"places.csv": b"state,lat,lon\nAZ,34.3,-111.7\n"},
            ),
            Case("A prior from a graph, and no graph", f"{FIT} --prior betweenness", "betweenness"),
            Case(
                "A prior from test groups, and no test groups",
                f"{FIT} --graph borders.csv --prior harmonic",
                "harmonic",
            ),
            Case("The penalty is not a number", f"{FIT} --penalty strong", "'strong'", code=MISTYPED),
            Case("The penalty is negative", f"{FIT} --penalty -1", "'-1'", code=MISTYPED),
            Case("A penalty and a distance, which is the same twice", f"{FIT} --penalty 5 --radius 0.1", "radius"),
            Case("A method that does not exist", f"{FIT} --method dro", "'dro'", code=MISTYPED),
            Case("A penalty for a method without one", f"{FIT} --method group-dro --penalty 5", "penalty"),
            Case("A distance for a model without one", f"{FIT} --model kriged --radius 5", "radius"),
            Case("A penalty for models by votes", f"{FIT} --model auto --penalty 5", "penalty"),
            Case("A time that is none", f"{FIT} --budget soon", "'soon'", code=MISTYPED),
            Case("A time limit for the linear model", f"{FIT} --fast --budget 2min", "--budget", code=MISTYPED),
            Case("There is a model of this name", FIT, "model", model()),
            Case(
                "The folder for the model holds something else",
                FIT.replace("model", "notes"),
                "todo.txt",
                {"notes/todo.txt": b"call Ida\n"},
            ),
            Case("The model is to have the name of a file", FIT.replace("model", "borders.csv"), "borders.csv"),
        ],
    )


def predict_cases() -> list[Case]:
    """Mistakes with ``toporo predict``: in the table, the model, the output."""
    return beside(
        {**model(), "new.csv": table()},
        [
            Case("A column is missing", PREDICT, "'visits'", {"new.csv": without("visits")}),
            Case(
                "The columns are spelt otherwise",
                PREDICT,
                "'price'",
                {"new.csv": table(header=[name.title() for name in HEADER])},
                look="head -n 2 new.csv",
            ),
            Case(
                "Text stands where training had a number",
                PREDICT,
                "row 3, column 'price': 'on sale'",
                {"new.csv": changed("price", "on sale", 3)},
                look="head -n 4 new.csv",
            ),
            Case(
                "The files of a folder differ in format",
                "toporo predict model new",
                "several formats",
                {"new/may.csv": table(), "new/june.feather": b"ARROW1"},
            ),
            Case(
                "A file of a folder has other columns",
                "toporo predict model new",
                "new/june.csv has other columns",
                {"new/june.csv": without("visits"), "new/april.csv": table()},
            ),
            Case("No file has such a name", "toporo predict model 'new/*.parquet'", "matches no file"),
            Case(
                "An address holds a secret", "toporo predict model s3://me:secret@sales/new", "holds a user or a secret"
            ),
            Case("An address is of no object store", "toporo predict model https://example.org/new.csv", "https://ex"),
            Case("A size that is none", f"{PREDICT} --memory-limit two", "'two'", code=MISTYPED),
            Case("An engine that is none", f"{PREDICT} --engine spark", "'spark'"),
            Case("The model folder is not there", "toporo predict modle new.csv", "modle"),
            Case(
                "The folder is not a model", "toporo predict notes new.csv", "notes", {"notes/todo.txt": b"call Ida\n"}
            ),
            Case("Model and table are swapped", "toporo predict new.csv model", "new.csv"),
            Case(
                "A file of the model is given, not the folder",
                "toporo predict model/model.json new.csv",
                "model/model.json",
            ),
            Case("The table was forgotten", "toporo predict model", "DATA", code=MISTYPED),
            Case("The table is not there", "toporo predict model nwe.csv", "nwe.csv"),
            Case("The model was edited by hand", PREDICT, "model/model.json", edited(target="price")),
            Case(
                "The model's description is cut off",
                PREDICT,
                "model/model.json",
                {"model/model.json": model()["model/model.json"][:200]},
            ),
            Case(
                "The model's weights are damaged",
                PREDICT,
                "model/weights.safetensors",
                {"model/weights.safetensors": model()["model/weights.safetensors"][:-8] + b"\0\0\0\0\0\0\0\0"},
            ),
            Case(
                "The model's weights were not copied",
                "toporo predict copy new.csv",
                "weights.safetensors",
                {"copy/model.json": model()["model/model.json"]},
            ),
            Case("The model is of a newer toporo", PREDICT, "2.0.0", edited(schema="toporo.model/2", toporo="2.0.0")),
            Case(
                "The model is of another program",
                "toporo predict other new.csv",
                "other/model.json",
                {"other/model.json": b'{"format": "other"}'},
            ),
            Case("Semicolons stand between the cells", PREDICT, "';'", {"new.csv": table(sign=";")}),
            Case(
                "A row is too short",
                PREDICT,
                "row 3",
                {"new.csv": table([*rows()[:2], rows()[2][:3], *rows()[3:]])},
                look="head -n 4 new.csv",
            ),
            Case("The file is empty", PREDICT, "empty", {"new.csv": b""}),
            Case("The file has a header and nothing else", PREDICT, "no rows", {"new.csv": table([])}),
            Case(
                "Nothing comes on standard input",
                "toporo predict model - < nothing.csv",
                "standard input",
                {"nothing.csv": b""},
            ),
            Case("A value is infinite", PREDICT, "row 2, column 'visits'", {"new.csv": changed("visits", "-inf", 2)}),
            Case("A number is written as in a program", PREDICT, "'1_200'", {"new.csv": changed("visits", "1_200", 3)}),
            Case("The file is not in UTF-8", PREDICT, "UTF-8", {"new.csv": latin1(changed("colour", "café", 3))}),
            Case(
                "The name says Parquet, the content does not",
                "toporo predict model new.parquet",
                "new.parquet",
                {"new.parquet": table()},
            ),
            Case("A column to keep is not there", f"{PREDICT} --keep order", "'order'"),
            Case(
                "A column to keep has a name that the output needs",
                f"{PREDICT} --keep prediction",
                "'prediction'",
                {"new.csv": table(header=[*HEADER[:-1], "prediction"])},
            ),
            Case(
                "A kriged model is not told the groups",
                "toporo predict kriged new.csv",
                "'state'",
                {**model("kriged"), "new.csv": without("state")},
            ),
            Case(
                "A kriged model's graph lacks a group",
                "toporo predict kriged new.csv",
                "'WY'",
                {**model("kriged"), "new.csv": changed("state", "WY", 3)},
            ),
            Case(
                "A neighbour of such a group is not in the graph either",
                "toporo predict kriged new.csv --neighbors WY=MT",
                "'MT'",
                {**model("kriged"), "new.csv": changed("state", "WY", 3)},
            ),
            Case(
                "A network without intervals is asked for them",
                "toporo predict mlp new.csv --interval 0.9",
                "--intervals",
                model("mlp"),
            ),
            Case("The output's ending is not known", f"{PREDICT} --out sold.xlsx", "sold.xlsx"),
            Case("The output would replace the table", f"{PREDICT} --out new.csv", "new.csv"),
            Case("The output's folder is not there", f"{PREDICT} --out out/sold.csv", "no folder out"),
            Case("Two outputs at once", f"{PREDICT} --json --out sold.csv", "--json", code=MISTYPED),
            Case("The delimiter has two characters", f"{PREDICT} --delimiter ::", "'::'", code=MISTYPED),
        ],
    )


def evaluate_cases() -> list[Case]:
    """Mistakes with ``toporo evaluate``."""
    return beside(
        {**model(), "new.csv": table()},
        [
            Case("The table has no target to compare with", EVALUATE, "'sold'", {"new.csv": without("sold")}),
            Case("No row has a target", EVALUATE, "'sold'", {"new.csv": changed("sold", "")}),
            Case("The table has no groups", EVALUATE, "'state'", {"new.csv": without("state")}),
            Case("A row has no group", EVALUATE, "row 5", {"new.csv": changed("state", "", 5)}),
            Case("A target is text and was a number", EVALUATE, "'many'", {"new.csv": changed("sold", "many", 2)}),
            Case("The level is in percent", f"{EVALUATE} --level 95", "--level", code=MISTYPED),
            Case("The output would replace the table", f"{EVALUATE} --out new.csv", "new.csv"),
        ],
    )


def compare_cases() -> list[Case]:
    """Mistakes with ``toporo compare``: the groups, and estimators of one's own."""
    own = f"{COMPARE} --against-estimator"
    west = changed("state", lambda number: "CA" if number % 2 else "NV")
    return beside(
        {"sales.csv": table()},
        [
            Case("There are two groups", COMPARE, "'CA', 'NV'", {"sales.csv": west}),
            Case("An estimator without a colon", f"{own} forest", "'forest'", code=MISTYPED),
            Case("The module of an estimator is not there", f"{own} my_models:forest", "'my_models'"),
            Case("The module has no such name", f"{own} sklearn.linear_model:Rigde", "'Rigde'"),
            Case("What it names is no estimator", f"{own} math:pi", "float"),
            Case("What it names cannot be called without arguments", f"{own} json:dumps", "json:dumps"),
            Case("A single region", f"{COMPARE} --folds 1", "--folds", code=MISTYPED),
            Case("A budget that is no time", f"{COMPARE} --budget soon", "'soon'", code=MISTYPED),
            Case("The page's ending is not known", f"{COMPARE} --out page.pdf", "page.pdf"),
        ],
    )


def topology_cases() -> list[Case]:
    """Mistakes with ``toporo topology``: in the command, the table, the groups, the settings."""
    return beside(
        {"sales.csv": table()},
        [
            Case("The group column is misspelt", "toporo topology sales.csv --group stat", "'stat'"),
            Case("`--group` was forgotten", "toporo topology sales.csv", "--group", code=MISTYPED),
            Case("The table is not there", "toporo topology sale.csv --group state", "sale.csv"),
            Case("Tabs stand between the cells", TOPOLOGY, "--delimiter tab", {"sales.csv": table(sign="\t")}),
            Case("A feature is misspelt", f"{TOPOLOGY} --features prices", "'prices'"),
            Case("There is no column but the group", TOPOLOGY, "feature", {"sales.csv": without(*HEADER[1:])}),
            Case("Rows have no group", TOPOLOGY, "'state'", {"sales.csv": changed("state", "", 3, 4)}),
            Case("A value is infinite", TOPOLOGY, "column 'price'", {"sales.csv": changed("price", "inf", 6)}),
            Case(
                "A row is too long",
                TOPOLOGY,
                "row 2",
                {"sales.csv": table([rows()[0], [*rows()[1], "?"], *rows()[2:]])},
                look="head -n 3 sales.csv",
            ),
            Case("A quote is not closed", TOPOLOGY, "not closed", {"sales.csv": changed("colour", '"red', 10)}),
            Case("There is only one group", TOPOLOGY, "'CA'", {"sales.csv": changed("state", "CA")}),
            Case(
                "The only feature is constant",
                f"{TOPOLOGY} --features price",
                "'price'",
                {"sales.csv": changed("price", "9.99")},
            ),
            Case("A test group is misspelt", f"{TOPOLOGY} --test-groups Ut", "'Ut'"),
            Case("The file of test groups is not there", f"{TOPOLOGY} --test-groups @west.txt", "west.txt"),
            Case("Every group is a test group", f"{TOPOLOGY} --test-groups {ALL}", "test group"),
            Case("A column is used and left out", f"{TOPOLOGY} --features price --exclude price", "'price'"),
            Case("There are fewer rows than neighbours", f"{TOPOLOGY} --kernel knn --neighbors 60", "60"),
            Case("The picture's ending is not known", f"{TOPOLOGY} --plot states.bmp", "states.bmp"),
            Case("The graph's folder is not there", f"{TOPOLOGY} --out graphs/states.json", "no folder graphs"),
            Case("Two outputs have the same name", f"{TOPOLOGY} --out a.csv --distances a.csv", "a.csv"),
            Case("A cut that does not exist", f"{TOPOLOGY} --cut tree", "'tree'", code=MISTYPED),
            Case("A width that is none", f"{TOPOLOGY} --sigma wide", "'wide'", code=MISTYPED),
            Case("A single resample", f"{TOPOLOGY} --resamples 1", "1 says nothing", code=MISTYPED),
            Case("A size of memory that is none", f"{TOPOLOGY} --memory-limit plenty", "'plenty'"),
            Case("A device that does not exist", f"{TOPOLOGY} --device gpu", "'gpu'"),
        ],
    )


def doctor_cases() -> list[Case]:
    """Mistakes with ``toporo doctor``: in the command, the table, the groups and their graph, the output."""
    return beside(
        {"sales.csv": table(), "borders.csv": edges(*BORDERS)},
        [
            Case("The group column is misspelt", "toporo doctor sales.csv --group sate", "'sate'"),
            Case("`--group` was forgotten", "toporo doctor sales.csv --target sold", "--group", code=MISTYPED),
            Case("The target column is not there", f"{DOCTOR} --target revenue", "'revenue'"),
            Case("The table is not there", "toporo doctor sale.csv --group state", "sale.csv"),
            Case(
                "The packed table is cut short",
                "toporo doctor sales.csv.gz --group state",
                "sales.csv.gz",
                {"sales.csv.gz": gzip.compress(table(), mtime=0)[:-40]},
            ),
            Case(
                "The table is packed, but its name does not say so",
                DOCTOR,
                ".csv.gz",
                {"sales.csv": gzip.compress(table(), mtime=0)},
            ),
            Case(
                "The name says packed, the content does not",
                "toporo doctor sales.csv.gz --group state",
                "sales.csv.gz",
                {"sales.csv.gz": table()},
            ),
            Case("Semicolons stand between the cells", DOCTOR, "';'", {"sales.csv": table(sign=";")}),
            Case("The file is empty", DOCTOR, "empty", {"sales.csv": b""}),
            Case("The file has a header and nothing else", DOCTOR, "no rows", {"sales.csv": table([])}),
            Case(
                "A row is too short",
                DOCTOR,
                "row 2",
                {"sales.csv": table([rows()[0], rows()[1][:4], *rows()[2:]])},
                look="head -n 3 sales.csv",
            ),
            Case(
                "A value is infinite", DOCTOR, "row 8, column 'price'", {"sales.csv": changed("price", "Infinity", 8)}
            ),
            Case("The group column is empty", DOCTOR, "'state'", {"sales.csv": changed("state", "")}),
            Case("Group and target are the same column", f"{DOCTOR} --target state", "'state'"),
            Case("A feature is misspelt", f"{DOCTOR} --features price,visit", "'visit'"),
            Case("Every group is a test group", f"{DOCTOR} --test-groups {ALL}", "test group"),
            Case(
                "The file of test groups is empty",
                f"{DOCTOR} --test-groups @south.txt",
                "south.txt",
                {"south.txt": b"\n"},
                code=MISTYPED,
            ),
            Case("The graph file is not there", f"{DOCTOR} --graph border.csv", "border.csv"),
            Case(
                "A line of the graph file is broken",
                f"{DOCTOR} --graph borders.csv",
                "line 3",
                {"borders.csv": edges("AZ,CA", "NV;UT", "CA,NV")},
            ),
            Case(
                "A group borders on itself",
                f"{DOCTOR} --graph borders.csv",
                "'AZ'",
                {"borders.csv": edges("AZ,AZ", "CA,NV")},
            ),
            Case("The graph file is empty", f"{DOCTOR} --graph borders.csv", "borders.csv", {"borders.csv": b""}),
            Case("The graph file is damaged", f"{DOCTOR} --graph map.json", "map.json", {"map.json": b"[1, 2"}),
            Case("The page's ending is not known", f"{DOCTOR} --out doctor.pdf", "doctor.pdf"),
            Case("The picture's ending is not known", f"{DOCTOR} --plot groups.gif", "groups.gif"),
            Case(
                "There is nothing to draw",
                f"{DOCTOR} --plot groups.png",
                "groups.png",
                {"sales.csv": changed("state", "CA")},
            ),
            Case("A task that does not exist", f"{DOCTOR} --target sold --task rank", "'rank'", code=MISTYPED),
        ],
    )


def explain_cases() -> list[Case]:
    """Mistakes with ``toporo explain``."""
    return beside(
        model(),
        [
            Case("The model folder is not there", "toporo explain modle", "modle"),
            Case("The picture's ending is not known", "toporo explain model --plot weights.jpg", "weights.jpg"),
        ],
    )


def report_cases() -> list[Case]:
    """Mistakes with ``toporo report``."""
    return beside(
        {**model(), "new.csv": table()},
        [
            Case("The model folder is not there", "toporo report modle", "modle"),
            Case("The table has no target", "toporo report model new.csv", "'sold'", {"new.csv": without("sold")}),
            Case(
                "There is nothing to compare two models by",
                "toporo report model --against model",
                "--against",
                code=MISTYPED,
            ),
            Case("The page would replace the table", "toporo report model new.csv --out new.csv", "new.csv"),
            Case("The page would replace the model", "toporo report model --out model/model.json", "model/model.json"),
        ],
    )


def reproduce_cases() -> list[Case]:
    """Mistakes with ``toporo reproduce`` on images: in the folders, the files, the weights, the command."""
    dog = "data/PACS/photo/dog/pic_001.png"
    images = [
        Case("The data folder is not there", PACS.replace("--data data", "--data date"), "date"),
        Case("The data set is not in the data folder", PACS.replace("pacs", "vlcs"), "VLCS/"),
        Case(
            "A domain's folder is missing",
            PACS,
            "'sketch'",
            {name: data for name, data in pictures().items() if "sketch" not in name},
        ),
        Case("A picture is cut off", PACS, dog, {dog: pictures()[dog][:400]}),
        Case(
            "A file has a picture's name, and is none",
            PACS,
            dog,
            {dog: b"<html>404 Not Found</html>"},
            look=f"head -n 1 {dog}",
        ),
        Case(
            "A class folder is empty",
            PACS,
            "data/PACS/cartoon/horse",
            {
                **{name: data for name, data in pictures().items() if "cartoon/horse" not in name},
                "data/PACS/cartoon/horse/list.txt": b"horse\n",
            },
        ),
        Case(
            "A class is in one domain only",
            PACS,
            "'hrose' (in 'photo')",
            {**pictures(), "data/PACS/photo/hrose/pic_001.png": picture(2)},
        ),
        Case("A test domain is misspelt", f"{PACS} --test photos", "'photos'"),
        Case("A method is misspelt", f"{PACS} --methods erm,tro", "'tro'"),
        Case("There is no GPU", PACS.replace("--device cpu", "--device cuda"), "no GPU"),
        Case("A network for tiles", f"{PACS} --network unet", "unet"),
        Case("The weights are not there", f"{PACS} --weights resnet50.safetensors", "resnet50.safetensors"),
        Case(
            "The weights are of a smaller network",
            f"{PACS} --weights resnet18.safetensors",
            "ResNet-18",
            {"resnet18.safetensors": resnet18()},
        ),
        Case(
            "The weights are of a network of another kind",
            f"{PACS} --weights vit.safetensors",
            "not a ResNet",
            {"vit.safetensors": weights("blocks.0.attn.qkv.weight", "cls_token")},
        ),
        Case(
            "The weights are cut off",
            f"{PACS} --weights resnet18.safetensors",
            "truncated",
            {"resnet18.safetensors": resnet18()[:-8]},
        ),
        Case(
            "The weights are a pickle",
            f"{PACS} --weights resnet50.pth",
            "resnet50.pth is a pickle",
            {"resnet50.pth": pickled()},
        ),
        Case("A style, and no weights", f"{PACS} --weights-style caffe", "'caffe'"),
        Case("Pictures too small to see", PACS.replace("--size 16", "--size 4"), "--size", code=MISTYPED),
        Case("A benchmark without images is to have a GPU", "toporo reproduce dg15 --device cuda", "dg15"),
    ]
    radar_images = [
        Case(
            "A label has another size than its image",
            SEN1FLOODS11,
            "India_1_LabelHand.tif",
            {label_of("India_1"): tiff(water(32))},
        ),
        Case(
            "A chip has a channel too many",
            SEN1FLOODS11,
            "India_1_S1Hand.tif",
            {image_of("India_1"): tiff(radar(channels=3))},
        ),
        Case(
            "A chip is cut off",
            SEN1FLOODS11,
            "Ghana_1_S1Hand.tif",
            {image_of("Ghana_1"): floods()[image_of("Ghana_1")][:90]},
        ),
        Case(
            "A label has numbers of its own",
            SEN1FLOODS11,
            "Ghana_1_LabelHand.tif",
            {label_of("Ghana_1"): tiff(255 * water())},
        ),
        Case(
            "The only chip of the test event has no measurement",
            f"{SEN1FLOODS11} --test Spain",
            "Spain_1: no measurement",
            {image_of("Spain_1"): tiff(np.full_like(radar(), np.nan))},
        ),
        Case("There are too few tiles of the events to train on", f"{SEN1FLOODS11} --test Bolivia", "Ghana (1)"),
        Case("A test event is misspelt", f"{SEN1FLOODS11} --test Bolivie", "'Bolivie'"),
        Case("Tiles that do not fit into the chips", SEN1FLOODS11.replace("--size 16", "--size 12"), "tile=12"),
        Case(
            "A list is missing",
            SEN1FLOODS11,
            "flood_valid_data.csv",
            {name: data for name, data in floods().items() if "valid" not in name},
        ),
        Case("Weights, where there are none to have", f"{SEN1FLOODS11} --weights timm:resnet50", "timm:resnet50"),
    ]
    return [*_in(pictures(), images), *_in(floods(), radar_images)]


def _in(usual: Files, cases: Iterable[Case]) -> list[Case]:
    """As :func:`beside`, but a case with the first of the usual files has all that it wants."""
    first = next(iter(usual))
    return [case if first in case.files else replace(case, files={**usual, **case.files}) for case in cases]


@cache
def all_cases() -> tuple[Case, ...]:
    """All of them, by command."""
    parts = (
        fit_cases,
        predict_cases,
        evaluate_cases,
        compare_cases,
        topology_cases,
        doctor_cases,
        explain_cases,
        report_cases,
        reproduce_cases,
    )
    return tuple(case for part in parts for case in part())
