"""What the store of files does not see: empty directories, and what is neither file nor directory."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import PurePath

from headrace import _native

_OURS = ".headrace-"
"""How files of the store's own begin, which are no objects."""


def inside(folder: str) -> list[str]:
    """Paths of the directories that lie in one, and of links to such. None of what is none, or gone."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return [one.path for one in entries if not one.name.startswith(_OURS) and one.is_dir()]
    return []


def below(folder: str, maxdepth: int | None = None) -> Iterator[str]:
    """Paths of the directories below one, through links but not in circles, as the store finds files."""
    yield from _below(folder, -1 if maxdepth is None else maxdepth, ())


def _below(folder: str, depth: int, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    try:
        found = os.stat(folder)
    except FileNotFoundError:
        return
    here = (found.st_dev, found.st_ino)
    if depth == 0 or here in above:
        return
    for one in inside(folder):
        yield one
        yield from _below(one, depth - 1, (*above, here))


def outermost(paths: Iterable[str]) -> list[str]:
    """Those that lie in none of the others, each once."""
    found: dict[str, None] = {}
    for one in sorted(paths):
        if not any(str(above) in found for above in PurePath(one).parents):
            found[one] = None
    return list(found)


def drop_empty(folder: str) -> None:
    """Removes the empty ones at and below it, from the bottom up."""
    for one, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # not empty
            os.rmdir(one)


def move(source: str, target: str) -> None:
    """Renames a file or directory, links and special files as what they are. In a directory that is there it
    replaces what has the same name. Nothing is removed that was not moved: what comes meanwhile stays."""
    is_tree = os.path.isdir(source) and not os.path.islink(source)
    if not is_tree:
        _native.check_replaceable(target)
    elif os.path.isdir(target):
        _move_inside(source, target)
        return
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if not is_tree:
            shutil.move(source, target)
            return
        os.mkdir(target)
        shutil.copystat(source, target)
        _move_inside(source, target)


def _move_inside(source: str, target: str) -> None:
    for name in os.listdir(source):
        move(os.path.join(source, name), os.path.join(target, name))
    with suppress(OSError):  # not empty any more
        os.rmdir(source)
