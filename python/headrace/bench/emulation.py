"""Accelerators that sleep instead of computing: a thread for each, with a loader of its own, and a barrier
after each step.

Threads, not processes: what a loader does runs on the engine's threads without Python's lock. Measured, one
process each is no better until accelerators outnumber cores (docs/performance.md).
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from headrace.bench.utilisation import EpochLog

__all__ = ["Clock", "train"]

_PR_SET_TIMERSLACK = 29
_SLICE_SECONDS = 0.05
"""A sleep looks so often whether the run was stopped."""


class Loading(Protocol):
    """What an accelerator needs of a loader."""

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None: ...


class Clock:
    """The machine's."""

    def now(self) -> float:
        return time.monotonic()

    def sleep_until(self, deadline: float, stopped: Callable[[], bool]) -> None:
        """Ends within some ten microseconds after the deadline, or early when stopped."""
        while not stopped():
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _SLICE_SECONDS))

    def prepare_thread(self) -> None:
        """Takes the 50 us away by which Linux lets a thread's sleeps end late."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


class _Accelerator(threading.Thread):
    """One of them; ends quietly when the others were stopped."""

    def __init__(self, run: _Run, loader: Loading) -> None:
        super().__init__(daemon=True, name="headrace-accelerator")
        self._run, self._loader = run, loader
        self.logs: list[EpochLog] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._run.clock.prepare_thread()
            for _ in range(self._run.epochs):
                self.logs.append(self._epoch())
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            if not self._run.is_stopped:
                self.error = error
            self._run.stop()

    def _epoch(self) -> EpochLog:
        run = self._run
        now, waits, overslept = run.clock.now, list[float](), 0.0
        run.barrier.wait()
        started = asked = now()
        first_step_ended = ended = started
        for batch in self._loader:
            got = now()
            waits.append(got - asked)
            run.clock.sleep_until(got + run.compute_seconds, lambda: run.is_stopped)
            overslept += now() - got - run.compute_seconds
            del batch
            run.barrier.wait()
            ended = asked = now()
            if len(waits) == 1:
                first_step_ended = ended
            run.steps_done += 1  # Of all threads, for the progress only: one that is lost does no harm.
        return EpochLog(started, first_step_ended, ended, waits, overslept)


class _Run:
    """What the accelerators of a run share."""

    def __init__(self, count: int, epochs: int, compute_seconds: float, clock: Clock) -> None:
        self.epochs, self.compute_seconds, self.clock = epochs, compute_seconds, clock
        self.barrier = threading.Barrier(count)
        self.is_stopped = False
        self.steps_done = 0

    def stop(self) -> None:
        self.is_stopped = True
        self.barrier.abort()


def train(
    loaders: Sequence[Loading],
    *,
    epochs: int,
    compute_seconds: float,
    clock: Clock | None = None,
    report: Callable[[int], None] | None = None,
) -> list[list[EpochLog]]:
    """Runs all epochs of all accelerators; each loader delivers as many batches as the others.

    The first error of one ends all and is raised, and so does Ctrl-C; the loaders are closed then.

    :param report: called several times a second with the steps that all accelerators have done together.
    """
    run = _Run(len(loaders), epochs, compute_seconds, clock or Clock())
    threads = [_Accelerator(run, loader) for loader in loaders]
    with _short_turns():
        try:
            for thread in threads:
                thread.start()
            while not run.is_stopped and any(thread.is_alive() for thread in threads):
                for thread in threads:
                    thread.join(_SLICE_SECONDS)
                    if run.is_stopped:
                        break
                if report is not None:
                    report(run.steps_done)
        finally:
            if any(thread.is_alive() for thread in threads) or run.is_stopped:
                run.stop()
                for loader in loaders:
                    loader.close()
                for thread in threads:
                    if thread.ident is not None:
                        thread.join()
    for thread in threads:
        if thread.error is not None:
            raise thread.error
    return [thread.logs for thread in threads]


@contextmanager
def _short_turns() -> Iterator[None]:
    """Python's threads hand the lock over sooner: a step of cosmoflow is shorter than their usual turn."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
