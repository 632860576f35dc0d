"""The data loader."""

from headrace.compat.streaming._dataloader import StreamingDataLoader

__all__ = ["StreamingDataLoader"]
