"""Mapped loaders whose position, weights or sources change while batches are under way; other formats."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from typing import Any

import map_functions as functions
import numpy as np
import pytest
from conftest import write_mds, write_numbers
from map_loaders import open_loader

import headrace as hr


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("data")
    return [write_numbers(root / name, 200, per_shard=25) for name in ("web", "code", "math")]


def ids_with_changes(sources: list[Path], workers: int | None) -> list[list[int]]:
    """Ids of 12 batches of a mixture: other weights after four, another source after eight."""
    mixture = hr.Mixture({"web": (sources[0], 1), "code": (sources[1], 0)})
    loader: Any = hr.Loader(mixture, batch_size=10, memory="64MiB")
    if workers is not None:
        loader = loader.map(functions.double, workers=workers)
    found = []
    with loader:
        for batch in loader:
            found.append(batch.ids.tolist())
            if len(found) == 4:
                assert loader.set_weights({"web": 1, "code": 3}) == 4
            if len(found) == 8:
                assert loader.add_source("math", sources[2], {"math": 1}) == 8
            if len(found) == 12:
                break
        assert loader.state_dict()["batches"] == 12
    mixture.close()
    return found


def test_weights_and_sources_change_behind_what_was_delivered(sources: list[Path]) -> None:
    expected = ids_with_changes(sources, None)
    assert ids_with_changes(sources, 2) == expected
    assert ids_with_changes(sources, 0) == expected


def test_workers_outlive_the_thread_that_started_them(few_numbers: Path) -> None:
    first: list[Any] = []
    with open_loader(few_numbers).map(functions.double, workers=1) as mapped:
        stream = iter(mapped)
        thread = threading.Thread(target=lambda: first.append(next(stream)))
        thread.start()
        thread.join()
        pids = {int(pid) for batch in (*first, *stream) for pid in batch["pid"]}
        assert len(pids) == 1


def test_set_epoch_and_leaving_loops_keep_to_the_loaders_rules(few_numbers: Path) -> None:
    with (
        open_loader(few_numbers) as plain,
        open_loader(few_numbers).map(functions.as_is, per="batch", workers=2) as m,
    ):
        for loader in (plain, m):
            loader.set_epoch(3)
        for _ in range(2):  # Each loop is left at its third batch, and told its epoch anew.
            found = []
            for loader in (plain, m):
                ids = []
                for batch in loader:
                    ids.append(batch.ids.tolist())
                    if len(ids) == 3:
                        break
                found.append((ids, loader.epoch, loader.batches_left, loader.state_dict()))
                loader.set_epoch(4)
            assert found[0] == found[1]
        state = plain.state_dict()
        m.load_state_dict(state)
        m.set_epoch(4)
        with pytest.raises(hr.InvalidArgumentError, match="set_epoch"):
            m.set_epoch(5)
        assert [batch.ids.tolist() for batch in m] == [batch.ids.tolist() for batch in plain]


@pytest.mark.parametrize(("workers", "where"), [(0, "thread"), (2, "thread"), (1, "process")])
def test_plain_and_mapped_loops_of_a_loader_take_turns(few_numbers: Path, workers: int, where: Any) -> None:
    with open_loader(few_numbers) as plain:
        expected = [batch.ids.tolist() for batch in plain]
        plain.reset(0)
        mapped = plain.map(functions.as_is, per="batch", workers=workers, where=where)
        loops = [iter(plain), iter(mapped)]
        found = [next(loops[turn % 2]).ids.tolist() for turn in range(6)]
        assert found == expected[:6]
        assert plain.state_dict()["batches"] == 6
        assert [batch.ids.tolist() for batch in loops[0]] == expected[6:]


@pytest.mark.parametrize("workers", [0, 1])
def test_set_epoch_stays_at_a_state_while_no_batch_was_delivered(few_numbers: Path, workers: int) -> None:
    is_failing = True

    def fail_at_first(batch: Any) -> Any:
        if is_failing:
            raise LookupError("once")
        return batch

    with open_loader(few_numbers) as plain:
        list(itertools.islice(plain, 3))
        state, expected = plain.state_dict(), next(iter(plain)).ids.tolist()
    with open_loader(few_numbers).map(fail_at_first, per="batch", workers=workers, where="thread") as m:
        m.load_state_dict(state)
        with pytest.raises(LookupError):
            next(iter(m))
        m.set_epoch(0)
        is_failing = False
        assert next(iter(m)).ids.tolist() == expected
        m.set_epoch(0)
        assert m.state_dict()["batches"] == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_arrow_columns_become_samples(tmp_path: Path, workers: int) -> None:
    pytest.importorskip("pyarrow")
    samples = [
        {"t": f"text {i}".encode(), "a": np.arange(i, dtype="<u2").tobytes(), "b": bytes(i)}
        for i in range(20)
    ]
    columns: dict[str, Any] = {"t": ("str", None), "a": ("array:uint16", None), "b": ("bytes", None)}
    path = write_mds(tmp_path / "ragged", columns, samples)
    with open_loader(path, ragged="arrow", shuffle=False).map(
        functions.lengths_of, workers=workers
    ) as mapped:
        batches = list(mapped)
    assert [i for batch in batches for i in batch["a"].tolist()] == list(range(20))
    assert [i for batch in batches for i in batch["b"].tolist()] == list(range(20))
    assert [text for batch in batches for text in batch["t"]] == [f"text {i}" for i in range(20)]


@pytest.mark.parametrize("workers", [0, 1])
def test_ragged_lists_become_samples(tmp_path: Path, workers: int) -> None:
    samples = [{"a": np.arange(i, dtype="<u2").tobytes()} for i in range(20)]
    path = write_mds(tmp_path / "ragged", {"a": ("array:uint16", None)}, samples)
    with open_loader(path, shuffle=False).map(functions.reverse, workers=workers) as mapped:
        batch = next(iter(mapped))
    assert [value.tolist() for value in batch["a"]] == [list(range(i))[::-1] for i in range(10)]


def test_a_closed_loader_says_so(few_numbers: Path) -> None:
    mapped = open_loader(few_numbers).map(functions.double, workers=1)
    stream = iter(mapped)
    held = next(stream)
    mapped.close()
    mapped.close()
    assert mapped.closed
    assert repr(mapped) == "MappedLoader(Loader(closed), map(double))"
    with pytest.raises(hr.HeadraceError, match="closed"):
        next(stream)
    assert held["y"].tolist() == [2 * (7 * i + 1) for i in held.ids.tolist()]


def test_workers_have_one_thread_and_ignore_ctrl_c(few_numbers: Path) -> None:
    with open_loader(few_numbers).map(functions.describe_process, workers=1) as mapped:
        batch = next(iter(mapped))
    assert set(batch["threads"]) == {"1"}
    assert set(batch["parent"].tolist()) == {os.getpid()}
    assert batch["ignores_ctrl_c"].all()
