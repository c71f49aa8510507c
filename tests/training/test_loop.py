"""The loop: one seed in, the same bytes out, also when it is interrupted and taken up again."""

import math
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.cases import PRIOR, cross_entropy, toy
from toporo.data.batches import batch_rows, tensors
from toporo.errors import DataError, GroupMismatchError, SettingError, TopoRoWarning
from toporo.objectives import ERM
from toporo.topology.prior import Prior
from toporo.training import (
    MLP,
    RoundRecord,
    StepSettings,
    TrainSettings,
    accuracy_by_group,
    features_of,
    loop,
    outputs_of,
    train,
)  # fmt: skip


def everything(run):
    """All bytes a run leaves behind."""
    model, objective, history = run
    state = {f"model.{k}": v for k, v in model.state_dict().items()}
    state |= {f"objective.{k}": v for k, v in objective.state_dict().items()}
    return {key: value.numpy().tobytes() for key, value in state.items()}, [record.to_dict() for record in history]


# ---------------------------------------------------------------- what it does


def test_every_method_learns(run, method, data):
    model, objective, history = run(method, settings={"rounds": 30})
    assert [record.round for record in history] == list(range(1, 31))
    assert history[-1].loss < 0.8 * history[0].loss
    assert history[-1].weights == objective.weights
    assert np.mean(list(accuracy_by_group(model, data).values())) > 0.65


def test_records_what_evaluate_returns_in_evaluation_mode(run):
    seen, model = [], MLP(2, 2, (8,))
    _, _, history = run(model=model, evaluate=lambda m: {"was training": m.training}, on_record=seen.append)
    assert [record.metrics for record in history] == [{"was training": False}] * 6
    assert seen == history
    assert not model.training


def test_evaluates_every_so_many_epochs_and_after_the_last_one(run):
    calls = iter(range(10))
    *_, history = run(settings={"rounds": 7}, evaluate=lambda m: {"call": next(calls)}, evaluate_every=3)
    assert [record.metrics for record in history] == [{}, {}, {"call": 0}, {}, {}, {"call": 1}, {"call": 2}]


def test_how_often_it_evaluates_changes_nothing_else(run):
    often, rarely = (run(evaluate=lambda m: {"here": True}, evaluate_every=every) for every in (1, 4))
    assert everything(often)[0] == everything(rarely)[0]
    with pytest.raises(SettingError, match="evaluate_every is 0"):
        run(evaluate_every=0)


def test_first_loss_is_the_mean_before_training(data):
    """One epoch of one step over everything: the record holds the loss of the initial model, as plain arithmetic."""
    model = MLP(2, 2, (8,))
    with torch.no_grad():
        x, y = torch.tensor(data.x, dtype=torch.float32), torch.tensor(data.y)
        expected = cross_entropy(model(x), y).mean().item()
    (record,) = train(model, ERM(data.groups), data, cross_entropy, TrainSettings(rounds=1, per_group=20))
    assert record.loss == pytest.approx(expected, rel=1e-6)


def test_one_step_is_adam_on_the_objective(data):
    by_hand, model = MLP(2, 2, (8,)), MLP(2, 2, (8,))
    optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.1, weight_decay=0.01)
    cross_entropy(by_hand(torch.tensor(data.x, dtype=torch.float32)), torch.tensor(data.y)).mean().backward()
    optimizer.step()
    settings = TrainSettings(rounds=1, per_group=20, learning_rate=0.1, weight_decay=0.01)
    train(model, ERM(data.groups), data, cross_entropy, settings)
    for found, expected in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_the_learning_rate_falls_to_a_half_in_its_half_life(run, monkeypatch):
    rates, step = [], loop._step

    def noted(model, objective, optimizer, *rest):
        rates.append(optimizer.param_groups[0]["lr"])
        return step(model, objective, optimizer, *rest)

    monkeypatch.setattr(loop, "_step", noted)
    run(settings={"rounds": 5, "half_life": 2.0})
    each = len(rates) // 5
    assert rates == pytest.approx([0.01 * 0.5 ** (epoch / 2) for epoch in range(5) for _ in range(each)])


