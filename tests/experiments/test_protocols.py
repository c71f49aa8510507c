"""The tables as data."""

from __future__ import annotations

import pytest

from toporo.datasets import DATASETS
from toporo.errors import SettingError, UnknownNameError
from toporo.experiments.protocols import METHODS, PROTOCOLS, get_methods, get_protocol
from toporo.objectives import OBJECTIVES


def test_every_protocol_has_a_dataset_and_only_known_methods_in_the_papers_column() -> None:
    assert set(PROTOCOLS) <= set(DATASETS)
    for protocol in PROTOCOLS.values():
        assert set(protocol.paper) <= set(METHODS)


def test_every_method_has_an_objective_and_a_prior_exactly_if_it_takes_one() -> None:
    for method in METHODS.values():
        assert OBJECTIVES[method.objective].takes_prior == (method.prior is not None)


def test_the_controls_that_any_claim_needs_are_there() -> None:
    assert {"iw-erm", "tro-uniform", "tro-lambda0"} <= {m.name for m in METHODS.values() if m.control}


def test_no_tro_setting_makes_the_weights_cycle() -> None:
    for method in METHODS.values():
        if method.objective == "tro":
            assert method.settings["step"] * method.settings["penalty"] < 2


def test_methods_come_in_table_order_whatever_the_order_asked() -> None:
    assert [m.name for m in get_methods(["tro-physical", " erm "])] == ["erm", "tro-physical"]


def test_unknown_names_list_the_valid_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown method 'tro-phys'.*Did you mean 'tro-physical'.*group-dro"):
        get_methods(["tro-phys"])
    with pytest.raises(UnknownNameError, match=r"unknown benchmark 'dg16'.*dg15, dg60"):
        get_protocol("dg16")
    with pytest.raises(SettingError, match="no method named"):
        get_methods([" "])
