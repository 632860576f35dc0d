"""The classes of mosaicml-streaming 0.13 with their arguments, over Headrace's engine.

``from headrace.compat.streaming import StreamingDataset`` in place of ``from streaming import StreamingDataset``: the same samples
in the same order, and each goes on from the other's ``state_dict()``. Beyond Mosaic's: ``StreamingDataset.sample_ids()``.
"""

from headrace.compat.streaming._dataloader import StreamingDataLoader
from headrace.compat.streaming._dataset import StreamingDataset
from headrace.compat.streaming._stream import Stream
from headrace.compat.streaming._writer import MDSWriter

__all__ = ["MDSWriter", "Stream", "StreamingDataLoader", "StreamingDataset"]
