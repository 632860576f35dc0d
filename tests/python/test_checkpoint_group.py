"""What ranks of a job say to one another about checkpoints, where one of them has given up before the
others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.checkpoint import Checkpointer, Keep
from headrace.checkpoint.arrays import Array, Chunk, describe
from headrace.checkpoint.group import Group
from headrace.checkpoint.plan import LeastLoaded, had, make_plan, overlap
from headrace.checkpoint.saving import Planner, _merge
from headrace.checkpoint.tree import flatten


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


@pytest.mark.parametrize("count", [1000, (1 << 20) // 8])
def test_one_element_that_differs_between_ranks_is_an_error(ranks: Any, count: int) -> None:
    groups, both = ranks
    values = [np.zeros(count), np.zeros(count)]

    def plan(save: str) -> None:
        both(
            *(
                lambda group=group, value=value: Planner(group).plan({"x": describe("x", value)}, save)
                for group, value in zip(groups, values, strict=True)
            )
        )

    plan("save 1")
    values[1][2] = 1
    with pytest.raises(hr.InvalidArgumentError, match="x: ranks 0 and 1 have different values"):
        plan("save 2")


def test_of_what_may_differ_the_first_ranks_is_saved(ranks: Any) -> None:
    """Running statistics of BatchNorm, under DDP."""
    groups, both = ranks
    planners = [Planner(group, takes_first=True) for group in groups]
    for save, odd in (("save 1", 0.0), ("save 2", 1.0)):
        values = [{"a": np.zeros(9), "x": np.zeros(4)}, {"a": np.zeros(9), "x": np.zeros(4) + odd}]
        plans = both(
            *(
                lambda planner=planner, mine=mine, save=save: planner.plan(
                    {name: describe(name, value) for name, value in mine.items()}, save
                )
                for planner, mine in zip(planners, values, strict=True)
            )
        )
        assert plans[0] == plans[1]
        writes = {array.name: array.chunks[0][1] for array in plans[0].arrays}
        assert writes == {"a": 0, "x": 0 if odd else 1}


def test_equal_values_that_are_pickled_differently_are_one() -> None:
    """Sets, whose order is each process's own."""
    one, other = ({"set": [8, 0]}, {"set": [0, 8]})
    trees = [
        flatten({key: set(items) for key, items in each.items()}, allow_pickle=True)[0]
        for each in (one, other)
    ]
    assert trees[0] != trees[1]
    assert _merge(trees[0], trees[1], (), 1) == trees[0]
    differing = flatten({"set": {1, 2}}, allow_pickle=True)[0]
    with pytest.raises(
        hr.InvalidArgumentError, match=r"state\['set'\] is a pickled set on a rank before and a pickled set"
    ):
        _merge(trees[0], differing, (), 1)


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


def test_the_least_loaded_of_some_ranks_is_found_whatever_others_were_given() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        load = rng.integers(0, 5, 8).tolist()
        groups = [sorted(rng.choice(8, rng.integers(1, 9), replace=False).tolist()) for _ in range(3)]
        queues = [LeastLoaded(group, load) for group in groups]
        for _ in range(40):
            chosen = int(rng.integers(3))
            least = queues[chosen].rank()
            assert least == min(groups[chosen], key=lambda rank: (load[rank], rank))
            load[least] += int(rng.integers(0, 4))


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_boxes_that_share_an_element_are_found(ndim: int) -> None:
    rng = np.random.default_rng(ndim)
    shared = 0
    for _ in range(300):
        boxes = {
            Chunk(tuple(rng.integers(0, 6, ndim).tolist()), tuple(rng.integers(0, 5, ndim).tolist()))
            for _ in range(int(rng.integers(0, 6)))
        }
        covered = np.zeros((10,) * ndim, int)
        for box in boxes:
            covered[tuple(slice(o, o + s) for o, s in zip(box.offsets, box.sizes, strict=True))] += 1
        assert overlap(sorted(boxes)) == bool((covered > 1).any())
        shared += bool((covered > 1).any())
    assert 10 < shared < 290


