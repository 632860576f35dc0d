"""User code in the caller, or in threads of its process."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from concurrent.futures import Future, wait
from contextlib import nullcontext
from typing import TYPE_CHECKING

from headrace.data.batch import Batch
from headrace.loader.mapping.chain import Chain
from headrace.loader.mapping.executor import Ahead, next_of
from headrace.loader.mapping.failure import Failure
from headrace.loader.mapping.meter import Meter
from headrace.loader.mapping.outcome import Outcome
from headrace.loader.mapping.randomness import kept_globals
from headrace.loader.mapping.steps import Plan
from headrace.loader.mapping.tensors import as_arrays

if TYPE_CHECKING:
    from headrace.loader.loader import Loader

__all__ = ["Inline", "Threads"]


def _run(chain: Chain, plan: Plan, batch: Batch) -> tuple[Outcome, float]:
    """What became of the batch, and how many seconds that took."""
    start = time.perf_counter()
    outcome: Outcome
    try:
        done = chain.run(batch)
        outcome = done if plan.is_torch else done._replace(value=as_arrays(done.value))
    except Exception as error:
        outcome = Failure.of(error)
    return outcome, time.perf_counter() - start


class Inline:
    """In the caller, when the result is asked for: nothing runs ahead."""

    def __init__(self, plan: Plan, seeds_globals: bool, meter: Meter) -> None:
        self._plan, self._chain, self._meter = plan, Chain(plan, seeds_globals), meter
        self._keep = kept_globals if seeds_globals else nullcontext
        self._batch: Batch | None = None
        self._number = -1

    def wants(self, under_way: int) -> bool:
        return under_way == 0

    def submit(self, loader: Loader) -> Ahead | None:
        found = next_of(loader, self._number + 1)
        if found is None:
            return None
        self._batch, ahead = found
        self._number = ahead.task
        return ahead

    def is_done(self, number: int) -> bool:
        return True  # It is done by who asks for the result.

    def wait(self, number: int, seconds: float | None) -> bool:
        return True

    def result(self, number: int) -> Outcome:
        assert self._batch is not None
        assert number == self._number
        batch, self._batch = self._batch, None
        with self._keep():
            outcome, seconds = _run(self._chain, self._plan, batch)
        self._meter.function_seconds += seconds
        return outcome

    def drop(self) -> None:
        self._batch = None

    def close(self) -> None:
        self.drop()


_Queue = queue.SimpleQueue[tuple[Future[tuple[Outcome, float]], Batch] | None]


def _serve(tasks: _Queue, plan: Plan) -> None:
    chain = Chain(plan, seeds_globals=False)
    while (task := tasks.get()) is not None:
        future, batch = task
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(_run(chain, plan, batch))
        except BaseException as error:  # SystemExit of a function, for the training loop.
            future.set_exception(error)
        del task, future, batch


def _end(tasks: _Queue, count: int) -> None:
    for _ in range(count):
        tasks.put(None)


class Threads:
    """In threads, which end with the process wherever they are."""

    def __init__(self, plan: Plan, count: int, meter: Meter) -> None:
        self._room, self._meter = 2 * count, meter
        self._tasks: _Queue = queue.SimpleQueue()
        self._futures: dict[int, Future[tuple[Outcome, float]]] = {}
        self._number = 0
        self._end = weakref.finalize(self, _end, self._tasks, count)
        for index in range(count):
            name = f"headrace-map-{index}"
            threading.Thread(target=_serve, args=(self._tasks, plan), name=name, daemon=True).start()

    def wants(self, under_way: int) -> bool:
        return under_way < self._room

    def submit(self, loader: Loader) -> Ahead | None:
        found = next_of(loader, self._number)
        if found is None:
            return None
        batch, ahead = found
        self._number += 1
        future = self._futures[ahead.task] = Future()
        self._tasks.put((future, batch))
        return ahead

    def is_done(self, number: int) -> bool:
        return self._futures[number].done()

    def wait(self, number: int, seconds: float | None) -> bool:
        return bool(wait([self._futures[number]], seconds).done)

    def result(self, number: int) -> Outcome:
        outcome, seconds = self._futures[number].result()
        self._meter.function_seconds += seconds
        del self._futures[number]
        return outcome

    def drop(self) -> None:
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()

    def close(self) -> None:
        self.drop()
        self._end()
