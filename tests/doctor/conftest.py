"""What several tests share."""

from __future__ import annotations

import pytest

from toporo.doctor import measure, shift


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure with little effort: what is tested is not how well."""
    monkeypatch.setattr(measure, "EFFORT", ((1000, 2, 2),))
    monkeypatch.setattr(measure, "TREES", 3)
    monkeypatch.setattr(measure, "FEW_GROUPS", 0)
    monkeypatch.setattr(shift, "ROUNDS", 3)
    monkeypatch.setattr(shift, "SHUFFLES", 1)
