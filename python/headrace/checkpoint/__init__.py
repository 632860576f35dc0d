"""Checkpoints that are whole and proved, or not there (docs/checkpoints.md)."""

from headrace.checkpoint import dcp_format, safetensors
from headrace.checkpoint.checkpointer import Checkpointer, Rejected
from headrace.checkpoint.cold import Cold
from headrace.checkpoint.group import Group
from headrace.checkpoint.handle import SaveHandle
from headrace.checkpoint.manifest import DataFile, Manifest
from headrace.checkpoint.retention import Keep

__all__ = [
    "Checkpointer",
    "Cold",
    "DataFile",
    "Group",
    "Keep",
    "Manifest",
    "Rejected",
    "SaveHandle",
    "dcp_format",
    "safetensors",
]
