"""Settings of a training run are checked before it begins."""

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import torch

from toporo.errors import SettingError, UnknownNameError
from toporo.training import TrainingPlan, pick_device


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 2.5}, "rounds is 2.5: expected a whole number of at least 1"),
        ({"evaluate_every": 0}, "evaluate_every is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0: expected a positive number"),
        ({"learning_rate": math.inf}, "learning_rate is inf"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"seed": -1}, "seed is -1"),
        ({"half_life": 0.0}, "half_life is 0.0"),
        ({"half_life": 3.0, "unit": "steps"}, "expected unit='epochs' and graph=False"),
        ({"graph": True}, "only a GPU captures steps"),
        ({"rounds": 100, "average": 100}, "average is 100: expected a whole number from 0 to 99, fewer than the 100"),
        ({"unit": "hours"}, r"'hours'\. Valid names: epochs, steps"),
        ({"precision": "fp16"}, "'fp16'.*Valid names: bf16, fp32"),
        ({"average": "ema"}, r"average is 'ema'"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_errors(settings, message):
    with pytest.raises((SettingError, UnknownNameError), match=message):
        TrainingPlan(**settings)


def test_whole_numbers_of_any_type_are_plain():
    """A checkpoint writes them as JSON."""
    plan = TrainingPlan(rounds=np.int64(3), evaluate_every=2.0, seed=np.uint8(1))
    assert json.dumps(asdict(plan)) == json.dumps(asdict(TrainingPlan(rounds=3, evaluate_every=2, seed=1)))


def test_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingError, match=r"no GPU: .*Use the device 'cpu'"):
        pick_device("cuda")
    with pytest.raises(UnknownNameError, match=r"'gpu'.*Valid names: auto, cpu, cuda"):
        pick_device("gpu")
    assert pick_device("auto") == pick_device("cpu") == "cpu"