def test_a_run_whose_learning_rate_falls_is_taken_up_as_it_was(run, tmp_path):
    how = {"settings": {"half_life": 1.5}}
    straight = everything(run(**how))
    where = {"checkpoint": tmp_path / "run.safetensors", "checkpoint_every": 2}
    with pytest.raises(Interrupted):
        run(on_record=stop_at(3), **how, **where)
    with pytest.raises(DataError, match="differs in half_life"):
        run(settings={"half_life": 2.0}, **where)
    assert everything(run(**how, **where)) == straight


def test_paired_batches_hold_the_same_places_of_all_groups(data):
    rows = batch_rows(data, 4, seed=3, epoch=1, paired=True)
    places = {row: place for name in data.groups for place, row in enumerate(data.rows(name))}
    for batch in rows:
        one, *others = [[places[row] for row in part] for part in batch.reshape(len(data.groups), 4)]
        assert all(other == one for other in others)
    assert not np.array_equal(rows, batch_rows(data, 4, seed=3, epoch=2, paired=True))
    with pytest.raises(SettingError, match="for runs by epochs alone"):
        StepSettings(paired=True)
    with pytest.raises(SettingError, match="for runs by epochs alone"):
        StepSettings(half_life=3.0)


class Turning(ERM):
    """A stranger's method that becomes another one on the way."""

    betas = (0.5, 0.9)

    def __init__(self, groups, warm_up):
        super().__init__(groups)
        self.warm_up = warm_up


@pytest.mark.parametrize("warm_up", [0, 1, 7, 10, 19])
def test_the_optimiser_is_reset_after_the_warm_up(run, data, warm_up, tmp_path):
    """Within an epoch (of five steps), between two, at the last step and never; also where a run is resumed there."""
    by_hand = MLP(2, 2, (8,))
    x, y, _ = tensors(data, "cpu")
    for epoch in range(4):
        for step, rows in enumerate(batch_rows(data, 4, seed=0, epoch=epoch), 5 * epoch):
            if step in (0, warm_up):
                optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.01, betas=Turning.betas)
            optimizer.zero_grad()
            cross_entropy(by_hand(x[rows]), y[rows]).mean().backward()
            optimizer.step()
    settings = TrainSettings(rounds=4, per_group=4, learning_rate=0.01)
    where = {"checkpoint": tmp_path / "run.safetensors", "checkpoint_every": 2}
    for stopped, how in ((None, {}), (2, where), (None, where)):
        model = MLP(2, 2, (8,))
        with pytest.raises(Interrupted) if stopped else nullcontext():
            train(model, Turning(data.groups, warm_up), data, cross_entropy, settings,
                  on_record=stop_at(stopped + 1) if stopped else None, **how)  # fmt: skip
        if not stopped:
            for found, expected in zip(model.parameters(), by_hand.parameters(), strict=True):
                assert torch.equal(found, expected)


def test_a_run_that_ends_within_the_warm_up_warns(run, data):
    """Five steps an epoch: the penalty would be 1 throughout, whatever the settings say."""
    settings = {"rounds": 2, "per_group": 4}
    with pytest.warns(TopoRoWarning, match="within the warm-up of VREx: it has 10 steps, the warm-up 10"):
        run("vrex", settings=settings, objective_settings={"warm_up": 10})
    run("vrex", settings=settings, objective_settings={"warm_up": 9})


# ---------------------------------------------------------------- determinism


@pytest.mark.parametrize("name", ["erm", "irm", "tro"])
def test_same_seed_same_bytes(run, name):
    """... whatever the global random state; another seed draws other batches."""
    torch.manual_seed(1)
    first = everything(run(name))
    torch.manual_seed(2)
    assert everything(run(name)) == first
    assert everything(run(name, settings={"seed": 1})) != first


def test_training_leaves_the_global_random_state_alone(run):
    model = MLP(2, 2, (8,))
    before = torch.get_rng_state()
    run(model=model)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["erm", "tro"])
