from . import charts as charts
from . import figures as figures
from . import maps as maps
from . import render as render
from .render import Section as Section
from .render import Verdict as Verdict
from .table import Cell as Cell
from .table import Table as Table
