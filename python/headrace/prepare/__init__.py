"""Preparing data: any dataset, or any iterable of samples, to shards of another format.

``convert`` reads whatever ``headrace.Dataset`` opens; ``write`` takes an iterable of dicts; the writer
classes take one sample at a time. Each output shard is a run of consecutive samples that the source and the
options alone decide, so bytes do not depend on workers, machines or interruptions, and a conversion that was
killed goes on where it was.
"""

from headrace.prepare.conversion import convert, write
from headrace.prepare.job import load_callable
from headrace.prepare.writers import LitDataWriter, MDSWriter, ParquetWriter, TFRecordWriter, WebDatasetWriter

__all__ = [
    "LitDataWriter",
    "MDSWriter",
    "ParquetWriter",
    "TFRecordWriter",
    "WebDatasetWriter",
    "convert",
    "load_callable",
    "write",
]
