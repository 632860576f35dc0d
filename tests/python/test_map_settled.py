"""Large results of map(): put into their batch one by one, whatever kind they are of."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import map_functions as functions
import numpy as np
import pytest
from map_loaders import open_loader

WORKERS = [0, 2]


def made_of(batch: Any, name: str) -> list[Any]:
    """What the function makes of each sample, made again."""
    ids = [int(i) for i in batch.ids]
    return [functions.large({"x": 7 * i + 1})[name] for i in ids]


@pytest.mark.parametrize("workers", WORKERS)
def test_columns_are_what_stacking_makes_of_them(few_numbers: Path, workers: int) -> None:
    with open_loader(few_numbers).map(functions.large, workers=workers) as mapped:
        batches = list(mapped)
    assert len(batches) == 22
    for batch in batches:
        for name in ("alike", "small", "strided"):
            wanted = np.stack(made_of(batch, name))
            assert batch[name].dtype == wanted.dtype
            assert np.array_equal(batch[name], wanted)
            assert batch[name].flags.writeable
        for name in ("shapes", "dtypes"):
            assert isinstance(batch[name], list) or batch is batches[-1]  # Of one sample and its repeats.
            for one, wanted in zip(batch[name], made_of(batch, name), strict=True):
                assert one.dtype == wanted.dtype
                assert np.array_equal(one, wanted)


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("holes", ["compact", "mask"])
def test_filters_leave_the_right_ones(few_numbers: Path, workers: int, holes: str) -> None:
    loader = open_loader(few_numbers, shuffle=False)
    mapped = loader.map(functions.large, workers=workers).filter(functions.is_large_even, holes=holes)
    with mapped:
        for batch in mapped:
            assert np.array_equal(batch["alike"], np.stack(made_of(batch, "alike")))
            assert len(batch["alike"]) == len(batch.ids)


@pytest.mark.parametrize("workers", WORKERS)
def test_stand_ins_are_copies_of_their_neighbours(few_numbers: Path, workers: int) -> None:
    loader = open_loader(few_numbers, shuffle=False, on_bad_sample="replace")
    with pytest.warns(RuntimeWarning), loader.map(functions.large_but_13, workers=workers) as mapped:
        batch = list(mapped)[1]
    assert batch.replaced == {3: 13}
    assert batch.ids.tolist() == [10, 11, 12, 12, 14, 15, 16, 17, 18, 19]
    assert np.array_equal(batch["alike"], np.stack(made_of(batch, "alike")))
    batch["alike"][3] = 0
    assert batch["alike"][2].any(), "its own memory"


@pytest.mark.parametrize("workers", WORKERS)
def test_a_function_behind_gets_what_it_would_have(few_numbers: Path, workers: int) -> None:
    mapped = open_loader(few_numbers).map(functions.large, workers=workers)
    with mapped.map(functions.as_is, per="batch") as mapped:
        batch = next(iter(mapped))
        assert np.array_equal(batch["alike"], np.stack(made_of(batch, "alike")))


def test_a_result_is_let_go_of_before_the_next_is_made(few_numbers: Path) -> None:
    """Its memory serves the next one; a batch of results that wait is touched anew each time."""
    made: list[weakref.ref[Any]] = []

    def watched(sample: dict[str, Any]) -> dict[str, Any]:
        assert not any(ref() is not None for ref in made)
        array = np.full(5000, float(sample["x"]))
        made.append(weakref.ref(array))
        return {"a": array}

    with open_loader(few_numbers).map(watched) as mapped:
        batch = next(iter(mapped))
        assert batch["a"][:, 0].tolist() == [7 * i + 1 for i in batch.ids]
    assert len(made) == 10


def test_a_batch_is_let_go_of_with_its_last_array(few_numbers: Path) -> None:
    with open_loader(few_numbers).map(functions.large) as mapped:
        held = weakref.ref(next(iter(mapped))["alike"])
        assert held() is None


@pytest.mark.parametrize("workers", WORKERS)
def test_tensors_stay_tensors(few_numbers: Path, workers: int) -> None:
    torch = pytest.importorskip("torch")
    import map_torch_functions as torch_functions

    import headrace.torch

    options: dict[str, Any] = {"batch_size": 10, "seed": 5, "index_cache": ""}
    with headrace.torch.Loader(few_numbers, **options).map(torch_functions.large, workers=workers) as mapped:
        for batch in mapped:
            one = [torch_functions.large({"x": torch.tensor(7 * int(i) + 1)}) for i in batch.ids]
            for name in ("float", "half", "graph", "turned"):
                wanted = torch.stack([sample[name].detach() for sample in one])
                assert batch[name].dtype == wanted.dtype
                assert torch.equal(batch[name], wanted)
            assert [len(each) for each in batch["shapes"]] == [len(sample["shapes"]) for sample in one]
