"""Networks as estimators."""

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import log_loss, mean_squared_error
from torch import nn

from tests.estimators.cases import CHAIN, labels, numbers
from toporo.errors import DataError, SettingError, TopoRoWarning
from toporo.estimators import GroupDROClassifier, GroupDRORegressor, Net, Radius, TROClassifier, TRORegressor
from toporo.estimators.models import Perceptron
from toporo.training import RoundRecord

NUMBERS, LABELS = numbers(120, differ=0.1), labels(120)
NET = Net((8,), epochs=12, learning_rate=0.03, per_group=8)
QUICK: dict[str, Any] = {"model": NET}
BOTH = [pytest.param(TRORegressor, NUMBERS, id="numbers"), pytest.param(TROClassifier, LABELS, id="classes")]


@pytest.mark.parametrize(("kind", "table"), BOTH)
def test_a_network_learns_and_says_the_same_at_every_run(kind: Any, table: Any) -> None:
    first = kind(**QUICK).fit(table.x, table.y, groups=table.groups)
    again = kind(**QUICK).fit(table.x, table.y, groups=table.groups)
    other = kind(**QUICK, random_state=1).fit(table.x, table.y, groups=table.groups)
    assert first.score(table.x, table.y) > 0.7
    assert first.predict(table.x).tobytes() == again.predict(table.x).tobytes()
    assert first.group_weights_ == again.group_weights_
    assert first.group_weights_ != other.group_weights_
    assert all(isinstance(record, RoundRecord) for record in first.history_)
    assert len(first.history_) == 12
    assert first.history_[-1].weights == first.group_weights_
    assert not hasattr(first, "coef_")


@pytest.mark.parametrize(("kind", "table"), BOTH)
def test_losses_by_group_are_in_the_units_of_the_data(kind: Any, table: Any) -> None:
    model = kind(**QUICK).fit(table.x, table.y, groups=table.groups)
    for name in "abcd":
        own = table.groups == name
        if kind is TRORegressor:
            expected = mean_squared_error(table.y[own], model.predict(table.x[own]))
        else:
            expected = log_loss(table.y[own], model.predict_proba(table.x[own]), labels=model.classes_)
        assert model.group_losses_[name] == pytest.approx(expected)
    assert model.explain().to_dict()[0]["size"] == 30


def test_units_do_not_matter() -> None:
    x = NUMBERS.x * 2.0**20
    first = TRORegressor(**QUICK).fit(NUMBERS.x, NUMBERS.y, groups=NUMBERS.groups)
    other = TRORegressor(**QUICK).fit(x, 2.0**-10 * NUMBERS.y, groups=NUMBERS.groups)
    np.testing.assert_allclose(2.0**10 * other.predict(x), first.predict(NUMBERS.x), rtol=1e-4)


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({"penalty": math.inf, "graph": CHAIN, "test_groups": ["x"]}, {"a": 0.125, "b": 0.125, "c": 0.125, "d": 0.625}),
        ({"penalty": Radius(0.0)}, dict.fromkeys("abcd", 0.25)),
    ],
)
def test_the_penalty_holds_the_weights(settings: dict[str, Any], weights: dict[str, float]) -> None:
    model = TRORegressor(**QUICK, **settings).fit(NUMBERS.x, NUMBERS.y, groups=NUMBERS.groups)
    assert model.group_weights_ == pytest.approx(weights)
    assert model.penalty_ == (math.inf if settings["penalty"] == math.inf else None)


@pytest.mark.parametrize("kind", [GroupDROClassifier, GroupDRORegressor])
def test_group_dro_moves_towards_the_worst_group(kind: Any) -> None:
    table = NUMBERS if kind is GroupDRORegressor else LABELS
    model = kind(model=replace(NET, step=0.5)).fit(table.x, table.y, groups=table.groups)
    assert max(model.group_weights_.values()) > 0.3
    still = kind(model=replace(NET, step=1e-9)).fit(table.x, table.y, groups=table.groups)
    assert still.group_weights_ == pytest.approx(dict.fromkeys("abcd", 0.25), abs=1e-4)


@pytest.mark.filterwarnings("ignore:.* are in effect")
@pytest.mark.parametrize(("kind", "table"), BOTH)
def test_weights_of_rows(kind: Any, table: Any) -> None:
    """Equal weights are no weights, in any unit; rows of no weight are not there."""
    fit = {"X": table.x, "y": table.y, "groups": table.groups}
    plain = kind(**QUICK).fit(**fit)
    same = kind(**QUICK).fit(**fit, sample_weight=np.full(120, 4.0))
    assert same.predict(table.x).tobytes() == plain.predict(table.x).tobytes()
    counted = np.arange(120) % 5 > 0
    some = kind(**QUICK).fit(**fit, sample_weight=counted)
    fewer = kind(**QUICK).fit(table.x[counted], table.y[counted], groups=table.groups[counted])
    assert some.predict(table.x).tobytes() == fewer.predict(table.x).tobytes()
    heavy = kind(**QUICK).fit(**fit, sample_weight=np.where(counted, 1.0, 50.0))
    assert heavy.predict(table.x).tobytes() != plain.predict(table.x).tobytes()


