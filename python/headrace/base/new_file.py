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
    """A file to write that gets its name, in the place of what has it, when the block ends well; after an
    error nothing is left of it. Until then it is a hidden one beside, that no other writer has. As when a
    file is opened to be written, a link stays one, and a file keeps its permissions. UnsupportedError: the
    name is a device's, a fifo's or a socket's."""
    target = os.fspath(path)
    _native.check_replaceable(target)
    target = os.path.realpath(target)
    directory, name = os.path.split(target)
    partial = os.path.join(directory, f".{name}.{os.urandom(6).hex()}.partial")
    try:
        with open(partial, "xb") as file:
            with suppress(OSError):  # there is none, or a file system without permissions
                os.fchmod(file.fileno(), os.stat(target).st_mode & 0o777)
            yield file
        os.replace(partial, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(partial)
        raise
