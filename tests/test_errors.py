"""Errors: one base to catch, the built-in class a programmer expects, and messages that list what is valid."""

from __future__ import annotations

import pytest

from toporo import GroupGraph, TopoRoWarning, errors


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.DataError, ValueError),
        (errors.GroupMismatchError, ValueError),
        (errors.GraphError, ValueError),
        (errors.SettingError, ValueError),
        (errors.UnsafeFileError, ValueError),
        (errors.UnknownNameError, LookupError),
        (errors.DatasetNotFoundError, FileNotFoundError),
    ],
)
def test_every_error_is_ours_and_a_familiar_builtin(kind: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(kind, errors.TopoRoError)
    assert issubclass(kind, builtin)


def test_an_unknown_name_is_answered_with_the_nearest_and_all_valid_names() -> None:
    error = errors.UnknownNameError("cut", "mst_knn", ["percentile", "knn", "mst-knn"])
    assert str(error) == "unknown cut 'mst_knn'. Did you mean 'mst-knn'? Valid names: knn, mst-knn, percentile."


@pytest.mark.parametrize(("count", "expected"), [(2, "0, 1"), (3, "0, 1, 2"), (4, "0, 1, 2, … (4 in all)")])
def test_long_lists_are_cut_and_say_how_long_they_are(count: int, expected: str) -> None:
    assert errors.listed(range(count), limit=3) == expected


def test_a_warning_points_at_the_users_line() -> None:
    """However deep in toporo it arises: the line to change is the caller's."""
    graph = GroupGraph.from_edges([("a", "b"), ("b", "c"), ("a", "c")])
    with pytest.warns(TopoRoWarning, match="flat") as caught:
        graph.prior(["a", "b"], ["c"])
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("given", "meant"),
    [("north", "north-south"), ("ny", "NY"), ("Bth", "both"), ("tro-phys", "tro-physical"), ("x", None)],
)
def test_a_name_that_begins_like_one_or_differs_in_case_is_recognised(given: str, meant: str | None) -> None:
    text = str(errors.UnknownNameError("name", given, ["both", "east-west", "north-south", "NY", "tro-physical"]))
    assert ("Did you mean" in text) == (meant is not None)
    assert meant is None or f"Did you mean {meant!r}?" in text
