"""Files that appear whole or not at all, made by one process at a time. The kernel keeps the locks: what dies
leaves none."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

_LOOK_AGAIN_SECONDS = 0.005


def lock(fd: int, what: str, seconds: float) -> None:
    """Takes the lock of an open file. Raises TimeoutError when others hold it for so long."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: another process has held its lock for {seconds:g} s") from None
        time.sleep(_LOOK_AGAIN_SECONDS)


@contextlib.contextmanager
def locked_directory(path: str, seconds: float) -> Iterator[None]:
    """Holds the lock of a directory."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(fd, path, seconds)
        yield
    finally:
        _release(fd)


def _release(fd: int) -> None:
    # Said aloud: a child forked meanwhile has the open file too, and would keep the lock.
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _is_at(fd: int, path: str) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def partial_of(path: str) -> str:
    """Where a file is while it is made."""
    return f"{path}.tmp"


@contextlib.contextmanager
def claim(path: str, seconds: float) -> Iterator[int | None]:
    """The descriptor of a new file, for this process alone to fill, which has the name ``path`` when the
    block ends without an error.

    None when the file is there, which it may be because another process has made it meanwhile. What a killed
    process left is written over.
    """
    partial = partial_of(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    while not os.path.exists(path):
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            lock(fd, path, seconds)
            if not _is_at(fd, partial):
                continue  # its last owner has given it its name, or thrown it away
            if os.path.exists(path):
                os.unlink(partial)
                break
            try:
                os.ftruncate(fd, 0)
                yield fd
                os.rename(partial, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(partial)
                raise
            return
        finally:
            _release(fd)
    yield None


def remove_if_abandoned(path: str) -> None:
    """Removes what a killed process left of a file that it was making."""
    partial = partial_of(path)
    try:
        fd = os.open(partial, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(fd, partial):
            os.unlink(partial)
    except BlockingIOError:
        pass
    finally:
        _release(fd)
