"""Many networks as one program: each run is what it would be alone."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from toporo.bench import BENCHMARKS, load_dataset
from toporo.bench.fits import build_model
from toporo.data import GroupedData
from toporo.errors import DataError, GroupMismatchError, SettingError
from toporo.machine import one_thread
from toporo.models import MLP
from toporo.objectives import ERM, OBJECTIVES, SD, TRO, PenalizedObjective, VREx, make_objective, stack
from toporo.topology.prior import Prior
from toporo.training import TrainSettings, train
from toporo.training.many import ManyMLP, train_many

STACKABLE = sorted(name for name, kind in OBJECTIVES.items() if vars(kind).get("stackable"))
#: Settings that may differ from run to run, by objective.
DIFFERENT = {
    "irm": [{"penalty": 0.5, "warm_up": 3}, {"penalty": 7.0, "warm_up": 3}],
    "vrex": [{"penalty": 0.5, "warm_up": 4}, {"penalty": 20.0, "warm_up": 4}],
    "sd": [{"penalty": 0.01}, {"penalty": 1.0}],
    "group-dro": [{"step": 0.01}, {"step": 1.0}],
    "tro": [{"penalty": 0.1, "step": 0.5}, {"penalty": 5.0, "step": 0.1}],
}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")
cross_entropy = partial(F.cross_entropy, reduction="none")


def rows(seed=0, sizes=(30, 24, 30)):
    rng = np.random.default_rng(seed)
    names = np.repeat(["a", "b", "c"], sizes)
    return GroupedData.from_arrays(rng.normal(size=(len(names), 4)), rng.integers(0, 2, len(names)), names)


def priors():
    return [Prior.from_weights({"a": 0.6, "b": 0.3, "c": 0.1}), Prior.from_weights({"a": 0.1, "b": 0.2, "c": 0.7})]


def runs(name, dtype=torch.float64, **common):
    """Two seeds, each with two settings, priors and learning rates."""
    each = []
    for seed in (0, 1):
        data = rows(seed)
        for settings, prior, rate in zip(DIFFERENT.get(name, [{}, {}]), priors(), (0.01, 0.03), strict=True):
            model = MLP(4, 2, (8, 6), seed=seed).to(dtype)
            how = TrainSettings(rounds=4, per_group=5, seed=seed, learning_rate=rate, **common)
            each.append((model, make_objective(name, data.groups, prior, **settings), data, how))
    return [list(part) for part in zip(*each, strict=True)]


def both(name, dtype=torch.float64, device="cpu", **common):
    """Histories and models: as one program, and one by one on the CPU."""
    models, objectives, data, settings = runs(name, dtype, **common)
    together = train_many(models, objectives, data, cross_entropy, settings, device=device)
    alone, others = [], runs(name, dtype, **common)
    for model, objective, one, how in zip(*others, strict=True):
        alone.append(train(model, objective, one, cross_entropy, how))
    return together, models, alone, others[0]


def test_there_is_something_to_stack():
    assert {"erm", "tro", "group-dro", "irm", "vrex", "sd", "iw-erm"} <= set(STACKABLE)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_cuda)])
@pytest.mark.parametrize("name", STACKABLE)
def test_every_run_is_what_it_would_be_alone(name, device):
    together, models, alone, others = both(name, device=device)
    for model, other in zip(models, others, strict=True):
        for mine, its in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine, its, rtol=1e-9, atol=1e-10)
    for mine, its in zip(together, alone, strict=True):
        assert [record.round for record in mine] == [1, 2, 3, 4]
        for one, other in zip(mine, its, strict=True):
            assert one.loss == pytest.approx(other.loss, rel=1e-6)  # the plain loop adds losses up in float32
            assert one.weights == pytest.approx(other.weights, abs=1e-12)


@pytest.mark.parametrize("common", [{"half_life": 2.0}, {"weight_decay": 0.1}], ids=str)
def test_so_it_is_with_other_settings_of_training(common):
    _, models, _, others = both("tro", **common)
    for model, other in zip(models, others, strict=True):
        torch.testing.assert_close(model.head.weight, other.head.weight, rtol=1e-9, atol=1e-10)


def test_groups_that_are_paired_are_paired_here_too():
    data = rows(sizes=(20, 20, 20))
    how = TrainSettings(rounds=3, per_group=5, paired=True)
    model, other = (MLP(4, 2, (6,), seed=0).double() for _ in range(2))
    train_many([model], [ERM(data.groups)], [data], cross_entropy, [how])
    train(other, ERM(data.groups), data, cross_entropy, how)
    torch.testing.assert_close(model.head.weight, other.head.weight, rtol=1e-9, atol=1e-10)


def test_the_figures_of_dg15_are_those_of_runs_one_by_one_to_a_millionth(no_data):
    """The protocol as it is, in single precision: every accuracy of every epoch."""
    benchmark = BENCHMARKS["dg15"]
    protocol, loaded = benchmark.protocol, load_dataset("dg15", source="generated")
    test = loaded.data.select(loaded.test)
    x, y = torch.as_tensor(test.x, dtype=torch.float32), torch.as_tensor(test.y)
    prior = loaded.graph.prior(loaded.train, loaded.test)
    splits = {seed: benchmark.split(loaded, seed, protocol.validation) for seed in (0, 1)}

    def make():
        for seed in (0, 1):
            for penalty, step in ((0.1, 0.1), (1.0, 1.0), (100.0, 0.01)):
                model = build_model(protocol, loaded, seed)
                how = TrainSettings(rounds=protocol.rounds, per_group=protocol.per_group, seed=seed)
                data = splits[seed].train
                yield model, TRO(prior, penalty, step, groups=data.groups), data, how

    def accuracies(network):
        return [{"test": float(v)} for v in (network(x).argmax(dim=-1) == y).double().mean(dim=-1)]

    with one_thread(torch=True):
        models, objectives, data, settings = zip(*make(), strict=True)
        together = train_many(models, objectives, data, cross_entropy, settings, evaluate=accuracies)
        for mine, (model, objective, one, how) in zip(together, make(), strict=True):
            its = train(
                model, objective, one, cross_entropy, how, evaluate=lambda m: accuracies(lambda v: m(v)[None])[0]
            )
            for entry, other in zip(mine, its, strict=True):
                assert entry.metrics["test"] == pytest.approx(other.metrics["test"], abs=1e-6)
                assert entry.loss == pytest.approx(other.loss, rel=1e-6, abs=1e-6)


def test_a_run_that_diverges_ends_and_the_others_go_on():
    models, objectives, data, settings = runs("erm")
    _, alone, _, _ = both("erm")

    calls = itertools.count()

    def loss(outputs, targets):
        values = cross_entropy(outputs, targets)
        first = torch.arange(len(values)) < len(values) // 4  # of the first of four runs
        return values * torch.where(first & (next(calls) >= 10), math.nan, 1.0)

    histories = train_many(models, objectives, data, loss, settings)
    assert [len(history) for history in histories] == [1, 4, 4, 4]
    for model, other in zip(models[1:], alone[1:], strict=True):
        torch.testing.assert_close(model.head.weight, other.head.weight)


def test_evaluations_come_when_they_are_due():
    models, objectives, data, settings = runs("erm")
    seen = []

    def evaluate(network):
        assert isinstance(network, ManyMLP)
        assert len(network) == 4
        seen.append(network(torch.zeros(3, 4)).shape)
        return [{"test": float(run)} for run in range(4)]

    histories = train_many(models, objectives, data, cross_entropy, settings, evaluate=evaluate, evaluate_every=3)
    assert seen == [(4, 3, 2)] * 2
    assert [[record.metrics for record in history] for history in histories] == [
        [{}, {}, {"test": float(run)}, {"test": float(run)}] for run in range(4)
    ]


# ---------------------------------------------------------------- what cannot be trained as one


class Coupled(PenalizedObjective):
    """A user's own, whose penalty takes all it is given together."""

    def __init__(self, groups, penalty=1.0):
        super().__init__(groups, penalty, 0)

    def penalise(self, means, losses, codes, logits):
        return means.values.var()


