"""What several ranks load is read once: ranks as threads, which hand bytes to one another by queues."""

from __future__ import annotations

import math
import queue
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_checkpoint_group import Values

import headrace as hr
from headrace import _native
from headrace.checkpoint import Checkpointer, sharing
from headrace.checkpoint.arrays import Chunk
from headrace.checkpoint.blocks import BlockMap, cut, merged, within
from headrace.checkpoint.group import Group
from headrace.checkpoint.loading import Boxes
from headrace.checkpoint.place import Place
from headrace.checkpoint.row_major import Memory
from headrace.checkpoint.sharing import OtherRankError, SharedReads, readers_of, rounds_of

BLOCK = _native.checkpoint_sum_block_bytes()
SECONDS = 30.0
SHAPES = [(1000, 333), (7,), (40, 40, 40), (3, 100_000), (0, 5), (50_001,), (2, 2)]


class Threads:
    """An Exchange of one rank; ``between`` has what all share."""

    class Between:
        def __init__(self, world: int) -> None:
            self.barrier = threading.Barrier(world)
            self.flags = [False] * world
            self.queues = {(a, b): queue.Queue[Any]() for a in range(world) for b in range(world)}
            self.sent = Counter[int]()
            self.damage: Callable[[np.ndarray[Any, Any]], None] = lambda data: None

    def __init__(self, rank: int, between: Between) -> None:
        self._rank, self._between = rank, between

    def open(self) -> None: ...

    def any(self, here: bool) -> bool:
        self._between.barrier.wait(SECONDS)
        self._between.flags[self._rank] = here
        self._between.barrier.wait(SECONDS)
        return any(self._between.flags)

    def swap(self, parts: Sequence[bytes]) -> list[bytes]:
        for rank, part in enumerate(parts):
            self._between.queues[self._rank, rank].put(part)
        return [self._between.queues[rank, self._rank].get(timeout=SECONDS) for rank in range(len(parts))]

    def pass_on(self, sends: Sequence[tuple[int, Any]], receives: Sequence[tuple[int, Any]]) -> None:
        for rank, data in sends:
            data = data.copy()
            self._between.sent[self._rank] += len(data)
            self._between.damage(data)
            self._between.queues[self._rank, rank].put(data)
        for rank, data in receives:
            got = self._between.queues[rank, self._rank].get(timeout=SECONDS)
            assert len(got) == len(data)
            data[:] = got

    def close(self) -> None: ...


class Counting(Place):
    """Counts what is read of data files, by thread."""

    def __init__(self, store: hr.Store, key: _native.SealKey | None = None) -> None:
        super().__init__(store, key)
        self.read_bytes = Counter[str]()
        self.calls = 0
        self.broken: Callable[[], bool] = lambda: False

    def read(self, key: str, boxes: list[Any], only: Sequence[bytes] = ()) -> tuple[int, int]:
        if self.broken():
            raise hr.CorruptError(f"{key}: broken")
        totals = super().read(key, boxes, only)
        self.read_bytes[key] += totals[1]
        self.calls += 1
        return totals


Wanted = tuple[int, Chunk]
"""A box of an array, by its number."""


