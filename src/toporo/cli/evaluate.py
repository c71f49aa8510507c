"""``toporo evaluate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from toporo.cli import options as opt
from toporo.cli.outputs import outputs
from toporo.cli.running import register, working
from toporo.cli.settings import setting, settings_option
from toporo.cli.terminal import print_table, say, say_data, say_files, say_more, tell
from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.files import write_text
from toporo.pool import LOCAL, check_engine
from toporo.tables.contest import compare, constant_in_words, unfair
from toporo.tables.evaluate import Evaluation
from toporo.tables.model import TableModel, load_model, skipped_in_words

#: Groups shown, the worst first; --verbose shows all.
SHOWN = 10


@dataclass(frozen=True)
class EvaluationSettings:
    """Expert settings of commands that evaluate a model."""

    resamples: int = setting(1000, "of the bootstrap, for intervals; 0 is none", least=0)
    level: float = setting(0.95, "of the intervals", least=0)
    seed: int = setting(0, "of the bootstrap", least=0)


@register("evaluate")
@opt.takes_options
def evaluate(
    model: opt.ModelFolder,
    data: opt.DataFile,
    settings: Annotated[list[Any] | None, settings_option(EvaluationSettings)] = None,
    delimiter: opt.Delimiter = ",",
    unseen: opt.Unseen = False,
    drop_rows: opt.DropUnknown = False,
    against: Annotated[Path | None, opt.option("Folder of another model of the same target: a control, say.")] = None,
    engine: opt.Engine = LOCAL,
    out: Annotated[list[Path] | None, opt.option("Write one line per group to this .csv file.", "-o")] = None,
    *,
    flags: opt.LimitedFlags,
) -> None:
    """Evaluate a model by group, the worst first, and by distance from the training groups.

    The table needs the target and the group, and may be larger than memory.
    Intervals are bootstrapped: rows within groups, and for means over groups
    the groups too. Means over groups that the model was not trained on come
    first, if there are any. Rows without a target are left out. A model that
    is not better than a constant is called so first.

    Example: toporo evaluate model new.csv --against control
    """
    if against is not None and data == "-":
        raise typer.BadParameter("standard input can be read once: with --against, give a file.")
    folders = [model] if against is None else [model, against]
    files = outputs(out, {"by group": ("csv",)}, data, *folders)
    models = {str(folder): load_model(folder) for folder in folders}
    reading = {"unseen": unseen, "drop_rows": drop_rows, "delimiter": delimiter, "memory_limit": flags.memory_limit}
    with working("predicting", quiet=flags.silent):
        evaluations = evaluate_all(models, data, engine=check_engine(engine), **reading, **dict(settings or ()))
        evaluation, *others = evaluations.values()
        gain = compare(evaluation, others[0]) if others else None
    for path in files.values():
        write_text(path, evaluation.to_csv())
    if flags.json:
        say_data(evaluation.to_dict() | ({"against": others[0].to_dict(), "gain": gain.to_dict()} if gain else {}))
    else:
        tell(*(constant_in_words(each, name) for name, each in evaluations.items()))
        tell(*(unfair(evaluation, other, *evaluations) for other in others))
        for name, each in evaluations.items():
            tell(f"{name}:" if others else "")
            most = 0 if each in others else len(each.groups) if flags.verbose else SHOWN
            titles, lines = each.cells(most, intervals=flags.verbose)
            print_table(titles, lines, numbers=range(1, len(titles)))
            say_more(len(each.groups) - most if most else 0, "group")
        tell(*evaluation.notes, gain.words(*evaluations) if gain else "")
    say_files(files, err=flags.json)


def evaluate_all(models: dict[str, TableModel], data: str, **settings: Any) -> dict[str, Evaluation]:
    """Return evaluations of models on the same rows of a table, by name, and print which rows were left out.

    Parameters
    ----------
    models : by the names of their folders; of the same target and groups.
    data : the table.
    settings : of :meth:`TableModel.evaluate`.
    """
    kinds = {name: (model.task, model.target, model.group) for name, model in models.items()}
    if len(set(kinds.values())) > 1:
        found = "; ".join(f"{name}: {task} of {target!r} by {group!r}" for name, (task, target, group) in kinds.items())
        raise SettingError(f"only models of the same target and groups can be compared: found {found}. Fit one again.")
    evaluations: dict[str, Evaluation] = {}
    for name, model in models.items():
        try:
            known_to = tuple(models.values())
            evaluations[name] = model.evaluate(opt.data_source(data), known_to=known_to, **settings)
        except (DataError, GroupMismatchError) as error:
            raise type(error)(f"{name}: {error}" if len(models) > 1 else str(error)) from None
    if skipped := next(iter(evaluations.values())).skipped:
        say(f"toporo: {skipped_in_words(skipped)}", err=True)
    return evaluations
