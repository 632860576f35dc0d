"""Moving: what was copied is deleted, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.errors import ChangedError, InvalidArgumentError, NotFoundError
from headrace.fsspec.threads import for_each

if TYPE_CHECKING:
    from headrace.fsspec.filesystem import HeadraceFileSystem


class Copied(NamedTuple):
    """One object that was copied."""

    source: str
    target: str
    version: str
    """ETag that the source had before; of a store that has none ``""``."""


def move(fs: HeadraceFileSystem, path1: Any, path2: Any, *, recursive: bool, maxdepth: int | None) -> None:
    """Copies, and deletes what it has copied. After an error nothing is deleted."""
    sources = [path1] if isinstance(path1, str) else path1
    trees = [one for one in sources if recursive and not fs.has_wildcard(one)]
    for one in trees if isinstance(path2, str) else []:
        refuse_inside(fs, one, path2)
    copied: list[Copied] = []
    fs.copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error="raise", copied=copied)
    if not copied and not recursive:
        raise InvalidArgumentError(f"{path1}: only directories; recursive=True moves those")
    _refuse_lost(copied)
    changed = _delete(fs, copied)
    if maxdepth is None:
        for one in trees:
            fs._drop_empty(one)
    if changed:
        raise ChangedError(f"{changed[0]}: was written while it was moved, so it is still there as well")


def refuse_inside(fs: HeadraceFileSystem, source: str, target: str) -> None:
    """InvalidArgumentError when a directory would move into itself."""
    if f"{fs._real(target)}/".startswith(f"{fs._real(source).rstrip('/')}/"):
        raise InvalidArgumentError(f"{source} cannot be moved to {target}, which lies inside")


def _refuse_lost(copied: list[Copied]) -> None:
    """InvalidArgumentError when to delete the sources would lose one: two went to one place, or one to another's."""
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


def _delete(fs: HeadraceFileSystem, copied: list[Copied]) -> list[str]:
    """Deletes the sources; returns those that stay, because they are another version by now."""

    def is_same(one: Copied) -> bool:
        opened, place = fs._open_at(one.source)
        try:
            return opened.store.head(place.key).etag == one.version
        except NotFoundError:
            return True

    unchanged = for_each(is_same, copied)
    fs._delete(one.source for one, is_old in zip(copied, unchanged, strict=True) if is_old)
    return [one.source for one, is_old in zip(copied, unchanged, strict=True) if not is_old]
