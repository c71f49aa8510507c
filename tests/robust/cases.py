"""Strategies and independent solvers shared by the tests of ``robust``."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import settings
from scipy.optimize import brentq

#: For every law: the same examples on every machine.
LAW = settings(max_examples=40, deadline=None, derandomize=True)
SIZES, SEVERAL = st.integers(1, 7), st.integers(2, 6)


def vectors(low=-10.0, high=10.0, size=SIZES):
    """Vectors of finite numbers."""
    return size.flatmap(lambda m: st.lists(st.floats(low, high), min_size=m, max_size=m).map(np.array))


def priors(size=SEVERAL):
    """Points in the inside of the simplex."""
    return vectors(0.05, 1.0, size).map(lambda weights: weights / weights.sum())


@st.composite
def problems(draw):
    """``(losses, prior, penalty)`` over the same groups."""
    prior = draw(priors())
    losses = draw(vectors(-5.0, 5.0, st.just(len(prior))))
    return losses, prior, draw(st.floats(0.05, 20.0))


def simplex_by_root_finding(values):
    """The projection of a vector from its optimality condition: max(v - tau, 0) sums to one."""
    values = np.asarray(values, dtype=float)
    tau = brentq(lambda t: np.maximum(values - t, 0).sum() - 1, values.min() - 1, values.max(), xtol=1e-15, rtol=1e-15)
    return np.maximum(values - tau, 0)
