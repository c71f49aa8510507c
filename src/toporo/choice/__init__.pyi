from toporo.choice.cross_fitting import cross_fit as cross_fit
from toporo.choice.cross_fitting import folds as folds
from toporo.choice.hops import hop_folds as hop_folds
from toporo.choice.penalty import PENALTIES as PENALTIES
from toporo.choice.penalty import choose_penalty as choose_penalty
from toporo.choice.splits import GraphHopSplit as GraphHopSplit
from toporo.choice.splits import LeaveRegionOut as LeaveRegionOut
