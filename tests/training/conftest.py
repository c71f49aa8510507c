"""Checkpoints after every round."""

import pytest

from toporo.training import loop


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", 0.0)
