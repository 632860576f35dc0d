"""What unfinished saves have left goes, also where every job is shorter than the time that a request may
live."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import where

from headrace import sim as simulator
from headrace.checkpoint import Checkpointer
from headrace.checkpoint.keys import SaveId, fence_key
from headrace.checkpoint.place import GRACE_SECONDS
from headrace.errors import UnavailableError

HOUR = 3600.0


class Run(NamedTuple):
    """Where the checkpoints of a run lie."""

    url: str
    folder: Path
    options: dict[str, Any]

    def job(self, step: int) -> None:
        """A short one."""
        with Checkpointer(self.url, **self.options) as checkpointer:
            checkpointer.save(step, {"x": np.ones(9)}).result()

    def leave(self, job: int, step: int) -> Path:
        """What a save has left that was killed."""
        folder = self.folder / "saves" / str(SaveId.new(job, step))
        folder.mkdir()
        (folder / "00000.safetensors").write_bytes(b"x" * 100)
        return folder / "00000.safetensors"

    def age(self, job: int, seconds: float) -> None:
        path = self.folder / fence_key(job)
        then = path.stat().st_mtime - seconds
        os.utime(path, (then, then))

    @property
    def fences(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "fence").iterdir())


@pytest.fixture(params=["directory", "s3"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    if request.param == "directory":
        yield Run(str(tmp_path / "run"), tmp_path / "run", {})
        return
    (tmp_path / "b").mkdir()
    with simulator.Server(str(tmp_path)) as server:
        yield Run("s3://b/run", tmp_path / "b" / "run", where(server))


def test_a_short_job_deletes_what_one_has_left_that_was_followed_long_ago(run: Run) -> None:
    run.job(1)
    left = run.leave(1, 2)
    run.job(3)
    may_live = run.leave(2, 4)
    assert left.exists(), "the first job may still have requests"
    run.age(2, GRACE_SECONDS)
    run.job(5)
    assert not left.exists()
    assert may_live.exists(), "of the job before, which was followed only now"
    with Checkpointer(run.url, **run.options) as checkpointer:
        for step in (1, 3, 5):
            checkpointer.verify(step)


def test_nothing_is_deleted_before_its_time(run: Run) -> None:
    run.job(1)
    left = run.leave(1, 2)
    run.job(3)
    run.age(2, GRACE_SECONDS - 60)
    run.job(4)
    assert left.exists()


def test_jobs_that_follow_each_other_quickly_delete_it_together(run: Run) -> None:
    """No job is so old as the one that follows it has to be, but some job is."""
    run.job(1)
    first = run.leave(1, 2)
    for number in range(2, 5):
        run.job(number + 1)
        for each in range(1, number + 1):
            if (run.folder / fence_key(each)).exists():
                run.age(each, 400)
    second = run.leave(2, 9)
    assert run.fences == ["000001", "000002", "000003", "000004"]
    run.job(6)  # Number 5; the second began 1200 s ago.
    assert not first.exists()
    assert second.exists()
    assert run.fences == ["000002", "000003", "000004", "000005"]


def test_who_only_loads_deletes_nothing(run: Run) -> None:
    run.job(1)
    left = run.leave(1, 2)
    run.job(3)
    run.age(2, HOUR)
    with Checkpointer(run.url, **run.options) as checkpointer:
        checkpointer.load()
    assert left.exists()


def test_a_store_that_cannot_be_asked_fails_no_save(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> int:
        raise UnavailableError("503")

    monkeypatch.setattr("headrace.checkpoint.place.Place.settled_fence", fails)
    run.job(1)
    assert "what unfinished saves have left could not be deleted: 503" in caplog.text


def test_a_disk_in_front_of_the_url_is_swept_too(tmp_path: Path, run: Run) -> None:
    def job(step: int) -> None:
        with Checkpointer(run.url, local=disk, **run.options) as checkpointer:
            checkpointer.save(step, {"x": np.ones(9)}).result()

    disk = tmp_path / "disk"
    job(1)
    left = run._replace(folder=disk).leave(1, 2)
    job(3)
    assert left.exists()
    run.age(2, GRACE_SECONDS)
    job(4)
    assert not left.exists()
