"""Protocols small enough to run in a test."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from toporo.bench import protocols
from toporo.choice import penalty


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, no_data: None) -> protocols.Protocol:
    """DG-15 with four epochs, registered under its own name."""
    protocol = replace(protocols.PROTOCOLS["dg15"], epochs=4)
    monkeypatch.setitem(protocols.PROTOCOLS, "dg15", protocol)
    return protocol


@pytest.fixture
def small_tpt48(monkeypatch: pytest.MonkeyPatch) -> protocols.Protocol:
    """TPT-48 with four epochs, and few candidates to choose from."""
    return shrink_tpt48(monkeypatch)


def shrink_tpt48(patch: pytest.MonkeyPatch) -> protocols.Protocol:
    """Register TPT-48 with the least of everything that still takes every path."""
    protocol = protocols.PROTOCOLS["tpt48"]
    training = {"epochs": 4, "per_group": 50, "evaluate_every": 2}
    protocol = replace(protocol, variants=tuple(replace(v, training=training) for v in protocol.variants))
    patch.setitem(protocols.PROTOCOLS, "tpt48", protocol)
    patch.setattr(penalty, "LARGEST", 1 / 24)
    patch.setattr(penalty, "GRID", (math.inf, 1.0))
    patch.setattr(penalty, "SPLITS", 1)
    return protocol
