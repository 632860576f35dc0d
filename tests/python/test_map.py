"""map(), filter(), collate(): what is delivered, in which order, and the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import map_functions as functions
import numpy as np
import pytest
from conftest import write_numbers

import headrace as hr

OPTIONS: dict[str, Any] = {"memory": "16MiB", "block_bytes": "64KiB", "index_cache": "", "seed": 5}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 211 samples in 9 shards."""
    return write_numbers(tmp_path_factory.mktemp("data") / "small", 211, per_shard=25)


def open_loader(path: Path, **options: Any) -> hr.Loader:
    return hr.Loader(path, **{"batch_size": 10, **OPTIONS, **options})


PLACES: list[dict[str, Any]] = [
    {"workers": 0},
    {"workers": 1, "where": "thread"},
    {"workers": 2, "where": "thread"},
    {"workers": 2},
]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_map_delivers_the_loaders_batches_with_its_states(small: Path, place: dict[str, Any]) -> None:
    """Two epochs; the first in two loops, since the first one is left."""
    with open_loader(small) as plain, open_loader(small).map(functions.double, **place) as mapped:
        assert len(mapped) == len(plain) == 22
        for stop in (5, 17, 22):
            wanted = iter(plain)
            delivered = 0
            for batch in mapped:
                same = next(wanted)
                assert batch.ids.tolist() == same.ids.tolist()
                assert batch.mask.tolist() == same.mask.tolist()
                assert (batch.epoch, batch.index) == (same.epoch, same.index)
                assert batch["y"].tolist() == (same["x"] * 2).tolist()
                assert batch["t"] == [text + "!" for text in same["t"]]
                assert mapped.state_dict() == plain.state_dict()
                assert (mapped.epoch, mapped.batches_left) == (plain.epoch, plain.batches_left)
                delivered += 1
                if delivered == stop == 5:
                    break
            assert delivered == stop


def test_a_batch_is_a_batch(small: Path) -> None:
    with open_loader(small).map(functions.as_is, per="batch", workers=1) as mapped:
        batch = next(iter(mapped))
        assert type(batch) is hr.Batch
        assert (batch["x"].dtype, batch["x"].shape, batch["x"].flags.writeable) == (np.int64, (10,), True)
