"""Albumentations in map(), as its users write it: in any place the same pixels, and other ones for each
sample."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_mds
from map_loaders import open_loader

pytest.importorskip("albumentations")

import map_albumentations_functions as functions

from headrace.loader.mapping import pipelines

COUNT = 32


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same picture in each sample, so that what differs is drawn."""
    pixels = np.random.default_rng(1).integers(0, 256, (24, 30, 3), np.uint8)
    samples = [{"image": pixels.tobytes(), "label": struct.pack("<q", i)} for i in range(COUNT)]
    columns = {"image": ("ndarray:uint8:24,30,3", pixels.nbytes), "label": ("int", 8)}
    return write_mds(tmp_path_factory.mktemp("data") / "images", columns, samples, per_shard=8)


@pytest.fixture
def opened(images: Path) -> Iterator[Any]:
    loaders: list[Any] = []

    def make(fn: Any, per: str = "sample", seed: int = 5, **place: Any) -> Any:
        loaders.append(open_loader(images, batch_size=4, seed=seed).map(fn, per=per, **place))
        return loaders[-1]

    yield make
    for each in loaders:
        each.close()


def epoch(loader: Any) -> dict[int, bytes]:
    """Pixels by label, which is the sample's position."""
    return {
        int(label): image.tobytes()
        for batch in loader
        for image, label in zip(batch["image"], batch["label"], strict=True)
    }


FUNCTIONS: dict[str, Any] = {
    "an object": functions.Augment(),
    "a global of its module": functions.augment,
    "the pipeline itself": functions.pipeline(),
    "a bound method": functions.Augment().__call__,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_samples_are_the_same_in_the_caller_and_in_workers(opened: Any, name: str) -> None:
    fn = FUNCTIONS[name]
    loader = opened(fn)
    first, second = epoch(loader), epoch(loader)
    assert sorted(first) == list(range(COUNT))
    assert len(next(iter(first.values()))) == 16 * 20 * 3
    # Workers that had one pipeline's state each would draw each number twice.
    assert len(set(first.values())) > COUNT - 4
    assert sum(first[i] == second[i] for i in first) < 4
    workers = opened(fn, workers=2)
    assert [epoch(workers), epoch(workers)] == [first, second]
    assert epoch(opened(fn, seed=6, workers=1)) != first


def test_a_run_goes_on_with_the_same_pixels(opened: Any) -> None:
    whole = epoch(opened(functions.Augment(), workers=2))
    begun = opened(functions.Augment(), workers=2)
    stream = iter(begun)
    taken = [int(label) for _ in range(3) for label in next(stream)["label"]]
    resumed = opened(functions.Augment(), workers=1)
    resumed.load_state_dict(begun.state_dict())
    rest = epoch(resumed)
    assert sorted([*taken, *rest]) == list(range(COUNT))
    assert all(whole[i] == pixels for i, pixels in rest.items())


def test_two_loops_over_one_pipeline_do_not_disturb_each_other(opened: Any) -> None:
    alone = epoch(opened(functions.augment))
    one, other = opened(functions.augment), opened(functions.augment, seed=9)
    turns: dict[int, bytes] = {}
    for batch, _ in zip(one, other, strict=True):
        turns |= {int(n): i.tobytes() for i, n in zip(batch["image"], batch["label"], strict=True)}
    assert turns == alone


@pytest.mark.parametrize("place", [{}, {"workers": 2}], ids=str)
def test_batches(opened: Any, place: dict[str, Any]) -> None:
    made = epoch(opened(functions.AugmentBatch(), per="batch", **place))
    assert len(set(made.values())) > COUNT - 4
    assert made == epoch(opened(functions.AugmentBatch(), per="batch"))


@pytest.mark.parametrize("per", ["sample", "batch"])
def test_threads(opened: Any, per: str) -> None:
    """They share the pipeline, whose draws then follow no order."""
    fn = functions.Augment() if per == "sample" else functions.AugmentBatch()
    made = epoch(opened(fn, per=per, workers=2, where="thread"))
    assert sorted(made) == list(range(COUNT))
    assert len(set(made.values())) > COUNT - 4


@pytest.mark.parametrize("place", [{}, {"workers": 1}], ids=str)
def test_masks_and_boxes_go_along(opened: Any, place: dict[str, Any]) -> None:
    found = [
        (batch["image"].shape, batch["mask"].shape, [np.shape(boxes)[1] for boxes in batch["boxes"]])
        for batch in opened(functions.with_boxes, **place)
    ]
    assert found == [((4, 24, 30, 3), (4, 24, 30), [4] * 4)] * (COUNT // 4)


def test_pipelines_are_found_where_functions_keep_them() -> None:
    pipeline = functions.pipeline()
    closed: Any = None

    def closing(sample: Any) -> Any:
        return closed(**sample)

    holder = functions.Augment()
    holder.transform = [{"train": pipeline}]
    closed = pipeline
    for fn in (closing, holder, lambda sample, use=pipeline: use(**sample)):
        assert list(pipelines._pipelines([fn])) == [pipeline]
    assert list(pipelines._pipelines([print, epoch, np.mean, int])) == []
