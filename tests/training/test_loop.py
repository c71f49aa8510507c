"""The training loop: one seed in, the same bytes out, also when it is interrupted and resumed."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from tests.training.cases import (
    UNITS,
    Interrupted,
    augment,
    batches_of,
    cross_entropy,
    everything,
    flat,
    interrupted,
    objective_of,
    run,
    toy,
)
from toporo.errors import DataError, GroupMismatchError, TopoRoWarning
from toporo.objectives import ERM, OBJECTIVES
from toporo.topology.prior import Prior
from toporo.training import MLP, Batches, TrainingPlan, fit, loop, outputs_of
from toporo.training.checkpoint import read_checkpoint, write_checkpoint

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; this machine has none")
every_unit = pytest.mark.parametrize("unit", UNITS)


@pytest.fixture
def data():
    return toy()


def plain():
    return MLP(2, 2, (8,))


def accuracy(model, data):
    """Share of rows classified correctly, by group."""
    right = outputs_of(model, data).argmax(axis=1) == data.y
    return data.groups.named(np.bincount(data.codes, right) / np.bincount(data.codes))


# ---------------------------------------------------------------- one step


@every_unit
def test_a_step_has_the_groups_of_its_rows(unit, data):
    """With weight on one group, the gradient is that of its rows."""
    objective = objective_of("iw-erm", data, Prior.from_weights({1: 0.0, 3: 1.0, 14: 0.0}))
    batches, model = batches_of(data, augmented=unit == "steps"), plain()
    batches.prepare = None
    plan = TrainingPlan(rounds=1, unit=unit, learning_rate=1e-9)
    fit(model, objective, batches, cross_entropy, plan)
    last = torch.as_tensor(batches.draw(plan, 0, 1)[0][-1, 4:8])  # groups in their order: 1, 3, 14
    x = torch.as_tensor(data.x, dtype=torch.float32)
    losses = cross_entropy(model(x[last]), torch.as_tensor(data.y)[last])
    (expected,) = torch.autograd.grad(losses.mean(), model.head.weight)
    torch.testing.assert_close(model.head.weight.grad, expected)


class Turning(ERM):
    """A method that changes after a warm-up."""

    betas = (0.5, 0.9)

    def __init__(self, groups, warm_up):
        super().__init__(groups)
        self.warm_up = warm_up


@every_unit
@pytest.mark.parametrize("warm_up", [0, 7, 8, 19])
def test_training_is_a_plain_loop_with_adam(data, unit, warm_up, tmp_path):
    """The learning rate falls by epochs; Adam is reset never, within a round, between two, and at the last step."""
    batches = batches_of(data, augmented=unit == "steps")
    length, last = {
        "epochs": ({"rounds": 4, "half_life": 2.0, "evaluate_every": 2}, 4),
        "steps": ({"rounds": 20, "unit": "steps", "evaluate_every": 8}, 20),
    }[unit]
    plan = TrainingPlan(learning_rate=0.01, weight_decay=0.01, **length)
    by_hand, losses = plain(), []
    for step, (rows, uniforms) in enumerate(zip(*batches.draw(plan, 0, plan.rounds), strict=True)):
        x, y = batches.x[rows], batches.y[rows]
        if unit == "steps":
            x, y = augment(x, y, torch.as_tensor(uniforms))
        if step in (0, warm_up):
            optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.01, betas=Turning.betas, weight_decay=0.01)
        if unit == "epochs":
            optimizer.param_groups[0]["lr"] = 0.01 * 0.5 ** (step // 5 / 2)
        loss = cross_entropy(by_hand(x), y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    parts = np.split(losses, [5, 10, 15] if unit == "epochs" else [8, 16])
    file = tmp_path / "run.safetensors"
    for stop, checkpoint in ((None, None), (last, file), (None, file)):
        model, objective = plain(), Turning(data.groups, warm_up)
        rows = interrupted(batches_of(data, augmented=unit == "steps"), stop)
        with pytest.raises(Interrupted) if stop else nullcontext():
            found = fit(model, objective, rows, cross_entropy, plan, checkpoint=checkpoint)
        if not stop:
            assert torch.equal(flat(model), flat(by_hand))
            assert [record.loss for record in found.history] == pytest.approx([part.mean() for part in parts], rel=1e-6)


@every_unit
def test_a_run_that_ends_within_the_warm_up_warns(unit):
    """The penalty would never count in full."""
    steps = {"epochs": 10, "steps": 24}[unit]
    rounds = {"rounds": 2} if unit == "epochs" else {}
    with pytest.warns(TopoRoWarning, match=f"within the warm-up of VREx: it has {steps} steps, the warm-up {steps}"):
        run("vrex", unit, plan=rounds, about={"warm_up": steps})
    run("vrex", unit, plan=rounds, about={"warm_up": steps - 1})


# ---------------------------------------------------------------- rounds and records


@pytest.mark.parametrize("method", OBJECTIVES)
def test_every_method_learns(method, data):
    model, objective, result = run(method, model=plain(), plan={"rounds": 30}, data=data)
    assert [record.round for record in result.history] == list(range(1, 31))
    assert result.history[-1].loss < 0.8 * result.history[0].loss
    assert result.history[-1].weights == objective.weights
    assert np.mean(list(accuracy(model, data).values())) > 0.65
    assert result.seconds > 0 < result.steps_per_second


def test_a_single_round_has_a_speed():
    """The first round is left out only if there are others."""
    assert run(plan={"rounds": 1})[2].steps_per_second > 0


@pytest.mark.parametrize(("unit", "rounds"), [("epochs", range(1, 8)), ("steps", [3, 6, 7])])
def test_rounds_are_recorded_and_evaluated_as_planned(unit, rounds):
    """Evaluations do not change the training. The weights of a network in bf16 are in single precision."""
    plan = {"rounds": 7, "evaluate_every": 3, "precision": "bf16"}
    made = run("erm", unit, plan=plan, evaluate=lambda m: {"training": m.training})
    assert [record.round for record in made[2].history] == list(rounds)
    assert [record.metrics for record in made[2].history] == [
        {"training": False} if n in (3, 6, 7) else {} for n in rounds
    ]
    assert everything(made)[0] == everything(run("erm", unit, plan=plan))[0]
    assert made[0].head.weight.dtype == torch.float32


# ---------------------------------------------------------------- determinism


@every_unit
def test_same_seed_same_bytes(unit):
    """For any global random state, which does not change; another seed draws other batches."""
    torch.manual_seed(1)
    first = everything(run(unit=unit))
    torch.manual_seed(2)
    before = torch.get_rng_state()
    assert everything(run(unit=unit)) == first
    assert torch.equal(torch.get_rng_state(), before)
    assert everything(run(unit=unit, plan={"seed": 1})) != first


def test_one_thread_or_two_same_bytes():
    """At a size at which torch uses several threads."""
    data, runs = toy(size=400), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            made = run(data=data, model=MLP(2, 2, (64, 64)), plan={"rounds": 2}, how={"per_group": 200})
            runs.append(everything(made))
    finally:
        torch.set_num_threads(1)
    assert runs[0] == runs[1]


# ---------------------------------------------------------------- interruption


@every_unit
@pytest.mark.parametrize(("method", "stop"), [("tro", 0), ("tro", 2), *((method, 1) for method in OBJECTIVES)])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(tmp_path, unit, method, stop):
    """Stopped before the first checkpoint, between two, and after the last but one: same bytes."""
    data, path = toy(), tmp_path / "run.safetensors"
    how = {"evaluate": lambda model: {"accuracy": accuracy(model, data)}}  # keyed by names that are numbers
    straight = run(method, unit, **how)
    rounds = [record.round for record in straight[2].history]
    with pytest.raises(Interrupted):
        run(method, unit, checkpoint=path, stop=rounds[stop], **how)
    assert path.exists() == (stop > 0)
    other = type(straight[0])(2, 2, (8,), seed=9) if stop else None
    made = run(method, unit, model=other, checkpoint=path, stop=rounds[stop - 1] if stop else None, **how)
    assert everything(made) == everything(straight)
    assert made[2].history == straight[2].history
    finished = run(method, unit, checkpoint=path, stop=rounds[-1], **how)
    assert everything(finished) == everything(straight), "no round is left"


def test_checkpoints_are_apart_and_one_is_always_written_after_the_last_round(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 1e6)
    with pytest.raises(Interrupted):
        run(checkpoint=tmp_path / "c", stop=6)
    assert not (tmp_path / "c").exists()
    run(checkpoint=tmp_path / "c")
    assert len(read_checkpoint(tmp_path / "c")[1]["history"]) == 6


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({"plan": {"seed": 1}}, "seed"),
        ({"plan": {"rounds": 7}}, "rounds is 6 there and 7 here"),
        ({"how": {"per_group": 8}}, "per_group"),
        ({"how": {"paired": True}}, "paired"),
        ({"unit": "steps"}, "unit"),
        ({"method": "erm"}, "objective.class"),
        ({"data": toy(seed=1)}, "data"),
        ({"data": toy(names=(15, 2, 4)), "prior": Prior({2: 0.5, 4: 0.3, 15: 0.2})}, "objective.groups"),
        ({"prior": Prior({1: 0.2, 3: 0.3, 14: 0.5})}, "objective.prior"),
        ({"about": {"penalty": 9.0}}, "objective.penalty"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, other, differs):
    """File and network do not change."""
    path, model = tmp_path / "run.safetensors", MLP(2, 2, (8,), seed=5)
    run(checkpoint=path)
    saved, before = path.read_bytes(), flat(model)
    with pytest.raises(
        DataError, match=rf"checkpoint .*run\.safetensors does not fit \(it is of another run: .*{differs}.*Delete"
    ):
        run(**other, model=model, checkpoint=path)
    assert path.read_bytes() == saved
    assert torch.equal(flat(model), before)


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    run(checkpoint=tmp_path / "c")
    with pytest.raises(DataError, match=r"(?s)does not fit \(Error.* in loading state_dict for ModuleDict.*Delete it"):
        run(model=MLP(2, 2, (9,)), checkpoint=tmp_path / "c")


@pytest.mark.parametrize("about", [{}, {"run": {}, "history": 3}, {"run": {}, "history": [{}]}, {"run": 1}], ids=str)
def test_a_checkpoint_without_a_history_is_refused(tmp_path, about):
    write_checkpoint(tmp_path / "c", {}, about)
    with pytest.raises(DataError, match="Delete it to start over"):
        run(checkpoint=tmp_path / "c")


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(("bad", "unit", "when"), [(math.nan, "epochs", "epoch 1"), (math.inf, "steps", "step 8")])
def test_a_loss_that_is_not_finite_stops_the_run(data, bad, unit, when, tmp_path):
    """No checkpoint is written."""
    message = rf"training loss became (inf|nan) by {when}: lower the learning rate \(0.01\)"
    plan = TrainingPlan(**UNITS[unit])
    with pytest.raises(DataError, match=message):
        fit(plain(), ERM(data.groups), Batches.of(data), lambda out, y: cross_entropy(out, y) * bad, plan,
            checkpoint=tmp_path / "c")  # fmt: skip
    assert not (tmp_path / "c").exists()


def test_groups_of_data_and_objective_must_agree(data):
    with pytest.raises(GroupMismatchError, match=r"not in the groups of ERM: 14\..*not in the data: 99\."):
        fit(plain(), ERM([1, 3, 99]), Batches.of(data), cross_entropy, TrainingPlan())


# ---------------------------------------------------------------- CUDA


@needs_cuda
@pytest.mark.parametrize(("method", "about"), [*((name, {}) for name in sorted(OBJECTIVES)), ("irm", {"warm_up": 11})])
def test_a_captured_step_does_what_single_steps_do(method, about):
    """Compiled and replayed on a GPU, step by step there, and on a CPU: the same training but for rounding."""
    found = {}
    for name, how in {
        "graph": {"device": "cuda", "graph": True},
        "graph, averaged": {"device": "cuda", "graph": True, "average": 10},
        "steps": {"device": "cuda"},
        "cpu": {},
        "cpu, averaged": {"average": 10},
    }.items():
        model, _, result = run(method, "steps", model=plain(), about=about, plan=how)
        found[name] = flat(model), [record.loss for record in result.history], result.history[-1].weights
    for one, other in (("graph", "steps"), ("graph", "cpu"), ("graph, averaged", "cpu, averaged")):
        torch.testing.assert_close(found[one][0], found[other][0], rtol=2e-3, atol=2e-3)
        assert found[one][1] == pytest.approx(found[other][1], rel=2e-3)
        assert found[one][2] == pytest.approx(found[other][2], rel=2e-3)


@needs_cuda
@pytest.mark.parametrize("graph", [False, True])
def test_an_interrupted_run_on_a_gpu_goes_on_from_its_checkpoint(tmp_path, graph):
    plan = {"device": "cuda", "graph": graph}
    whole, *_ = run("tro", "steps", plan=plan)
    with pytest.raises(Interrupted):
        run("tro", "steps", plan=plan, checkpoint=tmp_path / "c", stop=24)
    model, _, result = run("tro", "steps", plan=plan, checkpoint=tmp_path / "c", model=type(whole)(2, 2, (8,), seed=9))
    assert [record.round for record in result.history] == [8, 16, 24]
    torch.testing.assert_close(flat(model), flat(whole), rtol=2e-3, atol=2e-3)
