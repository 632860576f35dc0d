"""Lightning on one and two processes (gloo): resumes exactly in every epoch, or refuses with the line to
write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import write_numbers
from framework_checks import Runs, data, received
from framework_ranks import LONG, batches_an_epoch, planned, stops

__all__ = ["data"]

pytest.importorskip("lightning")

pytestmark = pytest.mark.timeout(3600 if LONG else 900)

PROGRAM = Path(__file__).with_name("lightning_ways.py")
RESUMING = ("fit", "hook", "stateful")
VALIDATING: dict[str, dict[str, Any]] = {
    "alone": {},
    "wrapped": {"wraps": True},
    "workers": {"wraps": True, "workers": 2},
    "persistent workers": {"wraps": True, "workers": 2, "persist": True},
}
FABRIC = {"fabric": False, "fabric, wrapped": True}  # Whether a DataLoader is around the loader.


LIMIT = 6  # Batches an epoch.


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
        some = stops(world) if LONG else stops(world)[1:2]
        made.add_resumed("workers", "stateful", world, some, {"workers": 2})
        for workers in (0, 2):
            made.add(("wrapped", world, workers), "wrapped", world, options={"workers": workers})
    for world in (1, 2):
        made.add_resumed("limited", "fit", world, (4, LIMIT, LIMIT + 2), {"limit": LIMIT})
    options = {"limit": LIMIT, "workers": 2}
    made.add_resumed("limited, workers", "stateful", 1, (4, LIMIT, LIMIT + 2), options)
    more = {"snapshot_every_n_steps": 4}
    made.add_resumed("limited, snapshots", "stateful", 1, (LIMIT + 2,), {**options, "more": more})
    made.add_resumed("old snapshot", "stateful", 1, (LIMIT,), {**options, "more": more})
    for world in (1, 2):
        count = batches_an_epoch(world)
        made.add_resumed("epoch end", "epoch_end", world, (count, 2 * count))
        made.add_resumed("epoch end, limited", "epoch_end", world, (LIMIT,), {"limit": LIMIT})
    for workers in (0, 2):
        options = {"limit": LIMIT, "workers": workers}
        made.add_resumed(f"epoch end, wrapped {workers}", "epoch_end", 1, (LIMIT,), options)
        made.add_resumed(f"epoch end, loaded {workers}", "epoch_end", 1, (LIMIT,), {**options, "loads": True})
    made.add_resumed("epoch end, other", "epoch_end", 1, (LIMIT,), {"limit": LIMIT, "reseeds": 1})
    made.add("combined", "combined", options={"limit": LIMIT})
    for holes in ("mask", "compact"):
        made.add(("filtered", holes), "filtered", options={"holes": holes})
    made.add("late", "late")
    made.add("stripped", "late", options={"strips": True})
    made.add("stripped, told", "late", options={"strips": True, "epoch": 1})
    made.add("kept", "fabric", stop=5, options={"wraps": True, "keeps_wrapper": True})
    for name, options in VALIDATING.items():
        made.add(("validate", name), "validate", options=options)
    return made.run(PROGRAM)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("way", [*RESUMING, *FABRIC, "workers"])
def test_it_resumes_at_the_next_batch(runs: Runs, way: str, world: int) -> None:
    """The loaders are made before the process group, in processes with WORLD_SIZE and without RANK."""
    runs.check_resumed(way, world)
    for stop in runs.stops(way, world):
        assert [len(result["ids"]) for result in runs["first", way, world, stop]] == [stop] * world


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_around_the_loader_is_refused(runs: Runs, world: int, workers: int) -> None:
    runs.check_refused(("wrapped", world, workers), "trainer.fit(model, loader)")


def limited(data: Path, world: int) -> list[list[list[int]]]:
    """Ids of the first batches of each epoch, by rank."""
    count = batches_an_epoch(world)
    return [
        [ids for number, ids in enumerate(batches) if number % count < LIMIT]
        for batches in planned(data, world)
    ]


@pytest.mark.parametrize(
    ("way", "world"),
    [
        ("limited", 1),
        ("limited", 2),
        ("limited, workers", 1),
        ("limited, snapshots", 1),
        ("epoch end, limited", 1),
        ("epoch end, limited", 2),
        ("epoch end, loaded 0", 1),
        ("epoch end, loaded 2", 1),
    ],
)
def test_each_epoch_of_a_limited_training_begins_an_epoch(
    data: Path, runs: Runs, way: str, world: int
) -> None:
    """Whole runs' second parts tell it; a checkpoint at the limit goes on with the next epoch."""
    for stop in runs.stops(way, world):
        for rank, expected in enumerate(limited(data, world)):
            first, second = (received(runs[part, way, world, stop][rank]) for part in ("first", "second"))
            assert first + second == expected, stop