def test_one_thread_or_two_same_bytes(run, name):
    """At a size where torch does share the work out."""
    data, settings = toy(size=400), {"rounds": 2, "per_group": 200}
    runs = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            runs.append(everything(run(name, data=data, model=MLP(2, 2, (64, 64)), settings=settings)))
    finally:
        torch.set_num_threads(1)
    assert runs[0] == runs[1]


class Noisy(MLP):
    """A model that draws random numbers while it trains, as most large ones do."""

    def features(self, x):
        return nn.functional.dropout(super().features(x), 0.5, self.training)


def test_same_seed_same_bytes_with_dropout(run):
    torch.manual_seed(1)
    first = everything(run(model=Noisy(2, 2, (8,))))
    torch.manual_seed(2)
    assert everything(run(model=Noisy(2, 2, (8,)))) == first


# ---------------------------------------------------------------- interruption


class Interrupted(Exception):
    pass


def stop_at(epoch):
    def on_record(record):
        if record.round == epoch:
            raise Interrupted

    return on_record


@pytest.mark.parametrize("name", ["erm", "tro", "group-dro", "irm"])
@pytest.mark.parametrize("stopped", [1, 3, 5])
def test_an_interrupted_run_ends_as_an_uninterrupted_one(run, tmp_path, name, stopped):
    """Stopped before the first checkpoint (every second epoch), between two, and after the last: same bytes."""
    straight = everything(run(name))
    where = {"checkpoint": tmp_path / "run.safetensors", "checkpoint_every": 2}
    with pytest.raises(Interrupted):
        run(name, on_record=stop_at(stopped), **where)
    assert where["checkpoint"].exists() == (stopped > 1)
    assert everything(run(name, **where)) == straight


def test_a_resumed_run_does_not_repeat_what_is_done(run, tmp_path):
    where, again = {"checkpoint": tmp_path / "run.safetensors", "checkpoint_every": 2}, []
    with pytest.raises(Interrupted):
        run(on_record=stop_at(5), **where)
    run(on_record=lambda record: again.append(record.round), **where)
    assert again == [5, 6]
    finished = everything(run(on_record=stop_at(6), **where))  # nothing is left to do, so nothing stops it
    assert finished == everything(run())


def test_a_checkpoint_that_another_process_replaces_is_read_as_one(run, tmp_path, monkeypatch):
    """The second reading would have the weights of epoch 4 with the history of epoch 2."""
    where = {"checkpoint": tmp_path / "run.safetensors", "checkpoint_every": 2}
    contents, opened = [], loop.safe_open
    for stopped in (5, 3):
        with pytest.raises(Interrupted):
            run(on_record=stop_at(stopped), **where)
        contents.append(where["checkpoint"].read_bytes())
        where["checkpoint"].unlink()

    def replaced(path, **how):
        path.write_bytes(contents.pop())
        return opened(path, **how)

    where["checkpoint"].write_bytes(contents[-1])
    monkeypatch.setattr(loop, "safe_open", replaced)
    assert everything(run(**where)) == everything(run())


def test_a_checkpoint_that_another_process_removes_is_none(run, tmp_path, monkeypatch):
    path, opened = tmp_path / "run.safetensors", loop.safe_open
    run(checkpoint=path)

    def removed(path, **how):
        path.unlink()
        return opened(path, **how)

    monkeypatch.setattr(loop, "safe_open", removed)
    assert everything(run(checkpoint=path)) == everything(run())


@pytest.mark.parametrize("about", [{}, {"history": 3}, {"history": [3]}, {"history": [{}]}, {"run": None}], ids=str)
def test_a_checkpoint_without_a_history_is_refused(run, tmp_path, about):
    path = tmp_path / "run.safetensors"
    model, objective, _ = run(checkpoint=path)
    about = {"run": loop.read_about(path)["run"]} | about
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    loop.save_checkpoint(path, model=model, objective=objective, optimizer=adam, about=about)
    with pytest.raises(DataError, match="Delete it to start over"):
        run(checkpoint=path)


