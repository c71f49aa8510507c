"""Averaged weights: their definition, in both loops; beside the raw ones; kept in checkpoints."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.training import test_steps as by_steps
from tests.training.test_loop import Interrupted, stop_at
from tests.training.test_steps import needs_cuda
from toporo.errors import DataError, SettingError, UnknownNameError
from toporo.training import MLP, Stepper, StepSettings, TrainSettings, loop
from toporo.training.average import PATIENCE_BEGIN, PATIENCE_END, TOLERANCE, SwadAverage, make_average

WAYS = [0, 3, "swad"]


def flat(model):
    return torch.cat([value.detach().cpu().flatten() for value in model.state_dict().values()])


def losses_of(model):
    """Something to evaluate: both numbers depend on the weights."""
    value = float(flat(model).double().square().mean())
    return {"validation_loss": value, "test": -value}


@pytest.fixture
def steps(monkeypatch):
    """The weights after every step of either loop."""
    seen = []

    def noted(step, network_of):
        def go(*args, **kwargs):
            result = step(*args, **kwargs)
            seen.append(flat(network_of(args)))
            return result

        return go

    monkeypatch.setattr(loop, "_step", noted(loop._step, lambda args: args[0]))
    monkeypatch.setattr(Stepper, "_step", noted(Stepper._step, lambda args: args[0].network))
    return seen


# ---------------------------------------------------------------- what it is


@pytest.mark.parametrize("after", [0, 2, 5])
def test_the_mean_is_over_every_step_after_so_many_epochs(run, steps, after):
    model, _, history = run(settings={"rounds": 6, "average": after}, evaluate=losses_of)
    each = len(steps) // 6
    assert each > 1
    torch.testing.assert_close(flat(model), torch.stack(steps[after * each :]).mean(dim=0), rtol=1e-5, atol=1e-7)
    assert ["averaged_test" in record.metrics for record in history] == [n > after for n in range(1, 7)]
    for record in history[after:]:
        mean = torch.stack(steps[after * each : record.round * each]).mean(dim=0)
        assert record.metrics["averaged_test"] == pytest.approx(-float(mean.double().square().mean()), rel=1e-4)


@pytest.mark.parametrize("after", [0, 10, 16, 23])
def test_the_mean_is_over_every_step_after_so_many_steps(steps, after):
    net, done = by_steps.run(average=after)
    torch.testing.assert_close(flat(net), torch.stack(steps[after:]).mean(dim=0), rtol=1e-5, atol=1e-7)
    assert ["averaged_test" in record.metrics for record in done.history] == [n > after for n in (8, 16, 24)]


@pytest.mark.parametrize("average", WAYS)
def test_the_raw_weights_train_and_are_evaluated_as_ever(run, steps, average):
    plain = run(settings={"rounds": 12}, evaluate=losses_of)
    del steps[:]
    model, _, history = run(settings={"rounds": 12, "average": average}, evaluate=losses_of)
    assert torch.equal(steps[-1], flat(plain[0]))
    assert not torch.equal(flat(model), flat(plain[0]))
    for record, other in zip(history, plain[2], strict=True):
        assert record.loss == other.loss
        assert {k: v for k, v in record.metrics.items() if not k.startswith("averaged_")} == other.metrics


def test_buffers_of_batch_normalisation_are_averaged_and_counters_are_not():
    net = nn.BatchNorm1d(2)
    average = make_average(net, 0)
    for step in range(4):
        net.running_mean.fill_(step)
        net.num_batches_tracked.fill_(step)
        average.step(step)
    average.finish()
    assert net.running_mean.tolist() == [1.5, 1.5]
    assert net.num_batches_tracked == 3


# ---------------------------------------------------------------- SWAD's window


class Counted(nn.Module):
    """One weight, which is set by hand."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros((), dtype=torch.float64))


def window(losses):
    """First and last evaluation of the window by the authors' algorithm, looking back from each; None if none began."""
    begin = limit = None
    for i in range(len(losses)):
        if begin is None:
            back = losses[max(0, i - PATIENCE_BEGIN + 1) : i + 1]
            if len(back) == PATIENCE_BEGIN and back[0] == min(back):
                begin, limit = i - PATIENCE_BEGIN + 1, TOLERANCE * sum(back) / PATIENCE_BEGIN
        else:
            back = losses[i - PATIENCE_END + 1 : i + 1]
            if i - PATIENCE_END + 1 >= begin and min(back) > limit:
                return begin, i - PATIENCE_END
    return None if begin is None else (begin, len(losses) - 1)


