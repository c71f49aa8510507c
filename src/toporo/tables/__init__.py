"""A table in, a model out: reading, preprocessing, fitting, saving, predicting and judging, all by name.

>>> from toporo.tables import fit_table
>>> table = {"state": ["NY", "PA"] * 15, "x": [*range(30)], "y": [x + 0.5 * (x % 3) for x in range(30)]}
>>> model = fit_table(table, target="y", group="state", penalty=0.1)
>>> model.predict({"x": [2.0]}).shape
(1,)
"""

from __future__ import annotations

from toporo.tables.contest import Comparison, Contest, Entrant, Judgement, compare
from toporo.tables.evaluate import Evaluation, GroupScore
from toporo.tables.fit import fit_table
from toporo.tables.model import ColumnInfo, Prediction, TableModel, load_model
from toporo.tables.reach import GroupReach, Reach, RowReach
from toporo.tables.resample import Interval
from toporo.tables.trials import compare_models

__all__ = [
    "ColumnInfo",
    "Comparison",
    "Contest",
    "Entrant",
    "Evaluation",
    "GroupReach",
    "GroupScore",
    "Interval",
    "Judgement",
    "Prediction",
    "Reach",
    "RowReach",
    "TableModel",
    "compare",
    "compare_models",
    "fit_table",
    "load_model",
]
