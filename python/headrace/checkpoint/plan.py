"""Who writes which chunk. Every rank computes the same from what all ranks have."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from headrace.checkpoint.arrays import Array, Chunk, width_of
from headrace.errors import InvalidArgumentError

__all__ = ["Had", "Plan", "Planned", "had", "make_plan"]

Had: TypeAlias = "dict[str, list[Any]]"
"""By name: [kind, dtype, shape, [[offsets, sizes], ...]]. What one rank has, as JSON."""


class Planned(NamedTuple):
    """An array of the checkpoint."""

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[tuple[Chunk, int], ...]
    """Each with the rank that writes it; together they are the array, without overlap."""

    @property
    def size_bytes(self) -> int:
        """Of all its elements."""
        return math.prod(self.shape) * width_of(self.dtype)


class Plan(NamedTuple):
    arrays: list[Planned]

    def of_rank(self, rank: int) -> list[tuple[int, int]]:
        """(array, chunk) of what a rank writes."""
        return [
            (i, k)
            for i, array in enumerate(self.arrays)
            for k, (_, owner) in enumerate(array.chunks)
            if owner == rank
        ]


def had(arrays: Sequence[Array]) -> Had:
    return {
        each.name: [
            each.kind,
            each.dtype,
            list(each.shape),
            [[list(c.offsets), list(c.sizes)] for c in each.chunks],
        ]
        for each in arrays
    }


def _bytes_of(chunk: Chunk, dtype: str) -> int:
    return math.prod(chunk.sizes) * width_of(dtype)


def make_plan(ranks: Sequence[Had]) -> Plan:
    """Raises InvalidArgumentError where ranks contradict one another, or together do not have all of an
    array."""
    about: dict[str, tuple[str, str, tuple[int, ...]]] = {}
    owners: dict[str, dict[Chunk, list[int]]] = defaultdict(dict)
    for rank, rows in enumerate(ranks):
        for name, (kind, dtype, shape, chunks) in rows.items():
            first = about.setdefault(name, (kind, dtype, tuple(shape)))
            if first != (kind, dtype, tuple(shape)):
                raise InvalidArgumentError(
                    f"{name}: rank {rank} has {dtype}{list(shape)}, another {first[1]}{list(first[2])}. What belongs to one rank alone "
                    f"is saved under a name of its own, for example state[f'rank{{rank}}']"
                )
            for offsets, sizes in chunks:
                owners[name].setdefault(Chunk(tuple(offsets), tuple(sizes)), []).append(rank)
    # The largest first, each to the least loaded of those that have it: ties to the lowest rank.
    load = [0] * len(ranks)
    chosen: dict[tuple[str, Chunk], int] = {}
    todo = [(_bytes_of(chunk, about[name][1]), name, chunk) for name in owners for chunk in owners[name]]
    for size, name, chunk in sorted(todo, key=lambda each: (-each[0], each[1], each[2])):
        having = owners[name][chunk]
        rank = having[0] if len(having) == 1 else min(having, key=lambda each: (load[each], each))
        load[rank] += size
        chosen[name, chunk] = rank
    arrays = []
    for name in sorted(about):
        kind, dtype, shape = about[name]
        chunks = tuple((chunk, chosen[name, chunk]) for chunk in sorted(owners[name]))
        _check_cover(name, shape, [chunk for chunk, _ in chunks])
        arrays.append(Planned(name, kind, dtype, shape, chunks))
    return Plan(arrays)


def _check_cover(name: str, shape: tuple[int, ...], chunks: list[Chunk]) -> None:
    """Every element is in exactly one chunk."""
    for chunk in chunks:
        if len(chunk.offsets) != len(shape) or any(
            o < 0 or s < 0 or o + s > n for o, s, n in zip(chunk.offsets, chunk.sizes, shape, strict=True)
        ):
            raise InvalidArgumentError(f"{name}: a chunk lies outside the array: {chunk} of {list(shape)}")
    whole, parts = math.prod(shape), sum(math.prod(chunk.sizes) for chunk in chunks)
    if parts < whole:
        raise InvalidArgumentError(
            f"{name}: the ranks together have {parts} of its {whole} elements; a rank or a shard is missing"
        )
    if parts > whole or _overlap(chunks):
        raise InvalidArgumentError(f"{name}: chunks of different ranks overlap")


def _overlap(chunks: list[Chunk]) -> bool:
    """Whether two boxes share an element. Boxes come sorted by offsets: along the first dimension only
    neighbours can meet."""
    if len(chunks) < 2:
        return False
    open_until: list[Chunk] = []
    for chunk in chunks:
        if math.prod(chunk.sizes) == 0:
            continue
        open_until = [each for each in open_until if each.offsets[0] + each.sizes[0] > chunk.offsets[0]]
        for each in open_until:
            if all(
                o < p + q and p < o + s
                for o, s, p, q in zip(chunk.offsets, chunk.sizes, each.offsets, each.sizes, strict=True)
            ):
                return True
        open_until.append(chunk)
    return False