@given(
    losses=st.lists(st.sampled_from([1.0, 1.1, 1.25, 1.5, 2.0, 3.0]), max_size=25),
    every=st.integers(1, 3),
    cut=st.integers(0, 25),
)
def test_swad_averages_the_steps_of_its_authors_window(losses, every, cut):
    """... also where it is taken up again from what a checkpoint keeps."""
    net = Counted()
    average, step = SwadAverage(net), 0
    for place, loss in enumerate(losses):
        if place == cut:
            tensors, about = average.save()
            average = SwadAverage(net)
            average.load(tensors, about)
        for _ in range(every):
            step += 1
            with torch.no_grad():
                net.weight.fill_(step)
            average.step(step - 1)
        average.evaluated({"validation_loss": loss})
    found, expected = average.mean(), window(losses)
    if expected is None:
        assert found is None
    else:
        own = range(expected[0] * every + 1, (expected[1] + 1) * every + 1)
        assert found[0].item() == pytest.approx(np.mean(own), rel=1e-12)


def test_swad_forgets_what_is_behind_its_window():
    """A long run keeps a handful of means, not one for every evaluation."""
    average = SwadAverage(Counted())
    for step in range(200):
        average.step(step)
        average.evaluated({"validation_loss": 1.0})
    assert len(average.parts()) <= PATIENCE_END + 2


# ---------------------------------------------------------------- interruption


@pytest.mark.parametrize("average", WAYS)
@pytest.mark.parametrize("stopped", [3, 5, 9])
def test_a_resumed_run_has_the_same_mean(run, tmp_path, average, stopped):
    how = {"settings": {"rounds": 12, "average": average}, "evaluate": losses_of}
    straight = run(**how)
    where = {"checkpoint": tmp_path / "c", "checkpoint_every": 2}
    with pytest.raises(Interrupted):
        run(on_record=stop_at(stopped), **how, **where)
    for _ in range(2):  # the second time from the checkpoint of the finished run
        model, _, history = run(model=MLP(2, 2, (8,), seed=7), **how, **where)
        assert torch.equal(flat(model), flat(straight[0]))
        assert [record.to_dict() for record in history] == [record.to_dict() for record in straight[2]]


@pytest.mark.parametrize("average", [0, 10])
@pytest.mark.parametrize("stop", [1, 2])
def test_a_resumed_run_by_steps_has_the_same_mean(tmp_path, average, stop):
    whole, straight = by_steps.run(average=average)
    with pytest.raises(KeyboardInterrupt):
        by_steps.run(average=average, checkpoint=tmp_path / "c", stop=2 * stop)
    net, resumed = by_steps.run(average=average, checkpoint=tmp_path / "c", net=by_steps.Net(seed=9))
    assert torch.equal(flat(net), flat(whole))
    assert [r.to_dict() for r in resumed.history] == [r.to_dict() for r in straight.history]


@pytest.mark.parametrize("other", [None, 4, "swad"])
def test_a_resumed_run_with_another_average_is_refused(run, tmp_path, other):
    where = {"checkpoint": tmp_path / "c", "checkpoint_every": 1, "evaluate": losses_of}
    with pytest.raises(Interrupted):
        run(settings={"average": 1}, on_record=stop_at(3), **where)
    with pytest.raises(DataError, match=r"another run: it differs in average.*Delete it, or train with what"):
        run(settings={"average": other}, **where)


def test_a_checkpoint_whose_mean_is_of_another_network_is_refused(tmp_path):
    average = make_average(Counted(), 0)
    average.step(0)
    tensors, about = average.save()
    for broken in ({}, {"mean.weight": torch.zeros(3)}, tensors):
        with pytest.raises(DataError, match="the averaged weights cannot be read"):
            make_average(nn.Linear(2, 1), 0).load(broken, about)
    for broken in ({}, {"counts": 3}, {"counts": {"mean": None}}):
        with pytest.raises(DataError, match="the averaged weights cannot be read"):
            make_average(Counted(), 0).load(tensors, broken)


# ---------------------------------------------------------------- bad settings


@pytest.mark.parametrize("kind", [TrainSettings, StepSettings])
def test_settings_that_average_nothing_are_errors(kind):
    for average in (100, 250, -1, 0.5, math.nan):
        with pytest.raises(SettingError, match=rf"average is {average}: expected a whole number from 0 to 99.*of 100"):
            kind(rounds=100, average=average)
    with pytest.raises(UnknownNameError, match=r"'ema'\. Valid names: swad"):
        kind(average="ema")


def test_swad_without_a_validation_loss_says_what_it_wants(run):
    with pytest.raises(SettingError, match=r"to return a number as 'validation_loss', found nothing"):
        run(settings={"average": "swad"})
    with pytest.raises(SettingError, match=r"found 'test'"):
        run(settings={"average": "swad"}, evaluate=lambda _: {"test": 1.0})


@needs_cuda
def test_a_captured_step_is_averaged_too():
    found = []
    for how in ({"device": "cuda"}, {"device": "cuda", "graph": False, "compiled": False}, {}):
        net, _ = by_steps.run(net=by_steps.Net(dropout=0.0), average=10, **how)
        found.append(flat(net))
    for other in found[1:]:
        torch.testing.assert_close(found[0], other, rtol=2e-3, atol=2e-3)
