"""Accelerate on one and two processes (gloo): every way of its documentation goes on exactly, or is refused
with the line to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from framework_checks import Runs, data, received
from framework_ranks import BATCH, EPOCHS, LONG, SAMPLES, batches_an_epoch, planned, stops

__all__ = ["data"]

pytest.importorskip("accelerate")

pytestmark = pytest.mark.timeout(3600 if LONG else 900)

PROGRAM = Path(__file__).with_name("accelerate_ways.py")


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
    {"workers": 2},
]


LAST_TWO = [batches_an_epoch(1) - 2, batches_an_epoch(1) - 1]


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(data, tmp_path_factory)
    for world in (1, 2):
        for number, (way, options) in enumerate(RESUMING):
            some = stops(world) if number == 0 or LONG else stops(world)[number % EPOCHS :][:1]
            made.add_resumed(number, way, world, some, options)
        made.add(("alone", world), "skip_alone", world, options={"from": batches_an_epoch(world) + 3})
        for number, options in enumerate(WRAPPED):
            made.add(("wrapped", number, world), "wrapped", world, options=options)
    made.add("accumulates before empty ones", "one_epoch", options={"empties": LAST_TWO, "accumulates": 3})
    made.add("skips among empty ones", "one_epoch", options={"empties": [0, 3], "skips": 3})
    for half_set in (False, True):
        made.add(("late", half_set), "late_group", 2, options={"half_set": half_set})
    return made.run(PROGRAM)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("number", range(len(RESUMING)))
def test_every_way_resumes_at_the_next_batch(runs: Runs, number: int, world: int) -> None:
    runs.check_resumed(number, world)
    for stop in runs.stops(number, world):
        assert [len(result["ids"]) for result in runs["first", number, world, stop]] == [stop] * world


@pytest.mark.parametrize("world", [1, 2])
def test_skip_first_batches_and_set_epoch_are_enough(data: Path, runs: Runs, world: int) -> None:
    expected = planned(data, world)
    for rank, result in enumerate(runs["alone", world]):
        assert received(result) == expected[rank][batches_an_epoch(world) + 3 :]


@pytest.mark.parametrize("world", [1, 2])
def test_gradients_are_synchronised_at_the_end_of_an_epoch(runs: Runs, world: int) -> None:
    number = next(i for i, (_, options) in enumerate(RESUMING) if "accumulates" in options)
    count = batches_an_epoch(world)
    assert count % 4
    for stop in filter(lambda stop: stop >= count, runs.stops(number, world)):
        for result in runs["first", number, world, stop]:
            assert result["syncs"][:count] == [step % 4 == 0 or step == count for step in range(1, count + 1)]


def test_gradients_are_synchronised_where_a_filter_empties_the_last_batches(data: Path, runs: Runs) -> None:
    (result,) = runs["accumulates before empty ones"]
    (expected,) = planned(data, 1, 1)
    assert received(result) == expected[:-2]
    count = len(expected) - 2
    assert count % 3
    assert result["syncs"] == [step % 3 == 0 or step == count for step in range(1, count + 1)]


def test_no_batches_are_skipped_by_number_where_a_filter_leaves_some_out(runs: Runs) -> None:
    """It would deliver samples again."""
    runs.check_refused("skips among empty ones", 'use holes="mask"')


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("number", range(len(WRAPPED)))
def test_a_data_loader_around_the_loader_is_refused(runs: Runs, number: int, world: int) -> None:
    runs.check_refused(("wrapped", number, world), "accelerator.prepare(model, optimizer, loader)")


def test_a_loader_made_before_the_process_group_takes_its_rank(data: Path, runs: Runs) -> None:
    expected = planned(data, 2, 1)
    for half_set in (False, True):
        for rank, result in enumerate(runs["late", half_set]):
            assert received(result) == expected[rank]
            assert result["rank"] == [rank, 2]
            assert result["length"] == len(expected[rank])
            if not half_set:
                assert result["before"]["length"] == -(-SAMPLES // BATCH)
                assert result["before"]["world"] == 1
                assert result["before"]["state"]["t"] == 0
