"""What the URLs of a command name: one object, everything below a prefix, or what a pattern matches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from headrace import _native
from headrace.cli.base import Stores, is_local, split_url, split_wildcard, wildcard
from headrace.cli.declare import Chosen, Names
from headrace.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from headrace._native import ObjectInfo
    from headrace.store.store import Store

__all__ = [
    "Found",
    "Level",
    "accepts_one",
    "filter_of",
    "find",
    "find_below",
    "has_pattern",
    "level_of",
    "named",
    "need_key",
    "need_one_for_version",
]


class Found(NamedTuple):
    store: Store
    prefix: str
    """What all keys start with."""
    objects: Iterator[ObjectInfo]


def need_key(url: str, key: str, advice: str = "", *, takes_marks: bool = False) -> str:
    """The key. Raises InvalidArgumentError for a URL of many objects; the mark of a directory, whose key ends
    in a slash, is one object where it is taken."""
    if not key or (key.endswith("/") and not takes_marks):
        raise InvalidArgumentError(f"{url} names no object; {advice or f'to list it: headrace ls {url}'}")
    return key


def filter_of(chosen: Chosen) -> _native.NameFilter:
    """Of --include and --exclude."""
    return _native.NameFilter(chosen.include or [], chosen.exclude or [])


def accepts_one(names: Names, key: str) -> bool:
    """Whether --include and --exclude take an object that was named itself: they see the last part of its
    name. The shell expands patterns, too."""
    if not names.include and not names.exclude:
        return True
    return filter_of(names).accepts(key.rstrip("/").rpartition("/")[2])


def need_one_for_version(
    urls: list[str], names: Names, version_id: str | None, *, recursive: bool = False
) -> None:
    """Raises InvalidArgumentError where more than one object is named, and a version: that is one of one
    object."""
    if version_id and (recursive or len(urls) != 1 or has_pattern(urls[0], names)):
        raise InvalidArgumentError("--version-id is that of one object: give one URL, without -r or pattern")


def has_pattern(url: str, names: Names) -> bool:
    return not names.raw and wildcard(url) is not None


def find(stores: Stores, url: str, names: Names, recursive: bool) -> Found:
    """What a URL with or without wildcards names, one level of it unless ``recursive``.

    Directories of a level, whose keys end in a slash, are not compared with --include and --exclude.
    """
    if not has_pattern(url, names):
        store, prefix = stores.split(url)
        # A local name that is no directory is one file: others that begin with it are others.
        found = _one(store, prefix) if prefix and is_local(url) else store.list(prefix, recursive=recursive)
        return Found(store, prefix, _accepted(found, names, prefix.rfind("/") + 1))
    glob = wildcard(url)
    assert glob is not None
    root, directory, pattern = split_wildcard(url, glob)
    store = stores.open(root)
    keys = _native.Glob(pattern)
    # One level is enough unless the pattern reaches below it.
    is_deep = recursive or "/" in pattern[len(directory) :] or "**" in pattern
    below = _native.Glob(pattern.rstrip("/") + "/**") if recursive else keys
    found = (
        info
        for info in store.list(keys.prefix, recursive=is_deep)
        if keys.matches(info.key.rstrip("/")) or below.matches(info.key)
    )
    return Found(store, keys.prefix, _accepted(found, names, len(directory)))


def find_below(stores: Stores, url: str, names: Names) -> Found:
    """The object or directory that a URL names, with all that is below it; or what its pattern matches."""
    store, prefix = stores.split(url) if not has_pattern(url, names) else (None, "")
    if store is None or not prefix or prefix.endswith("/") or is_local(url):
        return find(stores, url, names, True)
    below = prefix + "/"
    objects = _accepted(_one(store, prefix), names, prefix.rfind("/") + 1)
    return Found(store, below, chain(objects, _accepted(store.list(below), names, len(below))))


def _one(store: Store, key: str) -> Iterator[ObjectInfo]:
    """The object, where there is one."""
    with suppress(NotFoundError):
        yield store.head(key)


class Level(NamedTuple):
    """Where in a local tree what a URL names may lie."""

    root: str
    prefix: str
    """What all names right below it start with."""
    is_pattern: bool
    is_deep: bool
    """Names below its own level, too."""
    matches: Callable[[str], bool]
    """Whether the URL names this one below the root; of a directory with or without a slash."""


def level_of(url: str, names: Names, recursive: bool) -> Level:
    glob = wildcard(url) if has_pattern(url, names) else None
    if glob is None:
        return Level(split_url(url)[0], "", False, recursive, lambda key: True)
    root, _, pattern = split_wildcard(url, glob)
    keys = _native.Glob(pattern)
    below = _native.Glob(pattern.rstrip("/") + "/**") if recursive else keys
    is_deep = recursive or "/" in pattern or "**" in pattern
    return Level(root, keys.prefix, True, is_deep, lambda key: keys.matches(key) or below.matches(key))


def _accepted(found: Iterator[ObjectInfo], names: Names, strip: int) -> Iterator[ObjectInfo]:
    """Without what --include and --exclude keep out; they see keys without their first characters."""
    if not names.include and not names.exclude:
        return found
    accepts = filter_of(names).accepts
    return (info for info in found if info.key.endswith("/") or accepts(info.key[strip:]))


def named(stores: Stores, urls: list[str], names: Names) -> Iterator[tuple[Store, str]]:
    """(store, key) of each object that URLs or patterns name, in their order. Raises NotFoundError for a
    pattern that matches nothing; a plain URL may name nothing."""
    for url in urls:
        if not has_pattern(url, names):
            root, key = split_url(url)
            need_key(url, key, takes_marks=names.raw)
            if accepts_one(names, key):
                yield stores.open(root), key
            continue
        count = 0
        store, _, objects = find(stores, url, names, False)
        for info in objects:
            if not info.key.endswith("/"):
                count += 1
                yield store, info.key
        if not count:
            raise NotFoundError(f"{url}: nothing matches")