def test_an_epoch_that_would_begin_behind_an_older_snapshot_is_refused(runs: Runs) -> None:
    """torchdata would take the batches that are missing from the snapshot out of the new epoch."""
    runs.check_refused(("second", "old snapshot", 1, LIMIT), "snapshot_every_n_steps=1")


@pytest.mark.parametrize("world", [1, 2])
def test_a_checkpoint_of_the_end_of_an_epoch_goes_on_with_the_next(runs: Runs, world: int) -> None:
    """Lightning has the loader's state in it, and does not load it."""
    runs.check_resumed("epoch end", world)


def test_a_state_that_lightning_does_not_load_is_checked_as_any(runs: Runs) -> None:
    runs.check_refused(("second", "epoch end, other", 1, LIMIT), "seed")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loaders_state_that_lightning_does_not_load_is_for_the_user_to_load(
    runs: Runs, workers: int
) -> None:
    line = 'data_loader.load_state_dict(torch.load(path, weights_only=False)["loops"]'
    runs.check_refused(("second", f"epoch end, wrapped {workers}", 1, LIMIT), line)


def test_an_epoch_that_another_loader_ends_is_followed_by_the_next(data: Path, runs: Runs) -> None:
    (result,) = runs["combined"]
    assert received(result) == limited(data, 1)[0]


def test_a_filter_that_may_leave_training_batches_out_is_refused(data: Path, runs: Runs) -> None:
    """Where it does, Lightning would not validate; of validation batches some may be missing."""
    runs.check_refused(("filtered", "compact"), 'use holes="mask"')
    (result,) = runs["filtered", "mask"]
    assert received(result) == planned(data, 1)[0]
    assert len(result["validated"]) == len(received(result))


def test_a_checkpoint_that_is_written_after_fit_goes_on_where_that_stopped(data: Path, runs: Runs) -> None:
    """Lightning's epoch is over there, after three batches, and two more are to come."""
    (result,) = runs["late"]
    assert received(result) == planned(data, 1)[0][3 : 2 * batches_an_epoch(1)]


def test_a_checkpoint_without_the_loaders_state_is_refused(runs: Runs) -> None:
    runs.check_refused("stripped", "fit(model, loader)")
    for result in runs["stripped, told"]:
        assert received(result), "the user has said where to begin"


def test_a_data_loader_around_the_loader_is_not_kept_in_a_checkpoint(runs: Runs) -> None:
    runs.check_refused("kept", "a checkpoint holds loader.state_dict()")


@pytest.mark.parametrize("way", VALIDATING)
def test_validation_begins_at_the_start_of_the_epoch(data: Path, runs: Runs, way: str) -> None:
    (result,) = runs["validate", way]
    assert received(result) == planned(data, 1)[0]
    (first,) = planned(data, 1, 1, shuffle=False)
    assert result["validated"] == first[:2] + 3 * first[:5]


@pytest.mark.parametrize("workers", [None, 0, 2])
@pytest.mark.filterwarnings("ignore")
def test_ranks_validate_the_same_epoch_where_one_has_no_last_batch(
    tmp_path: Path, workers: int | None
) -> None:
    """Lightning takes as many batches as the loader says, and does not ask for its end."""
    import lightning
    import torch

    import headrace.torch

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[int, int]] = []

        def validation_step(self, batch: Any) -> None:
            self.seen.append((batch.epoch, batch.index))

    write_numbers(tmp_path / "nine", 9)
    for rank, length in enumerate((1, 2)):
        module = Module()
        with headrace.torch.Loader(
            tmp_path / "nine", batch_size=4, rank=rank, world_size=2, epoch_end="uneven", memory="64MiB"
        ) as loader:
            batches: Any = loader
            if workers is not None:
                batches = torch.utils.data.DataLoader(loader, batch_size=None, num_workers=workers)
            trainer = lightning.Trainer(
                accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False
            )
            for _ in range(3):
                trainer.validate(module, batches, verbose=False)
        assert module.seen == [(epoch, index) for epoch in range(3) for index in range(length)]
