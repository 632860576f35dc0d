"""Who writes which chunk. Every rank computes the same from what all ranks have.

A job of 1,024 ranks with 100,000 arrays has 100 million chunks, but few layouts: arrays are looked at once
for each set of ranks that have the same arrays, chunks once for each layout.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.checkpoint.arrays import Array, Chunk, width_of
from headrace.errors import InvalidArgumentError

__all__ = ["Had", "LeastLoaded", "Plan", "Planned", "had", "make_plan", "overlap"]


class Had(NamedTuple):
    """What one rank has. JSON."""

    arrays: list[list[Any]]
    """[name, kind, dtype, shape, number of its layout]. Where arrays are sharded alike, all ranks' are
    equal."""
    layouts: list[list[Any]]
    """[[offsets, sizes], ...]: the chunks that this rank has, by number."""


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
        owned: dict[int, list[int]] = {}  # Many arrays have one and the same tuple of chunks.
        for array in self.arrays:
            if id(array.chunks) not in owned:
                owned[id(array.chunks)] = [k for k, (_, owner) in enumerate(array.chunks) if owner == rank]
        return [(i, k) for i, array in enumerate(self.arrays) for k in owned[id(array.chunks)]]


def had(arrays: Sequence[Array]) -> Had:
    numbers: dict[Any, int] = {}
    rows = []
    for each in sorted(arrays, key=lambda each: each.name):
        layout = (each.shape, tuple(each.chunks))
        number = numbers.setdefault(layout, len(numbers))
        rows.append([each.name, each.kind, each.dtype, list(each.shape), number])
    return Had(rows, [[[list(c.offsets), list(c.sizes)] for c in chunks] for _, chunks in numbers])


class _Layout:
    """How arrays of one shape lie on all ranks. ``owners``: of each chunk, the ranks that have it."""

    def __init__(self, name: str, shape: tuple[int, ...], owners: dict[Chunk, list[int]]) -> None:
        self.owners = {chunk: tuple(having) for chunk, having in sorted(owners.items())}
        _check_cover(name, shape, list(self.owners))
        self.several = [chunk for chunk, having in self.owners.items() if len(having) > 1]
        self._chosen: dict[tuple[int, ...], tuple[tuple[Chunk, int], ...]] = {}

    def chunks(self, chosen: dict[Chunk, int]) -> tuple[tuple[Chunk, int], ...]:
        """Each with who writes it; the same tuple for the same choice."""
        key = tuple(chosen[chunk] for chunk in self.several)
        if key not in self._chosen:
            self._chosen[key] = tuple((c, chosen.get(c, having[0])) for c, having in self.owners.items())
        return self._chosen[key]


class _About(NamedTuple):
    """An array, and which layout it has on the ranks of each table."""

    rank: int
    kind: str
    dtype: str
    shape: tuple[int, ...]
    layouts: list[tuple[int, int]]
    """(table, number)."""


def make_plan(ranks: Sequence[Had]) -> Plan:
    """``ranks``: those with equal arrays have the same list of them, for speed. Raises InvalidArgumentError
    where ranks contradict one another, or together do not have all of an array."""
    tables: dict[int, list[int]] = defaultdict(list)
    for rank, has in enumerate(ranks):
        tables[id(has.arrays)].append(rank)
    members = list(tables.values())
    about = _gathered(ranks, members)
    layouts: dict[Any, _Layout] = {}
    of: dict[str, _Layout] = {}
    load = [0] * len(ranks)
    single: dict[Any, int] = defaultdict(int)  # Arrays of a layout and element width.
    for name in sorted(about):
        each = about[name]
        key = (each.shape, *each.layouts)
        if key not in layouts:
            layouts[key] = _Layout(name, each.shape, _owners(ranks, members, each.layouts))
        of[name] = layouts[key]
        single[key, width_of(each.dtype)] += 1
    for (key, width), count in single.items():
        for chunk, having in layouts[key].owners.items():
            if len(having) == 1:
                load[having[0]] += count * width * math.prod(chunk.sizes)
    chosen = _shared_out(about, of, load)
    return Plan(
        [
            Planned(name, each.kind, each.dtype, each.shape, of[name].chunks(chosen[name]))
            for name, each in sorted(about.items())
        ]
    )


def _gathered(ranks: Sequence[Had], members: list[list[int]]) -> dict[str, _About]:
    """By name. ``members``: ranks of each table."""
    about: dict[str, _About] = {}
    for table, having in enumerate(members):
        rank = having[0]
        for name, kind, dtype, shape, number in ranks[rank].arrays:
            first = about.setdefault(name, _About(rank, kind, dtype, tuple(shape), []))
            if first[1:4] != (kind, dtype, tuple(shape)):
                raise InvalidArgumentError(
                    f"{name}: rank {rank} has {dtype}{list(shape)} of {kind}, rank {first.rank} "
                    f"{first.dtype}{list(first.shape)} of {first.kind}. What belongs to one "
                    "rank alone is saved under a name of its own, for example state[f'rank{rank}']"
                )
            first.layouts.append((table, number))
    return about


def _owners(
    ranks: Sequence[Had], members: list[list[int]], layouts: list[tuple[int, int]]
) -> dict[Chunk, list[int]]:
    """Ranks that have each chunk, rising."""
    owners: dict[Chunk, list[int]] = defaultdict(list)
    for rank, number in sorted((rank, number) for table, number in layouts for rank in members[table]):
        for offsets, sizes in ranks[rank].layouts[number]:
            owners[Chunk(tuple(offsets), tuple(sizes))].append(rank)
    return owners


def _shared_out(
    about: dict[str, _About], of: dict[str, _Layout], load: list[int]
) -> dict[str, dict[Chunk, int]]:
    """Of chunks that several ranks have: the largest first, each to the least loaded; ties to the lowest
    rank. ``load``: bytes that each rank writes anyhow."""
    chosen: dict[str, dict[Chunk, int]] = {name: {} for name in about}
    todo = [
        (width_of(about[name].dtype) * math.prod(chunk.sizes), name, chunk)
        for name, layout in of.items()
        for chunk in layout.several
    ]
    queues: dict[int, LeastLoaded] = {}  # By identity: chunks of a layout that all ranks have are many.
    for size, name, chunk in sorted(todo, key=lambda each: (-each[0], each[1], each[2])):
        owners = of[name].owners[chunk]
        queue = queues.get(id(owners)) or queues.setdefault(id(owners), LeastLoaded(owners, load))
        rank = queue.rank()
        load[rank] += size
        chosen[name][chunk] = rank
    return chosen


class LeastLoaded:
    """Which of some ranks has the least load, while loads grow. ``load``: of all ranks, read at each call."""

    def __init__(self, ranks: Sequence[int], load: list[int]) -> None:
        self._load, self._known = load, sorted((load[rank], rank) for rank in ranks)

    def rank(self) -> int:
        """Of equals the lowest."""
        known, rank = self._known[0]
        while known != self._load[rank]:
            heapq.heapreplace(self._known, (self._load[rank], rank))
            known, rank = self._known[0]
        return rank


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
    if parts > whole or overlap(chunks):
        raise InvalidArgumentError(f"{name}: chunks of different ranks overlap")


def overlap(chunks: list[Chunk]) -> bool:
    """Whether two boxes share an element. Only neighbours can, along the dimension that has most of them."""
    chunks = [chunk for chunk in chunks if math.prod(chunk.sizes)]
    if len(chunks) < 2:
        return False
    axis = max(range(len(chunks[0].sizes)), key=lambda axis: len({each.offsets[axis] for each in chunks}))
    open_until: list[Chunk] = []
    for chunk in sorted(chunks, key=lambda each: each.offsets[axis]):
        begin = chunk.offsets[axis]
        open_until = [each for each in open_until if each.offsets[axis] + each.sizes[axis] > begin]
        for each in open_until:
            if all(
                o < p + q and p < o + s
                for o, s, p, q in zip(chunk.offsets, chunk.sizes, each.offsets, each.sizes, strict=True)
            ):
                return True
        open_until.append(chunk)
    return False
