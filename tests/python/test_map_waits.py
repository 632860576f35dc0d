"""What next() of a mapped loader waits for: the workers, or the loader behind them, whichever has something
first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import map_functions as functions
import pytest
from map_loaders import open_loader

PATIENCE_SECONDS = 60  # Only a failure takes so long.


class Stalling:
    """The engine of a loader, which says that it has no batch when it is told to."""

    def __init__(self, native: Any, is_ready: Callable[[], bool], may_wait: Callable[[], bool]) -> None:
        self._engine, self._ready, self._may_wait = native, is_ready, may_wait

    @property
    def is_ready(self) -> bool:
        return self._ready() and self._engine.is_ready

    def next(self) -> Any:
        self._check()
        return self._engine.next()

    def take(self) -> Any:
        self._check()
        return self._engine.take()

    def _check(self) -> None:
        assert self._ready() or self._may_wait(), "waited for the loader while results were under way"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def stall(mapped: Any, is_ready: Callable[[], bool]) -> None:
    engine = mapped._loader._engine
    engine.native = Stalling(engine.native, is_ready, lambda: not mapped._ahead)


@pytest.mark.parametrize("where", ["thread", "process"])
def test_results_are_delivered_while_the_loader_stalls(few_numbers: Path, where: str) -> None:
    with open_loader(few_numbers) as plain:
        expected = [batch.ids.tolist() for batch in plain]
    with open_loader(few_numbers).map(functions.double, workers=2, where=where) as mapped:
        stalls = threading.Event()
        stall(mapped, lambda: not stalls.is_set())
        batches = iter(mapped)
        received = [next(batches).ids.tolist()]
        while mapped._may_take():
            mapped._fill()
        stalls.set()
        for _ in range(len(mapped._ahead)):
            received.append(next(batches).ids.tolist())
        assert not mapped._ahead
        received += [batch.ids.tolist() for batch in batches]
        assert received == expected


def test_workers_get_what_the_loader_brings_while_a_result_is_waited_for(few_numbers: Path) -> None:
    """The first batch ends only when the second has begun, and the loader has that one later."""
    begun = threading.Semaphore(0)

    def meet(batch: Any) -> Any:
        if batch.index == 0:
            assert begun.acquire(timeout=PATIENCE_SECONDS)
        else:
            begun.release()
        return batch

    looks = iter([False] * 3)
    with open_loader(few_numbers).map(meet, per="batch", workers=2, where="thread") as mapped:
        stall(mapped, lambda: next(looks, True))
        assert next(iter(mapped)).index == 0
    assert next(looks, None) is None