@pytest.mark.parametrize(("kind", "table"), BOTH)
def test_a_single_group(kind: Any, table: Any) -> None:
    with pytest.warns(TopoRoWarning, match="got no groups"):
        model = kind(**QUICK).fit(table.x, table.y)
    assert model.group_weights_ == {"all": 1.0}
    assert (model.prior_, model.penalty_) == (None, math.inf)


def test_several_targets() -> None:
    y = np.column_stack([NUMBERS.y, NUMBERS.x[:, 1] * 1e-3])
    model = TRORegressor(**QUICK).fit(NUMBERS.x, y, groups=NUMBERS.groups)
    assert model.predict(NUMBERS.x).shape == (120, 2)
    assert model.score(NUMBERS.x, y) > 0.7


def test_three_classes() -> None:
    table = labels(120, classes=3)
    model = TROClassifier(**QUICK).fit(table.x, table.y, groups=table.groups)
    assert model.decision_function(table.x).shape == (120, 3)
    np.testing.assert_allclose(model.predict_proba(table.x).sum(axis=1), 1.0)


# ---------------------------------------------------------------- a module of one's own


def module(outputs: int = 1, flat: bool = False) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(3, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, outputs)]
    return nn.Sequential(*layers, *([nn.Flatten(0)] if flat else []))


OWN = Net(epochs=20, learning_rate=0.03, per_group=8)


@pytest.mark.parametrize(
    ("kind", "net"),
    [
        pytest.param(TRORegressor, module(), id="one number"),
        pytest.param(TRORegressor, module(flat=True), id="one number, flat"),
        pytest.param(TRORegressor, module().double(), id="in double"),
        pytest.param(TROClassifier, module(2), id="a score a class"),
        pytest.param(TROClassifier, module(1), id="log-odds"),
        pytest.param(TROClassifier, module(1, flat=True), id="log-odds, flat"),
    ],
)
def test_a_module_of_ones_own_is_copied_and_trained(kind: Any, net: nn.Module) -> None:
    table = NUMBERS if kind is TRORegressor else LABELS
    before = [value.clone() for value in net.state_dict().values()]
    model = kind(model=replace(OWN, module=net)).fit(table.x, table.y, groups=table.groups)
    assert model.model.module is net
    assert all(torch.equal(a, b) for a, b in zip(before, net.state_dict().values(), strict=True))
    assert model.score(table.x, table.y) > 0.7
    twin = clone(model)
    assert twin.model.module is not net
    assert (
        twin.fit(table.x, table.y, groups=table.groups).predict(table.x).tobytes() == model.predict(table.x).tobytes()
    )
    assert pickle.loads(pickle.dumps(model)).predict(table.x).tobytes() == model.predict(table.x).tobytes()


class Pair(nn.Module):
    """Gives two things, which no loss can use."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x), x


@pytest.mark.parametrize(
    ("net", "error", "says"),
    [
        (nn.Linear(5, 1), DataError, r"cannot be applied to rows of 3 feature\(s\).*must give \(rows, 1\)"),
        (nn.Linear(3, 2), DataError, r"gives shape \(2, 2\) for 2 row\(s\): expected \(2, 1\)"),
        (Pair(), DataError, "gives a tuple"),
        (nn.Flatten(), SettingError, "no parameters to train"),
        (nn.Linear, SettingError, "Pass an instance, not the class"),
    ],
)
def test_modules_that_do_not_fit(net: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        TRORegressor(model=replace(OWN, module=net)).fit(NUMBERS.x, NUMBERS.y, groups=NUMBERS.groups)


def test_a_module_with_too_few_scores() -> None:
    table = labels(120, classes=3)
    with pytest.raises(DataError, match=r"expected \(2, 3\), for 3 classes \(log-odds, without a softmax"):
        TROClassifier(model=replace(OWN, module=nn.Linear(3, 2))).fit(table.x, table.y, groups=table.groups)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(SettingError, match=r"device is 'abacus', which torch cannot use here .* Try device='cpu'"):
        TRORegressor(model=replace(NET, device="abacus")).fit(NUMBERS.x, NUMBERS.y, groups=NUMBERS.groups)


def test_a_perceptron_predicts_in_portions_and_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TRORegressor(**QUICK).fit(NUMBERS.x, NUMBERS.y, groups=NUMBERS.groups)
    whole = model.predict(NUMBERS.x)
    assert isinstance(model.model_, Perceptron)
    monkeypatch.setattr("toporo.robust.rows.CHUNK", 7)
    np.testing.assert_allclose(model.predict(NUMBERS.x), whole, rtol=1e-12)
    first, last = model.model_.layers
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    with torch.no_grad():
        for layer, values in zip(net[::2], (first, last), strict=True):
            layer.weight.copy_(torch.tensor(values.weight))
            layer.bias.copy_(torch.tensor(values.bias))
        inside = net(torch.tensor(model.scaling_.apply(NUMBERS.x))).numpy()[:, 0]
    np.testing.assert_allclose(whole, inside * NUMBERS.y.std() + NUMBERS.y.mean(), rtol=1e-12)
