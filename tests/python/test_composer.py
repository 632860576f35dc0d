"""Composer on one and two processes (gloo): resumes exactly in every epoch, or refuses with the line to
write."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework_checks import Runs, data, received
from framework_ranks import LONG, planned, stops
from other_venv import CACHE

__all__ = ["data"]

PACKAGES = CACHE / "composer"

pytestmark = [
    pytest.mark.timeout(3600 if LONG else 900),
    pytest.mark.skipif(not PACKAGES.exists(), reason="tools/setup test installs Composer in the cache"),
]

PROGRAM = Path(__file__).with_name("composer_ways.py")
RESUMING = ("fit", "late", "spec")


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(data, tmp_path_factory)
    for world in (1, 2):
        for number, way in enumerate(RESUMING):
            made.add_resumed(way, way, world, stops(world) if number == 0 or LONG else stops(world)[1:2])
    made.add("wrapped", "wrapped")
    for wraps in (False, True):
        made.add(("evaluated", wraps), "evaluated", options={"wraps": wraps})
    for spins in (False, True):
        made.add(("twice", spins), "twice", stop=45, options={"spins": spins})
    first = made.add("others", "stateless", stop=30)
    for name, options in {
        "spins": {},
        "begins": {"spins": False},
        "told": {"spins": False, "told": 1},
    }.items():
        made.jobs["stateless", name] = first._replace(stop=None, resumes=True, options=options)
    return made.run(PROGRAM, PACKAGES)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("way", RESUMING)
def test_it_resumes_at_the_next_batch(runs: Runs, way: str, world: int) -> None:
    runs.check_resumed(way, world)
    for stop in runs.stops(way, world):
        assert [len(result["ids"]) for result in runs["first", way, world, stop]] == [stop] * world


def test_a_data_loader_around_the_loader_is_refused(runs: Runs) -> None:
    runs.check_refused("wrapped", "Trainer(train_dataloader=loader)")


@pytest.mark.parametrize("wraps", [False, True])
def test_evaluation_begins_at_the_start_of_the_epoch(data: Path, runs: Runs, wraps: bool) -> None:
    (result,) = runs["evaluated", wraps]
    assert received(result) == planned(data, 1)[0]
    (first,) = planned(data, 1, 1, shuffle=False)
    assert result["evaluated"] == 3 * first[:5]


def test_a_second_fit_goes_on_or_is_refused(data: Path, runs: Runs) -> None:
    """By default Composer takes batches away to bring samplers forward."""
    (result,) = runs["twice", False]
    assert received(result) == planned(data, 1)[0][:47]
    runs.check_refused(("twice", True), "spin_dataloaders=False")


def test_a_checkpoint_without_the_loaders_state_is_refused(data: Path, runs: Runs) -> None:
    runs.check_refused(("stateless", "spins"), "Composer skips batches")
    runs.check_refused(("stateless", "begins"), "stands at its very beginning")
    (result,) = runs["stateless", "told"]
    assert received(result)[0] == planned(data, 1)[0][43], "the user has said where to begin"
