"""What the tests of training loops of others share: data, jobs, and what a resumed run must have
delivered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from conftest import write_numbers
from framework_ranks import SAMPLES, Job, planned, run_jobs

Options: TypeAlias = Mapping[str, Any]
NONE: Options = {}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("numbers") / "data", SAMPLES, per_shard=20)


class Runs:
    """Jobs of a test file by what they are for, and then what each rank of them returned."""

    def __init__(self, data: Path, directories: pytest.TempPathFactory) -> None:
        self.data, self._directories = data, directories
        self.jobs: dict[Any, Job] = {}
        self._results: dict[Any, list[Any]] = {}

    def add(
        self, key: Any, way: str, world: int = 1, stop: int | None = None, options: Options = NONE
    ) -> Job:
        """A run that begins, in a directory of its own."""
        directory = str(self._directories.mktemp("run"))
        self.jobs[key] = Job(way, str(self.data), world, directory, stop, options=dict(options))
        return self.jobs[key]

    def add_resumed(
        self, key: Any, way: str, world: int, stops: Iterable[int], options: Options = NONE
    ) -> None:
        """Pairs of runs: up to a stop, and in new processes from there to the end."""
        for stop in stops:
            first = self.add(("first", key, world, stop), way, world, stop, options)
            self.jobs["second", key, world, stop] = first._replace(stop=None, resumes=True)

    def run(self, program: Path, packages: Path | None = None) -> Runs:
        self._results = dict(zip(self.jobs, run_jobs(program, self.jobs.values(), packages), strict=True))
        return self

    def __getitem__(self, key: Any) -> list[Any]:
        return self._results[key]

    def stops(self, key: Any, world: int) -> list[int]:
        return [found[3] for found in self.jobs if is_pair(found) and found[:3] == ("first", key, world)]

    def check_resumed(self, key: Any, world: int) -> None:
        """Each rank has received, over both parts and in their order, the batches that are planned for it."""
        expected = planned(self.data, world)
        assert self.stops(key, world)
        for stop in self.stops(key, world):
            for rank in range(world):
                first, second = (received(self[part, key, world, stop][rank]) for part in ("first", "second"))
                assert first + second == expected[rank], stop

    def check_refused(self, key: Any, line: str) -> None:
        """Every rank has the error with the line to write."""
        assert self[key]
        for result in self[key]:
            assert "InvalidArgumentError" in result["error"]
            assert line in result["error"]


def is_pair(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 4


def received(result: Any) -> list[list[int]]:
    """Ids of the batches that a rank has received."""
    assert "error" not in result, result["error"]
    ids: list[list[int]] = result["ids"]
    return ids
