"""A protocol small enough to run in a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from toporo.experiments import protocols


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, no_data: None) -> protocols.Protocol:
    """DG-15 with four epochs, registered under its own name."""
    protocol = replace(protocols.PROTOCOLS["dg15"], epochs=4)
    monkeypatch.setitem(protocols.PROTOCOLS, "dg15", protocol)
    return protocol
