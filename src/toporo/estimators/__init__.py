"""scikit-learn estimators: models for a table whose rows come in groups, and that must hold in test groups."""

from toporo.estimators.auto import AutoClassifier, AutoRegressor
from toporo.estimators.classes import GroupDROClassifier, GroupDRORegressor, TROClassifier, TRORegressor
from toporo.estimators.kriged import KrigedRegressor
from toporo.estimators.kriged_classes import KrigedClassifier
from toporo.estimators.kriged_residuals import Kriged
from toporo.estimators.weighted import RobustClassifier, RobustRegressor

__all__ = [
    "AutoClassifier",
    "AutoRegressor",
    "GroupDROClassifier",
    "GroupDRORegressor",
    "Kriged",
    "KrigedClassifier",
    "KrigedRegressor",
    "RobustClassifier",
    "RobustRegressor",
    "TROClassifier",
    "TRORegressor",
]
