"""Memory that arrays to be filled have in common: views of one another, and elements that lie on others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.checkpoint.row_major import Memory

__all__ = ["Extent", "find_common"]

_MOST_WORK = 10_000
"""Of numpy's search for a common byte, which is exponential in the number of dimensions; milliseconds."""


class Extent(NamedTuple):
    """Where the elements of a part of an array lie."""

    device: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Bytes."""
    width: int
    """Bytes of an element."""

    @classmethod
    def of(cls, part: Any) -> Extent:
        """Of a tensor of torch, on any device, or an array of numpy."""
        if isinstance(part, np.ndarray):
            address = part.__array_interface__["data"][0]
            return cls("cpu", address, part.shape, part.strides, part.itemsize)
        memory = Memory.of_torch(part.detach())
        return cls(str(part.device), memory.address, tuple(part.shape), memory.strides, part.element_size())

    @property
    def begin(self) -> int:
        """Of the bytes from the first to the last, and ``end`` behind them; some may be others'."""
        return self.address + sum(
            min(0, (size - 1) * stride) for size, stride in zip(self.shape, self.strides, strict=True)
        )

    @property
    def end(self) -> int:
        if 0 in self.shape:
            return self.begin
        return (
            self.address
            + self.width
            + sum(max(0, (size - 1) * stride) for size, stride in zip(self.shape, self.strides, strict=True))
        )

    def overlaps_itself(self) -> bool:
        """Whether two elements have a byte in common."""
        if 0 in self.shape:
            return False
        reach = self.width  # Of the dimensions so far: nothing meets where the next one steps over it.
        steps = zip(map(abs, self.strides), self.shape, strict=True)
        for stride, size in sorted(step for step in steps if step[1] > 1):
            if stride < reach:
                break
            reach += (size - 1) * stride
        else:
            return False
        # Two that meet differ in some dimension; the first of them may have index 0 there.
        there = self._as_numpy()
        return any(
            size > 1 and _is_common(there[_rows(axis, 0, 1)], there[_rows(axis, 1, None)])
            for axis, size in enumerate(self.shape)
        )

    def _as_numpy(self) -> np.ndarray[Any, Any]:
        """An array that nobody may look into: its memory may be a GPU's."""
        return np.asarray(_Interface(self))


class _Interface:
    def __init__(self, extent: Extent) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{extent.width}",
            "data": (extent.address, False),
            "shape": extent.shape,
            "strides": extent.strides,
        }


def _rows(axis: int, begin: int, end: int | None) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(begin, end))


def _is_common(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], *, unknown: bool = False) -> bool:
    """Whether two have a byte in common; ``unknown``: what to say where it takes too long to tell."""
    try:
        return np.shares_memory(one, other, max_work=_MOST_WORK)
    except RuntimeError:  # numpy's TooHardError, which is elsewhere in each of its versions.
        return unknown


def find_common(extents: Sequence[Extent]) -> dict[int, int]:
    """Numbers of those that have memory in common with another, each with one of these; also where that could
    not be told in time."""
    found: dict[int, int] = {}
    spans = [(each.device, each.begin, each.end) for each in extents]
    open_: list[int] = []  # Those before that reach beyond where the next begins.
    for number in sorted((n for n, span in enumerate(spans) if span[1] < span[2]), key=spans.__getitem__):
        device, begin, _ = spans[number]
        open_ = [each for each in open_ if spans[each][0] == device and spans[each][2] > begin]
        for other in open_:
            one, two = (extents[each]._as_numpy() for each in (number, other))
            if _is_common(one, two, unknown=True):
                found.setdefault(number, other)
                found.setdefault(other, number)
        open_.append(number)
    return found
