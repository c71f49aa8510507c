"""Settings of the estimators: a bound, a network, and all of them checked."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Self

from sklearn.utils import check_random_state

from toporo.checks import non_negative, number, positive, whole
from toporo.errors import SettingError
from toporo.estimators.packing import UNSTORED
from toporo.robust.divergences import get_divergence

#: The penalty of networks, and of linear models where none can be chosen.
PENALTY = 1.0


@dataclass(frozen=True)
class Radius:
    r"""Bound on the distance of the worst mixture of groups from the prior: :math:`D(q\|p) \le \tau`.

    It takes the place of an estimator's penalty.

    Parameters
    ----------
    value : :math:`\tau`; 0 keeps the weights of the groups at the prior.

    >>> import toporo as tr
    >>> tr.TRORegressor(penalty=tr.Radius(0.1))
    TRORegressor(penalty=Radius(value=0.1))
    """

    value: float

    def __post_init__(self) -> None:
        expected = "a finite number of at least 0 (0 keeps the weights at the prior)"
        object.__setattr__(self, "value", non_negative(self.value, "radius", expected))


@dataclass(frozen=True)
class Net:
    """Network as the model of an estimator, and how to train it.

    Parameters
    ----------
    hidden : widths of the hidden layers.
    epochs : passes over the largest group.
    per_group : rows of every group in a batch.
    learning_rate : of the optimiser, Adam.
    step : of the weights of the groups; by default 0.1 for TRO and 0.01 for group DRO.
    device : where torch trains.
    module : a ``torch.nn.Module``, of which a copy is trained instead of a perceptron. It gets rows × features and
        returns a number per target, or a score per class (for two classes, one score will do: the log-odds).

    >>> Net(hidden=[32], epochs=20).hidden
    (32,)
    """

    hidden: tuple[int, ...] = (64, 64)
    epochs: int = 100
    per_group: int = 32
    learning_rate: float = 1e-3
    step: float | None = None
    device: Any = field(default="cpu", metadata=UNSTORED)
    module: Any = field(default=None, metadata=UNSTORED)

    def __post_init__(self) -> None:
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Iterable):
            raise SettingError(f"hidden is {self.hidden!r}: expected the layers' sizes, such as (64, 64).")
        checked = {
            "hidden": tuple(whole(units, "a layer in hidden", 1) for units in self.hidden),
            "epochs": whole(self.epochs, "epochs", 1),
            "per_group": whole(self.per_group, "per_group", 1),
            "learning_rate": positive(self.learning_rate, "learning_rate"),
            "step": None if self.step is None else positive(self.step, "step"),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        torch = sys.modules.get("torch")  # a module cannot exist before torch is loaded
        if self.module is not None and (torch is None or not isinstance(self.module, torch.nn.Module)):
            hint = " Pass an instance, not the class." if isinstance(self.module, type) else ""
            raise SettingError(f"module is {self.module!r}: expected a torch.nn.Module.{hint}")


@dataclass(frozen=True)
class Settings:
    """Checked settings of an estimator, in a form that can be stored.

    Attributes
    ----------
    network : how to train a network; None for a linear model.
    penalty : None if it is to be chosen.
    radius : instead of a penalty, or None.
    divergence : by name.
    prior : by name; None if weights were given.
    ridge : None if it depends on the rows in effect.
    seed : of all that is drawn at random.
    """

    network: Net | None
    penalty: float | None
    radius: float | None
    divergence: str
    prior: str | None
    ridge: float | None
    seed: int

    @classmethod
    def of(cls, estimator: Any, *, classes: bool) -> Self:
        """Check the settings of an estimator; the first one that is wrong is an error that names it.

        Parameters
        ----------
        estimator : with settings as its user gave them.
        classes : whether it predicts classes.
        """
        network = None if _is(estimator.model, "linear") else estimator.model
        if not isinstance(network, Net | None):
            raise SettingError(f"model is {estimator.model!r}: expected 'linear' or a toporo.Net, such as Net((64,)).")
        radius = estimator.penalty.value if isinstance(estimator.penalty, Radius) else None
        penalty = None
        if radius is None and not _is(estimator.penalty, "auto"):
            expected = "a number of at least 0, float('inf'), 'auto' or a toporo.Radius"
            penalty = number(estimator.penalty, "penalty", expected, least=0.0, infinite=True)
        ridge = None
        if not _is(estimator.ridge, "auto"):
            ridge = non_negative(estimator.ridge, "ridge", "a finite number of at least 0, or 'auto'")
        if classes and network is None and ridge == 0:
            raise SettingError(
                "ridge is 0: a logistic model needs a positive one, because classes that can be told apart without "
                "error have no best model. Use a small number such as 1e-6."
            )
        divergence, seed = get_divergence(estimator.divergence).name, check_seed(estimator.random_state)
        prior = estimator.prior if isinstance(estimator.prior, str) else None
        return cls(network, penalty, radius, divergence, prior, ridge, seed)

    def parameters(self) -> Mapping[str, Any]:
        """Return the parameters of an estimator but for graph, test groups and a prior that was given by weights."""
        return {
            "model": "linear" if self.network is None else self.network,
            "penalty": "auto" if self.penalty is None else self.penalty,
            **({} if self.radius is None else {"penalty": Radius(self.radius)}),
            "divergence": self.divergence,
            **({} if self.prior is None else {"prior": self.prior}),
            "ridge": "auto" if self.ridge is None else self.ridge,
            "random_state": self.seed,
        }


def _is(value: Any, name: str) -> bool:
    return isinstance(value, str) and value == name


def check_seed(random_state: Any) -> int:
    """Return the seed that a ``random_state`` of scikit-learn stands for."""
    if isinstance(random_state, Integral) and not isinstance(random_state, bool):
        if not 0 <= int(random_state) < 2**32:
            raise SettingError(f"random_state is {random_state!r}: expected a whole number from 0 to 2**32 - 1.")
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise SettingError(
            f"random_state is {random_state!r}: expected a whole number of at least 0, None or a RandomState."
        ) from None
