"""scikit-learn estimators: models for a table whose rows come in groups, and that must hold in test groups."""

from toporo.estimators.classes import GroupDROClassifier, GroupDRORegressor, TROClassifier, TRORegressor
from toporo.estimators.effects import Kriged
from toporo.estimators.kriged import KrigedRegressor
from toporo.estimators.kriged_classes import KrigedClassifier

__all__ = [
    "GroupDROClassifier",
    "GroupDRORegressor",
    "Kriged",
    "KrigedClassifier",
    "KrigedRegressor",
    "TROClassifier",
    "TRORegressor",
]
