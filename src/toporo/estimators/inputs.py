"""Coefficients of a linear model of a table, in units that people can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from toporo.data.encode import Encoder
from toporo.estimators.explain import RowTable

#: Growth of an input that makes its effect comparable with that of others.
DEVIATION = "one standard deviation"


@dataclass(frozen=True)
class Coefficient:
    """Input of a linear model.

    Attributes
    ----------
    of : the target, or the class whose log-odds or score it moves.
    input : its name.
    comparable : by how much the prediction changes if the input grows by its standard deviation in training, the others
        as they are.
    per_unit : the same if it grows by 1.
    """

    of: str
    input: str
    comparable: float
    per_unit: float


@dataclass(frozen=True)
class Coefficients(RowTable[Coefficient]):
    """Inputs of a linear model, those that move predictions most first; none of a network.

    Attributes
    ----------
    rows : in that order; those that move nothing are left out.
    classes : number of classes; 0 if a number is predicted.

    >>> from types import SimpleNamespace
    >>> from toporo.data.frame import Frame, Numbers
    >>> encoder = Encoder.fit(Frame({"rain": Numbers(np.array([0.0, 2.0]), "number")}))
    >>> estimator = SimpleNamespace(coef_=[3.0], scaling_=SimpleNamespace(scale=np.array([2.0])))
    >>> print(Coefficients.of(estimator, encoder, "flow", None))
    input  per standard deviation  per unit
    rain                        6         3
    """

    classes: int = 0
    unit: ClassVar[str] = DEVIATION

    who: ClassVar[str] = "Coefficients"
    first: ClassVar[str] = "largest"
    key: ClassVar[str] = "coefficients"

    @classmethod
    def of(cls, estimator: Any, encoder: Encoder, target: str, classes: Sequence[str] | None) -> Coefficients:
        """Read the coefficients of an estimator; none if it has none.

        Parameters
        ----------
        estimator : fitted to what the encoder makes of a table.
        encoder : it names the inputs.
        target : what is predicted.
        classes : if it is classes, which.
        """
        coef, count = getattr(estimator, "coef_", None), len(classes or ())
        if coef is None:
            return cls((), count)
        names, units = encoder.names, estimator.scaling_.scale
        by_output = np.asarray(coef, dtype=np.float64).reshape(-1, len(names))
        titles = [target] if classes is None else list(classes)[-len(by_output) :]
        rows = [
            Coefficient(title, name, float(size), float(value))
            for title, values in zip(titles, by_output, strict=True)
            for name, size, value in zip(names, values * units, values, strict=True)
            if value != 0
        ]
        return cls(tuple(sorted(rows, key=lambda row: (-abs(row.comparable), row.of, row.input))), count)

    @property
    def columns(self) -> list[str]:
        """Input and its effects; with several classes, the class too."""
        return [*(["class"] if self.classes > 2 else []), "input", "per standard deviation", "per unit"]

    def cells(self, row: Coefficient) -> dict[str, Any]:
        """Return a row by column, as it is."""
        values = (row.of, row.input, row.comparable, row.per_unit)
        return dict(zip(self.columns, values[-len(self.columns) :], strict=True))

    def to_dict(self) -> list[dict[str, Any]]:
        """Return one mapping per row, as JSON can hold it."""
        return [asdict(row) | {"unit": self.unit} for row in self.rows]

    def title(self, shown: int) -> str:
        """Return the sentence above the table, of which so many rows are shown."""
        if not self.rows:
            return "There are no coefficients to read."
        what = repr(self.rows[0].of)
        if self.classes:
            what = f"the log-odds of {what}" if self.classes == 2 else "the score of a class"
        some = f", the {shown} largest of {len(self.rows)}" if shown < len(self.rows) else ""
        return f"By how much {what} changes if an input grows by {self.unit} or by 1, the others as they are{some}:"
