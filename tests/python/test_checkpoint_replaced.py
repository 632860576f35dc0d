"""A step that is saved anew while ranks (gloo) load it: all of them have the same save, or all an error."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import where
from framework_ranks import LONG, Job, run_without_errors
from test_checkpoint_group import Values

import headrace as hr
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer, Group
from headrace.checkpoint.agreeing import Attempt, failure_of

pytest.importorskip("torch")

pytestmark = pytest.mark.timeout(3600 if LONG else 900)

PROGRAM = Path(__file__).with_name("checkpoint_replaced_ways.py")
WORLD = 3
WAYS = [("manifest", "never"), ("manifest", "always"), ("whole", "never")]
"""What rank 0 has read when the step is saved anew, and whether ranks share what they read."""


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[simulator.Server]:
    directory = tmp_path_factory.mktemp("buckets")
    (directory / "b").mkdir()
    with simulator.Server(str(directory)) as server:
        yield server


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, sim: simulator.Server) -> Any:
    """Gives a URL by name, and the options of its store."""
    if request.param == "directory":
        return lambda name: (str(tmp_path / name), {})
    return lambda name: (f"s3://b/{tmp_path.name}/{name}", {"store": where(sim)})


def loads(place: Any, way: str, *rows: dict[str, Any]) -> list[list[Any]]:
    """What the ranks of each load have got, each of steps of its own."""
    jobs = []
    for number, options in enumerate(rows):
        url, store = place(f"{way}{number}")
        jobs += [
            Job("save", url, WORLD, options=store),
            Job(way, url, WORLD, options=store | options),
        ]
    return run_without_errors(PROGRAM, jobs)[1::2]


def test_all_ranks_load_the_same_save(place: Any) -> None:
    rows = [{"at": at, "share": share, "into": into} for at, share in WAYS for into in (True, False)]
    rows += [{"at": at, "share": share, "step": 2} for at, share in WAYS]
    for row, ranks in zip(rows, loads(place, "load", *rows), strict=True):
        assert ranks == [[[3.0], 3, [], 0]] * WORLD, row


def test_values_that_are_no_arrays_are_of_the_same_save(place: Any) -> None:
    """The arrays, and so all sums, are those of the save that was replaced."""
    (ranks,) = loads(place, "load", {"at": "whole", "share": "never", "x": 2.0})
    assert ranks == [[[2.0], 3, [], 0]] * WORLD


def test_what_is_replaced_again_and_again_is_an_error_or_passed_over(place: Any) -> None:
    rows: list[dict[str, Any]] = [{"at": at, "share": share, "times": 3} for at, share in WAYS]
    told = loads(place, "load", *rows, *({**row, "step": 2} for row in rows))
    for ranks in told[:3]:
        assert ranks == [[[1.0], 1, [2], 1]] * WORLD
    for ranks in told[3:]:
        for error in ranks:
            assert error.startswith("CorruptError: ")
            assert "step 2 is replaced again and again, it was read 3 times" in error


def test_for_what_is_deleted_meanwhile_the_newest_is_loaded(place: Any) -> None:
    """And nothing is said against it: the job that saves has let it go, for keep=."""
    rows: list[dict[str, Any]] = [
        {"at": at, "share": share, "keep": 1, "times": times} for at, share in WAYS for times in (1, 3)
    ]
    for row, ranks in zip(rows, loads(place, "load", *rows), strict=True):
        newest = 2 + row["times"]
        assert ranks == [[[float(newest)], newest, [], 0]] * WORLD, row


@pytest.mark.parametrize("shards", [False, True])
def test_dcp_reads_one_save_on_all_ranks(place: Any, shards: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"anew": "replaced", "step": 2},
        {"anew": "replaced"},
        {"anew": "another step"},
    ]
    for ranks in loads(place, "load_by_dcp", *({**row, "shards": shards} for row in rows)):
        assert ranks == [[[3.0], 3]] * WORLD


def test_dcp_says_where_ranks_cannot_read_one_save(place: Any) -> None:
    rows = [
        {"anew": "other dtype"},
        {"anew": "other names"},
        {"anew": "replaced", "again": True},
    ]
    *others, again = loads(place, "load_by_dcp", *rows)
    for ranks in others:
        for error in ranks:
            assert "ranks found different saves" in error
            assert "which has another structure: load again" in error
    for error in again:
        assert "which was replaced meanwhile: load again" in error


def test_a_copy_under_another_id_is_the_same(tmp_path: Path) -> None:
    """As on a disk of local=, and at the URL after another job has brought it there."""
    with Checkpointer(tmp_path / "run") as saving:
        saving.save(1, {"x": np.zeros(3), "n": 1}).result()
        manifest = saving.info(1)
        saving.save(1, {"x": np.zeros(3), "n": 2}, overwrite=True).result()
        other, values = saving.info(1), Values()

        def outcome(rank: int, theirs: Any) -> Any:
            attempt = Attempt(None, theirs if rank else manifest)
            return failure_of(Group(rank, 2, values), saving._place, 1, attempt)

        with ThreadPoolExecutor(2) as threads:
            copy = manifest.renamed("000009-000000000001-00000000")._replace(job=9)
            assert list(threads.map(outcome, range(2), [copy] * 2)) == [None, None]
            values.clear()
            for failure in threads.map(outcome, range(2), [other] * 2):
                assert failure.was_replaced
                assert isinstance(failure.why, hr.CorruptError)
                assert f"{manifest.save} on rank 0, {other.save} on rank 1" in str(failure.why)
