"""torchtitan's checkpoint manager over our storage: only where torchtitan is installed (see the README of
this folder)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from framework_ranks import Job, run_without_errors

import headrace as hr
from headrace import sim as simulator

pytest.importorskip("torchtitan.components.checkpointer")

PROGRAM = Path(__file__).with_name("torchtitan_ways.py")
KEEP_ALL = {"keep_latest_k": 0}


class Place:
    """Where a run saves."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.url, self.options = url, options

    def job(self, steps: int, world: int = 2, manager: str = "headrace", **more: Any) -> Job:
        config = KEEP_ALL | more.pop("config", {})
        if manager == "headrace":
            config["options"] = self.options
        return Job(
            "train", self.url, world, options={"steps": steps, "manager": manager, "config": config} | more
        )

    def steps(self) -> list[int]:
        with hr.checkpoint.Checkpointer(self.url, **self.options) as checkpoints:
            return checkpoints.steps()


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "directory":
        yield Place(str(tmp_path / "run"), {"memory": "64MiB"})
        return
    (tmp_path / "buckets" / "b").mkdir(parents=True)
    with simulator.Server(tmp_path / "buckets", threads=2) as server:
        keys = {"access_key": server.access_key, "secret_key": server.secret_key}
        yield Place(
            "s3://b/run", {"memory": "64MiB", "endpoint": server.endpoint, "region": "us-east-1", **keys}
        )


def run(*jobs: Job) -> list[Any]:
    """What rank 0 of each returned, which all ranks did."""
    out = run_without_errors(PROGRAM, jobs)
    for ranks in out:
        assert all(rank == ranks[0] for rank in ranks)
    return [ranks[0] for ranks in out]


@pytest.mark.parametrize("mode", ["disabled", "async", "async_with_pinned_mem"])
def test_a_run_goes_on_as_one_that_was_never_stopped(place: Place, tmp_path: Path, mode: str) -> None:
    config = {"async_mode": mode}
    theirs = Place(str(tmp_path / "theirs"), {})
    jobs = [place.job(2, config=config), *(place.job(4 + n, 3 - n, config=config) for n in (0, 1))]
    stopped, went_on, again, whole = run(*jobs, theirs.job(5, manager="torchtitan"))
    assert stopped["begun"] == {"loaded": False, "step": 0, "batches": 0}
    assert went_on["begun"] == {"loaded": True, "step": 2, "batches": 2}
    assert again["begun"] == {"loaded": True, "step": 4, "batches": 4}
    assert again["lr"] == whole["lr"]
    assert again["sums"] == pytest.approx(whole["sums"], rel=1e-5)
    assert went_on["sums"] != pytest.approx(whole["sums"], rel=1e-5)
    assert place.steps() == [1, 2, 3, 4, 5]


def test_a_run_of_its_own_manager_goes_on_with_ours(place: Place, tmp_path: Path) -> None:
    theirs = Place(str(tmp_path / "theirs"), {})
    began = {"initial_load_path": f"{theirs.url}/step-2", "initial_load_model_only": False}
    _, went_on, whole = run(
        theirs.job(2, manager="torchtitan"), place.job(4, config=began), Place(str(tmp_path / "x"), {}).job(4)
    )
    assert went_on["begun"] == {"loaded": True, "step": 2, "batches": 2}
    assert went_on["sums"] == pytest.approx(whole["sums"], rel=1e-5)


def test_another_run_begins_with_a_step_of_ours(place: Place) -> None:
    other = Place(f"{place.url}-other", place.options)

    def begun_with(path: str) -> dict[str, Any]:
        return {"initial_load_path": path, "initial_load_model_only": False}

    _, second, last = run(
        place.job(3),
        other.job(2, config=begun_with(f"{place.url}/step-2")),
        other.job(3, config=begun_with(place.url)),
    )
    assert second["begun"] == {"loaded": True, "step": 2, "batches": 2}
    assert last["begun"] == {"loaded": True, "step": 3, "batches": 3}


def test_a_step_is_loaded_and_the_last_ones_stay(place: Place) -> None:
    config = {"keep_latest_k": 2}
    run(place.job(4, config=config))
    assert place.steps() == [3, 4]
    (back,) = run(place.job(4, config=config, load_step=3))
    assert back["begun"] == {"loaded": True, "step": 3, "batches": 3}
    assert place.steps() == [3, 4]


def test_the_last_one_is_a_model(place: Place) -> None:
    config = {"export_dtype": "bfloat16"}
    run(place.job(2, config=config, last=2))
    ((model,),) = run_without_errors(
        PROGRAM, [Job("last_model", place.url, options={"options": place.options})]
    )
    assert len(model) > 1
    assert {dtype for dtype, _ in model.values()} == {"torch.bfloat16"}
