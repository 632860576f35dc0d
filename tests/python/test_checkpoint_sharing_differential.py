"""What several ranks load of differential checkpoints, whose pieces lie in the files of several saves, is
read once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_checkpoint_group import Values
from test_checkpoint_sharing import BLOCK, SHAPES, Job, check, part, whole

import headrace as hr
from headrace.checkpoint import Checkpointer, sharing
from headrace.checkpoint.arrays import Chunk
from headrace.checkpoint.blocks import BlockMap
from headrace.checkpoint.group import Group
from headrace.checkpoint.loading import Boxes
from headrace.checkpoint.place import Place
from headrace.checkpoint.sharing import OtherRankError

LAST = 4
WRITERS = 3


@pytest.fixture(autouse=True)
def _small_stripes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_STRIPE_BLOCKS", 4)
    monkeypatch.setattr(sharing, "_WINDOW_STRIPES", 3)


def saved_by(directory: Path, **options: Any) -> list[np.ndarray[Any, Any]]:
    """Three ranks save four steps, of which each changes two arrays. Returns those of the last."""
    generator = np.random.default_rng(2)
    arrays = [generator.random(shape, np.float32) for shape in SHAPES]
    values, barrier = Values(), threading.Barrier(WRITERS, timeout=60)

    def work(rank: int) -> None:
        group = Group(rank, WRITERS, values, 60.0)
        with Checkpointer(directory, differential=True, group=group, **options) as checkpointer:
            for step in range(1, LAST + 1):
                if barrier.wait() == 0 and step > 1:
                    for number in (step - 2, step):
                        arrays[number] += 1
                barrier.wait()
                checkpointer.save(step, {f"{n:02}": array for n, array in enumerate(arrays)}).result()

    with ThreadPoolExecutor(WRITERS) as threads:
        list(threads.map(work, range(WRITERS)))
    return arrays


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[np.ndarray[Any, Any]]]:
    directory = tmp_path_factory.mktemp("saved")
    return directory, saved_by(directory)


@pytest.fixture(params=[2, 3, 5])
def job(saved: tuple[Path, Any], request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job(saved[0], request.param, LAST)
    yield made
    made.close()


def test_the_pieces_lie_in_several_saves(job: Job) -> None:
    """Else nothing here is tested."""
    assert len(job.manifest.saves) == LAST
    assert sum(len(file.earlier) > 1 for file in job.manifest.files) > 0


def test_replicas_read_each_byte_once(job: Job, saved: Any) -> None:
    arrays = saved[1]
    wanted = [[(n, whole(shape)) for n, shape in enumerate(SHAPES)]] * job.world
    check(job.load(wanted), wanted, arrays)
    assert sum(job.bytes_read) == sum(array.nbytes for array in arrays)
    read = {key for place in job.places for key, count in place.read_bytes.items() if count}
    indexes = [job.places[0].index(job.manifest, rank) for rank in range(WRITERS)]
    files = zip(job.manifest.files, indexes, strict=True)
    assert read == {file.key_of(piece) for file, index in files for piece in index.pieces() if piece.length}


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_read_each_byte_once(job: Job, saved: Any, dim: int) -> None:
    arrays = saved[1]
    wanted = [
        [(n, part(shape, min(dim, len(shape) - 1), rank, job.world)) for n, shape in enumerate(SHAPES)]
        for rank in range(job.world)
    ]
    check(job.load(wanted), wanted, arrays)
    assert sum(job.bytes_read) == sum(array.nbytes for array in arrays)


def test_any_boxes(job: Job, saved: Any) -> None:
    """Some ranks want nothing of files that others share."""
    chosen, arrays = random.Random(5), saved[1]
    for _ in range(8):
        wanted: list[list[Any]] = [[] for _ in range(job.world)]
        for boxes in wanted:
            for _ in range(chosen.randrange(5)):
                number = chosen.randrange(len(SHAPES))
                starts = [chosen.randint(0, size) for size in SHAPES[number]]
                sizes = [chosen.randint(0, n - o) for n, o in zip(SHAPES[number], starts, strict=True)]
                boxes.append((number, Chunk(tuple(starts), tuple(sizes))))
        check(job.load(wanted), wanted, arrays)


def test_ranks_that_find_different_checkpoints_hand_nothing_on(job: Job) -> None:
    """A disk in front of the URL may have another of the same step."""
    job.manifests[1] = job.places[1].manifest(LAST - 1)._replace(step=LAST)
    errors = job.load([[(n, whole(shape)) for n, shape in enumerate(SHAPES)]] * job.world)
    assert {type(error) for error in errors} == {hr.CorruptError}
    assert f"ranks find different checkpoints of step {LAST}" in str(errors[0])
    assert sum(job.bytes_read) == 0


def test_damage_of_an_earlier_file_is_found_and_named(tmp_path: Path) -> None:
    saved_by(tmp_path)
    with hr.Store(str(tmp_path)) as store:
        place = Place(store)
        manifest = place.manifest(LAST)
        file, piece = max(
            (
                (file, piece)
                for rank, file in enumerate(manifest.files)
                for piece in place.index(manifest, rank).pieces()
                if piece.file
            ),
            key=lambda each: each[1].length,
        )
    path = tmp_path / file.key_of(piece)
    data = bytearray(path.read_bytes())
    data[piece.offset + piece.length // 2] ^= 1
    path.write_bytes(data)
    ranks = Job(tmp_path, 3, LAST)
    errors = ranks.load([[(n, whole(shape)) for n, shape in enumerate(SHAPES)]] * 3)
    ranks.close()
    assert sorted(type(each).__name__ for each in errors) == ["CorruptError", *[OtherRankError.__name__] * 2]
    (error,) = [each for each in errors if isinstance(each, hr.CorruptError)]
    assert file.key_of(piece) in str(error)


def test_each_block_of_each_file_has_one_number(saved: Any) -> None:
    with hr.Store(str(saved[0])) as store:
        place = Place(store)
        manifest = place.manifest(LAST)
        assert len(Boxes(place, manifest).keys) == len(set(manifest.data_keys))
        for rank, file in enumerate(manifest.files):
            index = place.index(manifest, rank)
            for number in range(1 + len(file.earlier)):
                rows = [row for row in index.rows.tolist() if row[2] == number]
                before = 0
                for array, chunk, _, _, length in rows:
                    assert index.first_block(array, chunk) == before
                    before += -(-length // BLOCK)
                blocks = BlockMap(index, number)
                lengths = [min(BLOCK, row[4] - at) for row in rows for at in range(0, row[4], BLOCK)]
                expected = np.cumsum([0, *lengths]).tolist()
                if rows:
                    assert blocks.bytes_before(np.arange(before + 1)).tolist() == expected