def test_an_interrupted_run_with_dropout_ends_as_an_uninterrupted_one(run, tmp_path):
    def noisy(**about):
        torch.manual_seed(0)
        return run(model=Noisy(2, 2, (8,)), checkpoint_every=2, **about)

    straight = everything(noisy())
    with pytest.raises(Interrupted):
        noisy(checkpoint=tmp_path / "run.safetensors", on_record=stop_at(3))
    assert everything(noisy(checkpoint=tmp_path / "run.safetensors")) == straight


def test_a_resumed_history_holds_the_same_metrics(run, tmp_path, data):
    """Metrics by group are keyed by names, which are numbers here; JSON would turn them into text."""

    def go(**about):
        return run(evaluate=lambda model: {"accuracy": accuracy_by_group(model, data)}, checkpoint_every=2, **about)[2]

    with pytest.raises(Interrupted):
        go(checkpoint=tmp_path / "run.safetensors", on_record=stop_at(3))
    assert go(checkpoint=tmp_path / "run.safetensors") == go()


@pytest.mark.parametrize(
    "other",
    [
        {"settings": {"seed": 1}},
        {"settings": {"learning_rate": 0.1}},
        {"settings": {"rounds": 7}},
        {"settings": {"per_group": 4}},
        {"method": "erm"},
        {"method": "group-dro"},
        {"data": toy(size=21)},
        {"data": toy(seed=1)},
        {"data": toy(names=(15, 2, 4)), "prior": Prior({2: 0.5, 4: 0.3, 15: 0.2})},
        {"prior": Prior({1: 0.2, 3: 0.3, 14: 0.5})},
        {"objective_settings": {"penalty": 9.0}},
        {"objective_settings": {"update": "exact"}},
        {"objective_settings": {"divergence": "kl", "update": "ascent"}},
        {"model": MLP(2, 2, (9,))},
    ],
    ids=[
        "seed",
        "learning rate",
        "epochs",
        "batch size",
        "erm",
        "group dro",
        "more rows",
        "other rows",
        "other groups",
        "other prior",
        "other penalty",
        "other update",
        "other divergence",
        "other model",
    ],
)
def test_a_checkpoint_of_another_run_is_refused(run, tmp_path, other):
    """Going on from it would give a run that is neither the one nor the other. The file stays as it is."""
    path = tmp_path / "run.safetensors"
    run(checkpoint=path)
    saved = path.read_bytes()
    with pytest.raises(DataError, match=r"(?s)the checkpoint .*run\.safetensors .*Delete it"):
        run(**other, checkpoint=path)
    assert path.read_bytes() == saved


def test_a_method_by_the_recipe_does_not_take_up_another_penalty(recipe, data, tmp_path):
    """As CONTRIBUTING.md has it, word for word: its constructor tells its parent nothing of the penalty."""
    path = tmp_path / "run.safetensors"

    def go(penalty):
        objective = recipe.MyMethod(data.groups, penalty=penalty)
        history = train(MLP(2, 2, (8,)), objective, data, cross_entropy, TrainSettings(rounds=2), checkpoint=path)
        return [record.loss for record in history]

    weak = go(0.001)
    with pytest.raises(DataError, match=r"another run: it differs in objective\.penalty \(0\.001 there, 50\.0 here\)"):
        go(50.0)
    assert go(0.001) == weak
    path.unlink()
    assert go(50.0) != weak


def test_an_objective_that_cannot_be_told_from_another_is_refused_before_training(recipe, data, tmp_path):
    class Odd(recipe.MyMethod):
        def __init__(self, groups, lock):
            super().__init__(groups)
            self.lock = lock

    def go(**about):
        return train(MLP(2, 2), Odd(data.groups, threading.Lock()), data, cross_entropy, TrainSettings(1), **about)

    with pytest.raises(SettingError, match=r"lock of Odd is a lock that cannot be written down .*without a checkpoint"):
        go(checkpoint=tmp_path / "run.safetensors", on_record=stop_at(1))
    assert len(go()) == 1


