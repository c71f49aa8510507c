from .cross_fitting import cross_fit as cross_fit
from .cross_fitting import folds as folds
from .hops import hop_folds as hop_folds
from .penalty import PENALTIES as PENALTIES
from .penalty import choose_penalty as choose_penalty
from .splits import GraphHopSplit as GraphHopSplit
from .splits import LeaveRegionOut as LeaveRegionOut
