"""Begun by each of PyTorch's test files, before its own imports, in every process that runs it: no
accelerator is asked for, and instead of DCP's file storage there is Headrace's."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import unittest
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import _storage_utils, filesystem, format_utils
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.testing._internal import common_distributed
from torch.testing._internal.distributed._shard import sharded_tensor
from torch.testing._internal.distributed._tensor import common_dtensor

import headrace.fsspec
from headrace.checkpoint.dcp import Reader, Writer


def url_of(path: str | os.PathLike[str] | None) -> str | None:
    """Where a test's directory is for Headrace; in the bucket that the runner has made, if it has."""
    bucket = os.environ.get("HEADRACE_TORCH_DCP_BUCKET")
    return f"{bucket}{os.fspath(path)}" if bucket and path is not None else path and os.fspath(path)


class FileSystemWriter(Writer):
    """Headrace's Writer, made with the arguments of DCP's."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 0,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
        _extensions: Any = None,
        serialization_format: Any = None,
    ) -> None:
        if _extensions:
            raise unittest.SkipTest("DCP's extensions change the bytes of its own files")
        super().__init__(url_of(path), overwrite=overwrite, copy_threads=thread_count, memory="64MiB")

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(url_of(checkpoint_id))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


class FileSystemReader(Reader):
    """Headrace's Reader, made with the arguments of DCP's."""

    def __init__(self, path: str | os.PathLike[str], _extension_registry: Any = None) -> None:
        super().__init__(url_of(path), memory="64MiB")

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(url_of(checkpoint_id))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return FileSystem.validate_checkpoint_id(checkpoint_id)


def assert_same_shards(got: Any, expected: Any) -> None:
    """assert_close() compares no ShardedTensors on CPUs."""
    for one, other in zip(got.local_shards(), expected.local_shards(), strict=True):
        assert one.metadata == other.metadata
        torch.testing.assert_close(one.tensor, other.tensor)


def needs_nothing(*_: Any, **__: Any) -> Any:
    return lambda test: test


def run_on_cpus() -> None:
    for module in (common_distributed, common_dtensor):
        module.skip_if_lt_x_gpu = needs_nothing
    common_distributed.requires_nccl = needs_nothing
    # Importing torch anew in each rank takes longer than most tests.
    with contextlib.suppress(RuntimeError):  # In a process that one of the ranks has spawned.
        multiprocessing.set_start_method("fork")
    ranks: Any = common_distributed.MultiProcessTestCase
    ranks._spawn_processes = lambda test: test._start_processes(multiprocessing.Process)
    with_comms = sharded_tensor.with_comms
    sharded_tensor.with_comms = lambda test=None, **given: with_comms(test, **{**given, "backend": "gloo"})
    fsdp: Any = FullyShardedDataParallel
    begin_fsdp = fsdp.__init__
    fsdp.__init__ = lambda *given, **named: begin_fsdp(*given, **{"device_id": torch.device("cpu"), **named})


def replace_the_storage() -> None:
    for module in (dcp, filesystem, _storage_utils, format_utils):
        for replacement in (FileSystemWriter, FileSystemReader):
            if hasattr(module, replacement.__name__):
                setattr(module, replacement.__name__, replacement)


_has_begun = False


def begin(package: str) -> None:
    """``package``: original, headrace, or fsspec: DCP's storage for fsspec, over Headrace's file system."""
    global _has_begun
    if _has_begun:
        return
    _has_begun = True
    run_on_cpus()
    if package == "headrace":
        replace_the_storage()
    elif package == "fsspec":
        headrace.fsspec.register(["file"])
