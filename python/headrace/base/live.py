"""Engine objects that are open, so that an exit without close() ends their threads before the interpreter
goes."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from headrace import _native
from headrace.base import log
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from typing_extensions import Self


class Closing:
    """What ``with`` closes at its end."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_open: weakref.WeakSet[Closing] = weakref.WeakSet()
_begun: weakref.WeakSet[Closing] = weakref.WeakSet()
_owner_pid = os.getpid()


def register(thing: Closing, *, has_begun: bool = False) -> None:
    """``has_begun``: it brings to an end what it has begun, when the program ends, and needs executors for
    that, which end before what ``atexit`` calls."""
    log.listen()
    if has_begun:
        _at_end_of_executors()
    (_begun if has_begun else _open).add(thing)


@cache
def _at_end_of_executors() -> None:
    """Has _finish_begun() called before executors take no more work."""
    import concurrent.futures.thread  # noqa: F401  Before ours: what is registered last is called first.

    # Of CPython; executors end by it, too.
    getattr(threading, "_register_atexit", atexit.register)(_finish_begun)


def describe(thing: object, text: Callable[[], str]) -> str:
    """What ``repr()`` shows: ``text()``, also of what cannot be asked any more. Debuggers and log lines call
    it anywhere."""
    try:
        return text()
    except HeadraceError:  # opened before a fork(): only the parent may ask it
        return f"{type(thing).__name__}(opened by the parent process)"


def _forget() -> None:
    """In a forked child: what the parent opened is not ours to close."""
    global _owner_pid
    _owner_pid = os.getpid()
    _open.clear()
    _begun.clear()


def _finish_begun() -> None:
    if os.getpid() != _owner_pid:
        return
    for thing in list(_begun):
        try:
            thing.close()
        except HeadraceError as error:  # says all by itself; where this is called from says nothing
            sys.excepthook(type(error), error.with_traceback(None), None)
        except Exception:
            sys.excepthook(*sys.exc_info())


@atexit.register
def _close_all() -> None:
    if os.getpid() != _owner_pid:
        return
    _native.begin_exit()
    for thing in list(_open):
        thing.close()
    # Threads that were waiting in the engine come back now and end; a moment for that.
    _native.drain_calls(5.0)


os.register_at_fork(after_in_child=_forget)
