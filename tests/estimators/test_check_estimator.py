"""scikit-learn's own checks, for every estimator and both kinds of model.

A network of group DRO runs the code of one of TRO but for the objective, which the objectives' own conformance suite
holds to its rules: its checks would be those of TRO once more.
"""

import warnings
from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from toporo.errors import TopoRoWarning
from toporo.estimators import GroupDROClassifier, GroupDRORegressor, TROClassifier, TRORegressor

LINEAR = (TROClassifier, TRORegressor, GroupDROClassifier, GroupDRORegressor)
NETWORKS = (TROClassifier, TRORegressor)
QUICK = {"model": "mlp", "hidden": (16,), "epochs": 8, "learning_rate": 0.1}


def not_for_batches(estimator: Any) -> dict[str, str]:
    """A network sees its rows in batches drawn by row: a row of weight two is not drawn as two rows are."""
    if estimator.model == "linear":
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": "other rows are drawn in other batches"}


@parametrize_with_checks(
    [*(kind() for kind in LINEAR), *(kind(**QUICK) for kind in NETWORKS)], expected_failed_checks=not_for_batches
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # the checks know no groups
        check(estimator)
