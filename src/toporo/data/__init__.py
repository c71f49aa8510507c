"""Rows in groups and tables. Batches are in :mod:`toporo.data.grouped`, which needs torch."""

from toporo.data.grouped import GroupedData, Split

__all__ = ["GroupedData", "Split"]
