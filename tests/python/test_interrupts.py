"""Ctrl-C, and handlers of other signals that raise: no batch is lost, and none comes twice."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from map_functions import double
from map_loaders import OPTIONS, open_loader


class AlarmError(Exception):
    """What a handler of the user's raises."""


MODULES = {
    "headrace.jax",
    "headrace.torch",
    "headrace.loader.epoch",
    "headrace.loader.facade",
    "headrace.loader.loader",
    "headrace.loader.mapping.executor",
    "headrace.loader.mapping.mapped",
    "headrace.loader.relay.deal",
    "headrace.loader.relay.hooks",
    "headrace.loader.relay.relay",
}
"""Those that move the position. What is raised while a user's function runs is that function's error."""


class Interrupts:
    """Raises at the nth of the places where Python runs the handlers of signals: where a function begins, and
    behind each call of one in C."""

    def __init__(self, place: int, error: type[BaseException]) -> None:
        self._left, self._error = place, error

    def __enter__(self) -> Interrupts:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_return") and frame.f_globals["__name__"] in MODULES:
            self._left -= 1
            if self._left < 0:
                raise self._error


def open_torch(path: Path) -> Any:
    return pytest.importorskip("headrace.torch").Loader(path, **OPTIONS)


def open_jax(path: Path) -> Any:
    return pytest.importorskip("headrace.jax").Loader(path, **OPTIONS)


OPENERS: dict[str, Callable[[Path], Any]] = {
    "loader": open_loader,
    "map": lambda path: open_loader(path).map(double),
    "processes": lambda path: open_loader(path).map(double, workers=1),
    "threads": lambda path: open_loader(path).map(double, workers=2, where="thread"),
    "torch": open_torch,
    "torch map": lambda path: open_torch(path).map(double),
    "jax": open_jax,
}


@pytest.mark.parametrize("error", [KeyboardInterrupt, AlarmError])
@pytest.mark.parametrize("kind", OPENERS)
def test_an_interrupt_anywhere_loses_no_batch(
    few_numbers: Path, kind: str, error: type[BaseException]
) -> None:
    with OPENERS[kind](few_numbers) as loader:
        planned = [ids.tolist() for ids in loader.sample_ids(0)]
        for place in itertools.count():
            loader.reset(0)
            batches = iter(loader)
            received = [next(batches).ids.tolist()]
            try:
                with Interrupts(place, error):
                    batch = next(batches)
            except error:
                assert loader.state_dict()["batches"] == 1
            else:
                break
            received += [next(batches).ids.tolist() for _ in range(3)]
            assert received == planned[:4]
        assert batch.ids.tolist() == planned[1]
        assert place > 5


@pytest.mark.filterwarnings("ignore:.*use of fork.. may lead to deadlocks")
@pytest.mark.parametrize("error", [KeyboardInterrupt, AlarmError])
def test_an_interrupt_anywhere_loses_no_batch_of_workers(
    few_numbers: Path, error: type[BaseException]
) -> None:
    """The loop of a DataLoader may be over then; the next one goes on behind what was delivered."""
    data = pytest.importorskip("torch.utils.data")
    with open_torch(few_numbers) as loader:
        planned = [ids.tolist() for ids in loader.sample_ids(0)]
        for place in itertools.count():
            loader.reset(0)
            inside = data.DataLoader(loader, batch_size=None, num_workers=1, multiprocessing_context="fork")
            batches = iter(inside)
            assert next(batches).ids.tolist() == planned[0]
            try:
                with Interrupts(place, error):
                    next(batches)
            except error:
                assert loader.state_dict()["batches"] == 1, place
            else:
                break
            assert [next(iter(inside)).ids.tolist() for _ in range(2)] == planned[1:3]
        assert loader.state_dict()["batches"] == 2
        assert place > 5
