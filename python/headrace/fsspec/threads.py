"""Threads on which coroutines run what blocks, and files read ahead."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value")

# Enough for the requests of one file system: each waits for a store, without the lock of Python.
MOST_THREADS = 64


class Threads:
    """At most :data:`MOST_THREADS` threads, started as they are needed; those of a parent process are not
    waited for.

    Daemons, because ``concurrent.futures`` waits for its threads before the interpreter tells anybody that it
    ends: a transfer that Ctrl-C left behind would hold it up. ``base.live`` ends ours.

    What runs here must not wait for a future of :meth:`submit` but by :func:`result_of`.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._todo: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._count = self._idle = 0

    def submit(self, call: Callable[[], Value]) -> Future[Value]:
        future: Future[Value] = Future()
        with self._changed:
            self._todo.append((future, call))
            if self._idle < len(self._todo) and self._count < MOST_THREADS:
                self._count += 1
                threading.Thread(target=self._run, name="headrace-fsspec", daemon=True).start()
            self._changed.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._todo:
                    self._changed.wait()
                self._idle -= 1
                future, call = self._todo.popleft()
            run(future, call)
            # Or the last result would live until the next call.
            del future, call


def run(future: Future[Value], call: Callable[[], Value]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # SystemExit too: who waits must hear of it
        future.set_exception(error)


THREADS = Threads()


def result_of(future: Future[Value], call: Callable[[], Value]) -> Value:
    """The result; when ``call`` has not begun, of calling it here. So what runs on one of the threads may
    wait although all threads do."""
    return call() if future.cancel() else future.result()


def for_each(call: Callable[[Item], Value], items: Iterable[Item]) -> list[Value]:
    """``call`` of each, beside each other, in order. The first error, after all have ended or been
    dropped."""
    calls = [partial(call, item) for item in items]
    if len(calls) < 2:
        return [one() for one in calls]
    futures = [THREADS.submit(one) for one in calls]
    try:
        return [result_of(future, one) for future, one in zip(futures, calls, strict=True)]
    finally:
        for future in futures:
            future.cancel()
