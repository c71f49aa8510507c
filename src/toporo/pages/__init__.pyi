from toporo.pages import charts as charts
from toporo.pages import figures as figures
from toporo.pages import maps as maps
from toporo.pages import pictures as pictures
from toporo.pages import render as render
