from toporo.choice.penalty import choose_configuration as choose_configuration
from toporo.choice.splits import GraphHopSplit as GraphHopSplit
from toporo.choice.splits import LeaveRegionOut as LeaveRegionOut
from toporo.choice.splits import hop_folds as hop_folds
