"""Calls beside the caller's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["Call"]

T = TypeVar("T")


class Call(Generic[T]):
    """A call on a thread of its own, under way from the beginning. Not an executor's: those take nothing more
    when the interpreter has begun to end, and what was begun before must still be brought to its end then."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-call")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        self._thread.join()

    def result(self) -> T:
        """Waits for it. Raises what it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._value
