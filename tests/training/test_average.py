"""Averaged weights: their definition, and their part in a run and in checkpoints."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.training.cases import UNITS, Interrupted, everything, flat, run
from toporo.errors import SettingError
from toporo.training import Stepper
from toporo.training.average import PATIENCE_BEGIN, PATIENCE_END, TOLERANCE, SwadAverage, UniformAverage

KINDS = [0, 3, "swad"]


def losses_of(model):
    """Metrics that depend on the weights."""
    value = float(flat(model).square().mean())
    return {"validation_loss": value, "test": -value}


@pytest.fixture
def steps(monkeypatch):
    """The weights after every step."""
    seen, step = [], Stepper._step

    def noted(stepper):
        step(stepper)
        seen.append(flat(stepper.network))

    monkeypatch.setattr(Stepper, "_step", noted)
    return seen


# ---------------------------------------------------------------- definition


@pytest.mark.parametrize(("unit", "after"), [("epochs", 0), ("epochs", 5), ("steps", 10), ("steps", 23)])
def test_the_mean_is_over_every_step_after_so_many_rounds(steps, unit, after):
    model, _, result = run(unit=unit, plan={"average": after}, evaluate=losses_of)
    per_round = len(steps) // UNITS[unit]["rounds"]
    torch.testing.assert_close(flat(model), torch.stack(steps[after * per_round :]).mean(dim=0), rtol=1e-5, atol=1e-7)
    for record in result.history:
        assert ("averaged_test" in record.metrics) == (record.round > after)
        if record.round > after:
            mean = torch.stack(steps[after * per_round : record.round * per_round]).mean(dim=0)
            assert record.metrics["averaged_test"] == pytest.approx(-float(mean.square().mean()), rel=1e-4)


@pytest.mark.parametrize("average", KINDS)
def test_averaging_does_not_change_training_or_other_metrics(steps, average):
    model, _, plain = run(plan={"rounds": 12}, evaluate=losses_of)
    averaged, _, result = run(plan={"rounds": 12, "average": average}, evaluate=losses_of)
    assert torch.equal(steps[-1], flat(model))
    assert not torch.equal(flat(averaged), flat(model))
    for record, other in zip(result.history, plain.history, strict=True):
        assert record.loss == other.loss
        assert {k: v for k, v in record.metrics.items() if not k.startswith("averaged_")} == other.metrics


def test_the_mean_is_a_network_of_its_own():
    """Training goes on without it. Buffers of batch normalisation are averaged, counters are not."""
    net = nn.BatchNorm1d(2)
    average = UniformAverage(net)
    for step in range(4):
        net.running_mean.fill_(step)
        net.num_batches_tracked.fill_(step)
        average.step(net.train(), step)
    net.running_mean.fill_(9.0)
    assert average.mean().running_mean.tolist() == [1.5, 1.5]
    assert average.mean().num_batches_tracked == 3
    assert not average.mean().training


# ---------------------------------------------------------------- SWAD's window


class Counted(nn.Module):
    """A network of one weight, set by hand."""

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
    """Also if it is resumed from a checkpoint."""
    net = Counted()
    average, step = SwadAverage(net), 0
    for number, loss in enumerate(losses):
        if number == cut:
            state, average = average.state_dict(), SwadAverage(net)
            average.load_state_dict(state)
        for _ in range(every):
            step += 1
            with torch.no_grad():
                net.weight.fill_(step)
            average.step(net, step - 1)
        average.evaluated({"validation_loss": loss})
    found, expected = average.mean(), window(losses)
    if expected is None:
        assert found is None
    else:
        window_steps = range(expected[0] * every + 1, (expected[1] + 1) * every + 1)
        assert found.weight.item() == pytest.approx(np.mean(window_steps), rel=1e-12)


def test_swad_keeps_few_means_in_a_long_run():
    net = Counted()
    average = SwadAverage(net)
    for step in range(200):
        average.step(net, step)
        average.evaluated({"validation_loss": 1.0})
    assert len(average.state_dict()) <= 2 * (PATIENCE_END + 2)


def test_swad_without_a_validation_loss_says_what_it_needs():
    with pytest.raises(SettingError, match=r"to return a number as 'validation_loss', found nothing"):
        run(plan={"average": "swad"})
    with pytest.raises(SettingError, match=r"found 'test'"):
        run(plan={"average": "swad"}, evaluate=lambda _: {"test": 1.0})


# ---------------------------------------------------------------- interruption


@pytest.mark.parametrize(
    ("unit", "average", "stopped"),
    [*(("epochs", kind, stop) for kind in (3, "swad") for stop in (4, 10)), ("steps", 10, 24)],
)
def test_a_resumed_run_has_the_same_mean(tmp_path, unit, average, stopped):
    plan = {"average": average} | ({"rounds": 12} if unit == "epochs" else {})
    how = {"unit": unit, "plan": plan, "evaluate": losses_of}
    straight = everything(run(**how))
    with pytest.raises(Interrupted):
        run(stop=stopped, checkpoint=tmp_path / "c", **how)
    for _ in range(2):  # the second time from the checkpoint of the finished run
        assert everything(run(checkpoint=tmp_path / "c", **how)) == straight
