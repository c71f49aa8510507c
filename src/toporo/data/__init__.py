"""Rows in groups: containers, splits and batches. Batches need torch and load when used."""

from typing import TYPE_CHECKING, Any

from toporo.data.grouped import GroupedData, Split

if TYPE_CHECKING:
    from toporo.data.batches import group_batches

__all__ = ["GroupedData", "Split", "group_batches"]


def __getattr__(name: str) -> Any:
    if name == "group_batches":
        from toporo.data.batches import group_batches

        return group_batches
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