class Job:
    """Ranks that load boxes of one checkpoint together."""

    def __init__(
        self, directory: Path, world: int, step: int = 1, key: _native.SealKey | None = None
    ) -> None:
        self.world = world
        self.places = [Counting(hr.Store(str(directory)), key) for _ in range(world)]
        self.between = Threads.Between(world)
        values = Values()
        self.groups = [Group(rank, world, values, SECONDS) for rank in range(world)]
        self.threads = ThreadPoolExecutor(world)
        self.rounds = [0] * world
        self.manifest = self.places[0].manifest(step)
        self.manifests = [self.manifest] * world

    def load(self, wanted: Sequence[Sequence[Wanted]], mode: Any = "always") -> list[Any]:
        """What each rank got, a list of arrays, or the exception."""

        def run(rank: int) -> Any:
            sharing = SharedReads(self.groups[rank], Threads(rank, self.between), mode, 64 << 20)
            try:
                boxes, out = Boxes(self.places[rank], self.manifests[rank]), []
                for number, box in wanted[rank]:
                    got = np.zeros(box.sizes, self.manifest.arrays[number].dtype.replace("F32", "f4"))
                    boxes.add(number, box, Memory(got.ctypes.data, got.strides, got))
                    out.append(got)
                sharing.read(boxes)
                return out
            except Exception as error:
                sharing.give_up(error)
                return error

        return list(self.threads.map(run, range(self.world)))

    def load_in_rounds(
        self, wanted: Sequence[Sequence[Wanted]], staged: Sequence[int], fails: Callable[[int, int], bool]
    ) -> list[Any]:
        """As load(); each rank has so many bytes to stage. ``fails``: whether a rank does after a round."""

        def run(rank: int) -> Any:
            sharing = SharedReads(self.groups[rank], Threads(rank, self.between), "always", 64 << 20)
            try:
                boxes, out = Boxes(self.places[rank], self.manifest), dict[int, Any]()
                rounds = sharing.plan_rounds(self.manifest, staged[rank])
                for n, some in enumerate(rounds):
                    for at, (number, box) in enumerate(wanted[rank]):
                        if number in some:
                            out[at] = np.zeros(box.sizes, "f4")
                            boxes.add(number, box, Memory(out[at].ctypes.data, out[at].strides, out[at]))
                    sharing.read(boxes)
                    boxes.forget()
                    self.rounds[rank] += 1
                    if fails(rank, n):
                        raise MemoryError
                return [out[at] for at in range(len(wanted[rank]))]
            except Exception as error:
                sharing.give_up(error)
                return error

        self.rounds = [0] * self.world
        return list(self.threads.map(run, range(self.world)))

    def close(self) -> None:
        self.threads.shutdown()
        for place in self.places:
            place.close()

    @property
    def bytes_read(self) -> list[int]:
        return [place.read_bytes.total() for place in self.places]


@pytest.fixture(autouse=True)
def _small_stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_STRIPE_BLOCKS", 8)
    monkeypatch.setattr(sharing, "_WINDOW_STRIPES", 3)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray[Any, Any]]]:
    directory = tmp_path_factory.mktemp("saved")
    generator = np.random.default_rng(1)
    arrays = [generator.random(shape, np.float32) for shape in SHAPES]
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(1, {f"{n:02}": array for n, array in enumerate(arrays)}).result()
    return directory, arrays


@pytest.fixture
def job(saved: tuple[Path, Any], request: pytest.FixtureRequest) -> Iterator[Callable[[int], Job]]:
    made: list[Job] = []

    def make(world: int) -> Job:
        made.append(Job(saved[0], world))
        return made[-1]

    yield make
    for each in made:
        each.close()


def whole(shape: Sequence[int]) -> Chunk:
    return Chunk((0,) * len(shape), tuple(shape))


