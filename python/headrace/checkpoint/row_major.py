"""The bytes of an array's chunk in row-major order: where they lie, or copied bit by bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Memory", "RowMajor", "boxes_of", "shows_its_memory"]


class Memory(NamedTuple):
    """Bytes of a chunk in this process's memory."""

    address: int
    strides: tuple[int, ...]
    """Bytes from one element to the next, of each dimension."""
    owner: Any
    """Keeps it alive; what is written to the address shows in it."""

    @classmethod
    def of_torch(cls, tensor: Any) -> Memory:
        width = tensor.element_size()
        return cls(tensor.data_ptr(), tuple(width * stride for stride in tensor.stride()), tensor)

    @classmethod
    def of_numpy(cls, array: np.ndarray[Any, Any]) -> Memory:
        return cls(array.ctypes.data, array.strides, array)


def shows_its_memory(tensor: Any) -> bool:
    """Whether the memory of a tensor is this machine's, and holds the numbers that the tensor shows."""
    return bool(tensor.device.type == "cpu" and not tensor.is_conj() and not tensor.is_neg())


def boxes_of(shape: Sequence[int], first: int, count: int) -> Iterator[tuple[Any, ...]]:
    """Indexes of the boxes that together are ``count`` elements from ``first`` on, in row-major order."""
    if count == 0:
        return
    if not shape:
        yield ()
        return
    inner = math.prod(shape[1:])
    row, before = divmod(first, inner)
    if before:
        some = min(inner - before, count)
        yield from ((row, *box) for box in boxes_of(shape[1:], before, some))
        row, count = row + 1, count - some
    rows, rest = divmod(count, inner)
    if rows:
        yield (slice(row, row + rows),)
    yield from ((row + rows, *box) for box in boxes_of(shape[1:], 0, rest))


class RowMajor:
    """Of a tensor of torch on any device, or an array of numpy, with any strides."""

    def __init__(self, part: Any) -> None:
        self.is_torch = not isinstance(part, np.ndarray)
        self._part = part.detach() if self.is_torch else part

    @property
    def is_cuda(self) -> bool:
        return self.is_torch and self._part.device.type == "cuda"

    def memory(self) -> Memory | None:
        """Where they lie in this machine's memory in one piece; None: nowhere."""
        part = self._part
        if not self.is_torch:
            return Memory.of_numpy(part) if part.flags.c_contiguous else None
        return Memory.of_torch(part) if shows_its_memory(part) and part.is_contiguous() else None

    def copy(self, first_byte: int, out: Any) -> Callable[[], None]:
        """Copies bytes from ``first_byte`` on, whole elements, to ``out`` (uint8; of torch for one of torch),
        which has them when the function that is returned has been called. From a GPU that is after all that
        its current stream has been given."""
        part = self._part
        width = part.element_size() if self.is_torch else part.itemsize
        if not self.is_torch and not isinstance(out, np.ndarray):
            out = out.numpy()
        flat, at = out.view(part.dtype), 0
        for box in boxes_of(tuple(part.shape), first_byte // width, len(out) // width):
            source = part[box]
            count = math.prod(source.shape)
            to = flat[at : at + count].reshape(source.shape)
            if self.is_cuda:
                # copy_() would conjugate on the host at once, before the bytes have come.
                to.copy_(source.resolve_conj().resolve_neg(), non_blocking=True)
            elif self.is_torch:
                to.copy_(source)
            else:
                to[...] = source
            at += count
        if not self.is_cuda:
            return lambda: None
        import torch

        return torch.cuda.current_stream(part.device).record_event().synchronize  # type: ignore[no-any-return]
