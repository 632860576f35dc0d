"""Exceptions of Headrace. Each says what the caller can do, and is also the builtin that users expect."""

from __future__ import annotations

__all__ = [
    "CancelledError",
    "ChangedError",
    "CorruptError",
    "DeadlineError",
    "DeniedError",
    "ExhaustedError",
    "HeadraceError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "ThrottledError",
    "UnavailableError",
    "UnsupportedError",
    "UserCodeError",
]


class HeadraceError(Exception):
    """Base of all errors of Headrace. The message names what was done, on what, and what happened."""

    code: str = "internal"
    """Stable lower-case name of the kind of error, as in docs/semantics.md."""
    key: str | None = None
    """Object key that the failed call was about, when it was about one."""
    retryable: bool = False
    """True when the same call may succeed later (the engine has already retried within its deadline)."""


class CancelledError(HeadraceError):
    """The caller asked to stop, or closed the object that the call was waiting on."""

    code = "cancelled"


class DeadlineError(HeadraceError, TimeoutError):
    """The time budget ran out; the message holds the last underlying cause."""

    code = "deadline"


class InvalidArgumentError(HeadraceError, ValueError):
    """Wrong call: the program must change."""

    code = "invalid_argument"


class NotFoundError(HeadraceError, FileNotFoundError):
    """No such bucket, object, file or dataset."""

    code = "not_found"


class DeniedError(HeadraceError, PermissionError):
    """Credentials are missing, expired, wrong or insufficient."""

    code = "denied"


class ChangedError(HeadraceError):
    """The object or dataset is not the version that was opened."""

    code = "changed"


class UnavailableError(HeadraceError, ConnectionError):
    """Transient failure of the store or the network that outlasted the retries."""

    code = "unavailable"
    retryable = True


class ThrottledError(HeadraceError, ConnectionError):
    """The store kept asking to slow down."""

    code = "throttled"
    retryable = True


class ExhaustedError(HeadraceError, MemoryError):
    """A local budget is used up, most often ``memory=``; the message says by what."""

    code = "exhausted"


class CorruptError(HeadraceError, OSError):
    """Bytes arrived but their length, checksum or format is wrong."""

    code = "corrupt"


class UnsupportedError(HeadraceError, NotImplementedError):
    """A valid request that this build, format or store cannot serve."""

    code = "unsupported"


class UserCodeError(HeadraceError, RuntimeError):
    """A function that was given to ``map()``, ``filter()`` or ``collate()`` ended its worker process again
    and again, cannot be loaded there, or raised what cannot be sent; one that a conversion calls raised
    anything."""

    code = "user_code"


class InternalError(HeadraceError, RuntimeError):
    """A broken invariant of Headrace: please report it."""

    code = "internal"


def error_of(code: str, message: str) -> HeadraceError:
    """The error that a code of the engine stands for."""
    for kind in HeadraceError.__subclasses__():
        if kind.code == code and kind.__module__ == __name__:
            return kind(message)
    return InternalError(message)
