"""``toporo evaluate``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli.options import (
    Against,
    DataFile,
    Delimiter,
    DropUnknown,
    Engine,
    Flags,
    ModelFolder,
    Unseen,
    data_source,
    out_option,
    takes_flags,
)
from toporo.cli.outputs import outputs
from toporo.cli.running import register, working
from toporo.cli.settings import setting, takes_settings
from toporo.cli.terminal import print_table, say, say_data, tell
from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.files import write_text
from toporo.pool import LOCAL, check_engine
from toporo.tables.contest import compare, constant_in_words, unfair
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import INTERVAL, TableModel, load_model, skipped_in_words
from toporo.tables.resample import Interval
from toporo.text import hops_text, many, number

#: Groups shown, the worst first; --verbose shows all.
SHOWN = 10
#: The mean that comes first where some groups were trained on and others were not.
UNSEEN = "mean over groups not trained on"


@dataclass(frozen=True)
class EvaluationSettings:
    """Expert settings of ``toporo evaluate``."""

    resamples: int = setting(1000, "of the bootstrap", least=20)
    level: float = setting(0.95, "of the intervals", least=0.5, most=0.999)
    seed: int = setting(0, "of the bootstrap", least=0)


@register("evaluate")
@takes_flags(memory_limit=True)
@takes_settings(EvaluationSettings)
def evaluate(
    model: ModelFolder,
    data: DataFile,
    settings: dict[str, Any],
    delimiter: Delimiter = ",",
    unseen: Unseen = False,
    drop_rows: DropUnknown = False,
    against: Against = None,
    engine: Engine = LOCAL,
    out: Annotated[list[Path] | None, out_option("Write one line per group to this .csv file.")] = None,
    *,
    flags: Flags,
) -> None:
    """Judge a model by group, the worst first, and by how far a group is from those trained on.

    The table needs the target and the group. Intervals are bootstrapped: rows
    within groups, and for means over groups the groups too. Means over groups
    that the model was not trained on come first, if there are any. Rows without
    a target are left out. A model that is not better than a constant is called
    so first.

    The table is read a portion at a time and may be larger than memory. An
    ensemble or a kriged model looks at all rows of a group together: what
    does not fit below --memory-limit, and tables in chunks, it reads twice.

    Example: toporo evaluate model new.csv --against control
    """
    if against is not None and data == "-":
        raise typer.BadParameter("standard input can be read once: with --against, give a file.")
    folders = [model] if against is None else [model, against]
    files = outputs(out, {"by group": ("csv",)}, data=data, models=folders)
    loaded = load_model(model)
    models = {str(model): loaded} | ({} if against is None else {str(against): load_control(against, loaded, model)})
    settings |= {"unseen": unseen, "drop_rows": drop_rows, "delimiter": delimiter}
    settings |= {"memory_limit": flags.memory_limit, "engine": check_engine(engine)}
    with working("predicting", "nothing was written", quiet=flags.silent):
        judged, *others = judge(models, data, **settings)
        other = others[0] if others else None
        gain = None if other is None else compare(judged, other)  # an error here comes before anything is printed
    for path in files.values():
        write_text(path, judged.to_csv())
    if flags.json:
        content = judged.to_dict() | (
            {} if other is None or gain is None else {"against": other.to_dict(), "gain": gain.to_dict()}
        )
        say_data(json.dumps(content, indent=1, ensure_ascii=False))
    else:
        _lead(judged, other, str(model), str(against))
        _show(judged, flags.verbose)
        if other is not None and gain is not None:
            _compare(judged, other, str(model), str(against))
            tell(gain.words(str(model), str(against)))
    for what, path in files.items():
        say(f"{what}: {path}", err=flags.json)


def judge(models: Mapping[str, TableModel], data: str, **settings: Any) -> list[Evaluation]:
    """Models by the same rows of a table; says which were left out.

    Parameters
    ----------
    models : by the names of their folders.
    data : the table.
    settings : of :meth:`TableModel.evaluate`.
    """
    judged: list[Evaluation] = []
    for name, model in models.items():
        try:
            judged.append(model.evaluate(data_source(data), known_to=tuple(models.values()), **settings))
        except (DataError, GroupMismatchError) as error:
            if len(models) == 1:
                raise
            which = f"--against {name}" if judged else name
            again = judged and settings.get("unseen") and isinstance(error, DataError)
            remedy = " To judge both on groups new to both, fit it with the same --test-groups." if again else ""
            raise type(error)(f"{which}: {error}{remedy}") from None
    if judged[0].skipped:
        say(f"toporo: {skipped_in_words(judged[0].skipped)}", err=True)
    return judged


def load_control(folder: Path, model: TableModel, of: Path) -> TableModel:
    """Another model of the same target.

    Parameters
    ----------
    folder : where it is.
    model, of : what it is compared with, and where that is.
    """
    control = load_model(folder)
    if (control.task, control.target) != (model.task, model.target):
        raise SettingError(
            f"{folder} is a {control.task} of {control.target!r}, {of} a {model.task} of {model.target!r}: only models "
            "of the same target can be compared."
        )
    if control.group != model.group:
        raise SettingError(
            f"groups of {folder} are in column {control.group!r}, those of {of} in {model.group!r}: only models with "
            f"the same groups can be compared. Fit one of them again, with --group {model.group}, say."
        )
    return control


def _lead(judged: Evaluation, other: Evaluation | None, name: str, control: str) -> None:
    """What is to be known first: that a model loses to a constant, or knew more than the other."""
    sentences = [constant_in_words(judged, name)]
    if other is not None:
        sentences += [constant_in_words(other, control), unfair(judged, other, name, control)]
    for sentence in filter(None, sentences):
        tell(sentence)


def _show(judged: Evaluation, verbose: bool) -> None:
    metrics = list(judged.overall)
    shown = [name for name in metrics if name not in ("width", "set_size")]  # these are in the summary and in the CSV

    def cell(name: str, scores: Mapping[str, Interval]) -> str:
        return _interval(scores[name]) if verbose or name == judged.metric else number(scores[name].value, zeros=True)

    print_table(
        ["group", "rows", "hops", "trained on", *shown],
        [
            [
                score.group,
                str(score.rows),
                hops_text(score.hops),
                "yes" if score.trained else "no",
                *(cell(name, score.metrics) for name in shown),
            ]
            for score in judged.groups
        ],
        numbers=[1, 2, *range(4, 4 + len(shown))],
        most=None if verbose else SHOWN - bool(judged.unseen),  # which takes a line below
        thing="group",
    )
    lines = _lines(judged) | {f"worst group ({judged.worst.group})": judged.worst.metrics}
    lines |= {f"{many(score.rows, 'row')} {where}": score.metrics for where, score in judged.by_reach.items()}
    if (least := judged.least_covered) is not None:
        lines[f"least covered ({least.group})"] = least.metrics
    print_table(
        ["", *metrics],
        [[title, *(cell(name, scores) for name in metrics)] for title, scores in lines.items()],
        numbers=range(1, 1 + len(metrics)),
    )
    tell(
        f"{many(len(judged.groups), 'group')}, worst first by {judged.metric}; in brackets {100 * judged.level:g} % "
        f"intervals of {judged.resamples:,} bootstrap samples{'' if verbose else ' (--verbose: of every column)'}."
    )
    if judged.by_hop:
        tell("Hops are edges to the nearest group that the model was trained on.")
    if "outside" in judged.by_reach:
        of_groups = many(judged.by_reach["outside"].groups, "group")
        tell(f"Rows outside are farther from those trained on than validation has been; they are in {of_groups}.")
    elif judged.by_reach:
        tell("No row is farther from those trained on than validation has been.")
    if "coverage" in metrics:
        what = "set of classes" if "set_size" in metrics else "interval"
        tell(f"Coverage is the share of rows whose target lies in the {100 * INTERVAL:g} % {what} predicted for it.")
    if "r2" in metrics:
        tell("R² is within a group: below 0, the group's own mean would have been nearer.")


def _lines(judged: Evaluation) -> dict[str, Mapping[str, Interval]]:
    lines: dict[str, Mapping[str, Interval]] = {UNSEEN: judged.unseen} if judged.unseen else {}
    lines |= {"mean over groups": judged.overall, "all rows together": judged.pooled}
    return lines | {f"hops {hop}": scores for hop, scores in judged.by_hop.items()}


def _compare(judged: Evaluation, other: Evaluation, name: str, control: str) -> None:
    """Two models on the same rows, by the leading metric."""
    metric, theirs = judged.metric, _lines(other)
    rows = [
        [title, _interval(scores[metric]), _interval(theirs[title][metric])]
        for title, scores in _lines(judged).items()
        if title in theirs
    ]
    worst = [f"{e.worst.group}: {_interval(e.worst.metrics[metric])}" for e in (judged, other)]
    print_table([metric, name, control], [*rows, ["worst group", *worst]], numbers=[1, 2])


def _interval(interval: Interval) -> str:
    if math.isnan(interval.value):
        return "–"
    if math.isnan(interval.low):
        return number(interval.value, zeros=True)
    ends = (interval.value, interval.low, interval.high)
    value, low, high = (number(end, max(map(abs, ends))) for end in ends)
    return f"{value} [{low}, {high}]"
