"""Moving: what was copied is deleted, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import _native
from headrace.errors import InvalidArgumentError
from headrace.fsspec.opened import Opened
from headrace.fsspec.threads import for_each

if TYPE_CHECKING:
    from headrace.fsspec.filesystem import HeadraceFileSystem

BATCH = 50
"""Objects that are looked at one after the other, and deleted in one request."""


class Copied(NamedTuple):
    """One object that was copied."""

    source: str
    target: str
    version: str
    """ETag that the source had before; of a store that has none ``""``."""


def move(fs: HeadraceFileSystem, path1: Any, path2: Any, *, recursive: bool, maxdepth: int | None) -> None:
    """Copies, and deletes what it has copied. After an error nothing is deleted."""
    sources = [path1] if isinstance(path1, str) else path1
    trees = [one for one in sources if recursive and not fs.is_pattern(one)]
    for one in trees if isinstance(path2, str) else []:
        refuse_inside(fs, one, path2)
    copied: list[Copied] = []
    fs.copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error="raise", copied=copied)
    if not copied and not recursive:
        raise InvalidArgumentError(f"{path1}: only directories; recursive=True moves those")
    _refuse_lost(copied)
    errors = _delete(fs, copied)
    if maxdepth is None:
        for one in trees:
            fs._drop_empty(one)
    if errors:
        raise errors[0]


def refuse_inside(fs: HeadraceFileSystem, source: str, target: str) -> None:
    """InvalidArgumentError when a directory would move into itself."""
    if f"{fs._real(target)}/".startswith(f"{fs._real(source).rstrip('/')}/"):
        raise InvalidArgumentError(f"{source} cannot be moved to {target}, which lies inside")


def _refuse_lost(copied: list[Copied]) -> None:
    """InvalidArgumentError when to delete the sources would lose one: two went to one place, or one to
    another's."""
    sources = {one.source for one in copied}
    taken: dict[str, str] = {}
    for one in copied:
        other = taken.setdefault(one.target, one.source)
        if other != one.source:
            raise InvalidArgumentError(
                f"{other} and {one.source} would both become {one.target}; they were not deleted"
            )
        if one.target in sources:
            raise InvalidArgumentError(
                f"{one.source} would replace {one.target}, which is moved itself; nothing was deleted"
            )


def _delete(fs: HeadraceFileSystem, copied: list[Copied]) -> list[Exception]:
    """Deletes the sources, but for those that are another version by now; returns the errors."""
    by_root: dict[str, list[tuple[str, str]]] = {}
    for one in copied:
        place = fs._place(one.source)
        by_root.setdefault(place.root, []).append((place.key, one.version))
    batches = [
        (fs._stores.get(root), found[at : at + BATCH])
        for root, found in by_root.items()
        for at in range(0, len(found), BATCH)
    ]

    def remove(batch: tuple[Opened, list[tuple[str, str]]]) -> list[tuple[str, Exception]]:
        opened, found = batch
        keys = [key for key, _ in found]
        try:
            return _native.remove_copied(opened.store._native, keys, [version for _, version in found])
        finally:
            for key in keys:
                opened.versions.forget(key)

    return [error for failures in for_each(remove, batches) for _, error in failures]
