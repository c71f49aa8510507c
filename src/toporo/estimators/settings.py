"""The settings of an estimator, checked: scikit-learn has constructors store whatever they are given."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from sklearn.utils import check_random_state

from toporo.checks import non_negative, number, positive, whole
from toporo.errors import SettingError
from toporo.robust.divergences import get_divergence

#: What a penalty is unless given: with a radius it must be left at that. And what it is where none can be chosen.
CHOOSE, PENALTY = "auto", 1.0
#: The least ridge of ``"auto"``, and that of a network.
RIDGE = 1e-3


@dataclass(frozen=True)
class Settings:
    """What an estimator was told, as plain values; ``network`` says whether the model is one.

    A ridge of None goes with the rows in effect (:func:`toporo.estimators.linear.ridge_for`).
    """

    network: bool
    penalty: float | str
    radius: float | None
    divergence: str
    temperature: float
    ridge: float | None
    tol: float
    hidden: tuple[int, ...]
    epochs: int
    per_group: int
    learning_rate: float
    step: float
    seed: int
    fit_intercept: bool
    standardize: bool


def check_settings(given: Any, *, classes: bool) -> Settings:
    """The settings of an estimator; an error that names the first one that cannot be."""
    network = _is_network(given.model)
    penalty, radius = _penalty(given, network)
    ridge = _ridge(given.ridge, network)
    if classes and not network and ridge == 0:
        raise SettingError(
            "ridge is 0: a logistic model needs a positive one, because classes that can be told apart without error "
            "have no best model. Use a small number such as 1e-6."
        )
    tol = number(given.tol, "tol", "a number between 0 and 1, such as 1e-6", above=0.0, below=1.0)
    if network and not given.fit_intercept:
        raise SettingError("fit_intercept=False only goes with model='linear'.")
    return Settings(
        network=network,
        penalty=penalty,
        radius=radius,
        divergence=get_divergence(given.divergence).name,
        temperature=positive(given.temperature, "temperature"),
        ridge=ridge,
        tol=tol,
        hidden=_hidden(given.hidden),
        epochs=whole(given.epochs, "epochs", 1),
        per_group=whole(given.per_group, "per_group", 1),
        learning_rate=positive(given.learning_rate, "learning_rate"),
        step=positive(given.step, "step"),
        seed=_seed(given.random_state),
        fit_intercept=bool(given.fit_intercept),
        standardize=bool(given.standardize),
    )


def _is_network(model: Any) -> bool:
    if isinstance(model, str) and model in ("linear", "mlp"):
        return model == "mlp"
    torch = sys.modules.get("torch")  # a module cannot exist before torch is loaded
    if torch is not None and isinstance(model, torch.nn.Module):
        return True
    hint = " Pass an instance, not the class." if isinstance(model, type) else ""
    raise SettingError(f"model is {model!r}: expected 'linear', 'mlp' or a torch.nn.Module.{hint}")


def _penalty(given: Any, network: bool) -> tuple[float | str, float | None]:
    penalty, radius = given.penalty, given.radius
    if radius is not None:
        if penalty not in (CHOOSE, PENALTY):  # the second was the default once, and is in models of that time
            raise SettingError(
                f"penalty={penalty!r} and radius={radius!r} are two ways to say the same: give one, and leave penalty "
                f"at its default ({CHOOSE!r}) where radius is given."
            )
        expected = "a finite number of at least 0 (0 keeps the weights at the prior)"
        return PENALTY, non_negative(radius, "radius", expected)
    if isinstance(penalty, str) and penalty == CHOOSE:
        return (PENALTY if network else CHOOSE), None
    expected = "a number of at least 0, float('inf') or 'auto'"
    return number(penalty, "penalty", expected, least=0.0, infinite=True), None


def _ridge(ridge: Any, network: bool) -> float | None:
    if isinstance(ridge, str) and ridge == "auto":
        return RIDGE if network else None
    return non_negative(ridge, "ridge", "a finite number of at least 0, or 'auto'")


def _hidden(hidden: Any) -> tuple[int, ...]:
    if isinstance(hidden, str) or not isinstance(hidden, Iterable):
        raise SettingError(f"hidden is {hidden!r}: expected the layers' sizes, such as (64, 64).")
    return tuple(whole(units, "a layer in hidden", 1) for units in hidden)


def _seed(random_state: Any) -> int:
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