def test_a_refused_checkpoint_leaves_the_model_alone(run, tmp_path):
    """Who catches the error and trains without a checkpoint must not start from someone else's weights."""
    path, model = tmp_path / "run.safetensors", MLP(2, 2, (8,), seed=5)
    run(checkpoint=path)
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(DataError, match="of another run"):
        run(model=model, settings={"seed": 1}, checkpoint=path)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_the_run(data, bad, tmp_path):
    """... with what to try, and without a checkpoint of the wreck."""
    path = tmp_path / "run.safetensors"
    with pytest.raises(DataError, match=rf"training loss became {bad} in epoch 1: lower the learning rate \(0.001\)"):
        train(
            MLP(2, 2, (8,)),
            ERM(data.groups),
            data,
            lambda out, y: cross_entropy(out, y) * bad,
            TrainSettings(rounds=2),
            checkpoint=path,
            checkpoint_every=1,
        )
    assert not path.exists()


def test_groups_of_data_and_objective_must_agree(data):
    with pytest.raises(GroupMismatchError) as caught:
        train(MLP(2, 2), ERM([1, 3, 99]), data, cross_entropy, TrainSettings())
    assert "In the data but not in the groups of ERM: 14." in str(caught.value)
    assert "In the groups of ERM but not in the data: 99." in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds is 0: expected at least 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0: expected a positive number"),
        ({"learning_rate": math.nan}, "learning_rate is nan"),
        ({"learning_rate": math.inf}, "learning_rate is inf"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"per_group": 0}, "per_group"),
        ({"seed": -1}, "seed"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_settings_are_refused_before_training(settings, message):
    with pytest.raises(SettingError, match=message):
        TrainSettings(**settings)


def test_a_checkpoint_every_zero_epochs_is_refused(run, tmp_path):
    with pytest.raises(SettingError, match="checkpoint_every"):
        run(checkpoint=tmp_path / "run.safetensors", checkpoint_every=0)


# ---------------------------------------------------------------- helpers


def test_records_survive_json():
    record = RoundRecord(3, 0.5, {("NY", 2): 0.25, 14: 0.75}, {"accuracy": 0.9})
    stored = record.to_dict()
    assert RoundRecord.from_dict(stored) == record
    stored["epoch"] = stored.pop("round")  # as model folders had it
    assert RoundRecord.from_dict(stored) == record


def test_settings_of_the_other_loop_are_refused(data):
    with pytest.raises(SettingError, match="StepSettings counts steps: use train_steps, or TrainSettings"):
        train(MLP(2, 2), ERM(data.groups), data, cross_entropy, StepSettings())


def test_accuracy_by_group_counts_each_group_by_itself(data):
    class Always(nn.Module):
        def forward(self, x):
            return torch.tensor([0.0, 1.0]).expand(len(x), 2)

    expected = {name: float(data.y[data.rows(name)].mean()) for name in data.groups}
    assert accuracy_by_group(Always(), data) == pytest.approx(expected, rel=1e-15)
    assert len(set(expected.values())) > 1


def test_outputs_of_every_row(data):
    model = MLP(2, 2, (8,))
    outputs = outputs_of(model, data)
    expected = model.predict(torch.tensor(data.x, dtype=torch.float32))
    np.testing.assert_allclose(outputs, expected.numpy(), rtol=1e-6)


def test_features_of_every_row(data):
    model = MLP(2, 2, (8,))
    features = features_of(model, data)
    assert features.shape == (len(data), 8)
    one = model.features(torch.tensor(data.x[7:8], dtype=torch.float32))
    np.testing.assert_allclose(features[7:8], one.detach().numpy(), rtol=1e-5)


def test_prior_of_the_toy_is_not_in_its_listed_order():
    """Guards the tests above: the names of rows and prior come in different orders."""
    assert list(dict.fromkeys(toy().ids.names)) == [14, 1, 3] != list(PRIOR.weights)
