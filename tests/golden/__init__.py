"""Golden tests: a fixed set of computations whose results are stored as JSON and compared by ``make golden``."""
