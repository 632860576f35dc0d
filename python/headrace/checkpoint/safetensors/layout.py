"""Where every byte of a model will lie, before any is copied: files, parts, and who writes which part. Every
rank computes the same."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from headrace import _native
from headrace.checkpoint.arrays import Chunk, width_of
from headrace.checkpoint.plan import Planned
from headrace.checkpoint.safetensors.files import END, SINGLE
from headrace.errors import InvalidArgumentError

__all__ = ["FileLayout", "Share", "file_name", "lay_out", "name_files"]

_PAGE_BYTES = 4096
_MOST_PARTS = 10_000


class Share(NamedTuple):
    """What one rank has of a part: a run of bytes of one of its chunks, row-major, and where they go."""

    rank: int
    array: str
    chunk: int
    begin: int
    end: int
    """Bytes of the chunk, ``[begin, end)``."""
    targets: Any
    """Offsets in the part of the runs that they consist of; int64."""
    lengths: Any
    """Bytes of each run; int64."""


class Placed(NamedTuple):
    """An array in its file."""

    offset: int
    array: Planned
    firsts: Any
    """Of each chunk: its first element in the whole array, row-major."""
    ends: Any
    """And the one behind its last."""


class FileLayout(NamedTuple):
    """One file."""

    key: str
    placed: Sequence[Placed]
    """By offset; arrays without elements are left out."""
    header: bytes
    size: int
    part_bytes: int
    writers: Sequence[int]
    """The rank that writes each part."""

    def part(self, number: int) -> tuple[int, int]:
        """Bytes of the file, ``[begin, end)``."""
        begin = number * self.part_bytes
        return begin, min(begin + self.part_bytes, self.size)

    def shares(self, number: int) -> Iterator[Share]:
        """What the ranks have of a part; the header is everybody's, and not among it."""
        begin, end = self.part(number)
        first = max(0, bisect_right(self.placed, begin, key=lambda each: each.offset) - 1)
        for each in islice(self.placed, first, None):
            if each.offset >= end:
                return
            yield from _shares(each, begin, end)


def file_name(number: int, count: int) -> str:
    """Of one of ``count`` files, from 1 on, as transformers calls it."""
    return SINGLE if count == 1 else f"model-{number:05}-of-{count:05}{END}"


def name_files(
    arrays: Sequence[Planned], max_shard_bytes: int, fqn_to_file: Mapping[str, str | int] | None
) -> dict[str, str]:
    """The file of each array: those that were asked for, else filled one after the other in the order of
    names, numbers in them as numbers."""
    order = sorted((array.name for array in arrays), key=_natural)
    if fqn_to_file is not None:
        missing = [name for name in order if name not in fqn_to_file]
        if missing:
            raise InvalidArgumentError(
                "fqn_to_file= does not say where "
                f"{', '.join(missing[:5])}{' and others' if len(missing) > 5 else ''} shall be"
            )
        named = {name: fqn_to_file[name] for name in order}
        numbers = [value for value in named.values() if isinstance(value, int)]
        files = {name: _spelled(value, max(numbers, default=1)) for name, value in named.items()}
        if SINGLE in files.values() and len(set(files.values())) > 1:
            raise InvalidArgumentError(
                f"fqn_to_file= has other files beside {SINGLE}, which readers take for the whole model: they "
                "would not see the others; call it otherwise, or number all of them"
            )
        return files
    sizes = {array.name: array.size_bytes for array in arrays}
    numbered, number, filled = {}, 1, 0
    for name in order:
        if filled and filled + sizes[name] > max_shard_bytes:
            number, filled = number + 1, 0
        numbered[name], filled = number, filled + sizes[name]
    return {name: file_name(each, number) for name, each in numbered.items()}


def _spelled(value: str | int, count: int) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return file_name(value, count)
    if isinstance(value, str) and re.fullmatch(r"[^/\\\x00-\x1f]+\.safetensors", value):
        return value
    raise InvalidArgumentError(
        f"fqn_to_file= has {value!r}: expected a file name that ends in {END}, or a number from 1 on"
    )


def _natural(name: str) -> list[Any]:
    """layers.2 before layers.10."""
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in re.split(r"(\d+)", name)]


