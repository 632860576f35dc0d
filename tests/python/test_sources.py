"""What loaders read: every kind of source opens, gives its parts and its order, and closes what it opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.prepare import write
from headrace.sources.concat import ListSource, open_source
from headrace.sources.source import DatasetSource, Source, first_blocks, first_samples


@pytest.fixture
def roots(tmp_path: Path) -> list[str]:
    """Two datasets of the same columns, and one of another column."""
    for name, column, count in [("a", "x", 40), ("b", "x", 60), ("c", "y", 20)]:
        write(({column: i} for i in range(count)), tmp_path / name, shard_bytes=200)
    return [str(tmp_path / name) for name in "abc"]


def held() -> tuple[int, int]:
    """Threads and open files of this process."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def failing_calls(a: str, b: str, c: str) -> dict[str, Callable[[], Any]]:
    missing = a + "-missing"
    loader: dict[str, Any] = {"batch_size": 4, "memory": "16MiB"}
    return {
        "url, no such column": lambda: hr.Loader(a, columns=["no"], **loader),
        "list, no such column": lambda: hr.Loader([a, b], columns=["no"], **loader),
        "list, one is missing": lambda: hr.Loader([a, b, missing], **loader),
        "list, other columns": lambda: hr.Loader([a, c], **loader),
        "list, order": lambda: hr.Loader([a, b], order="mosaic:py9", **loader),
        "list, quarantine": lambda: hr.Loader([a, b], quarantine={7: [1]}, **loader),
        "list, memory": lambda: hr.Loader([a, b], batch_size=4, memory="4KiB"),
        "list, rank": lambda: hr.Loader([a, b], rank=3, world_size=2, **loader),
        "dataset of a list": lambda: hr.Dataset([a, c]),
        "dataset, one is missing": lambda: hr.Dataset([a, missing]),
        "mixture, one is missing": lambda: hr.Mixture({"a": (a, 1), "no": (missing, 1)}),
        "mixture, weights": lambda: hr.Mixture({"a": (a, 1), "b": b}),
        "mixture, columns": lambda: hr.Mixture({"a": a, "c": c}),
        "packed, no such column": lambda: hr.pack_tokens(a, column="no"),
    }


@pytest.mark.parametrize("name", failing_calls("", "", ""))
def test_a_constructor_that_fails_leaves_nothing_open(roots: list[str], name: str) -> None:
    hr.Dataset(roots[0]).close()  # What is opened once a process.
    before = held()
    # The error is held, and with it every object that the constructor made.
    with pytest.raises(hr.HeadraceError) as caught:
        failing_calls(*roots)[name]()
    assert held() == before
    del caught


@pytest.mark.filterwarnings("error")
def test_a_warning_that_is_an_error_leaves_nothing_open(roots: list[str]) -> None:
    hr.Dataset(roots[0]).close()
    before = held()
    with pytest.raises(RuntimeWarning, match="too few lanes") as caught:
        hr.Loader(roots[0], batch_size=1, rank=0, world_size=4, lanes=1, memory="16MiB")
    assert held() == before
    del caught


def test_a_loader_that_fails_leaves_open_what_it_was_given(roots: list[str]) -> None:
    with hr.Dataset(roots[0]) as dataset:
        mixture = hr.Mixture({"a": (dataset, 1)})
        before = held()
        for given in (dataset, mixture):
            with pytest.raises(hr.InvalidArgumentError, match="no") as caught:
                hr.Loader(given, batch_size=4, columns=["no"], memory="16MiB")
            assert held() == before
            del caught
        assert dataset[0] == mixture.dataset[0]
        mixture.close()
        assert dataset[3] == {"x": 3}


def test_closing_a_loader_closes_what_it_opened(roots: list[str]) -> None:
    hr.Dataset(roots[0]).close()
    before = held()
    for given in (roots[0], roots[:2]):
        loader = hr.Loader(given, batch_size=4, memory="16MiB")
        next(iter(loader))
        loader.close()
        assert held() == before


