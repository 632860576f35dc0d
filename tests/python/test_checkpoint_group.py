"""What ranks of a job say to one another about checkpoints, where one of them has given up before the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.checkpoint.arrays import Array, Chunk, describe
from headrace.checkpoint.group import Group
from headrace.checkpoint.plan import had, make_plan
from headrace.checkpoint.saving import Planner


class Values(dict[str, str]):
    """A key-value store."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def delete_key(self, key: str) -> bool:
        return self.pop(key, None) is not None


@pytest.fixture
def ranks() -> Iterator[Any]:
    values = Values()
    groups = [Group(rank, 2, values, 60.0) for rank in range(2)]
    with ThreadPoolExecutor(2) as threads:
        yield groups, lambda *calls: [each.result() for each in [threads.submit(call) for call in calls]]


def test_what_was_said_of_one_save_is_not_heard_of_the_next(ranks: Any) -> None:
    (first, second), both = ranks
    first.timeout = 0.0
    with pytest.raises(hr.DeadlineError, match="report: rank 1 of 2 said nothing"):
        first.gather("report", "a", "save 1")
    second.gather("report", "b", "save 1")
    second.timeout = 0.0
    with pytest.raises(hr.DeadlineError):
        second.gather("outcome", "it is there", "save 1")
    with pytest.raises(hr.DeadlineError, match="outcome: rank 1 of 2 said nothing"):
        first.gather("outcome", "c", "save 2")
    first.timeout = second.timeout = 60.0
    said = both(lambda: first.gather("outcome", 1, "save 3"), lambda: second.gather("outcome", 2, "save 3"))
    assert said == [[1, 2], [1, 2]]


def test_what_nobody_needs_is_deleted(ranks: Any) -> None:
    (first, second), both = ranks
    for save in ("save 1", "save 2", "save 3", "save 4"):
        both(
            lambda save=save: first.gather("report", 0, save),
            lambda save=save: second.gather("report", 0, save),
        )
    assert len(first._values) == 4


def test_ranks_with_different_plans_make_a_new_one(ranks: Any) -> None:
    (first, second), both = ranks
    planners = [Planner(first), Planner(second)]

    def plan(save: str, *names: str) -> list[Any]:
        arrays = [{name: describe(name, np.zeros(3)) for name in each} for each in names]
        return both(
            lambda: planners[0].plan(arrays[0], save),
            lambda: planners[1].plan(arrays[1], save),
        )

    plan("save 1", "a", "b")
    old = planners[1]._plan, planners[1]._structure, planners[1]._made_in
    plan("save 2", "a", "c")
    # Rank 1 has given up before it had the others' arrays.
    planners[1]._plan, planners[1]._structure, planners[1]._made_in = old
    plans = plan("save 3", "a", "b")
    assert [[array.name for array in each.arrays] for each in plans] == [["a", "b"]] * 2


def test_a_plan_shares_everything_out_once_and_evenly() -> None:
    """Random layouts on random ranks, of which some have the same arrays, against what must be true."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        world = int(rng.integers(1, 7))
        has: list[dict[str, Any]] = [{} for _ in range(world)]
        for number in range(int(rng.integers(1, 12))):
            rows = int(rng.integers(1, 9))
            array = np.zeros((rows, 3), rng.choice(["f4", "f8"]))
            cuts = sorted({0, rows, *rng.integers(0, rows + 1, rng.integers(0, 4)).tolist()})
            for a, b in itertools.pairwise(cuts):
                for rank in rng.choice(world, rng.integers(1, world + 1), replace=False):
                    has[rank].setdefault(f"t{number}", (array, []))[1].append((a, b))
        said = [
            had(
                [
                    Array(
                        name,
                        "numpy",
                        "F32" if array.itemsize == 4 else "F64",
                        array.shape,
                        [(Chunk((a, 0), (b - a, 3)), array[a:b]) for a, b in spans],
                    )
                    for name, (array, spans) in each.items()
                ]
            )
            for each in has
        ]
        plan = make_plan(said)
        for array in plan.arrays:
            covered = np.zeros(array.shape, int)
            for chunk, owner in array.chunks:
                begin, end = chunk.offsets[0], chunk.offsets[0] + chunk.sizes[0]
                assert (begin, end) in has[owner][array.name][1]
                covered[begin:end] += 1
            assert (covered == 1).all(), "each element once"
        pieces = sorted(piece for rank in range(world) for piece in plan.of_rank(rank))
        assert pieces == [(i, k) for i, array in enumerate(plan.arrays) for k in range(len(array.chunks))]


def test_what_all_ranks_have_is_shared_out_evenly() -> None:
    arrays = [Array(f"t{i}", "numpy", "F32", (10,), [(Chunk((0,), (10,)), None)]) for i in range(40)]
    alone = Array("alone", "numpy", "F32", (200,), [(Chunk((0,), (200,)), None)])
    plan = make_plan([had([*arrays, alone]), *(had(arrays) for _ in range(3))])
    counts = [len(plan.of_rank(rank)) for rank in range(4)]
    assert counts == [1, 14, 13, 13], "the first has enough with what it alone has"
