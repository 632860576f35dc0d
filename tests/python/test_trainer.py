"""transformers.Trainer on one and two processes (gloo): resumes exactly in every epoch, or refuses with the
line to write."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from framework_checks import Runs, data, received
from framework_ranks import BATCH, EPOCHS, LOADER, LONG, SAMPLES, batches_an_epoch, planned, stops

import headrace as hr

__all__ = ["data"]

pytest.importorskip("accelerate")
pytest.importorskip("transformers")

pytestmark = pytest.mark.timeout(3600 if LONG else 900)

PROGRAM = Path(__file__).with_name("trainer_ways.py")
CACHE = Path(os.environ.get("HEADRACE_CACHE", Path.home() / ".cache" / "headrace"))
TRANSFORMERS_5 = CACHE / "transformers5"
RESUMING: list[dict[str, Any]] = [
    {},
    {"accumulates": 4},
    {"loads": True},
    {"loads": True, "ignores": True},
    {"silent": True},
    {"silent": True, "forgets": True},
    {"workers": 2},
]
WRAPPED: list[dict[str, Any]] = [{}, {"as_dataset": True}, {"workers": 2}, {"as_dataset": True, "workers": 2}]
# What a run on one or two processes goes on as, on two or one or ("stays") the same: options of both.
ELSEWHERE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "counted": ({}, {}),
    "counted without a state": ({"forgets": True}, {}),
    "counted with a loaded state": ({}, {"loads": True}),
    "without max_steps": ({}, {"ignores": True}),
    "as the error says": ({}, {"ignores": True, "max_steps": True}),
    "with a loaded state": ({"forgets": True}, {"ignores": True, "max_steps": True, "loads": True}),
    "same global batch": ({}, {"keeps_batch": True}),
    "same global batch, without a state": ({"forgets": True}, {"keeps_batch": True}),
    "other data": ({}, {"loader": {"seed": 4}, "stays": True}),
    "other lanes": ({}, {"loader": {"lanes": 3}, "stays": True}),
    "without a state": ({"forgets": True}, {"stays": True}),
    "filtered": ({"filters": True}, {"filters": True, "stays": True}),
    "filtered, as the error says": (
        {"filters": True},
        {"filters": True, "stays": True, "ignores": True, "max_steps": True},
    ),
}
# By the processes of before: where it stops in the second epoch, and the steps at the end of the third
# of a run that goes on elsewhere.
ELSEWHERE_STEPS = {1: (50, 50 + 17 + 21), 2: (25, 25 + 34 + 42)}


@pytest.fixture(scope="module", params=[4, 5])
def runs(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """With the venv's transformers, and with 5."""
    packages = TRANSFORMERS_5 if request.param == 5 else None
    if packages and not packages.exists():
        pytest.skip("tools/setup test installs transformers 5 in the cache")
    made = Runs(data, tmp_path_factory)
    made.add("version", "version")
    for world in (1, 2):
        for number, options in enumerate(RESUMING):
            steps = stops(world, -(-batches_an_epoch(world) // options.get("accumulates", 1)))
            some = steps if number == 0 or LONG else steps[number % 3 :][:1]
            made.add_resumed(number, "override", world, some, options)
        for number, options in enumerate(WRAPPED):
            made.add(("wrapped", number, world), "wrapped", world, options=options)
        for name in ELSEWHERE:
            add_elsewhere(made, name, world)
    for restores in (False, True):
        made.add(("again", restores), "again", stop=50, options={"restores": restores})
    made.add("evaluates", "override", options={"evaluates": True})
    made.run(PROGRAM, packages)
    assert packages is None or made["version"][0].startswith("5."), made["version"]
    return made


def add_elsewhere(runs: Runs, name: str, world: int) -> None:
    first, second = ELSEWHERE[name]
    stop, steps = ELSEWHERE_STEPS[world]
    before = runs.add(("before", name, world), "override", world, stop, first)
    options = {**second, **({"max_steps": steps} if second.get("max_steps") else {})}
    if second.get("keeps_batch"):
        options["loader"] = {"batch_size": BATCH * world // (3 - world)}
    after = world if second.get("stays") else 3 - world
    runs.jobs["after", name, world] = before._replace(world=after, stop=None, resumes=True, options=options)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("number", range(len(RESUMING)))
def test_it_resumes_at_the_next_batch(runs: Runs, number: int, world: int) -> None:
    runs.check_resumed(number, world)


@pytest.mark.parametrize("restores", [False, True])
def test_it_resumes_in_the_process_that_saved(data: Path, runs: Runs, restores: bool) -> None:
    (result,) = runs["again", restores]
    assert received(result) == planned(data, 1)[0]


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("number", range(len(WRAPPED)))
def test_what_trainer_would_take_apart_is_refused(runs: Runs, number: int, world: int) -> None:
    runs.check_refused(("wrapped", number, world), "def get_train_dataloader(self): return loader")


def test_each_evaluation_sees_every_sample(runs: Runs) -> None:
    (result,) = runs["evaluates"]
    assert "error" not in result, result["error"]
    seen = [i for ids in result["evaluated"] for i in ids]
    count = len(seen) // 3
    assert all(set(seen[k * count : (k + 1) * count]) == set(range(SAMPLES)) for k in range(3))


def test_a_run_goes_on_in_another_world_as_the_error_says(data: Path, runs: Runs) -> None:
    for world, (_, steps) in ELSEWHERE_STEPS.items():
        for name in ("counted", "counted with a loaded state", "without max_steps"):
            line = f"TrainingArguments(ignore_data_skip=True, max_steps={steps})"
            runs.check_refused(("after", name, world), line)
        line = "loader.load_state_dict(state) and TrainingArguments(ignore_data_skip=True"
        runs.check_refused(("after", "counted without a state", world), line)
        for name in ("as the error says", "with a loaded state"):
            expected = rest_elsewhere(data, world)
            for rank, result in enumerate(runs["after", name, world]):
                assert received(result) == expected[rank]


@pytest.mark.parametrize("world", [1, 2])
def test_a_run_of_the_same_global_batch_goes_on_in_another_world(data: Path, runs: Runs, world: int) -> None:
    expected = global_batches(planned(data, world))
    for name in ("same global batch", "same global batch, without a state"):
        batches = []
        for part in ("before", "after"):
            batches += global_batches([received(result) for result in runs[part, name, world]])
        assert batches == expected


def global_batches(by_rank: list[list[list[int]]]) -> list[list[int]]:
    return [sorted(chain.from_iterable(ids)) for ids in zip(*by_rank, strict=True)]


def rest_elsewhere(data: Path, world: int) -> list[list[list[int]]]:
    """Batches of the ranks of the other world, from where a run of this one stops, up to the end."""
    out = []
    with hr.Loader(data, rank=0, world_size=world, **LOADER) as loader:
        for _ in range(loader.epoch, 2):
            for number, _ in enumerate(loader, loader.epoch * batches_an_epoch(world) + 1):
                if number == ELSEWHERE_STEPS[world][0]:
                    break
        state = loader.state_dict()
    assert state["epoch"] == 1
    for rank in range(3 - world):
        with hr.Loader(data, rank=rank, world_size=3 - world, **LOADER) as loader:
            loader.load_state_dict(state)
            out.append([batch.ids.tolist() for _ in range(1, EPOCHS) for batch in loader])
    return out


@pytest.mark.parametrize("world", [1, 2])
def test_where_a_filter_may_leave_batches_out_the_state_alone_says_where(
    data: Path, runs: Runs, world: int
) -> None:
    runs.check_refused(("after", "filtered", world), 'filter(holes="compact") may leave batches out')
    for rank, expected in enumerate(planned(data, world)):
        first, second = (
            received(runs[part, "filtered, as the error says", world][rank]) for part in ("before", "after")
        )
        batches = first + second
        count = min(ELSEWHERE_STEPS[world][1], len(expected))
        assert batches[:count] == expected[:count]


@pytest.mark.parametrize("world", [1, 2])
def test_checkpoints_know_the_order_of_their_run(data: Path, runs: Runs, world: int) -> None:
    expected = planned(data, world)
    runs.check_refused(("after", "other data", world), "seed")
    for name in ("other lanes", "without a state"):
        for rank in range(world):
            first, second = (received(runs[part, name, world][rank]) for part in ("before", "after"))
            assert first + second == expected[rank], name
