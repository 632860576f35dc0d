"""torchtitan's checkpoint manager, over checkpoints of Headrace.

>>> from headrace.checkpoint.torchtitan import CheckpointManager  # doctest: +SKIP
>>> checkpoint = CheckpointManager.Config(  # doctest: +SKIP
...     folder="s3://bucket/run-17", interval=500, async_mode="async"
... )

torchtitan decides when to save, what, and how many stay. It has no option for a storage, and finds its
checkpoints by files of its own: what does either is replaced here, and nothing else. Of torchtitan 0.3.
"""

from __future__ import annotations

import os
import re
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse
from torchtitan.components.checkpointer import dcp as titan
from torchtitan.tools.utils import GarbageCollection

from headrace.checkpoint.checkpointer import Checkpointer
from headrace.checkpoint.dcp import Reader, Writer
from headrace.checkpoint.group import Group

__all__ = ["CheckpointManager"]

_STEP = re.compile(r"/step-(\d+)/?$")
_MODES = titan.AsyncMode


class CheckpointManager(titan.CheckpointManager):  # type: ignore[misc, unused-ignore]
    """Saves below one URL, and loads what was committed there last.

    ``folder`` is the URL of the run: any writable store, or a directory. ``initial_load_path`` is the URL of
    another run (with ``/step-1000``: of that step), or a directory that torchtitan's own manager has written.
    Models in Hugging Face's format are written and read by torchtitan.

    Threads: one.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(titan.CheckpointManager.Config):  # type: ignore[misc, unused-ignore]
        options: dict[str, Any] = field(default_factory=dict)
        """What :class:`headrace.checkpoint.dcp.Writer` and Reader take alike: ``memory``, ``encryption_key``,
        and those of the store."""

    def __init__(self, config: Config, **given: Any) -> None:
        self._options = config.options
        super().__init__(config, **given)

    @torch.no_grad()
    def dcp_save(
        self,
        state_dict: dict[str, Any],
        checkpoint_id: str,
        async_mode: titan.AsyncMode,
        enable_garbage_collection: bool = False,
        to_hf: bool = False,
    ) -> Future[Any] | AsyncSaveResponse | None:
        if to_hf:
            return super().dcp_save(state_dict, checkpoint_id, async_mode, enable_garbage_collection, to_hf)  # type: ignore[no-any-return, unused-ignore]
        url, step = _parted(checkpoint_id)
        saved = self._saved(state_dict, Writer(url, step=step or 0, **self._options), async_mode)
        if enable_garbage_collection:
            GarbageCollection.collect("GC collection invoked by checkpointer.")
        return saved

    def _saved(
        self, state: dict[str, Any], writer: Writer, mode: titan.AsyncMode
    ) -> Future[Any] | AsyncSaveResponse | None:
        if mode == _MODES.DISABLED:
            state_dict_saver.save(state, storage_writer=writer)
            return None
        if mode == _MODES.ASYNC:  # The writer copies the state itself, within its memory.
            return state_dict_saver.async_save(state, storage_writer=writer, process_group=self.pg)
        return state_dict_saver.async_save(
            state,
            storage_writer=writer,
            process_group=self.pg,
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
            async_stager=self.stager,
        )

    def dcp_load(
        self, state_dict: dict[str, Any], checkpoint_id: str, from_hf: bool, from_quantized: bool
    ) -> None:
        if from_hf or os.path.isfile(os.path.join(checkpoint_id, ".metadata")):
            super().dcp_load(state_dict, checkpoint_id, from_hf, from_quantized)
            return
        url, step = _parted(checkpoint_id)
        state_dict_loader.load(state_dict, storage_reader=Reader(url, step=step, **self._options))
        if titan.MODEL in self.states:  # Its tensors lie beside the rest.
            self.states[titan.MODEL].load_state_dict(state_dict)

    @torch.no_grad()
    def _load(self, step: int = -1) -> bool:
        assert self.sd_adapter or not self.initial_load_in_hf, "initial_load_in_hf needs sd_adapter"
        found = self._find_load_step() if step == -1 else step
        initial = self.initial_load_path or (self.initial_load_in_hf and self.sd_adapter.hf_assets_path)
        if found != -1:
            states = self._states_to_load(model_only=found == 0)
            self.dcp_load(states, self._create_checkpoint_id(found), from_hf=False, from_quantized=False)
        elif initial:
            states = self._states_to_load(self.initial_load_model_only)
            self.dcp_load(states, initial, self.initial_load_in_hf, self.initial_load_in_hf_quantized)
        else:
            return False
        GarbageCollection.collect("GC collection for checkpoint loading.")
        return True

    def _find_load_step(self, folder: str = "") -> int:
        """That was committed last, the same on all ranks; -1: there is none."""
        with Checkpointer(folder or self.folder, **self._options) as looked:
            last = looked.latest()
        return -1 if last is None else last

    def _purge_stale_checkpoints(self) -> None:
        if self.keep_latest_k > 0 and dist.get_rank() == 0:
            with Checkpointer(
                self.folder, keep=self.keep_latest_k, group=Group(), **self._options
            ) as checkpoints:
                checkpoints.retire()


def _parted(checkpoint_id: str) -> tuple[str, int | None]:
    """The URL of a run and the step, of what torchtitan calls a checkpoint; None: the last one."""
    found = _STEP.search(checkpoint_id)
    return (checkpoint_id[: found.start()], int(found[1])) if found else (checkpoint_id, None)
