"""A save under way."""

from __future__ import annotations

import threading
from typing import Literal, TypeAlias

from headrace.checkpoint.manifest import Manifest
from headrace.errors import ChangedError, DeadlineError, InvalidArgumentError

__all__ = ["LEVELS", "Level", "SaveHandle", "check_level"]

Level: TypeAlias = Literal["staged", "local", "remote"]
LEVELS: tuple[Level, ...] = ("staged", "local", "remote")


class SaveHandle:
    """What :meth:`headrace.checkpoint.Checkpointer.save` returns. Threads: any.

    Levels: ``"staged"`` (copied: the state may change), ``"local"`` (a whole checkpoint on the local disk
    that is named by ``local=``; without one the same as remote), ``"remote"`` (a whole checkpoint at the
    URL).
    """

    def __init__(self, step: int, save: str) -> None:
        self.step, self.save = step, save
        self._changed = threading.Condition()
        self._reached = 0
        self._error: Exception | None = None
        self._manifest: Manifest | None = None
        self._is_seen = self._is_superseded = False

    def wait(self, level: Level = "remote", timeout: float | None = None) -> None:
        """Until the save has come so far. Raises what went wrong with it, or DeadlineError after ``timeout``
        seconds, while the save goes on."""
        number = _number(level)
        with self._changed:
            came = self._changed.wait_for(lambda: self._reached >= number or self._error is not None, timeout)
            if self._reached >= number:
                return
            if self._error is not None:
                self._is_seen = True
                raise self._error
            assert not came
        raise DeadlineError(f"the save of step {self.step} was not {level} after {timeout:g} s; it goes on")

    def result(self, timeout: float | None = None) -> Manifest:
        """What was saved, when it is a checkpoint at the URL; as :meth:`wait`."""
        self.wait("remote", timeout)
        assert self._manifest is not None
        return self._manifest

    def done(self, level: Level = "remote") -> bool:
        """Whether it has come so far. Raises what went wrong with it."""
        with self._changed:
            if self._error is not None and self._reached < _number(level):
                self._is_seen = True
                raise self._error
            return self._reached >= _number(level)

    def _reach(self, level: Level, manifest: Manifest | None = None) -> None:
        with self._changed:
            self._manifest = manifest or self._manifest
            self._reached = max(self._reached, _number(level))
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _supersede(self) -> None:
        """Another save of this job has replaced it on the local disk: nobody needs to look at that."""
        with self._changed:
            self._is_seen = self._is_superseded = True
            self._error = ChangedError(
                f"step {self.step} was saved again with overwrite=True, before this save of it was at the URL"
            )
            self._changed.notify_all()

    def _unseen_error(self) -> Exception | None:
        """What went wrong and nobody has looked at."""
        with self._changed:
            return None if self._is_seen else self._error

    def _is_over(self) -> bool:
        with self._changed:
            return self._error is not None or self._reached >= len(LEVELS)

    def __repr__(self) -> str:
        with self._changed:
            state = f"failed: {self._error}" if self._error else ("begun", *LEVELS)[self._reached]
        return f"SaveHandle(step={self.step}, {state})"


def check_level(level: str, option: str = "level") -> None:
    """Raises InvalidArgumentError for what is no level."""
    if level not in LEVELS:
        raise InvalidArgumentError(f"{option}={level!r}: expected one of {', '.join(LEVELS)}")


def _number(level: str) -> int:
    check_level(level)
    return LEVELS.index(level) + 1
