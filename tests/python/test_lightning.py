"""Lightning on one and two processes (gloo): resumes exactly in every epoch, or refuses with the line to
write."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework_checks import Runs, make_data, received
from framework_ranks import LONG, planned, stops

pytest.importorskip("lightning")

pytestmark = pytest.mark.timeout(3600 if LONG else 300)

PROGRAM = Path(__file__).with_name("lightning_ways.py")
RESUMING = ("fit", "hook", "stateful")
FABRIC = {"fabric": False, "fabric, wrapped": True}  # Whether a DataLoader is around the loader.


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory)


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(data, tmp_path_factory)
    for world in (1, 2):
        for number, way in enumerate(RESUMING):
            made.add_resumed(way, way, world, stops(world) if number == 0 or LONG else stops(world)[1:])
        for name, wraps in FABRIC.items():
            made.add_resumed(
                name, "fabric", world, stops(world) if LONG else stops(world)[1:2], {"wraps": wraps}
            )
        made.add(("wrapped", world), "wrapped", world)
    made.add("late", "late")
    made.add("late, told", "late", options={"epoch": 1})
    made.add("kept", "fabric", stop=5, options={"wraps": True, "keeps_wrapper": True})
    for wraps in (False, True):
        made.add(("validate", wraps), "validate", options={"wraps": wraps})
    return made.run(PROGRAM)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("way", [*RESUMING, *FABRIC])
def test_it_resumes_at_the_next_batch(runs: Runs, way: str, world: int) -> None:
    """The loaders are made before the process group, in processes with WORLD_SIZE and without RANK."""
    runs.check_resumed(way, world)
    for stop in runs.stops(way, world):
        assert [len(result["ids"]) for result in runs["first", way, world, stop]] == [stop] * world


@pytest.mark.parametrize("world", [1, 2])
def test_a_data_loader_around_the_loader_is_refused(runs: Runs, world: int) -> None:
    runs.check_refused(("wrapped", world), "trainer.fit(model, loader)")


def test_a_checkpoint_without_the_loaders_state_is_refused(runs: Runs) -> None:
    runs.check_refused("late", "Save checkpoints within fit()")
    for result in runs["late, told"]:
        assert received(result), "the user has said where to begin"


def test_a_data_loader_around_the_loader_is_not_kept_in_a_checkpoint(runs: Runs) -> None:
    runs.check_refused("kept", "A checkpoint holds loader.state_dict()")


@pytest.mark.parametrize("wraps", [False, True])
def test_validation_begins_at_the_start_of_the_epoch(data: Path, runs: Runs, wraps: bool) -> None:
    (result,) = runs["validate", wraps]
    assert received(result) == planned(data, 1)[0]
    (first,) = planned(data, 1, 1, shuffle=False)
    assert result["validated"] == first[:2] + 3 * first[:5]
