"""The classes of mosaicml-streaming 0.13 with their arguments, over Headrace's engine.

``from headrace.compat.streaming import StreamingDataset`` in place of ``from streaming import
StreamingDataset``: the same samples in the same order, and each goes on from the other's ``state_dict()``.
Beyond Mosaic's: ``StreamingDataset.sample_ids()``. Without ``text``, ``vision`` and ``multimodal``.
"""

from typing import Any

from headrace.compat.streaming._dataloader import StreamingDataLoader
from headrace.compat.streaming._dataset import StreamingDataset
from headrace.compat.streaming._local import LocalDataset
from headrace.compat.streaming._split_writers import CSVWriter, JSONWriter, TSVWriter, XSVWriter
from headrace.compat.streaming._stream import Stream
from headrace.compat.streaming._writer import MDSWriter

__all__ = [
    "CSVWriter",
    "JSONWriter",
    "LocalDataset",
    "MDSWriter",
    "Stream",
    "StreamingDataLoader",
    "StreamingDataset",
    "TSVWriter",
    "XSVWriter",
]


def __getattr__(name: str) -> Any:
    if name in ("text", "vision", "multimodal"):
        raise AttributeError(
            f"headrace.compat.streaming has no {name!r}: its classes are StreamingDatasets with a transform. "
            f"Copy the class that you use from streaming.{name} and let it inherit from "
            "headrace.compat.streaming.StreamingDataset"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
