"""What a dataset says of its columns, shards and blocks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

__all__ = [
    "Block",
    "BrokenShard",
    "Column",
    "CutEnd",
    "Shard",
    "Table",
    "runs",
    "samples_at_once",
    "wrap_index",
]


class Column(NamedTuple):
    """One column of every sample."""

    name: str
    encoding: str
    """What the bytes mean: an MDS encoding such as ``"int"`` or ``"ndarray:uint16:1025"``; ``"bytes"`` for
    tar members."""
    dtype: str
    """numpy dtype of a column whose values are all arrays (or scalars) of one type and shape, else ``""``."""
    shape: tuple[int, ...]
    size: int
    """Bytes of each value; 0: varies."""
    classes: tuple[str, ...] = ()
    """Names of the values 0, 1, ... of a column of labels."""


class Shard(NamedTuple):
    """One object (or run of raw files) of the dataset."""

    key: str
    etag: str
    size: int
    first_sample: int
    sample_count: int
    compression: str
    hashes: str = ""
    """Digests of the object that the format stores, ``"name=hex"`` joined by spaces."""


class BrokenShard(NamedTuple):
    """A shard that cannot be indexed, and that the dataset does without."""

    key: str
    etag: str
    size: int
    code: str
    """``"corrupt"`` or ``"unsupported"``."""
    message: str
    """What is wrong with it."""
    first_sample: int
    sample_count: int
    """The positions that it keeps, where a manifest tells how many samples it has; they are bad. 0: nobody
    knows how many there were, and the dataset has none of them."""


class CutEnd(NamedTuple):
    """The end of an object that ``lenient=True`` passed over."""

    key: str
    bytes: int


class Block(NamedTuple):
    """A run of samples of one shard: the unit of reading and of the order."""

    shard: int
    first_sample: int
    sample_count: int
    stored_bytes: int
    raw_bytes: int


class Table(Sequence[Any]):
    """A read-only sequence over rows that the engine holds."""

    def __init__(self, count: int, row: Any) -> None:
        self._count, self._row = count, row

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._row(i) for i in range(*index.indices(self._count))]
        return self._row(wrap_index(index, self._count, "row"))


def runs(blocks: Iterable[Block], most_samples: int, most_bytes: int = 64 << 20) -> Iterator[range]:
    """All samples in pieces of so many at most, and of no more bytes than that or one block has: what may be
    in memory at once."""
    first = end = filled = 0
    for block in blocks:
        if filled + block.raw_bytes > most_bytes and first < end:
            yield range(first, end)
            first, filled = end, 0
        end, filled = block.first_sample + block.sample_count, filled + block.raw_bytes
        while end - first >= most_samples:
            yield range(first, first + most_samples)
            first += most_samples
            filled = block.raw_bytes * (end - first) // block.sample_count
    if first < end:
        yield range(first, end)


_ASKED_BLOCKS = 1000


def samples_at_once(blocks: Sequence[Block], most_samples: int, most_bytes: int) -> int:
    """How many have, on average, so many bytes, or as many as the largest block. Of very many blocks some
    are asked."""
    raw = count = 0
    for block in blocks[:: len(blocks) // _ASKED_BLOCKS + 1]:
        raw, count = raw + block.raw_bytes, count + block.sample_count
        most_bytes = max(most_bytes, block.raw_bytes)
    return max(1, min(most_samples, most_bytes * count // max(raw, 1)))


def wrap_index(index: int, count: int, what: str) -> int:
    position = operator.index(index)
    if not -count <= position < count:
        raise IndexError(f"{what} {position} is out of range: there are {count}")
    return position % count
