"""Encrypted checkpoints whose pieces lie in the files of several saves, and which several ranks read
together: each file is decrypted under its own salt, and what is handed on is proved."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_checkpoint_sharing_differential as differential
from conftest import where
from test_checkpoint_differential import Training
from test_checkpoint_sharing import SHAPES, Job, check, part, whole
from test_sealed import MARK, shows, write_key

import headrace as hr
from headrace import _native, sim
from headrace.checkpoint import Checkpointer, sharing
from headrace.checkpoint.proving import find_damage
from headrace.checkpoint.sharing import OtherRankError

PAGE_BYTES = 40  # That tell the salt of a file, once for each call.
WORLD = 3


@pytest.fixture
def key(tmp_path: Path) -> str:
    return write_key(tmp_path / "one.key")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def opened(url: Any, key: str, **options: Any) -> Checkpointer:
    return Checkpointer(url, differential=True, encryption_key=key, memory="64MiB", **options)


# --- Pieces in files of earlier saves ---


@pytest.mark.parametrize("seed", [1, 2])
def test_every_step_that_stays_is_whole(run: Path, key: str, seed: int) -> None:
    training = Training(seed)
    with opened(run, key, keep=3) as checkpointer:
        for step in range(1, 9):
            checkpointer.save(step, training.step(step)).result()
        checkpointer._worker.submit(int).result()  # Until what need not stay is gone.
        assert checkpointer.steps() == [6, 7, 8]
        assert any(checkpointer.info(step).earlier for step in (6, 7, 8))
        for step in checkpointer.steps():
            training.check(checkpointer, step)
    with opened(run, key) as another_process:
        for step in another_process.steps():
            training.check(another_process, step)
            assert find_damage(another_process._far, another_process.info(step)) == []


def test_what_has_not_changed_is_not_written_again_and_not_shown(run: Path, key: str) -> None:
    frozen = np.frombuffer(MARK * 50_000, np.uint8).copy()
    with opened(run, key) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, {"frozen": frozen, "trained": np.full(1000, step)}).result()
        assert checkpointer.info(1).written > len(frozen)
        assert all(checkpointer.info(step).written < 20_000 for step in (2, 3))
        assert np.array_equal(checkpointer.load(3)["frozen"], frozen)
    assert not shows(run, MARK)
    assert not shows(run, b"frozen")


def _other_block(path: Path, offset: int, other: int) -> None:
    """The next block in its place, and it in that of the next."""
    data = bytearray(path.read_bytes())
    block = _native.checkpoint_sum_block_bytes()
    data[offset : offset + block], data[other : other + block] = (
        data[other : other + block],
        data[offset : offset + block],
    )
    path.write_bytes(data)


def _flip(path: Path, offset: int, other: int) -> None:
    data = bytearray(path.read_bytes())
    data[other + 100] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_flip, "do not match their tag"),
        (_other_block, "do not match their tag"),
        (lambda path, offset, other: path.unlink(), "missing"),
        (lambda path, offset, other: path.write_bytes(path.read_bytes()[:other]), "bytes instead of"),
    ],
)
def test_damage_of_an_earlier_file_is_found(
    run: Path, key: str, damage: Callable[[Path, int, int], None], why: str
) -> None:
    large = np.arange(9000.0)
    with opened(run, key) as checkpointer:
        (file,) = checkpointer.save(1, {"a": large, "b": large}).result().files
        second = checkpointer.save(2, {"a": large, "b": np.ones(9000)}).result()
        third = checkpointer.save(3, {"a": np.zeros(9000), "b": np.zeros(9000)}).result()
        piece = checkpointer._far.index(second, 0).piece(0, 0)
        assert second.files[0].key_of(piece) == file.key
        damage(run / file.key, piece.offset, piece.offset + _native.checkpoint_sum_block_bytes())
        with pytest.raises(hr.CorruptError):
            checkpointer.verify(2)
        found, *_ = find_damage(checkpointer._far, second)
        assert found.key == file.key
        assert why in found.why
        assert found.array == ("a" if "tag" in why else "")
        assert find_damage(checkpointer._far, third) == []
        with pytest.raises((hr.CorruptError, hr.NotFoundError)):
            checkpointer.load(2)


def test_an_earlier_file_of_another_save_is_not_taken(run: Path, key: str) -> None:
    """The same arrays at the same places under the same key, but another salt."""
    state = {"a": np.arange(9000.0), "b": np.zeros(10)}
    with opened(run, key) as checkpointer:
        (first,) = checkpointer.save(1, state).result().files
        (second,) = checkpointer.save(2, state | {"b": np.ones(10)}).result().files
        assert [each.key for each in second.earlier] == [first.key]
    with opened(run, key) as another_job:
        (other,) = another_job.save(3, state).result().files
        shutil.copyfile(run / other.key, run / first.key)
        with pytest.raises(hr.CorruptError, match="do not match their tag"):
            another_job.load(2)


def test_from_the_local_disk_it_is_brought_over(tmp_path: Path, key: str) -> None:
    (tmp_path / "bucket").mkdir()
    training = Training(3)
    with sim.Server(str(tmp_path)) as server:
        with opened("s3://bucket/run", key, local=tmp_path / "near", **where(server)) as checkpointer:
            for step in (1, 2, 3):
                checkpointer.save(step, training.step(step)).result()
            checkpointer.wait()
        with opened("s3://bucket/run", key, **where(server)) as there:
            assert there.info(3).earlier
            for step in (1, 2, 3):
                training.check(there, step)


# --- Ranks that load together ---


@pytest.fixture
def ranks(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Job, list[np.ndarray[Any, Any]]]]:
    monkeypatch.setattr(sharing, "_STRIPE_BLOCKS", 4)
    monkeypatch.setattr(sharing, "_WINDOW_STRIPES", 3)
    arrays = differential.saved_by(tmp_path / "run", encryption_key=key)
    job = Job(tmp_path / "run", WORLD, differential.LAST, _native.SealKey(key))
    assert len(job.manifest.saves) == differential.LAST  # Else their salts are not tested.
    yield job, arrays
    job.close()


def wanted_by(rank: int, dim: int | None) -> list[Any]:
    """``dim``: that is cut; None: none is."""
    if dim is None:
        return [(n, whole(shape)) for n, shape in enumerate(SHAPES)]
    return [(n, part(shape, min(dim, len(shape) - 1), rank, WORLD)) for n, shape in enumerate(SHAPES)]


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_ranks_read_each_byte_once(ranks: Any, dim: int | None) -> None:
    job, arrays = ranks
    wanted = [wanted_by(rank, dim) for rank in range(WORLD)]
    check(job.load(wanted), wanted, arrays)
    pages = PAGE_BYTES * sum(place.calls for place in job.places)
    assert sum(job.bytes_read) == sum(array.nbytes for array in arrays) + pages


def test_what_was_damaged_between_ranks_is_found(ranks: Any) -> None:
    job, _ = ranks
    count = iter(range(1000))

    def damage(data: np.ndarray[Any, Any]) -> None:
        if next(count) == 5:
            data[len(data) // 2] ^= 1

    job.between.damage = damage
    errors = job.load([wanted_by(rank, None) for rank in range(WORLD)])
    assert sorted(type(each).__name__ for each in errors) == ["CorruptError", *[OtherRankError.__name__] * 2]
    (error,) = [each for each in errors if isinstance(each, hr.CorruptError)]
    assert "do not match their CRC32C" in str(error)


def test_what_was_damaged_in_the_store_is_found_by_who_reads_it(ranks: Any, tmp_path: Path) -> None:
    job, _ = ranks
    file, piece = max(
        (
            (file, piece)
            for rank, file in enumerate(job.manifest.files)
            for piece in job.places[0].index(job.manifest, rank).pieces()
            if piece.file
        ),
        key=lambda each: each[1].length,
    )
    path = tmp_path / "run" / file.key_of(piece)
    data = bytearray(path.read_bytes())
    data[piece.offset + piece.length // 2] ^= 1
    path.write_bytes(data)
    errors = job.load([wanted_by(rank, None) for rank in range(WORLD)])
    assert sorted(type(each).__name__ for each in errors) == ["CorruptError", *[OtherRankError.__name__] * 2]
    (error,) = [each for each in errors if isinstance(each, hr.CorruptError)]
    assert "do not match their tag" in str(error)
