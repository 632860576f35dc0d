"""Batches that worker processes map from the engine's memory: which ones, what is copied, what is held."""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import map_functions as functions
import numpy as np
import pytest
from conftest import write_mds, write_numbers
from map_loaders import open_loader

import headrace as hr
from headrace import _native
from headrace.loader.mapping.pool import Pool
from headrace.loader.mapping.worker import _Worker

SAMPLES = 120


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with columns of many encodings, large and small, fixed and ragged."""
    columns = {
        "id": ("int", 8),
        "small": ("float16", 2),
        "grid": ("ndarray:uint16:3,5", 30),
        "text": ("str", None),
        "raw": ("bytes", None),
        "json": ("json", None),
        "free": ("ndarray", None),
        "big": ("ndarray:uint8:60000", 60000),
        "decimal": ("str_decimal", None),
    }
    rng = np.random.default_rng(3)
    samples = [
        {
            "id": struct.pack("<q", 7 * i + 1),
            "small": np.float16(i / 8).tobytes(),
            "grid": (np.arange(15, dtype=np.uint16) * i).tobytes(),
            "text": f"é{i}".encode() * (i % 4),
            "raw": rng.bytes(i % 50),
            "json": b'{"i": %d}' % i,
            "free": b"\x09" + bytes([1 << 2, i % 9]) + bytes(range(i % 9)),
            "big": rng.bytes(60000),
            "decimal": b"%d.5" % i,
        }
        for i in range(SAMPLES)
    ]
    return write_mds(tmp_path_factory.mktemp("kinds"), columns, samples, per_shard=30)


def plain_values(column: Any) -> Any:
    if hasattr(column, "to_pylist"):
        return str(column.type), column.to_pylist()
    if hasattr(column, "dtype"):
        return column.dtype.str, column.shape, column.tobytes()
    return [plain_values(value) if hasattr(value, "dtype") else value for value in column]


def in_full(batch: hr.Batch) -> Any:
    columns = {name: plain_values(column) for name, column in batch.items()}
    return columns, batch.ids.tolist(), batch.mask.tolist(), batch.replaced, batch.epoch, batch.index


class Watched:
    """Counts the batches that a pool copies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.copied = 0
        original = Pool._copied

        def counted(pool: Pool, batch: hr.Batch) -> Any:
            self.copied += 1
            return original(pool, batch)

        monkeypatch.setattr(Pool, "_copied", counted)