def test_a_class_is_stackable_if_it_says_so_itself():
    data = rows()
    with pytest.raises(SettingError, match="Coupled: only objectives of one class that says it is stackable"):
        stack([Coupled(data.groups), Coupled(data.groups, 2.0)])


class Quiet(VREx):
    """Inherits a method that is stackable, and overrides it."""

    def penalise(self, means, losses, codes, logits):
        return means.values.var()


def test_what_a_class_inherits_says_nothing_of_what_it_overrides():
    with pytest.raises(SettingError, match="Quiet"):
        stack([Quiet(rows().groups)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, o, d, s: (m, [o[0], SD(d[0].groups), *o[2:]], d, s), "ERM, SD: only objectives of one class"),
        (lambda m, o, d, s: (m[:2], o, d, s), "2 models, 4 objectives, 4 data sets, 4 settings"),
        (lambda m, o, d, s: ([], [], [], []), "0 models"),
        (lambda m, o, d, s: ([MLP(4, 2, (9, 6)), *m[1:]], o, d, s), "different shapes"),
        (lambda m, o, d, s: (m, o, d, [TrainSettings(rounds=9, per_group=5), *s[1:]]), "seed and learning rate"),
        (lambda m, o, d, s: (m, o, d, [TrainSettings(rounds=4, per_group=5, average=2)] * 4), "average=2"),
        (
            lambda m, o, d, s: (m, [OBJECTIVES["coral"](d[0].groups)] * 4, d, s),
            "CORAL looks at features: it is trained by itself",
        ),
    ],
)
def test_runs_that_do_not_go_together_are_an_error(change, message):
    models, objectives, data, settings = runs("erm")
    models, objectives, data, settings = change(models, objectives, data, settings)
    with pytest.raises(SettingError, match=message):
        train_many(models, objectives, data, cross_entropy, settings)


def test_epochs_of_different_length_are_an_error():
    models, objectives, data, settings = runs("erm")
    data[0] = rows(sizes=(60, 24, 30))
    with pytest.raises(DataError, match=r"epochs of \[6, 12\] batches"):
        train_many(models, objectives, data, cross_entropy, settings)


def test_other_groups_are_an_error():
    models, objectives, data, settings = runs("erm")
    objectives[0] = ERM(["a", "b"])
    with pytest.raises(GroupMismatchError):
        train_many(models, objectives, data, cross_entropy, settings)


def test_settings_that_are_no_numbers_must_agree():
    prior = priors()[0]
    with pytest.raises(SettingError, match="divergence differs between runs"):
        stack([TRO(prior, update="exact"), TRO(prior, update="exact", divergence="kl")])
    groups = rows().groups
    with pytest.raises(SettingError, match="warm_up differs between runs"):
        stack([VREx(groups, warm_up=1), VREx(groups, warm_up=2)])
