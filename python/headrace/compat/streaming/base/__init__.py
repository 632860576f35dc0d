"""mosaicml-streaming's module paths: ``from streaming.base.X import Y`` becomes ``from
headrace.compat.streaming.base.X import Y``."""

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
