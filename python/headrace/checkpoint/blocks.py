"""The blocks of a data file by number (see Index.first_block), ranges of them, and where their bytes lie.

Ranges are arrays of shape [n, 2] of int64: [first, end) of each.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from headrace import _native
from headrace.checkpoint.manifest import Index

__all__ = ["BlockMap", "Ranges", "cut", "merged", "within"]

Ranges: TypeAlias = np.ndarray[Any, Any]

_BLOCK = _native.checkpoint_sum_block_bytes()


def merged(ranges: Ranges) -> Ranges:
    """The same blocks in as few ranges as there are, rising."""
    if len(ranges) < 2:
        return ranges
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ranges[:, 1])
    starts = np.flatnonzero(np.r_[True, ranges[1:, 0] > ends[:-1]])
    return np.stack([ranges[starts, 0], ends[np.r_[starts[1:] - 1, len(ends) - 1]]], axis=1)


def cut(ranges: Ranges, size: int) -> Ranges:
    """The same blocks, no range across a multiple of ``size``."""
    first, end = ranges[:, 0], ranges[:, 1]
    counts = (end - 1) // size - first // size + 1
    which = np.repeat(np.arange(len(ranges)), counts)
    number = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    border = (first[which] // size + number) * size
    return np.stack([np.maximum(first[which], border), np.minimum(end[which], border + size)], axis=1)


def within(ranges: Ranges, first: int, end: int) -> Ranges:
    """Of merged ranges the blocks from ``first`` to ``end``."""
    some = ranges[np.searchsorted(ranges[:, 1], first, "right") : np.searchsorted(ranges[:, 0], end)]
    return np.clip(some, first, end)


class BlockMap:
    """Of one data file.

    :param file: which of those that the index names; its blocks are those of the pieces that lie there.
    """

    def __init__(self, index: Index, file: int) -> None:
        here = index.rows["file"] == file
        all_lengths = index.rows["length"].astype(np.int64)
        all_blocks = -(-all_lengths // _BLOCK)
        self._offsets = index.rows["offset"].astype(np.int64)[here]
        self._lengths, blocks = all_lengths[here], all_blocks[here]
        self._firsts = np.cumsum(blocks) - blocks
        self._ends = np.cumsum(self._lengths)
        self._index, self._first_proofs = index, (np.cumsum(all_blocks) - all_blocks)[here]

    def bytes_before(self, blocks: Any) -> Any:
        """How many bytes all blocks before have together."""
        which = np.searchsorted(self._firsts, blocks, "right") - 1
        begins = self._ends[which] - self._lengths[which]
        return np.minimum(begins + (blocks - self._firsts[which]) * _BLOCK, self._ends[which])

    def lengths(self, ranges: Ranges) -> Any:
        """Bytes of each range."""
        return self.bytes_before(ranges[:, 1]) - self.bytes_before(ranges[:, 0])

    def reads(self, wanted: Ranges, begin: int, address: int) -> tuple[list[Any], list[bytes]]:
        """What Place.read() takes to read blocks to memory, where each has its place as if all from block
        ``begin`` on were there."""
        start = int(self.bytes_before(begin))
        first_piece, last_piece = (
            int(np.searchsorted(self._firsts, block, "right")) - 1
            for block in (wanted[0, 0], wanted[-1, 1] - 1)
        )
        rows, only = [], []
        for piece in range(first_piece, last_piece + 1):
            length, first = int(self._lengths[piece]), int(self._firsts[piece])
            count = -(-length // _BLOCK)
            some = within(wanted, first, first + count) - first
            if count == 0 or len(some) == 0:
                continue
            from_byte = int(some[0, 0]) * _BLOCK
            to_byte = min(int(some[-1, 1]) * _BLOCK, length)
            to = address + int(self._ends[piece]) - length + from_byte - start
            first_proof = int(self._first_proofs[piece])
            proofs = self._index.proofs(first_proof, first_proof + count)
            place = (int(self._offsets[piece]), length, proofs)
            rows.append((*place, 1, [length], [from_byte], [to_byte - from_byte], to, [1]))
            only.append(some.tobytes())
        return rows, only
