"""Checkpoints of torch.distributed.checkpoint, read without running what their pickles say
(docs/checkpoints.md)."""

from headrace.checkpoint.dcp_format.reading import load

__all__ = ["load"]
