"""Bytes that a part's writer lacks, from the ranks that have them: over gloo, a part a rank at a time."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from headrace.checkpoint.arrays import Array, Memory
from headrace.checkpoint.group import Group
from headrace.checkpoint.safetensors.layout import FileLayout, Share
from headrace.errors import HeadraceError, InvalidArgumentError, UnavailableError

__all__ = ["Exchange", "Pieces"]


class Pieces:
    """The bytes of this rank's chunks; held while their file is written."""

    def __init__(self, arrays: Mapping[str, Array], plan: Mapping[str, Any]) -> None:
        """``plan``: what was planned, by name."""
        self._arrays, self._plan = arrays, plan
        self._held: dict[tuple[str, int], Memory] = {}

    def bytes_of(self, share: Share) -> Any:
        """uint8, without a copy where the chunk lies in this machine's memory in one piece."""
        key = share.array, share.chunk
        if key not in self._held:
            array, (chunk, _) = self._arrays[share.array], self._plan[share.array].chunks[share.chunk]
            self._held[key] = array.contiguous(array.chunks.index(chunk))
        address = self._held[key].address + share.begin
        return np.ctypeslib.as_array((ctypes.c_ubyte * (share.end - share.begin)).from_address(address))

    def forget(self) -> None:
        self._held = {}


class Exchange:
    """Sends and receives, on all ranks in the same order."""

    def __init__(self, group: Group, pieces: Pieces) -> None:
        self._group, self._pieces = group, pieces
        self._gloo: Any = None

    def begin(self) -> None:
        """On all ranks, once, where there are several. Raises InvalidArgumentError where they have no way to send
        one another bytes."""
        import torch.distributed as dist

        if not dist.is_initialized() or dist.get_world_size() != self._group.world_size:
            raise InvalidArgumentError(
                "several ranks write safetensors files together by torch.distributed: call init_process_group() before"
            )
        self._gloo = dist.new_group(backend="gloo", timeout=timedelta(seconds=self._group.timeout))

    def end(self) -> None:
        if self._gloo is not None:
            import torch.distributed as dist

            dist.destroy_process_group(self._gloo)
            self._gloo = None

    def round(self, layout: FileLayout, parts: Mapping[int, int]) -> list[tuple[Share, Any]]:
        """Of a file, one part a rank: ``parts`` by rank. Returns what this rank's part consists of, with its
        bytes. Raises UnavailableError where a rank has gone."""
        mine: list[tuple[Share, Any]] = []
        work, buffers = [], []
        for writer, part in parts.items():
            by_rank: dict[int, list[Share]] = defaultdict(list)
            for share in layout.shares(part):
                by_rank[share.rank].append(share)
            if writer != self._group.rank:
                if self._group.rank in by_rank:
                    buffers.append(self._joined(by_rank[self._group.rank]))
                    work.append(self._send(buffers[-1], writer))
                continue
            for rank, shares in by_rank.items():
                if rank == self._group.rank:
                    mine += [(share, self._pieces.bytes_of(share)) for share in shares]
                    continue
                buffers.append(np.empty(sum(share.end - share.begin for share in shares), np.uint8))
                work.append(self._receive(buffers[-1], rank))
                mine += _cut(shares, buffers[-1])
        for each in work:
            self._wait(each)
        return mine

    def _joined(self, shares: list[Share]) -> Any:
        found = [self._pieces.bytes_of(share) for share in shares]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _send(self, data: Any, rank: int) -> Any:
        import torch
        import torch.distributed as dist

        return self._checked(lambda: dist.isend(torch.from_numpy(data), rank, group=self._gloo))

    def _receive(self, data: Any, rank: int) -> Any:
        import torch
        import torch.distributed as dist

        return self._checked(lambda: dist.irecv(torch.from_numpy(data), rank, group=self._gloo))

    def _wait(self, work: Any) -> None:
        self._checked(work.wait)

    def _checked(self, call: Any) -> Any:
        try:
            return call()
        except HeadraceError:
            raise
        except RuntimeError as error:
            raise UnavailableError(f"another rank did not send its part, or take it: {error}") from error


def _cut(shares: list[Share], data: Any) -> list[tuple[Share, Any]]:
    out, at = [], 0
    for share in shares:
        length = share.end - share.begin
        out.append((share, data[at : at + length]))
        at += length
    return out
