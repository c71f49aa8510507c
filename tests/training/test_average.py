"""Averaged weights: their definition, and their part in a run and in checkpoints."""

import pytest
import torch
from torch import nn

from tests.training.cases import UNITS, Interrupted, everything, flat, run
from toporo.training import Stepper
from toporo.training.average import UniformAverage


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


@pytest.mark.parametrize("average", [0, 3])
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


# ---------------------------------------------------------------- interruption


@pytest.mark.parametrize(("unit", "average", "stopped"), [("epochs", 3, 4), ("epochs", 3, 10), ("steps", 10, 24)])
def test_a_resumed_run_has_the_same_mean(tmp_path, unit, average, stopped):
    plan = {"average": average} | ({"rounds": 12} if unit == "epochs" else {})
    how = {"unit": unit, "plan": plan, "evaluate": losses_of}
    straight = everything(run(**how))
    with pytest.raises(Interrupted):
        run(stop=stopped, checkpoint=tmp_path / "c", **how)
    for _ in range(2):  # the second time from the checkpoint of the finished run
        assert everything(run(checkpoint=tmp_path / "c", **how)) == straight
