"""The engine's log in Python's ``logging``: ``headrace.store``, ``.copy``, ``.loader``,
``.index``, ``.cache``, ``.credentials``.

A thread of this module takes the engine's lines twice a second, from the first engine object on, and once
more at exit. No thread of the engine ever calls Python (docs/design/0052-log.md).
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import traceback

from headrace import _native
from headrace.base.secrets import without_secrets
from headrace.errors import InvalidArgumentError

__all__ = ["LEVELS", "listen", "pass_on", "show"]

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
"""What ``HEADRACE_LOG`` and ``--log-level`` may say."""

_SECONDS = 0.5
_PATIENCE = 1.0
"""How long a fork and the exit wait for a handler that is busy with a line of ours."""

_root = logging.getLogger("headrace")
_loggers = {
    area: logging.getLogger(f"headrace.{area}")
    for area in ("store", "copy", "loader", "index", "cache", "credentials", "log")
}


class _Process:
    """What belongs to this process; a forked child has one of its own."""

    def __init__(self) -> None:
        self.starting = threading.Lock()
        self.emitting = threading.RLock()
        """Held while lines go to handlers, and across a fork: so a child finds no lock of a handler held."""
        self.is_fork_waiting = False
        self.thread: threading.Thread | None = None
        self.ending = threading.Event()


_process = _Process()
_handler: logging.Handler | None = None


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to what ``sys.stderr`` is at the time."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> object:
        return sys.stderr


def show(level: str) -> None:
    """Shows lines of this level and above on stderr, whatever else listens."""
    global _handler
    if level.lower() not in LEVELS:
        raise InvalidArgumentError(f"log level {level!r}: there are {', '.join(LEVELS)}")
    if _handler is None:
        _handler = _Stderr()
        _handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        _root.addHandler(_handler)
    _handler.setLevel(LEVELS[level.lower()])
    _root.setLevel(LEVELS[level.lower()])
    _tell_level()


def listen() -> None:
    """An engine object is being opened: what the engine says is passed on from now on."""
    if _handler is None and os.environ.get("HEADRACE_LOG"):
        show(os.environ["HEADRACE_LOG"])
    _tell_level()
    process = _process
    with process.starting:
        if process.thread is not None or process.ending.is_set():
            return
        thread = threading.Thread(target=_run, args=(process,), name="headrace-log", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # The interpreter is ending, or there are no more threads: no lines then.
            return
        process.thread = thread


def pass_on(*, all_counts: bool = False) -> None:
    """Hands what the engine has said to the loggers, in the calling thread. ``all_counts``: also of events
    that are still being counted."""
    with _process.emitting:
        for level, area, text, at in _native.take_log(all_counts):
            _emit(_loggers.get(area) or logging.getLogger(f"headrace.{area}"), level, text, at)


def _tell_level() -> None:
    least = min(logger.getEffectiveLevel() for logger in _loggers.values())
    _native.set_log_level(max(least, logging.root.manager.disable + 1))


def _emit(logger: logging.Logger, level: int, text: str, at: float) -> None:
    if not logger.isEnabledFor(level):
        return
    record = logger.makeRecord(logger.name, level, "headrace", 0, without_secrets(text), (), None)
    record.created, record.msecs = at, int(at * 1000) % 1000
    try:
        logger.handle(record)
    except Exception:  # A handler's own mistake: lines of others must come all the same.
        if logging.raiseExceptions:
            traceback.print_exc()


def _run(process: _Process) -> None:
    while not process.ending.wait(_SECONDS):
        _tell_level()
        pass_on()


@atexit.register
def _end() -> None:
    """After ``headrace.base.live`` has closed what was open: its handler was registered later."""
    process = _process
    process.ending.set()
    if process.thread is not None:
        process.thread.join(_PATIENCE)
    if process.emitting.acquire(timeout=_PATIENCE):
        try:
            pass_on(all_counts=True)
        finally:
            process.emitting.release()


def _before_fork() -> None:
    _process.is_fork_waiting = _process.emitting.acquire(timeout=_PATIENCE)


def _in_parent() -> None:
    if _process.is_fork_waiting:
        _process.emitting.release()


def _in_child() -> None:
    global _process
    _process = _Process()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