def part(shape: Sequence[int], dim: int, rank: int, world: int) -> Chunk:
    """As torch.chunk() cuts."""
    size = -(-shape[dim] // world)
    first, end = min(rank * size, shape[dim]), min((rank + 1) * size, shape[dim])
    offsets, sizes = [0] * len(shape), list(shape)
    offsets[dim], sizes[dim] = first, end - first
    return Chunk(tuple(offsets), tuple(sizes))


def slices(box: Chunk) -> tuple[slice, ...]:
    return tuple(slice(o, o + s) for o, s in zip(box.offsets, box.sizes, strict=True))


def check(got: list[Any], wanted: Sequence[Sequence[Wanted]], arrays: Sequence[Any]) -> None:
    for outs, boxes in zip(got, wanted, strict=True):
        assert not isinstance(outs, Exception), outs
        for out, (number, box) in zip(outs, boxes, strict=True):
            assert np.array_equal(out, arrays[number][slices(box)])


@pytest.mark.parametrize("world", [2, 5])
def test_replicas_read_each_byte_once_and_about_the_same_number(job: Any, saved: Any, world: int) -> None:
    ranks, arrays = job(world), saved[1]
    wanted = [[(n, whole(shape)) for n, shape in enumerate(SHAPES)]] * world
    check(ranks.load(wanted), wanted, arrays)
    total = sum(array.nbytes for array in arrays)
    assert sum(ranks.bytes_read) == total
    assert max(ranks.bytes_read) - min(ranks.bytes_read) <= 2 * 8 * BLOCK


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("world", [2, 3, 8])
def test_parts_read_each_byte_once(job: Any, saved: Any, dim: int, world: int) -> None:
    """Rows and columns, of sizes that do not divide; a block that several need is read by one."""
    ranks, arrays = job(world), saved[1]
    wanted = [
        [(n, part(shape, min(dim, len(shape) - 1), rank, world)) for n, shape in enumerate(SHAPES)]
        for rank in range(world)
    ]
    check(ranks.load(wanted), wanted, arrays)
    assert sum(ranks.bytes_read) == sum(array.nbytes for array in arrays)


def test_any_boxes(job: Any, saved: Any) -> None:
    """Also none, the same twice, and what one rank alone wants."""
    chosen, arrays = random.Random(4), saved[1]
    for world in (2, 3, 4):
        ranks = job(world)
        for _ in range(8):
            wanted: list[list[Wanted]] = []
            for _ in range(world):
                wanted.append([])
                for _ in range(chosen.randrange(5)):
                    number = chosen.randrange(len(SHAPES))
                    starts = [chosen.randint(0, size) for size in SHAPES[number]]
                    sizes = [chosen.randint(0, n - o) for n, o in zip(SHAPES[number], starts, strict=True)]
                    wanted[-1].append((number, Chunk(tuple(starts), tuple(sizes))))
            check(ranks.load(wanted), wanted, arrays)


def test_what_is_little_is_not_shared(job: Any, saved: Any) -> None:
    ranks, arrays = job(2), saved[1]
    wanted = [[(1, whole(SHAPES[1]))]] * 2
    check(ranks.load(wanted, "auto"), wanted, arrays)
    assert ranks.bytes_read == [28, 28]


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_rank_that_cannot_read_fails_all(job: Any, after: int) -> None:
    """At once: nobody waits for it."""
    ranks = job(3)
    calls = iter(range(1000))
    ranks.places[1].broken = lambda: next(calls) >= after
    wanted = [[(n, whole(shape)) for n, shape in enumerate(SHAPES)]] * 3
    first, second, third = ranks.load(wanted)
    assert isinstance(second, hr.CorruptError)
    assert [type(each) for each in (first, third)] == [OtherRankError] * 2


def test_a_rank_that_gives_up_before_is_heard(job: Any) -> None:
    ranks = job(3)
    wanted = [[(0, whole(SHAPES[0]))], [(0, Chunk((0, 0), (2000, 1)))], [(0, whole(SHAPES[0]))]]
    first, second, third = ranks.load(wanted)
    assert isinstance(second, hr.CorruptError)
    assert [type(each) for each in (first, third)] == [OtherRankError] * 2
    assert sum(ranks.bytes_read) == 0


def test_what_was_damaged_on_the_way_is_found(job: Any) -> None:
    ranks = job(3)
    count = iter(range(1000))

    def damage(data: np.ndarray[Any, Any]) -> None:
        if next(count) == 5:
            data[len(data) // 2] ^= 1

    ranks.between.damage = damage
    wanted = [[(n, whole(shape)) for n, shape in enumerate(SHAPES)]] * 3
    errors = ranks.load(wanted)
    assert sorted(type(each).__name__ for each in errors) == [
        "CorruptError",
        "OtherRankError",
        "OtherRankError",
    ]
    (error,) = [each for each in errors if isinstance(each, hr.CorruptError)]
    assert "do not match their CRC32C" in str(error)


# --- In rounds ---


@pytest.mark.parametrize("most", [1, 100 << 10, 1 << 20])
def test_rounds_are_the_same_on_all_ranks(
    job: Any, saved: Any, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """One rank has much to stage, one nothing; each byte is read once all the same."""
    monkeypatch.setattr(sharing, "LANDING_BYTES", most)
    monkeypatch.setattr(sharing, "_RUN_BYTES", 1 << 10)
    ranks, arrays = job(3), saved[1]
    total = sum(array.nbytes for array in arrays)
    wanted = [[(n, whole(shape)) for n, shape in enumerate(SHAPES)]] * 3
    check(ranks.load_in_rounds(wanted, [total, 0, 7], lambda rank, n: False), wanted, arrays)
    assert len(set(ranks.rounds)) == 1
    assert 1 <= ranks.rounds[0] <= min(len(arrays), 1 - (-total // most))
    assert (ranks.rounds[0] > 1) == (total > most)
    assert sum(ranks.bytes_read) == total


@pytest.mark.parametrize("after", [0, 1])
def test_a_rank_that_fails_between_rounds_is_heard(
    job: Any, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(sharing, "LANDING_BYTES", 100 << 10)
    monkeypatch.setattr(sharing, "_RUN_BYTES", 1 << 10)
    ranks = job(3)
    wanted = [[(n, whole(shape)) for n, shape in enumerate(SHAPES)]] * 3
    got = ranks.load_in_rounds(wanted, [1 << 20] * 3, lambda rank, n: (rank, n) == (1, after))
    assert [type(each) for each in got] == [OtherRankError, MemoryError, OtherRankError]
    assert ranks.rounds == [after + 1] * 3


def test_a_rank_that_fails_after_the_last_round_holds_nobody_up(job: Any, saved: Any) -> None:
    ranks = job(3)
    wanted = [[(n, whole(shape)) for n, shape in enumerate(SHAPES)]] * 3
    got = ranks.load_in_rounds(wanted, [0] * 3, lambda rank, n: rank == 1)
    assert isinstance(got[1], MemoryError)
    check([got[0], got[2]], wanted[:2], saved[1])


def test_rounds_have_each_array_once_and_some_of_every_run() -> None:
    chosen = random.Random(5)
    for _ in range(300):
        sizes = [chosen.choice([0, 1 << 10, 1 << 20, 1 << 24]) for _ in range(chosen.randrange(400))]
        manifest: Any = SimpleNamespace(
            arrays=[SimpleNamespace(shape=(size,), dtype="F32") for size in sizes]
        )
        count = chosen.randrange(1, 8)
        rounds = rounds_of(manifest, count)
        assert sorted(number for some in rounds for number in some) == list(range(len(sizes)))
        assert 1 <= len(rounds) <= count
        # Whoever has half of the names has about half of each round.
        half = [4 * sum(sizes[n] for n in some if n < len(sizes) // 2) for some in rounds]
        if len(rounds) == count:
            assert max(half) - min(half) <= 2 * (sharing._RUN_BYTES + (4 << 24))


# --- Parts of it ---


def random_ranges(chosen: random.Random) -> Any:
    starts = [chosen.randrange(200) for _ in range(chosen.randrange(1, 20))]
    return np.array([[start, start + chosen.randrange(1, 40)] for start in starts])


def blocks_of(ranges: Any) -> list[int]:
    return [block for first, end in ranges.tolist() for block in range(first, end)]


def test_ranges() -> None:
    chosen = random.Random(7)
    for _ in range(200):
        ranges = random_ranges(chosen)
        joined = merged(ranges)
        assert blocks_of(joined) == sorted(set(blocks_of(ranges)))
        assert (joined[1:, 0] > joined[:-1, 1]).all()
        size, first = chosen.randrange(1, 50), chosen.randrange(240)
        parts = cut(joined, size)
        assert blocks_of(parts) == blocks_of(joined)
        assert ((parts[:, 1] - 1) // size == parts[:, 0] // size).all()
        end = first + chosen.randrange(1, 60)
        assert blocks_of(within(joined, first, end)) == [n for n in blocks_of(joined) if first <= n < end]


def test_where_blocks_lie(saved: Any) -> None:
    place = Place(hr.Store(str(saved[0])))
    index = place.index(place.manifest(1), 0)
    sizes = [
        min(BLOCK, length - at) for length in index.rows["length"].tolist() for at in range(0, length, BLOCK)
    ]
    blocks = BlockMap(index, 0)
    before = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    assert blocks.bytes_before(np.arange(len(sizes) + 1)).tolist() == before
    assert math.ceil(before[-1] / BLOCK) < len(sizes)
    place.close()


def test_readers_have_about_the_same_to_read() -> None:
    """Two groups of replicas, and a rank that has to read something alone."""
    wanted: list[dict[int, list[list[int]]]] = [{0: [[0, 40]]}, {1: [[0, 40]]}] * 2 + [
        {2: [[0, 10]], 0: [[0, 40]]}
    ]
    shares = readers_of(wanted)
    assert len(shares) == 80
    assert all(rank in share.ranks for share in shares.values() for rank in [share.reader])
    counts = Counter(share.reader for share in shares.values())
    assert counts == {0: 17, 2: 17, 4: 6, 1: 20, 3: 20}