def lay_out(
    key: str,
    arrays: Sequence[Planned],
    metadata: Mapping[str, str],
    part_bytes: int,
    world_size: int,
    float4: Set[str] = frozenset(),
) -> FileLayout:
    """Of one file; arrays in the order of which those of one width lie. ``float4``: arrays of bytes of which
    each is two elements."""
    rows = [
        (array.name, "F4", (*array.shape[:-1], 2 * array.shape[-1]))
        if array.name in float4 and array.shape
        else (array.name, array.dtype, array.shape)
        for array in arrays
    ]
    header, places, size = _native.checkpoint_layout(rows, metadata)
    spans: dict[Any, tuple[Any, Any]] = {}
    placed = []
    for array, (offset, length) in zip(arrays, places, strict=True):
        if length:
            layout_of = array.shape, id(array.chunks)
            if layout_of not in spans:
                spans[layout_of] = _spans(array)
            placed.append(Placed(offset, array, *spans[layout_of]))
    pages = -(-max(part_bytes, -(-size // _MOST_PARTS)) // _PAGE_BYTES)
    layout = FileLayout(
        key,
        sorted(placed, key=lambda each: each.offset),
        header,
        size,
        pages * _PAGE_BYTES,
        [],
    )
    return layout._replace(writers=_writers(layout, world_size))


def _writers(layout: FileLayout, world_size: int) -> list[int]:
    """Of each part: who has most of it, of those who do not write their share of the file yet."""
    count = -(-layout.size // layout.part_bytes)
    if world_size == 1:
        return [0] * count
    most = -(-count // world_size)
    written = [0] * world_size
    writers = []
    for number in range(count):
        has: dict[int, int] = defaultdict(int)
        for share in layout.shares(number):
            has[share.rank] += share.end - share.begin
        free = [rank for rank in range(world_size) if written[rank] < most]
        writer = max(free, key=lambda rank: (has[rank], -written[rank], -rank))
        written[writer] += 1
        writers.append(writer)
    return writers


def _shares(placed: Placed, begin: int, end: int) -> Iterator[Share]:
    """Of the bytes ``[begin, end)`` of the file."""
    array, offset = placed.array, placed.offset
    width = width_of(array.dtype)
    # Wide arrays come first and parts are whole pages: no element lies in two.
    first = max(0, (begin - offset) // width)
    last = min(math.prod(array.shape), (end - offset) // width)
    for number in np.nonzero((placed.firsts < last) & (placed.ends > first))[0].tolist():
        chunk, rank = array.chunks[number]
        runs = _Runs(array.shape, chunk)
        low, high = runs.between(first, last)
        if low == high:
            continue
        starts = runs.starts(low, high)
        begins, stops = np.maximum(starts, first), np.minimum(starts + runs.length, last)
        at = low * runs.length + int(begins[0] - starts[0])
        count = int((stops - begins).sum())
        yield Share(
            rank,
            array.name,
            number,
            at * width,
            (at + count) * width,
            offset - begin + begins * width,
            (stops - begins) * width,
        )


def _spans(array: Planned) -> tuple[Any, Any]:
    """``firsts`` and ``ends`` of Placed."""
    firsts, ends = [], []
    for chunk, _ in array.chunks:
        is_empty = math.prod(chunk.sizes) == 0
        firsts.append(_flat(array.shape, chunk.offsets))
        last = [o + s - 1 for o, s in zip(chunk.offsets, chunk.sizes, strict=True)]
        ends.append(firsts[-1] if is_empty else _flat(array.shape, last) + 1)
    return np.array(firsts, np.int64), np.array(ends, np.int64)


def _flat(shape: Sequence[int], index: Sequence[int]) -> int:
    at = 0
    for size, each in zip(shape, index, strict=True):
        at = at * size + each
    return at


class _Runs:
    """A chunk as runs of elements that lie side by side in the whole array; all have one length."""

    def __init__(self, shape: Sequence[int], chunk: Chunk) -> None:
        outer, self.length = len(shape), 1
        while outer > 0:
            outer -= 1
            self.length *= chunk.sizes[outer]
            if chunk.sizes[outer] != shape[outer]:
                break
        self._sizes = chunk.sizes[:outer]
        self._strides = [math.prod(shape[d + 1 :]) for d in range(outer)]
        self._first = _flat(shape, chunk.offsets)
        self.count = math.prod(self._sizes)

    def between(self, first: int, end: int) -> tuple[int, int]:
        """Runs that have elements of ``[first, end)``; half-open."""
        numbers = range(self.count)
        low = bisect_right(numbers, first, key=lambda number: self._start(number) + self.length)
        return low, max(low, bisect_left(numbers, end, key=self._start))

    def starts(self, low: int, high: int) -> Any:
        """First elements of runs ``[low, high)``."""
        numbers = np.arange(low, high)
        out = np.full(high - low, self._first, np.int64)
        for size, stride in zip(reversed(self._sizes), reversed(self._strides), strict=True):
            numbers, index = np.divmod(numbers, size)
            out += index * stride
        return out

    def _start(self, number: int) -> int:
        at = self._first
        for size, stride in zip(reversed(self._sizes), reversed(self._strides), strict=True):
            number, index = divmod(number, size)
            at += index * stride
        return at
