"""scikit-learn's own checks, for every public estimator and both kinds of model.

The checks know no groups, so a network of any method minimises the mean loss of a single group: those of group DRO
would run the code of TRO's once more. Networks with groups are tested in test_nets.py.
"""

import warnings
from typing import Any

import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from toporo import estimators
from toporo.errors import TopoRoWarning
from toporo.estimators import (
    AutoClassifier,
    AutoRegressor,
    GroupDROClassifier,
    GroupDRORegressor,
    Kriged,
    KrigedClassifier,
    KrigedRegressor,
    Net,
    RobustClassifier,
    RobustRegressor,
    TROClassifier,
    TRORegressor,
)

QUICK = {"model": Net((16,), epochs=8, learning_rate=0.1)}
ESTIMATORS = [
    TROClassifier(),
    TRORegressor(),
    GroupDROClassifier(),
    GroupDRORegressor(),
    TROClassifier(**QUICK),
    TRORegressor(**QUICK),
    KrigedClassifier(),
    KrigedRegressor(),
    Kriged(Ridge()),
    Kriged(LogisticRegression()),
    RobustRegressor(Ridge()),
    RobustClassifier(LogisticRegression()),
]
AUTO = [AutoRegressor(folds=2), AutoClassifier(folds=2)]


def expected_failures(estimator: Any) -> dict[str, str]:
    """Rows of a network's batches, and rows that judge candidates, are drawn: a row of weight two is not two rows."""
    if isinstance(estimator, AutoRegressor | AutoClassifier):
        return {"check_sample_weight_equivalence_on_dense_data": "other rows judge the candidates"}
    if getattr(estimator, "model", "linear") != "linear":
        return {"check_sample_weight_equivalence_on_dense_data": "other rows are drawn in other batches"}
    return {}


def run(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TopoRoWarning)  # the checks know no groups
        check(estimator)


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    run(estimator, check)


@pytest.mark.slow
@parametrize_with_checks(AUTO, expected_failed_checks=expected_failures)
def test_scikit_learns_checks_of_auto(estimator: Any, check: Any) -> None:
    run(estimator, check)


def test_every_public_estimator_is_checked() -> None:
    assert {type(each).__name__ for each in [*ESTIMATORS, *AUTO]} == set(estimators.__all__) - {"Net", "Radius"}
