"""reset() and epoch_from_start(): back to an epoch's first batch, wherever a loop was left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import map_functions as functions
import pytest

import headrace as hr

OPTIONS: dict[str, Any] = {"batch_size": 10, "memory": "64MiB", "block_bytes": "64KiB", "seed": 3}


def torch_loader(url: Path, **more: Any) -> Any:
    pytest.importorskip("torch")
    import headrace.torch

    return headrace.torch.Loader(url, **{**OPTIONS, **more})


KINDS: dict[str, Callable[..., Any]] = {
    "numpy": lambda url, **more: hr.Loader(url, **{**OPTIONS, **more}),
    "mapped": lambda url, **more: hr.Loader(url, **{**OPTIONS, **more}).map(functions.double),
    "in workers": lambda url, **more: hr.Loader(url, **{**OPTIONS, **more}).map(functions.double, workers=2),
    "torch": torch_loader,
    "torch mapped": lambda url, **more: torch_loader(url, **more).map(functions.as_is, per="batch"),
}


@pytest.fixture(params=KINDS)
def loader(request: pytest.FixtureRequest, few_numbers: Path) -> Any:
    with KINDS[request.param](few_numbers) as opened:
        yield opened


def planned(loader: Any, epoch: int) -> list[list[int]]:
    return [ids.tolist() for ids in loader.sample_ids(epoch)]


def leave_behind(loader: Any, batches: int) -> None:
    """A loop that is left early."""
    for count, _ in enumerate(loader, 1):
        if count == batches:
            return


def ids(batches: Any) -> list[list[int]]:
    return [batch.ids.tolist() for batch in batches]


def test_a_loop_that_was_left_goes_on(loader: Any) -> None:
    leave_behind(loader, 3)
    assert ids(loader) == planned(loader, 0)[3:]
    assert ids(loader) == planned(loader, 1)


def test_reset_delivers_the_epoch_again(loader: Any) -> None:
    leave_behind(loader, 3)
    loader.reset()
    assert (loader.epoch, loader.batches_left) == (0, len(loader))
    assert loader.state_dict()["batches"] == 0
    assert ids(loader) == planned(loader, 0)
    loader.reset()  # At the end of an epoch: the position is the next one's start.
    assert ids(loader) == planned(loader, 1)


def test_reset_goes_to_an_epoch(loader: Any) -> None:
    leave_behind(loader, 2)
    loader.reset(4)
    assert ids(loader) == planned(loader, 4)
    loader.reset(epoch=0)
    assert ids(loader) == planned(loader, 0)


@pytest.mark.parametrize("epoch", [-1, "2", 1.5])
def test_an_epoch_is_a_whole_number(loader: Any, epoch: Any) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="epoch"):
        loader.reset(epoch)


def test_epoch_from_start_is_always_a_whole_epoch(loader: Any) -> None:
    for _ in range(2):
        for count, batch in enumerate(loader.epoch_from_start()):
            assert batch.ids.tolist() == planned(loader, 0)[count]
            if count == 4:
                break
    assert ids(loader.epoch_from_start()) == planned(loader, 0)
    assert ids(loader.epoch_from_start()) == planned(loader, 1)
    assert ids(loader.epoch_from_start(0)) == planned(loader, 0)


def test_a_loaded_position_is_given_up(loader: Any, few_numbers: Path) -> None:
    leave_behind(loader, 5)
    with hr.Loader(few_numbers, **OPTIONS) as other:
        other.load_state_dict(loader.state_dict())
        other.reset()
        assert other.batches_left == len(other)
        other.set_epoch(3)  # No error: nothing is pending any more.
        assert ids(other) == planned(other, 3)


def test_a_rank_that_is_known_later_keeps_the_reset(
    few_numbers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State, reset, then the process turns out to be one of two ranks: the start of the epoch, in the state's order."""
    with hr.Loader(few_numbers, **OPTIONS) as loader:
        loader.reset(2)
        leave_behind(loader, 4)
        state, whole = loader.state_dict(), planned(loader, 2)
    with hr.Loader(few_numbers, **{**OPTIONS, "batch_size": 5}) as loader:
        loader.load_state_dict(state)
        loader.reset()
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert loader.rank == 1
        delivered = ids(loader)
    assert delivered == [batch[5:] for batch in whole]


def test_a_loop_over_a_data_loader_ends_at_a_reset(few_numbers: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch_loader(few_numbers) as loader:
        inside = torch.utils.data.DataLoader(loader, batch_size=None, num_workers=2)
        running = iter(inside)
        next(running)
        loader.reset()
        with pytest.raises(hr.InvalidArgumentError, match="position was changed"):
            list(running)
        assert ids(inside) == planned(loader, 0)


def test_a_mixture_goes_back_too(few_numbers: Path) -> None:
    with hr.Dataset(few_numbers) as one:
        mixture = hr.Mixture({"a": (one, 0.5), "b": (one, 0.5)})
        with hr.Loader(mixture, batch_size=10, memory="64MiB") as loader:
            leave_behind(loader, 3)
            assert ids(loader.epoch_from_start()) == planned(loader, 0)
        mixture.close()
