# The public face as type checkers see it; at run time __init__.py imports each name when it is first used.
from toporo import bench as bench
from toporo import choice as choice
from toporo import data as data
from toporo import doctor as doctor
from toporo import estimators as estimators
from toporo import models as models
from toporo import objectives as objectives
from toporo import robust as robust
from toporo import tables as tables
from toporo import theory as theory
from toporo import topology as topology
from toporo import training as training
from toporo.bench import load_dataset as load_dataset
from toporo.bench import load_images as load_images
from toporo.choice.splits import GraphHopSplit as GraphHopSplit
from toporo.choice.splits import LeaveRegionOut as LeaveRegionOut
from toporo.data.batches import group_batches as group_batches
from toporo.data.grouped import GroupedData as GroupedData
from toporo.errors import TopoRoError as TopoRoError
from toporo.errors import TopoRoWarning as TopoRoWarning
from toporo.estimators import GroupDROClassifier as GroupDROClassifier
from toporo.estimators import GroupDRORegressor as GroupDRORegressor
from toporo.estimators import TROClassifier as TROClassifier
from toporo.estimators import TRORegressor as TRORegressor
from toporo.groups import GroupIds as GroupIds
from toporo.groups import Groups as Groups
from toporo.pages.model import write_model_report as write_model_report
from toporo.tables import fit_table as fit_table
from toporo.tables import load_model as load_model
from toporo.topology.differentiable import differentiable_emd as differentiable_emd
from toporo.topology.diffusion import diffusion_emd as diffusion_emd
from toporo.topology.graph import GroupGraph as GroupGraph
from toporo.topology.learn import learn_topology as learn_topology
from toporo.topology.prior import Prior as Prior
from toporo.version import __version__ as __version__

__all__: list[str]
