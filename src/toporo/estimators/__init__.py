"""scikit-learn estimators for rows in groups, of models that must hold in groups absent from training."""

from toporo.estimators.auto import AutoClassifier, AutoRegressor
from toporo.estimators.classes import GroupDROClassifier, GroupDRORegressor, TROClassifier, TRORegressor
from toporo.estimators.effects import Kriged
from toporo.estimators.kriged import KrigedRegressor
from toporo.estimators.kriged_classes import KrigedClassifier
from toporo.estimators.settings import Net, Radius
from toporo.estimators.weighted import RobustClassifier, RobustRegressor

__all__ = [
    "AutoClassifier",
    "AutoRegressor",
    "GroupDROClassifier",
    "GroupDRORegressor",
    "Kriged",
    "KrigedClassifier",
    "KrigedRegressor",
    "Net",
    "Radius",
    "RobustClassifier",
    "RobustRegressor",
    "TROClassifier",
    "TRORegressor",
]
