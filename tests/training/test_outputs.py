"""Outputs and features of a network on many rows; records in JSON."""

import numpy as np
import pytest
import torch

from tests.training.cases import Noisy, toy
from toporo.errors import DataError
from toporo.training import MLP, RoundRecord, TrainingPlan, outputs_at, outputs_of

DATA = toy()
X = torch.tensor(DATA.x, dtype=torch.float32)


def test_outputs_and_features_of_every_row():
    model = MLP(2, 2, (8,))
    outputs, features = (outputs_of(model, DATA, features=asked) for asked in (False, True))
    np.testing.assert_allclose(outputs, model(X).detach().numpy(), rtol=1e-6)
    np.testing.assert_allclose(features, model.features(X).detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_portions_of_rows_are_computed_in_evaluation_mode(precision):
    """Rows are in the given order; the network returns to its mode."""
    model, rows = Noisy(2, 2, (8,)).train(), np.array([7, 3, 50, 8, 1])
    plan = TrainingPlan(precision=precision)
    parts = list(outputs_at(model, X, rows, plan, prepare=lambda x: 2 * x, batch=2))
    assert [part.tolist() for part, _ in parts] == [[7, 3], [50, 8], [1]]
    assert model.training
    found = torch.cat([outputs for _, outputs in parts])
    assert found.dtype == torch.float32
    exact = model.eval()(2 * X[rows]).detach()
    torch.testing.assert_close(found, exact, rtol=0.05, atol=0.02)
    assert torch.allclose(found, exact, rtol=1e-5) == (precision == "fp32")


def test_records_survive_json():
    record = RoundRecord(3, 0.5, {("NY", 2): 0.25, 14: 0.75}, {"accuracy": 0.9, "by_group": {14: np.float64(0.5)}})
    assert RoundRecord.from_dict(record.to_dict()) == record
    for broken in ({}, record.to_dict() | {"round": -1}, record.to_dict() | {"weights": [[None, 1.0]]}):
        with pytest.raises(DataError, match="the record of a round"):
            RoundRecord.from_dict(broken)
