"""What moves the predictions of a linear model: its coefficients, in units that people can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from toporo.data.encode import Encoder, NumberRule
from toporo.estimators.explain import RowTable
from toporo.types import Array

#: What inputs grow by, so that they can be compared.
DEVIATION, RANGE = "one standard deviation", "its training range"


@dataclass(frozen=True)
class Coefficient:
    """An input of a linear model.

    Attributes
    ----------
    of : the target, or the class whose log-odds or score it moves.
    input : its name.
    comparable : by how much the prediction changes if the input grows by its standard deviation in training, or by its
        range there if the model does not know that; the others as they are.
    per_unit : the same if it grows by 1.
    """

    of: str
    input: str
    comparable: float
    per_unit: float


@dataclass(frozen=True)
class Coefficients(RowTable[Coefficient]):
    """The inputs of a linear model, those that move predictions most first; none of a network.

    Attributes
    ----------
    rows : in that order; those that move nothing are left out.
    unit : what inputs grow by, in words.
    classes : how many classes there are; 0 if it is a number that is predicted.

    >>> from types import SimpleNamespace
    >>> from toporo.data.frame import Frame, Numbers
    >>> encoder = Encoder.fit(Frame({"rain": Numbers(np.array([0.0, 2.0]), "number")}))
    >>> estimator = SimpleNamespace(coef_=[3.0], scaling_=SimpleNamespace(scale=np.array([2.0])), standardize=True)
    >>> print(Coefficients.of(estimator, encoder, "flow", None))
    input  per standard deviation  per unit
    rain                        6         3
    """

    unit: str = DEVIATION
    classes: int = 0

    who: ClassVar[str] = "Coefficients"
    first: ClassVar[str] = "largest"
    key: ClassVar[str] = "coefficients"

    @classmethod
    def of(cls, estimator: Any, encoder: Encoder, target: str, classes: Sequence[str] | None) -> Coefficients:
        """Those of an estimator; none if it has none.

        Parameters
        ----------
        estimator : fitted to what the encoder makes of a table.
        encoder : it names the inputs.
        target : what is predicted.
        classes : if it is classes, which.
        """
        coef, many = getattr(estimator, "coef_", None), len(classes or ())
        units, unit = _units(estimator, encoder)
        if coef is None:
            return cls((), unit, many)
        names = encoder.names
        table = np.asarray(coef, dtype=np.float64).reshape(-1, len(names))
        titles = [target] if classes is None else list(classes)[-len(table) :]
        every = [
            Coefficient(title, name, float(size), float(value))
            for title, values in zip(titles, table, strict=True)
            for name, size, value in zip(names, values * units, values, strict=True)
            if value != 0
        ]
        return cls(tuple(sorted(every, key=lambda row: (-abs(row.comparable), row.of, row.input))), unit, many)

    @property
    def columns(self) -> list[str]:
        """The input, and what it does; with several classes, to which."""
        what = "per standard deviation" if self.unit == DEVIATION else "over its range"
        return [*(["class"] if self.classes > 2 else []), "input", what, "per unit"]

    def cells(self, row: Coefficient) -> dict[str, Any]:
        """A row by column, as it is."""
        values = (row.of, row.input, row.comparable, row.per_unit)
        return dict(zip(self.columns, values[-len(self.columns) :], strict=True))

    def to_dict(self) -> list[dict[str, Any]]:
        """One mapping per row, as JSON can hold it."""
        return [asdict(row) | {"unit": self.unit} for row in self.rows]

    def title(self, shown: int) -> str:
        """What the table says, of which so many rows are shown."""
        if not self.rows:
            return "There are no coefficients to read."
        what = repr(self.rows[0].of)
        if self.classes:
            what = f"the log-odds of {what}" if self.classes == 2 else "the score of a class"
        some = f", the {shown} largest of {len(self.rows)}" if shown < len(self.rows) else ""
        return f"By how much {what} changes if an input grows by {self.unit} or by 1, the others as they are{some}:"


def _units(estimator: Any, encoder: Encoder) -> tuple[Array, str]:
    """What makes inputs comparable, and its name: the standard deviation in training if known, else the range there."""
    scaling = getattr(estimator, "scaling_", None)
    if scaling is not None and getattr(estimator, "standardize", False):
        return np.asarray(scaling.scale, dtype=np.float64), DEVIATION
    units: list[float] = []
    for rule in encoder.rules:
        of_rule = [1.0] * len(rule.labels)
        if isinstance(rule, NumberRule) and rule.low < rule.high:
            of_rule[0] = rule.high - rule.low
        units += of_rule
    return np.asarray(units), RANGE
