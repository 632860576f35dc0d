"""Local files that are there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from headrace import _native

__all__ = ["new_file"]


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write that gets its name, in the place of what has it, when the block ends well; after an error
    nothing is left of it. Until then it is a hidden one beside, that no other writer has. UnsupportedError: the
    name is a device's, a fifo's or a socket's."""
    target = os.fspath(path)
    _native.check_replaceable(target)
    directory, name = os.path.split(target)
    partial = os.path.join(directory, f".{name}.{os.urandom(6).hex()}.partial")
    try:
        with open(partial, "xb") as file:
            yield file
        os.replace(partial, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise
