"""LightGBM and CatBoost as they come."""

from __future__ import annotations

import contextlib
from typing import Any


def boosted_trees(classes: bool) -> dict[str, Any]:
    """Other boosted trees as they come, where they are installed."""
    made: dict[str, Any] = {}
    with contextlib.suppress(ImportError):
        import lightgbm

        made["LightGBM"] = (lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor)(verbose=-1)
    with contextlib.suppress(ImportError):
        import catboost

        kind = catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor
        made["CatBoost"] = kind(verbose=False, allow_writing_files=False, random_seed=0)
    return made