@pytest.fixture
def checkpointers(ranks: Any, tmp_path: Path) -> Iterator[Any]:
    """One of each of two ranks, and how both make a call: what each returned or raised."""
    groups, both = ranks
    opened = [Checkpointer(tmp_path / "run", group=group) for group in groups]

    def outcome(call: Any, each: Checkpointer) -> Any:
        try:
            return call(each)
        except Exception as error:
            return error

    yield opened, lambda *calls: both(*map(partial, [outcome] * 2, calls, opened))
    with suppress(hr.HeadraceError):
        both(*(each.close for each in opened))


def save(step: int, state: Any = None) -> Any:
    return lambda each: each.save(step, state or {"w": np.ones(5000)}).result().step


def test_a_store_that_does_not_answer_is_no_empty_store(
    checkpointers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever begins afresh where there is no checkpoint must not do so then, on any rank."""
    (first, _), both = checkpointers
    both(save(1), save(1))
    with monkeypatch.context() as patch:

        def fails(*_: Any) -> list[int]:
            raise hr.UnavailableError("503")

        patch.setattr(first._place, "candidates", fails)
        for call in (lambda each: each.latest(), lambda each: each.load()):
            for error in both(call, call):
                assert isinstance(error, hr.UnavailableError)
                assert "rank 0: 503" in str(error)
    assert both(*[lambda each: each.latest()] * 2) == [1, 1]


def test_a_job_that_may_not_save_says_so_on_all_ranks(
    checkpointers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, _), both = checkpointers

    def fails() -> int:
        raise hr.DeniedError("no")

    monkeypatch.setattr(first, "_begin_saving", fails)
    assert [type(each) for each in both(save(1), save(1))] == [hr.DeniedError] * 2


class Fails:
    def state_dict(self) -> Any:
        raise RuntimeError("broken")


def test_what_fails_on_one_rank_fails_on_all_and_the_next_save_is_whole(checkpointers: Any) -> None:
    _, both = checkpointers
    own, other = both(save(1), save(1, {"w": Fails()}))
    assert isinstance(other, RuntimeError)
    assert isinstance(own, hr.InvalidArgumentError)
    assert "rank 1: its state cannot be saved: broken" in str(own)
    assert both(save(2), save(2)) == [2, 2]


def test_the_first_rank_says_how_good_a_save_is(checkpointers: Any) -> None:
    opened, both = checkpointers
    for each in opened:
        each._keep = Keep(latest=1, best=1, metric="loss")

    def rated(step: int) -> Any:
        return lambda each: each.save(step, {"x": 1}, metadata={"loss": 1.7}).result().step

    own, other = both(save(1), rated(1))
    assert "metadata['loss'], which this save lacks" in str(own)
    assert "rank 0: its state cannot be saved: Keep(best=1, metric='loss')" in str(other)
    assert [type(each) for each in (own, other)] == [hr.InvalidArgumentError] * 2
    assert both(rated(2), save(2, {"x": 1})) == [2, 2]


def test_all_ranks_may_delete_a_step(checkpointers: Any) -> None:
    (first, second), both = checkpointers
    both(save(1), save(1))
    for each in (first, second):  # One after the other, so that the second finds nothing.
        each.delete(1)
        assert each.steps() == []


def test_arrays_of_numpy_and_torch_are_told_apart(checkpointers: Any) -> None:
    torch = pytest.importorskip("torch")
    _, both = checkpointers
    for error in both(save(1, {"w": np.ones(3)}), save(1, {"w": torch.ones(3).double()})):
        assert "w: rank 1 has F64[3] of torch, rank 0 F64[3] of numpy" in str(error)


def test_an_error_that_one_rank_has_not_looked_at_does_not_part_the_ranks(
    checkpointers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first, second), both = checkpointers
    both(save(1), save(1))
    with monkeypatch.context() as patch:

        def fails(*_: Any, **__: Any) -> Any:
            raise hr.UnavailableError("503")

        patch.setattr(first._place, "publish", fails)
        # Rank 0 looks, rank 1 only waits.
        both(save(2), lambda each: each.save(2, {"w": np.ones(5000)}))
        with pytest.raises(hr.UnavailableError):
            second._saves[-1].wait()
        second._saves[-1]._is_seen = False
    for error in both(save(3), save(3)):
        assert isinstance(error, hr.UnavailableError)
    assert both(save(3), save(3)) == [3, 3]
