"""reset() and epoch_from_start(): back to an epoch's first batch, wherever a loop was left."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import map_functions as functions
import pytest
from conftest import write_numbers

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


def test_the_next_epoch_is_whole_after_a_loop_that_was_left_at_the_last_batch(loader: Any) -> None:
    for epoch in (1, 2):
        leave_behind(loader, len(loader))
        assert (loader.epoch, loader.batches_left) == (epoch, 0)  # The loop may go on, to its end.
        loader.set_epoch(epoch)
        assert (loader.epoch, loader.batches_left) == (epoch, len(loader))
    leave_behind(loader, len(loader))
    loader.reset()
    assert (loader.epoch, loader.batches_left) == (3, len(loader))
    assert ids(loader) == planned(loader, 3)


@pytest.fixture(scope="module")
def nine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("data") / "nine", 9, per_shard=3)


def reset(loader: Any) -> Any:
    loader.reset()
    return loader


def begin_by_number(loader: Any) -> Any:
    """As loops over ``batch_sampler`` do."""
    inner = loader._loader if hasattr(loader, "batch_sampler") else loader
    inner._start_at(0)
    return loader


NEXT_LOOPS: dict[str, Callable[[Any], Any]] = {
    "the next": lambda loader: loader,
    "reset": reset,
    "reset twice": lambda loader: reset(reset(loader)),
    "epoch_from_start": lambda loader: loader.epoch_from_start(),
    "by number": begin_by_number,
}


@pytest.mark.parametrize("next_loop", NEXT_LOOPS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:.*ranks read each block")
def test_ranks_begin_the_same_epoch_where_one_has_no_last_batch(
    kind: str, next_loop: str, nine: Path
) -> None:
    """Each has had all of its batches, and did not ask whether there are more."""
    for rank, length in enumerate((1, 2)):  # 4 and 4 samples, then 1.
        with KINDS[kind](nine, batch_size=4, rank=rank, world_size=2, epoch_end="uneven") as loader:
            assert len(loader) == length
            leave_behind(loader, length)
            for epoch in (1, 2):
                assert loader.batches_left == 0
                batches = NEXT_LOOPS[next_loop](loader)
                assert ids(itertools.islice(batches, length)) == planned(loader, epoch)


@pytest.mark.filterwarnings("ignore:.*ranks read each block")
def test_a_reset_from_a_state_before_the_last_batch_is_to_its_epoch(nine: Path) -> None:
    """On the rank, too, that has no share of it."""
    options: dict[str, Any] = {**OPTIONS, "batch_size": 4, "world_size": 2, "epoch_end": "uneven"}
    with hr.Loader(nine, rank=1, **options) as loader:
        leave_behind(loader, 1)
        state = loader.state_dict()
    for rank in range(2):
        with hr.Loader(nine, rank=rank, **options) as loader:
            loader.load_state_dict(state)
            loader.reset()
            assert ids(loader) == planned(loader, 0)


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
    """State, reset, then the process turns out to be one of two ranks: the start of the epoch, in the state's
    order."""
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


def test_a_rank_that_is_known_later_keeps_the_epoch_that_was_set_behind_a_reset(
    few_numbers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the order of the state, whose global batch is another."""
    with hr.Loader(few_numbers, **OPTIONS) as loader:
        leave_behind(loader, 4)
        state, whole = loader.state_dict(), planned(loader, 5)
    with hr.Loader(few_numbers, **{**OPTIONS, "batch_size": 5}) as loader:
        loader.load_state_dict(state)
        loader.reset()
        loader.set_epoch(5)
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert (loader.rank, loader.epoch) == (1, 5)
        assert ids(loader) == [batch[5:] for batch in whole]


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


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("data") / "hundred", 100, per_shard=25)


@pytest.mark.parametrize("go_back", [lambda loader: loader.reset(), lambda loader: loader.epoch_from_start()])
def test_a_state_within_the_first_batch_is_no_start_of_the_epoch(
    hundred: Path, go_back: Callable[[Any], Any]
) -> None:
    """A state of Mosaic's may have stopped there: no global batch, and yet five samples."""
    with hr.Loader(hundred, **{**OPTIONS, "batch_size": 16, "order": "mosaic:py1e"}) as loader:
        state = loader.state_dict()
        kept = ("epoch", "num_canonical_nodes", "shuffle_seed", "initial_physical_nodes")
        loader.load_state_dict({"sample_in_epoch": 5, **{name: state[name] for name in kept}})
        assert (loader.state_dict()["t"], loader.state_dict()["batches"]) == (5, 0)
        go_back(loader)
        assert len(batches := ids(loader)) == 7
        assert len({i for batch in batches for i in batch}) == 100


def test_a_batch_of_an_epoch_is_found_behind_a_part_with_another_global_batch(few_numbers: Path) -> None:
    with hr.Loader(few_numbers, **{**OPTIONS, "batch_size": 8}) as loader:
        leave_behind(loader, 3)
        state = loader.state_dict()
    with hr.Loader(few_numbers, **{**OPTIONS, "batch_size": 16}) as loader:
        loader.load_state_dict(state)
        leave_behind(loader, 1)
        assert (loader.state_dict()["t"], loader.state_dict()["batches"]) == (40, 4)
        loader._start_at(4)
        assert loader.state_dict()["t"] == 64
        assert ids(loader) == planned(loader, 0)[4:]


def test_what_was_read_ahead_is_kept_where_the_loader_stands_there_already(few_numbers: Path) -> None:
    class NoSeek:
        """The engine of a loader, which is not told to go where it is."""

        def __init__(self, native: Any) -> None:
            self._engine = native

        def __getattr__(self, name: str) -> Any:
            assert name != "seek"
            return getattr(self._engine, name)

    with hr.Loader(few_numbers, **OPTIONS) as loader:
        leave_behind(loader, 3)
        loader._engine.native = NoSeek(loader._engine.native)  # type: ignore[assignment]
        loader._start_at(3)
        assert ids(loader) == planned(loader, 0)[3:]
