"""Packages that some features need and that may not be there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import CorruptError, UnsupportedError

__all__ = ["find_missing_package", "missing_package", "telling_missing_package"]

_SAID = re.compile(r"([\w=\"]+ )+needs? \w+: pip install \w+( \([^()]*\))?")


def missing_package(what: str, package: str, error: ImportError, to_install: str = "") -> UnsupportedError:
    """The error that says what to install. ``what`` has its verb: ``"tables need"``."""
    return UnsupportedError(f"{what} {package}: pip install {to_install or package} ({error})")


def find_missing_package(url: str, message: str) -> UnsupportedError | None:
    """What :func:`missing_package` said, where it stands in a message of the engine about ``url``."""
    found = _SAID.search(message)
    return None if found is None else UnsupportedError(f"{url}: {found[0]}")


@contextmanager
def telling_missing_package(url: str) -> Iterator[None]:
    """The engine blames every shard of ``url`` for it: here it is said once."""
    try:
        yield
    except (UnsupportedError, CorruptError) as error:
        if missing := find_missing_package(url, str(error)):
            raise missing from None
        raise
