"""transformers.Trainer on one and two processes (gloo): resumes exactly in every epoch, or refuses with the line to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import write_numbers
from framework_ranks import LONG, SAMPLES, Job, batches_an_epoch, planned, run_jobs, stops

pytest.importorskip("accelerate")
pytest.importorskip("transformers")

pytestmark = pytest.mark.timeout(3600 if LONG else 300)

PROGRAM = Path(__file__).with_name("trainer_ways.py")
RESUMING: list[dict[str, Any]] = [{}, {"accumulates": 4}, {"loads": True}, {"loads": True, "ignores": True}]
WRAPPED: list[dict[str, Any]] = [{}, {"as_dataset": True}]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("trainer") / "data", SAMPLES, per_shard=20)


@pytest.fixture(scope="module")
def results(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, list[Any]]:
    """All jobs of this file, by what they are for."""
    jobs: dict[Any, Job] = {}
    for world in (1, 2):
        for number, options in enumerate(RESUMING):
            steps = stops(world, -(-batches_an_epoch(world) // options.get("accumulates", 1)))
            for stop in steps if number == 0 or LONG else steps[number % 3 :][:1]:
                directory = str(tmp_path_factory.mktemp("run"))
                jobs["first", number, world, stop] = Job(
                    "override", str(data), world, directory, stop, options=options
                )
                jobs["second", number, world, stop] = Job(
                    "override", str(data), world, directory, resumes=True, options=options
                )
        for number, options in enumerate(WRAPPED):
            jobs["wrapped", number, world] = Job(
                "wrapped", str(data), world, str(tmp_path_factory.mktemp("run")), options=options
            )
    jobs["evaluates"] = Job(
        "override", str(data), 1, str(tmp_path_factory.mktemp("run")), options={"evaluates": True}
    )
    return dict(zip(jobs, run_jobs(PROGRAM, jobs.values()), strict=True))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("number", range(len(RESUMING)))
def test_it_resumes_at_the_next_batch(
    data: Path, results: dict[Any, list[Any]], number: int, world: int
) -> None:
    expected = planned(data, world)
    cases = [key for key in results if key[0] == "first" and key[1:3] == (number, world)]
    assert cases
    for _, *case in cases:
        for rank in range(world):
            first, second = results[("first", *case)][rank], results[("second", *case)][rank]
            assert "error" not in first, first["error"]
            assert "error" not in second, second["error"]
            assert first["ids"] + second["ids"] == expected[rank], case


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("number", range(len(WRAPPED)))
def test_what_trainer_would_take_apart_is_refused(
    results: dict[Any, list[Any]], number: int, world: int
) -> None:
    for result in results["wrapped", number, world]:
        assert "InvalidArgumentError" in result["error"]
        assert "def get_train_dataloader(self): return loader" in result["error"]


def test_each_evaluation_sees_every_sample(results: dict[Any, list[Any]]) -> None:
    (result,) = results["evaluates"]
    assert "error" not in result, result["error"]
    seen = [i for ids in result["evaluated"] for i in ids]
    count = len(seen) // 3
    assert all(set(seen[k * count : (k + 1) * count]) == set(range(SAMPLES)) for k in range(3))
