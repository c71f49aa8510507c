"""Protocols small enough to run in a test."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from toporo.choice import penalty
from toporo.paper import BENCHMARKS
from toporo.paper.protocols import Protocol


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, no_data: None) -> Protocol:
    """DG-15 with four epochs, registered under its own name."""
    protocol = replace(BENCHMARKS["dg15"].protocol, rounds=4)
    monkeypatch.setattr(BENCHMARKS["dg15"], "protocol", protocol)
    return protocol


@pytest.fixture
def small_tpt48(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    """TPT-48 with four epochs, and few candidates to choose from."""
    return shrink_tpt48(monkeypatch)


def shrink_tpt48(patch: pytest.MonkeyPatch) -> Protocol:
    """Register TPT-48 with the least of everything that still takes every path."""
    protocol = BENCHMARKS["tpt48"].protocol
    training = {"rounds": 4, "per_group": 50, "evaluate_every": 2}
    protocol = replace(protocol, variants=tuple(replace(v, training=training) for v in protocol.variants))
    patch.setattr(BENCHMARKS["tpt48"], "protocol", protocol)
    patch.setattr(penalty, "LARGEST", 1 / 24)
    patch.setattr(penalty, "GRID", (math.inf, 1.0))
    patch.setattr(penalty, "SPLITS", 1)
    return protocol
