"""Rows in groups and tables. Batches are in :mod:`toporo.data.batches`, which needs torch."""

from toporo.data.grouped import GroupedData, Split

__all__ = ["GroupedData", "Split"]
