from toporo.pages import charts as charts
from toporo.pages import figures as figures
from toporo.pages import maps as maps
from toporo.pages import render as render
from toporo.pages.render import Section as Section
from toporo.pages.render import Verdict as Verdict
from toporo.pages.table import Cell as Cell
from toporo.pages.table import Table as Table
