"""What is random in images: the same on 1, 2 and 8 ranks, on any number of threads, and when a run goes
on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_jpeg import photograph, saved

import headrace as hr
from headrace import transforms

GLOBAL_BATCH, COUNT, CLASSES = 16, 75, 5
SIZE = {"resize": (16, 16)}
KINDS: dict[str, dict[str, Any]] = {
    "random_resized_crop": {"random_resized_crop": 16},
    "random_crop": {"resize": 20, "random_crop": 16},
    "flips": {**SIZE, "flip": True, "vertical_flip": 0.3},
    "jitter": {**SIZE, "jitter": (0.4, 0.4, 0.4, 0.1)},
    "randaugment": {**SIZE, "augment": "randaugment"},
    "all": {"random_resized_crop": 16, "flip": True, "jitter": 0.4, "augment": (3, 12), "dtype": "float32"},
}

Rows = dict[int, bytes]
"""Pixels by dataset position."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in folders, which are their classes."""
    root = tmp_path_factory.mktemp("data") / "files"
    for i in range(COUNT):
        path = root / f"class{i % CLASSES}" / f"{i:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(saved(photograph(30 + i % 4, 40, i), "JPEG", quality=90))
    return root


class World:
    """All ranks of a run, one after the other in this process."""

    def __init__(self, root: Path, ranks: int, arguments: dict[str, Any], **options: Any) -> None:
        given: dict[str, Any] = {"batch_size": GLOBAL_BATCH // ranks, "seed": 5, "memory": "64MiB", **options}
        self.loaders: list[Any] = [
            hr.Loader(
                root,
                labels="folder",
                index_cache="",
                decode={"data": hr.decode.image(**arguments)},
                rank=rank,
                world_size=ranks,
                **given,
            )
            for rank in range(ranks)
        ]

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()

    def mapped(self, fn: Any, **options: Any) -> World:
        self.loaders = [loader.map(fn, per="batch", **options) for loader in self.loaders]
        return self

    def epoch(self) -> Rows:
        """To its end."""
        rows: Rows = {}
        for loader in self.loaders:
            for batch in loader:
                rows |= rows_of(batch)
        return rows

    def some(self, batches: int) -> tuple[Rows, str]:
        """So many global batches, and the state behind them, as a checkpoint has it."""
        rows: Rows = {}
        for loader in self.loaders:
            stream = iter(loader)
            for _ in range(batches):
                rows |= rows_of(next(stream))
        states = {json.dumps(loader.state_dict(), sort_keys=True) for loader in self.loaders}
        return rows, states.pop()

    def load(self, state: str) -> None:
        for loader in self.loaders:
            loader.load_state_dict(json.loads(state))


def rows_of(batch: Any) -> Rows:
    return {
        int(batch.ids[row]): np.asarray(batch["data"][row]).tobytes() for row in np.flatnonzero(batch.mask)
    }


@pytest.fixture
def world(dataset: Path) -> Any:
    worlds: list[World] = []

    def make(ranks: int, arguments: dict[str, Any], **options: Any) -> World:
        worlds.append(World(dataset, ranks, arguments, **options))
        return worlds[-1]

    yield make
    for each in worlds:
        each.close()


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_and_threads_do_not_matter(world: Any, kind: str) -> None:
    one = world(1, KINDS[kind], workers=1).epoch()
    assert sorted(one) == list(range(COUNT))
    for ranks, workers in ((1, 4), (2, 1), (2, 3), (8, 1), (8, 2)):
        assert world(ranks, KINDS[kind], workers=workers).epoch() == one, (ranks, workers)
    assert world(1, KINDS[kind], order="sequential").epoch() == one
    plain = world(1, {**SIZE, "dtype": KINDS[kind].get("dtype", "uint8")}).epoch()
    other = world(1, KINDS[kind], seed=6).epoch()
    assert sum(one[i] == other[i] for i in one) < COUNT * 0.6
    assert sum(one[i] == plain[i] for i in one) < COUNT * 0.6


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_with_the_same_pixels_on_other_ranks(world: Any, kind: str) -> None:
    """In the middle of the second epoch: from 2 ranks to 8, and from these to 1."""
    whole = world(1, KINDS[kind])
    first, second = whole.epoch(), whole.epoch()
    assert first != second
    begun = world(2, KINDS[kind], workers=1)
    assert begun.epoch() == first
    rows, state = begun.some(2)
    more = world(8, KINDS[kind], workers=2)
    more.load(state)
    found, state = more.some(1)
    last = world(1, KINDS[kind], workers=3)
    last.load(state)
    assert rows | found | last.epoch() == second
    assert len(rows) == 2 * GLOBAL_BATCH
    assert len(found) == GLOBAL_BATCH


@pytest.mark.filterwarnings("ignore:.*Bad samples are replaced")
@pytest.mark.parametrize(
    ("form", "options"), [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("TIFF", {})]
)
def test_what_a_crop_shows_does_not_decide_what_is_bad(
    tmp_path: Path, form: str, options: dict[str, Any]
) -> None:
    """Files that end early, of which the crops of some epochs lie above the end: they are replaced in each
    epoch, whether the loader has met them before or not."""
    broken = {2, 11, 17}
    for i in range(20):
        file = saved(photograph(200, 200, i), form, **options)
        (tmp_path / f"{i:03}.bin").write_bytes(file[: len(file) * 7 // 10] if i in broken else file)
    crops = {"random_resized_crop": 8, "scale": (0.02, 0.1)}

    def run() -> Any:
        decode = {"data": hr.decode.image(**crops)}
        return hr.Loader(
            tmp_path,
            batch_size=4,
            seed=5,
            index_cache="",
            on_bad_sample="replace",
            decode=decode,
            rank=0,
            world_size=1,
        )

    with run() as one:
        for epoch in range(4):
            seen = [(rows_of(batch), batch.replaced) for batch in one]
            with run() as fresh:
                fresh.reset(epoch)
                assert [(rows_of(batch), batch.replaced) for batch in fresh] == seen
            assert {planned for _, replaced in seen for planned in replaced.values()} == broken


MIX = transforms.one_of(
    transforms.mixup("data", "label", classes=CLASSES, alpha=1.0),
    transforms.cutmix("data", "label", classes=CLASSES),
)


def batches_of(world: World) -> dict[tuple[int, ...], tuple[bytes, bytes]]:
    """Pixels and shares of classes of whole batches, by their samples."""
    return {
        tuple(batch.ids.tolist()): (np.asarray(batch["data"]).tobytes(), np.asarray(batch["label"]).tobytes())
        for loader in world.loaders
        for batch in loader
    }


def test_mixed_batches_follow_from_their_samples(world: Any) -> None:
    """A batch of the same samples is mixed the same, whichever rank of how many has it: with as many samples
    a rank, 1, 2 and 8 ranks make the same batches."""
    options = {"batch_size": 4, "order": "sequential"}
    one = batches_of(world(1, KINDS["all"], **options).mapped(MIX))
    for ranks, where in ((2, {}), (8, {}), (2, {"workers": 2, "where": "thread"})):
        other = batches_of(world(ranks, KINDS["all"], **options).mapped(MIX, **where))
        shared = one.keys() & other.keys()
        assert len(shared) >= COUNT // 4 - 1  # All but the last, which is filled up.
        assert all(one[ids] == other[ids] for ids in shared)
    assert len({made[0] for made in one.values()}) == len(one)


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_mixed_batches_are_the_same_when_a_run_goes_on(world: Any, ranks: int) -> None:
    whole = batches_of(world(ranks, KINDS["all"]).mapped(MIX))
    begun = world(ranks, KINDS["all"]).mapped(MIX)
    _, state = begun.some(2)
    rest = world(ranks, KINDS["all"], workers=2).mapped(MIX, workers=1, where="thread")
    rest.load(state)
    found = batches_of(rest)
    assert len(found) == len(whole) - 2 * ranks
    assert all(whole[ids] == made for ids, made in found.items())


def test_what_is_mixed_does_not_depend_on_ranks(world: Any) -> None:
    """With another number of samples a rank other images meet, but they are the same images: a mixed row is
    its own sample's pixels and those of the row before, with one share a batch."""
    plain = {i: np.frombuffer(data, np.float32) for i, data in world(1, KINDS["all"]).epoch().items()}
    mix = transforms.mixup("data", "label", classes=CLASSES, alpha=1.0)
    for ranks in (1, 2, 8):
        shares = set()
        for loader in world(ranks, KINDS["all"]).mapped(mix).loaders:
            for batch in loader:
                share = share_of(batch)
                if share is None:
                    continue
                shares.add(share)
                for row, sample in enumerate(batch.ids.tolist()):
                    before = plain[int(batch.ids[row - 1])]
                    wanted = share * plain[sample] + (1 - share) * before
                    assert np.abs(batch["data"][row].reshape(-1) - wanted).max() < 1e-5
        assert len(shares) > 3


def share_of(batch: Any) -> float | None:
    """Of each row's own image, from a row whose neighbour has another class; None: there is none."""
    own = class_of(batch.ids).tolist()
    row = next((row for row in range(len(own)) if own[row] != own[row - 1]), None)
    return None if row is None else float(batch["label"][row, own[row]])


def class_of(ids: Any) -> Any:
    """Files are sorted by folder: 15 of each class."""
    return np.asarray(ids) // (COUNT // CLASSES)
