"""Accelerate on one and two processes (gloo): every way of its documentation goes on exactly, or is refused with the line to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import write_numbers
from framework_ranks import BATCH, EPOCHS, LONG, SAMPLES, Job, batches_an_epoch, planned, run_jobs, stops

pytest.importorskip("accelerate")

pytestmark = pytest.mark.timeout(3600 if LONG else 300)

PROGRAM = Path(__file__).with_name("accelerate_ways.py")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("accelerate") / "data", SAMPLES, per_shard=20)


# (way, options): all of them resume.
RESUMING: list[tuple[str, dict[str, Any]]] = [
    ("skip", {}),
    ("skip", {"use_stateful_dataloader": True}),
    ("skip", {"registers": True}),
    ("go_on", {}),
    ("skip", {"dispatch_batches": False, "accumulates": 4}),
    ("go_on", {"sets_epoch": True, "split_batches": True, "even_batches": False}),
    ("go_on", {"registers": True, "sets_epoch": True, "dispatch_batches": True}),
]
WRAPPED: list[dict[str, Any]] = [
    {},
    {"dispatch_batches": True},
    {"dispatch_batches": False},
    {"use_stateful_dataloader": True},
    {"skips": True},
]


@pytest.fixture(scope="module")
def results(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, list[Any]]:
    """All jobs of this file, by what they are for."""
    jobs: dict[Any, Job] = {}
    for world in (1, 2):
        for number, (way, options) in enumerate(RESUMING):
            for stop in stops(world) if number == 0 or LONG else stops(world)[number % EPOCHS :][:1]:
                directory = str(tmp_path_factory.mktemp("run"))
                jobs["first", number, world, stop] = Job(
                    way, str(data), world, directory, stop, options=options
                )
                jobs["second", number, world, stop] = Job(
                    way, str(data), world, directory, resumes=True, options=options
                )
        jobs["alone", world] = Job(
            "skip_alone", str(data), world, options={"from": batches_an_epoch(world) + 3}
        )
        for number, options in enumerate(WRAPPED):
            jobs["wrapped", number, world] = Job("wrapped", str(data), world, options=options)
    for half_set in (False, True):
        jobs["late", half_set] = Job(
            "late_group", str(data), 2, str(tmp_path_factory.mktemp("late")), options={"half_set": half_set}
        )
    return dict(zip(jobs, run_jobs(PROGRAM, jobs.values()), strict=True))


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("number", range(len(RESUMING)))
def test_every_way_resumes_at_the_next_batch(
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
            assert len(first["ids"]) == case[-1]
            assert first["ids"] + second["ids"] == expected[rank], case


@pytest.mark.parametrize("world", [1, 2])
def test_skip_first_batches_and_set_epoch_are_enough(
    data: Path, results: dict[Any, list[Any]], world: int
) -> None:
    expected = planned(data, world)
    for rank, result in enumerate(results["alone", world]):
        assert "error" not in result, result["error"]
        assert result["ids"] == expected[rank][batches_an_epoch(world) + 3 :]


@pytest.mark.parametrize("world", [1, 2])
def test_gradients_are_synchronised_at_the_end_of_an_epoch(results: dict[Any, list[Any]], world: int) -> None:
    number = next(i for i, (_, options) in enumerate(RESUMING) if "accumulates" in options)
    count = batches_an_epoch(world)
    assert count % 4
    for key in [
        key for key in results if key[0] == "first" and key[1:3] == (number, world) and key[-1] >= count
    ]:
        for result in results[key]:
            assert result["syncs"][:count] == [step % 4 == 0 or step == count for step in range(1, count + 1)]


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("number", range(len(WRAPPED)))
def test_a_data_loader_around_the_loader_is_refused(
    results: dict[Any, list[Any]], number: int, world: int
) -> None:
    for result in results["wrapped", number, world]:
        assert "InvalidArgumentError" in result["error"]
        assert "accelerator.prepare(model, optimizer, loader)" in result["error"]


def test_a_loader_made_before_the_process_group_takes_its_rank(
    data: Path, results: dict[Any, list[Any]]
) -> None:
    expected = planned(data, 2, 1)
    for half_set in (False, True):
        for rank, result in enumerate(results["late", half_set]):
            assert "error" not in result, result["error"]
            assert result["rank"] == [rank, 2]
            assert result["ids"] == expected[rank]
            assert result["length"] == len(expected[rank])
            if not half_set:
                assert result["before"]["length"] == -(-SAMPLES // BATCH)
                assert result["before"]["world"] == 1
                assert result["before"]["state"]["t"] == 0
