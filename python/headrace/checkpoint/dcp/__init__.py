"""Checkpoints through PyTorch's distributed checkpoint (DCP), for programs that call it already.

>>> import torch.distributed.checkpoint as dcp
>>> from headrace.checkpoint.dcp import Reader, Writer
>>> dcp.save(state, storage_writer=Writer("s3://bucket/run-17", step=100))  # doctest: +SKIP
>>> dcp.load(state, storage_reader=Reader("s3://bucket/run-17"))  # doctest: +SKIP

What is written is a checkpoint like those of :class:`headrace.checkpoint.Checkpointer`, which loads it as
well; and Reader loads what Checkpointer has saved.
"""

from headrace.checkpoint.dcp.reading import Reader, SafeLoadPlanner
from headrace.checkpoint.dcp.writing import Writer

__all__ = ["Reader", "SafeLoadPlanner", "Writer"]
