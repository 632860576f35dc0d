"""map(), filter(), collate(): what is delivered, in which order, and the state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import map_functions as functions
import numpy as np
import pytest
from map_loaders import open_loader

import headrace as hr

PLACES: list[dict[str, Any]] = [
    {"workers": 0},
    {"workers": 1, "where": "thread"},
    {"workers": 2, "where": "thread"},
    {"workers": 2},
]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_map_delivers_the_loaders_batches_with_its_states(few_numbers: Path, place: dict[str, Any]) -> None:
    """Two epochs; the first in two loops, since the first one is left."""
    with open_loader(few_numbers) as plain, open_loader(few_numbers).map(functions.double, **place) as mapped:
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


def test_a_batch_is_a_batch(few_numbers: Path) -> None:
    with open_loader(few_numbers).map(functions.as_is, per="batch", workers=1) as mapped:
        batch = next(iter(mapped))
        assert type(batch) is hr.Batch
        assert (batch["x"].dtype, batch["x"].shape, batch["x"].flags.writeable) == (np.int64, (10,), True)