@pytest.mark.parametrize("kind", ["url", "dataset", "list", "mixture"])
def test_sources_keep_to_their_contract(roots: list[str], kind: str) -> None:
    with hr.Dataset(roots[0]) as dataset:
        mixture = hr.Mixture({"one": (roots[0], 1), "two": (dataset, 1)})
        source: Source = {
            "url": lambda: open_source(roots[0]),
            "dataset": lambda: DatasetSource(dataset._source, "16MiB"),
            "list": lambda: ListSource([roots[0], dataset], options={}),
            "mixture": lambda: DatasetSource(mixture._mixed, "16MiB"),
        }[kind]()
        assert isinstance(source, Source)
        assert list(source.parts) == {"list": [0, 1], "mixture": ["one", "two"]}.get(kind, [])
        blocks = dataset._native.block_count
        assert first_samples(source) == ([0, 40] if source.parts else [])
        assert first_blocks(source) == ([0, blocks] if source.parts else [])
        store = source.open_store("8MiB")
        source.close()
        source.close()
        assert not dataset.closed
        assert not store.closed
        store.close()
        mixture.close()
        assert dataset[1] == {"x": 1}


def test_a_dataset_of_a_list_has_parts_as_a_list_has(roots: list[str]) -> None:
    """The same samples stand in for bad ones, and lists of them go by number, whoever opened the list."""
    with hr.Dataset(roots[:2]) as dataset:
        runs = []
        for given in (dataset, roots[:2]):
            with hr.Loader(given, batch_size=10, quarantine={1: [2]}, memory="16MiB", seed=3) as loader:
                runs.append([(batch.ids.tolist(), batch.replaced) for batch in loader])
    assert runs[0] == runs[1]
    assert [list(replaced.values()) for _, replaced in runs[0] if replaced] == [[42]]


def test_a_mixture_is_no_part_of_others(roots: list[str]) -> None:
    mixture = hr.Mixture({"a": (roots[0], 1)})
    for call in (
        lambda: hr.Dataset([mixture]),
        lambda: hr.Mixture({"b": mixture}),
        lambda: hr.Loader([7], batch_size=1),
    ):
        with pytest.raises(hr.InvalidArgumentError, match="expected a URL"):
            call()
    mixture.close()


def test_the_length_is_what_the_engine_says(roots: list[str]) -> None:
    for end, lengths in {"pad": (9, 9, 9), "drop": (8, 8, 8), "uneven": (8, 8, 9)}.items():
        for rank, length in enumerate(lengths):
            with hr.Loader(
                roots[0], batch_size=1, rank=rank, world_size=3, epoch_end=end, memory="16MiB"
            ) as loader:
                # 40 samples in global batches of 3 leave one; it goes to the last of the ranks.
                assert len(loader) == len(list(loader)) == length + 5, (end, rank)


def test_options_that_open_nothing_are_an_error(roots: list[str], tmp_path: Path) -> None:
    a, b, _ = roots
    loader: dict[str, Any] = {"batch_size": 4, "memory": "16MiB"}
    with hr.Dataset(a) as one, hr.Dataset(b) as two:
        calls: dict[str, Callable[[], Any]] = {
            "cache": lambda: hr.Loader([one, two], cache=tmp_path / "cache", **loader),
            "format": lambda: hr.Loader([one, two], format="webdataset", **loader),
            "endpoint": lambda: hr.Dataset([one, two], endpoint="http://127.0.0.1:1"),
            "split": lambda: hr.Loader([one, (two, one)], split="train", **loader),
            "region": lambda: hr.Mixture({"a": one, "b": (two, 2)}, region="x"),
        }
        for name, call in calls.items():
            with pytest.raises(hr.InvalidArgumentError, match=f"{name}= belongs to the Datasets that were"):
                call()
        mixture = hr.Mixture({"a": one, "b": two})
        grown = hr.Mixture({"a": a, "b": two}, cache=tmp_path / "cache").with_source("c", one)
        for made in (
            hr.Loader([one, two], format="auto", cache=None, on_bad_sample="replace", **loader),
            hr.Loader([one, b], cache=tmp_path / "cache", **loader),
            hr.Loader([[one, two], b], cache=tmp_path / "cache", **loader),
            mixture,
            grown,
        ):
            made.close()
