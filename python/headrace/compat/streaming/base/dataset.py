"""The data set."""

from headrace.compat.streaming._dataset import StreamingDataset

__all__ = ["StreamingDataset"]
