"""What went wrong in a user's function, across processes."""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from typing import Any, NamedTuple

from headrace.errors import UserCodeError
from headrace.loader.mapping.chain import StepError

__all__ = ["Failure"]


class _WorkerTracebackError(Exception):
    """Cause of an error that a worker raised: where it did."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def _pickled(error: BaseException) -> bytes | None:
    """An exception as bytes, if they make an exception of its type again."""
    try:
        data = pickle.dumps(error)
        return data if type(pickle.loads(data)) is type(error) else None
    except Exception:
        return None


class Failure(NamedTuple):
    """An exception of a chain, to be raised again."""

    exception: BaseException | bytes | None
    """Itself, or pickled, or None where it cannot be."""
    summary: str
    """Type and message."""
    traceback: str
    """Of the worker; empty where the exception has its own."""
    step: int | None
    """Number of the function that failed; None: none did."""
    sample: int | None
    """Dataset position of the sample that it was given; None: a batch."""

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """In the process that raises it."""
        step, sample, cause = cls._about(error)
        return cls(cause, "", "", step, sample)

    @classmethod
    def sent(cls, error: Exception) -> Failure:
        """For another process."""
        step, sample, cause = cls._about(error)
        text = io.StringIO()
        traceback.print_exception(type(cause), cause, cause.__traceback__, file=text)
        summary = "".join(traceback.format_exception_only(type(cause), cause)).strip()
        return cls(_pickled(cause), summary, text.getvalue(), step, sample)

    @staticmethod
    def _about(error: Exception) -> tuple[int | None, int | None, BaseException]:
        if not isinstance(error, StepError):
            return None, None, error
        assert error.__cause__ is not None
        return error.step, error.sample, error.__cause__

    def error(self, where: str) -> BaseException:
        """The exception to raise: the original with a note, or UserCodeError where it cannot be sent, or
        would end an iteration.

        :param where: what was done, to which sample.
        """
        found: Any = self.exception
        if isinstance(found, bytes):
            try:
                found = pickle.loads(found)
            except Exception:
                found = None
        if not isinstance(found, Exception) or isinstance(found, StopIteration | StopAsyncIteration):
            made = UserCodeError(f"{where}: {self.summary or repr(found)}")
            made.__cause__ = _WorkerTracebackError(self.traceback) if self.traceback else found
            return made
        if self.traceback:
            found.__cause__ = _WorkerTracebackError(self.traceback)
        _note(found, where)
        return found


def _note(error: BaseException, text: str) -> None:
    notes = getattr(error, "__notes__", ())
    if text in notes:
        return  # It is raised again.
    if sys.version_info >= (3, 11):
        error.add_note(text)
    else:
        setattr(error, "__notes__", [*notes, text])  # noqa: B010
