"""What several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")


@pytest.fixture
def real_data() -> Path:
    """The folder with downloaded data; tests that need it skip where it is absent."""
    folder = os.environ.get("TOPORO_DATA")
    if not folder:
        pytest.skip("TOPORO_DATA is not set: this test needs the published data files")
    return Path(folder)


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where nothing was downloaded."""
    monkeypatch.delenv("TOPORO_DATA", raising=False)