@pytest.mark.parametrize("ragged", ["list", "arrow"])
def test_columns_of_every_kind_go_into_workers_as_they_are(
    kinds: Path, ragged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    options = {"batch_size": 8, "memory": "64MiB", "ragged": ragged}
    with open_loader(kinds, **options) as plain:
        expected = [in_full(batch) for _ in range(2) for batch in plain]
    with open_loader(kinds, **options).map(functions.as_is, per="batch", workers=2) as mapped:
        assert [in_full(batch) for _ in range(2) for batch in mapped] == expected
    assert watched.copied == 0


def test_what_the_engine_cannot_spare_is_copied(kinds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    options = {"batch_size": 8, "memory": "6MiB", "prefetch": 1}
    with open_loader(kinds, **options) as plain:
        expected = [in_full(batch) for batch in plain]
    with open_loader(kinds, **options).map(functions.as_is, per="batch", workers=3) as mapped:
        assert [in_full(batch) for batch in mapped] == expected
    assert watched.copied > 0


def test_a_place_that_is_too_long_for_a_packet_is_copied(
    few_numbers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    monkeypatch.setattr("headrace.loader.mapping.pool.MOST_PLACE_BYTES", 8)
    with open_loader(few_numbers).map(functions.double, workers=1) as mapped:
        assert len(list(mapped)) == 22
    assert watched.copied == 22


def test_a_worker_reads_again_what_killed_the_one_before(few_numbers: Path, tmp_path: Path) -> None:
    """Also where it has written into its batch, and where that lies is new to the next process."""
    counter = tmp_path / "deaths"
    counter.touch()
    fn = functions.EndsOnce("kill", 2, counter)
    with open_loader(few_numbers).map(fn, workers=2) as mapped:
        found = {int(i): int(x) for batch in mapped for i, x in zip(batch.ids, batch["x"], strict=True)}
    assert counter.read_bytes() == b".."
    assert found == {i: 7 * i + 2 for i in range(211)}


def test_what_workers_hold_counts_towards_memory(kinds: Path) -> None:
    options = {"batch_size": 8, "memory": "16MiB"}
    with open_loader(kinds, **options).map(functions.as_is, per="batch", workers=2) as mapped:
        stream = iter(mapped)
        next(stream)
        pool = mapped._executor
        assert isinstance(pool, Pool)
        assert pool._batches
        held = sum(len(taken.ids) // 8 * 60000 for taken in pool._batches.values())
        stats = mapped.stats()
        assert held <= stats["pool.used_bytes"] <= stats["pool.limit_bytes"] == 16 << 20
        list(stream)
        assert not pool._batches
        assert mapped.stats()["pool.peak_bytes"] <= 16 << 20


def lies_in_shared_memory(array: np.ndarray[Any, Any]) -> bool:
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split("-"))
        if begin <= address < end:
            return "memfd:" in line
    raise AssertionError("nowhere")


def test_a_plain_loop_delivers_memory_of_this_process_alone(kinds: Path) -> None:
    """As before, so that a process which the training loop forks has copies. Batches that were made for
    workers are made anew, from the same position on, also behind the end of an epoch."""
    options = {"batch_size": 8, "memory": "64MiB"}
    with open_loader(kinds, **options) as plain:
        expected = [batch.ids.tolist() for _ in range(3) for batch in plain]
    with open_loader(kinds, **options) as loader:
        mapped = loader.map(functions.as_is, per="batch", workers=1)
        found = [batch.ids.tolist() for batch in itertools.islice(mapped, 4)]
        for batch in loader:
            assert not lies_in_shared_memory(batch["big"])
            found.append(batch.ids.tolist())
        found += [batch.ids.tolist() for batch in mapped]
        for batch in loader:
            assert not lies_in_shared_memory(batch["big"])
            found.append(batch.ids.tolist())
        mapped.close()
    assert found == expected


def test_a_value_that_cannot_be_read_is_an_error_in_its_place(tmp_path: Path) -> None:
    samples = [{"t": b"\xff" if i == 35 else b"x", "x": struct.pack("<q", i)} for i in range(60)]
    path = write_mds(tmp_path / "mds", {"t": ("str", None), "x": ("int", 8)}, samples)
    with open_loader(path, shuffle=False).map(functions.as_is, per="batch", workers=2) as mapped:
        stream = iter(mapped)
        assert [next(stream)["x"][0] for _ in range(3)] == [0, 10, 20]
        for _ in range(2):
            with pytest.raises(hr.CorruptError, match="sample 35, column t"):
                next(stream)
        assert mapped.state_dict()["t"] == 30


def test_another_engine_means_other_workers(tmp_path: Path) -> None:
    """A source that is added brings an engine of its own, in whose memory batches lie then."""
    sources = [write_numbers(tmp_path / name, 100) for name in "ab"]
    mixture = hr.Mixture({"a": (sources[0], 1.0)}, index_cache="")
    with hr.Loader(mixture, batch_size=10, memory="16MiB") as loader:
        mapped = loader.map(functions.double, workers=1)
        first = {int(pid) for batch in itertools.islice(mapped, 3) for pid in batch["pid"]}
        mapped.add_source("b", sources[1], {"a": 1.0, "b": 1.0})
        second = set()
        for batch in mapped:
            ids = batch.ids.tolist()
            assert batch["y"].tolist() == [2 * (7 * (i % 100) + 1) for i in ids]
            second |= {int(pid) for pid in batch["pid"]}
        assert len(first) == len(second) == 1
        mapped.close()


def test_what_functions_write_is_gone_with_the_batch(kinds: Path) -> None:
    options = {"batch_size": 8, "memory": "64MiB", "columns": ["big"]}
    with open_loader(kinds, **options) as plain:
        expected = [(batch["big"] ^ 255).tobytes() for _ in range(3) for batch in plain]
    with open_loader(kinds, **options).map(functions.invert, per="batch", workers=1) as mapped:
        assert [batch["big"].tobytes() for _ in range(3) for batch in mapped] == expected


@pytest.fixture
def taken(kinds: Path) -> Iterator[tuple[Any, _native.TakenBatch]]:
    """What a worker reads with, in this process, and a batch."""
    with open_loader(kinds, batch_size=8, memory="64MiB", columns=["big"]) as loader:
        loader._share(4)
        batch = loader._take()
        assert batch is not None
        yield _Worker(loader.map(functions.as_is)._plan())._reader, batch


def write_over(taken: _native.TakenBatch) -> None:
    """All but the first page, as the engine may when it has the memory again."""
    place = taken.place()
    assert place is not None
    begin, size = struct.unpack_from("<qq", place)
    assert os.pwrite(taken.fd, b"\x05" * (size - 4096), begin + 4096) == size - 4096


def test_what_functions_hold_stays_as_it_is(taken: tuple[Any, _native.TakenBatch]) -> None:
    reader, batch = taken
    held = reader.open(batch.fd, batch.place())["big"]
    before = held.copy()
    held[0] = 9  # Of some pages it has copies already.
    reader.end()
    write_over(batch)
    assert (held[1:] == before[1:]).all()
    assert (held[0] == 9).all()


def test_the_next_batch_in_a_place_is_read_anew(taken: tuple[Any, _native.TakenBatch]) -> None:
    """Pages that functions wrote to and others, in a mapping that is used again."""
    reader, batch = taken
    place = batch.place()
    values = reader.open(batch.fd, place)["big"]
    values[2:5] = 9
    address = values.__array_interface__["data"][0]
    del values
    reader.end()
    original = bytes(reader.open(batch.fd, place)["big"])
    assert b"\x09" * 100 not in original
    reader.end()
    write_over(batch)
    values = reader.open(batch.fd, place)["big"]
    assert values.__array_interface__["data"][0] == address
    assert (values[1:] == 5).all()
