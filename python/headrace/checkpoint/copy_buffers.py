"""Bytes of pieces that lie nowhere row-major in this machine's memory (other strides, other devices), brought
to it a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace.checkpoint.row_major import RowMajor

__all__ = ["CopiedBytes", "CopyBuffers", "PieceBytes", "size_of"]

_ALIGNMENT = 64

PieceBytes: TypeAlias = tuple[int, int, int]
"""(piece, first byte, end byte)."""
CopiedBytes: TypeAlias = tuple[int, int, int, int]
"""(piece, address, bytes there, which byte of the piece is the first): what CheckpointWriter.stage()
takes."""


def size_of(some: Sequence[PieceBytes]) -> int:
    """Bytes of a buffer that they fit in."""
    return sum(_aligned(end - begin) for _, begin, end in some)


class CopyBuffers:
    """Two, which take turns.

    :param size: bytes of each.
    :param parts: the pieces, by number.
    """

    def __init__(self, size: int, parts: Mapping[int, RowMajor]) -> None:
        self._parts = parts
        self._buffers = [_memory(size, list(parts.values())) for _ in range(2 if size else 0)]

    def fill(self, some: Sequence[PieceBytes]) -> Callable[[], list[CopiedBytes]]:
        """Begins to copy. Returns what waits for it; the buffer is used again by the next call but one."""
        if not some:
            return list
        self._buffers.reverse()
        buffer, at = self._buffers[0], 0
        rows: list[CopiedBytes] = []
        waits = []
        for piece, begin, end in some:
            waits.append(self._parts[piece].copy(begin, buffer[at : at + end - begin]))
            rows.append((piece, _address(buffer) + at, end - begin, begin))
            at += _aligned(end - begin)

        def came() -> list[CopiedBytes]:
            for wait in waits:
                wait()
            return rows

        return came


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _memory(size: int, parts: Sequence[RowMajor]) -> Any:
    """Bytes: of torch, pinned where a GPU copies to them; else of numpy."""
    if not any(part.is_torch for part in parts):
        return np.empty(size, np.uint8)
    import torch

    return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=any(part.is_cuda for part in parts))


def _address(buffer: Any) -> int:
    return int(buffer.ctypes.data if isinstance(buffer, np.ndarray) else buffer.data_ptr())
