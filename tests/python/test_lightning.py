"""Lightning on one and two processes (gloo): resumes exactly in every epoch, or refuses with the line to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import write_numbers
from framework_ranks import LONG, SAMPLES, Job, planned, run_jobs, stops

pytest.importorskip("lightning")

pytestmark = pytest.mark.timeout(3600 if LONG else 300)

PROGRAM = Path(__file__).with_name("lightning_ways.py")
RESUMING = ("fit", "hook", "stateful")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("lightning") / "data", SAMPLES, per_shard=20)


@pytest.fixture(scope="module")
def results(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, list[Any]]:
    """All jobs of this file, by what they are for."""
    jobs: dict[Any, Job] = {}
    for world in (1, 2):
        for number, way in enumerate(RESUMING):
            for stop in stops(world) if number == 0 or LONG else stops(world)[1:]:
                directory = str(tmp_path_factory.mktemp("run"))
                jobs["first", way, world, stop] = Job(way, str(data), world, directory, stop)
                jobs["second", way, world, stop] = Job(way, str(data), world, directory, resumes=True)
        jobs["wrapped", world] = Job("wrapped", str(data), world, str(tmp_path_factory.mktemp("run")))
    for wraps in (False, True):
        jobs["validate", wraps] = Job(
            "validate", str(data), 1, str(tmp_path_factory.mktemp("run")), options={"wraps": wraps}
        )
    return dict(zip(jobs, run_jobs(PROGRAM, jobs.values()), strict=True))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("way", RESUMING)
def test_it_resumes_at_the_next_batch(
    data: Path, results: dict[Any, list[Any]], way: str, world: int
) -> None:
    """The loaders are made before the process group, in processes with WORLD_SIZE and without RANK."""
    expected = planned(data, world)
    cases = [key for key in results if key[0] == "first" and key[1:3] == (way, world)]
    assert cases
    for _, *case in cases:
        for rank in range(world):
            first, second = results[("first", *case)][rank], results[("second", *case)][rank]
            assert "error" not in first, first["error"]
            assert "error" not in second, second["error"]
            assert len(first["ids"]) == case[-1]
            assert first["ids"] + second["ids"] == expected[rank], case


@pytest.mark.parametrize("world", [1, 2])
def test_a_data_loader_around_the_loader_is_refused(results: dict[Any, list[Any]], world: int) -> None:
    for result in results["wrapped", world]:
        assert "InvalidArgumentError" in result["error"]
        assert "trainer.fit(model, loader)" in result["error"]


@pytest.mark.parametrize("wraps", [False, True])
def test_validation_begins_at_the_start_of_the_epoch(
    data: Path, results: dict[Any, list[Any]], wraps: bool
) -> None:
    (result,) = results["validate", wraps]
    assert "error" not in result, result["error"]
    (first,) = planned(data, 1, 1, shuffle=False)
    assert result["validated"] == first[:2] + 3 * first[:5]
    assert result["ids"] == planned(data, 1)[0]
