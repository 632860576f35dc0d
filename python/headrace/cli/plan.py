"""What a copy does: its sources and its target as jobs for the engine. Imports nothing that is slow to
import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from headrace import _native
from headrace.cli.base import (
    Stores,
    is_local,
    local_path,
    need_url,
    refuse_pattern,
    split_url,
    split_wildcard,
    wildcard,
)
from headrace.cli.find import need_key
from headrace.cli.settings import ObjectOptions
from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from headrace.store.store import Store

Task = tuple[str, str, bool, int, str]
"""(from, to, is tree, bytes to strip, pattern): see CopyTask in headrace/copy.h."""


class Job(NamedTuple):
    source: Store
    target: Store
    tasks: list[Task]


def target_is_directory(url: str) -> bool:
    return url.endswith("/") or url in (".", "..") or not split_url(url)[1]


def _join(prefix: str, name: str) -> str:
    return prefix + name if not prefix or prefix.endswith("/") else f"{prefix}/{name}"


def open_target(
    stores: Stores, url: str, is_directory: bool, raw: bool, written: ObjectOptions
) -> tuple[Store, str]:
    """The store, and the key or the prefix below which all goes (empty or ending in a slash)."""
    if not raw:
        refuse_pattern(url, has_raw=True)
    if is_local(need_url(url)) and is_directory:
        return stores.open_to_write(local_path(url).rstrip("/") or "/", written.settings()), ""
    if is_local(url):
        _native.check_replaceable(local_path(url))
    root, key = split_url(url)
    store = stores.open_to_write(root, written.settings())
    if is_directory and key and not key.endswith("/"):
        key += "/"
    return store, key


class Shape(NamedTuple):
    """How sources are read."""

    recursive: bool
    raw: bool
    many: bool
    """More than one source."""
    flattens: bool = False

    def pattern(self, url: str) -> _native.Glob | None:
        return None if self.raw else wildcard(url)


def _source_task(stores: Stores, url: str, target: str, shape: Shape) -> tuple[Store, Task]:
    recursive = shape.recursive
    glob = shape.pattern(url)
    if glob is not None:
        root, directory, pattern = split_wildcard(url, glob)
        listed = _native.Glob(pattern).prefix
        return stores.open(root), (
            listed,
            target,
            True,
            len(os.fsencode(directory)),
            pattern.rstrip("/") + "{,/**}" if recursive else pattern,
        )
    store, key = stores.split(url)
    if recursive:
        prefix = key if not key or key.endswith("/") else key + "/"
        if is_local(url) and key and not os.path.isdir(local_path(url)):
            raise InvalidArgumentError(f"{url} is no directory; to copy one file leave out -r")
        name = (
            os.path.basename(os.path.abspath(local_path(url)))  # "." and ".." are no names of objects
            if is_local(url)
            else prefix.rstrip("/").rpartition("/")[2]
        )
        below = _join(target, name) + "/" if shape.many and name and not shape.flattens else target
        return store, (prefix, below, True, len(os.fsencode(prefix)), "")
    need_key(url, key, "to copy everything below it add -r", takes_marks=shape.raw)
    name = key[key.rstrip("/").rfind("/") + 1 :]
    return store, (
        key,
        _join(target, name) if not target or target.endswith("/") else target,
        False,
        0,
        "",
    )


def plan(
    stores: Stores, sources: list[str], target_url: str, shape: Shape, written: ObjectOptions
) -> list[Job]:
    is_directory = (
        shape.recursive
        or shape.many
        or target_is_directory(target_url)
        or shape.pattern(sources[0]) is not None
    )
    target, prefix = open_target(stores, target_url, is_directory, shape.raw, written)
    jobs: dict[int, Job] = {}
    for url in sources:
        source, task = _source_task(stores, url, prefix, shape)
        jobs.setdefault(id(source), Job(source, target, [])).tasks.append(task)
    return list(jobs.values())
