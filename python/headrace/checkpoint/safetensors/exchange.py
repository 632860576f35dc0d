"""Bytes that a part's writer lacks, from the ranks that have them: over gloo, a part a rank at a time."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.checkpoint.arrays import Array
from headrace.checkpoint.group import Group
from headrace.checkpoint.row_major import Memory
from headrace.checkpoint.safetensors.layout import FileLayout, Share
from headrace.errors import InvalidArgumentError

__all__ = ["PartExchange", "Pieces"]


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


class PartExchange:
    """Sends and receives, on all ranks in the same order."""

    def __init__(self, group: Group, pieces: Pieces) -> None:
        self._group, self._pieces = group, pieces

    def begin(self) -> None:
        """On all ranks, once, where there are several. Raises InvalidArgumentError where they have no way to
        send one another bytes."""
        if self._group.exchange is None:
            raise InvalidArgumentError(
                "several ranks write safetensors files together by torch.distributed: call "
                "init_process_group() before"
            )
        self._group.exchange.open()

    def end(self) -> None:
        if self._group.exchange is not None:
            self._group.exchange.close()

    def round(self, layout: FileLayout, parts: Mapping[int, int]) -> list[tuple[Share, Any]]:
        """Of a file, one part a rank: ``parts`` by rank. Returns what this rank's part consists of, with its
        bytes. Raises UnavailableError where a rank has gone."""
        mine: list[tuple[Share, Any]] = []
        sends, receives = [], []
        for writer, part in parts.items():
            by_rank: dict[int, list[Share]] = defaultdict(list)
            for share in layout.shares(part):
                by_rank[share.rank].append(share)
            if writer != self._group.rank:
                if self._group.rank in by_rank:
                    sends.append((writer, self._joined(by_rank[self._group.rank])))
                continue
            for rank, shares in by_rank.items():
                if rank == self._group.rank:
                    mine += [(share, self._pieces.bytes_of(share)) for share in shares]
                    continue
                receives.append((rank, np.empty(sum(share.end - share.begin for share in shares), np.uint8)))
                mine += _cut(shares, receives[-1][1])
        if self._group.exchange is not None:
            self._group.exchange.pass_on(sends, receives)
        return mine

    def _joined(self, shares: list[Share]) -> Any:
        found = [self._pieces.bytes_of(share) for share in shares]
        return found[0] if len(found) == 1 else np.concatenate(found)


def _cut(shares: list[Share], data: Any) -> list[tuple[Share, Any]]:
    out, at = [], 0
    for share in shares:
        length = share.end - share.begin
        out.append((share, data[at : at + length]))
        at += length
    return out
