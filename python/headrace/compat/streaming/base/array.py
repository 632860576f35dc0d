"""Indexing like numpy."""

from headrace.compat.streaming._array import Array

__all__ = ["Array"]
