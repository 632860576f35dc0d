"""The local data set."""

from headrace.compat.streaming._local import LocalDataset

__all__ = ["LocalDataset"]
