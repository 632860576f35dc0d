"""rm. Imports nothing that is slow to import."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from headrace import _native
from headrace.base.batches import batches
from headrace.cli.base import (
    Stores,
    confirm,
    fail,
    is_local,
    local_path,
    print_json,
    refuse_folder,
    shown,
    split_url,
    stop_if_asked,
    together,
)
from headrace.cli.declare import Concurrency, DryRun, Json, Names, VersionId, Where, argument, option
from headrace.cli.find import (
    Level,
    accepts_one,
    filter_of,
    find,
    has_pattern,
    level_of,
    need_key,
    need_one_for_version,
)
from headrace.errors import (
    CancelledError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from headrace.store.store import Store

DELETE_BATCH = 1000
ALL_BELOW = "to delete everything below it add -r"
HIDDEN = ".headrace-"
"""What names of unfinished files start with: see src/store/file/file_key.h."""


class Remover:
    """Deletes keys in batches. A thread for each that is under way, at most `max_in_flight` of the store; how
    many of their requests are on the wire, the store's control says, as for reads."""

    def __init__(self, store: Store) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._store = store
        self._workers = (os.cpu_count() or 1) if is_local(store.url) else store.max_in_flight
        self._pool = ThreadPoolExecutor(self._workers)
        self._pending: list[Any] = []
        self.deleted = 0
        self.failures: list[tuple[str, Exception]] = []

    def add(self, keys: list[str], etags: list[str] | None = None) -> None:
        """With ETags: only what still has its own."""
        stop_if_asked()
        native = self._store._native
        future = (
            self._pool.submit(native.remove_many, keys)
            if etags is None
            else self._pool.submit(_native.remove_copied, native, keys, etags)
        )
        self._pending.append((len(keys), future))
        if len(self._pending) > self._workers:
            self._take()

    def _take(self) -> None:
        count, future = self._pending.pop(0)
        failed = future.result()
        self.deleted += count - len(failed)
        self.failures += failed

    def finish(self) -> None:
        while self._pending:
            self._take()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def remove_directories(path: str) -> None:
    """Directories in which nothing is but other such."""
    for directory, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(directory)


def _remove_emptied(level: Level, touched: set[str] | None) -> list[tuple[str, Exception]]:
    """The directories that a recursive rm has emptied, of those in which it removed something (``touched``).
    None: all was named. Then also what dead copies have left there, which no listing has; and it returns one
    that is not empty."""
    is_whole = touched is None
    for top in _tops(level):
        for directory, _, files in os.walk(top, topdown=False):
            key = os.path.relpath(directory, level.root)
            if not (level.matches(key) or level.matches(key + "/")):
                continue
            if touched is not None and key not in touched:
                continue
            for name in files if is_whole else ():
                if f"/{HIDDEN}" in f"/{key}/{name}":
                    with suppress(OSError):
                        os.unlink(os.path.join(directory, name))
            try:
                os.rmdir(directory)
                if touched is not None:
                    touched.add(os.path.dirname(key) or ".")
            except OSError as error:
                if is_whole and error.errno == errno.ENOTEMPTY:
                    return [(directory, UnsupportedError(f"{directory} stays: it is not empty"))]
    return []


def _tops(level: Level) -> list[str]:
    """The topmost directories that may be named."""
    if not level.is_pattern:
        return [level.root]
    return [
        entry.path
        for entry in os.scandir(level.root)
        if entry.is_dir(follow_symlinks=False) and entry.name.startswith(level.prefix)
    ]


def _is_link(url: str) -> bool:
    """A local link that is named itself: as for rm, a slash at its end would name what it leads to."""
    return is_local(url) and not url.endswith("/") and os.path.islink(local_path(url))


def _noting_directories(keys: Iterable[str], directories: set[str]) -> Iterator[str]:
    for key in keys:
        directories.add(os.path.dirname(key) or ".")
        yield key


class Links:
    """Links to directories in a local tree: what lies behind one belongs to others."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._links = {"": ""}

    def above(self, key: str) -> str:
        """The topmost link on the way to a key; empty when there is none."""
        return self._of(key.rpartition("/")[0])

    def _of(self, directory: str) -> str:
        if directory not in self._links:
            above = self.above(directory)
            is_link = not above and os.path.islink(os.path.join(self._root, directory))
            self._links[directory] = directory if is_link else above
        return self._links[directory]


def _without_links(level: Level, keys: Iterable[str], others: list[str]) -> Iterator[str]:
    """The names in a local tree that stand for these keys: a link to a directory for everything behind it;
    and others. A link that the URL does not name stays, and what lies behind it the store refuses to
    remove."""
    links = Links(level.root)
    done = set(others)
    for key in keys:
        link = links.above(key)
        if not link or not level.matches(link):
            yield key
        elif link not in done:
            done.add(link)
            yield link
    yield from others


def _others(level: Level, names: Names, base: str = "") -> Iterator[str]:
    """What no listing has of a local tree: links to directories and such as lead nowhere, fifos, sockets,
    devices."""
    accepts = filter_of(names).accepts
    try:
        entries = list(os.scandir(os.path.join(level.root, base)))
    except OSError:  # The listing says so.
        return
    for entry in entries:
        key = base + entry.name
        if not key.startswith(level.prefix):
            continue
        if entry.is_dir(follow_symlinks=False):
            if level.is_deep:
                yield from _others(level, names, key + "/")
        elif not _is_file(entry) and level.matches(key) and accepts(key):
            yield key


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads to itself
        return False


def rm(
    urls: Annotated[
        list[str], argument(metavar="URL...", help="Objects, files or patterns, or with -r prefixes.")
    ],
    *,
    recursive: Annotated[bool, option("--recursive", "-r", help="Everything below each URL.")] = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, option("--yes", "-y", "--force", "-f", help="Do not ask.")] = False,
    version_id: VersionId = None,
    concurrency: Concurrency = 256,
    names: Names,
    where: Where,
    json: Json = False,
) -> int:
    """Delete objects. With -r or a pattern it says how many it will delete and asks first. With --version-id
    that version is gone for good; the others stay.

    Examples:

    * `headrace rm s3://bucket/old.tar`

    * `headrace rm -r s3://bucket/tmp/ --yes`

    * `headrace rm -r --include '*.tmp' s3://bucket/train`

    * `headrace rm --dry-run 's3://bucket/logs/2024-*.txt'`
    """
    deleted = 0
    failures: list[tuple[str, Exception]] = []
    need_one_for_version(urls, names, version_id, recursive=recursive)
    how = _How(recursive, dry_run, yes, json, names, version_id)
    with Stores(where, max_in_flight=concurrency) as stores:
        for url in urls:
            try:
                done, failed = _rm(stores, url, how)
            except (CancelledError, InvalidArgumentError):
                raise
            except HeadraceError as error:
                done, failed = 0, [(url, error)]
            deleted += done
            failures += failed
    if json:
        print_json(
            {
                "deleted": deleted,
                **({"failed": len(failures)} if failures else {}),
                **({"dry_run": True} if dry_run else {}),
            }
        )
    else:
        sys.stdout.write(f"{'would delete ' if dry_run else ''}{deleted:,}{'' if dry_run else ' deleted'}\n")
    if not (deleted or failures):
        return fail("nothing that --include and --exclude leave")
    for key, failure in failures[:50]:
        fail(str(failure) if key in str(failure) else f"{key}: {failure}")
    return 1 if failures else 0


class _How(NamedTuple):
    """The options of one rm."""

    recursive: bool
    dry_run: bool
    yes: bool
    json: bool
    names: Names
    version_id: str | None


def _rm(stores: Stores, url: str, how: _How) -> tuple[int, list[tuple[str, Exception]]]:
    """What one URL names: how many were removed, and which not."""
    keys: Iterable[str]
    names, recursive = how.names, how.recursive
    has_wildcards = has_pattern(url, names)
    is_many = recursive or has_wildcards
    level = None
    touched: set[str] | None = None
    if _is_link(url):
        directory, name = os.path.split(local_path(url))
        if not accepts_one(names, name):
            return 0, []
        store, keys, is_many = stores.open(directory or "."), [name], False
    elif not is_many:
        store, key = stores.split(url)
        need_key(url, key, ALL_BELOW, takes_marks=names.raw)
        if not accepts_one(names, key):
            return 0, []
        if how.version_id:
            return _remove_version(store, key, how)
        try:
            store.head(key)
        except NotFoundError as error:
            refuse_folder(store, key, error, ALL_BELOW)
            raise
        keys = [key]
    else:
        if recursive and not has_wildcards and split_url(url)[1] and not url.endswith("/"):
            url += "/"
        store, _, objects = find(stores, url, names, recursive)
        keys = (info.key for info in objects if recursive or not info.key.endswith("/"))
        if is_local(url):
            level = level_of(url, names, recursive)
            keys = _without_links(level, keys, list(_others(level, names)))
            if names.include or names.exclude:
                touched = set()
                keys = _noting_directories(keys, touched)
    if is_many and not how.yes and not how.dry_run:
        if not sys.stdin.isatty() or together.stores is not None:
            raise InvalidArgumentError(f"Delete what is at {url}? Cannot ask without a terminal: add --yes")
        keys = list(keys)
        confirm(f"Delete {len(keys):,} objects at {url}?")
    done, failed = _remove(store, url, keys, how.dry_run, how.json)
    if level is not None and recursive and not how.dry_run and not failed:
        failed = _remove_emptied(level, touched)
    return done, failed


def _remove_version(store: Store, key: str, how: _How) -> tuple[int, list[tuple[str, Exception]]]:
    # What a deletion has left as the newest version cannot be read, and may go: the object is back then. A
    # store without versions refuses the deletion, too.
    with suppress(UnsupportedError):
        store.head(key, version_id=how.version_id)
    if not how.dry_run:
        store.delete(key, version_id=how.version_id)
    elif not how.json:
        sys.stdout.write(shown(f"delete version {how.version_id} of {store.url}/{key}") + "\n")
    return 1, []


def _remove(
    store: Store, url: str, keys: Iterable[str], dry_run: bool, json: bool
) -> tuple[int, list[tuple[str, Exception]]]:
    found = 0
    remover = None if dry_run else Remover(store)
    try:
        for batch in batches(keys, DELETE_BATCH):
            found += len(batch)
            if remover is not None:
                remover.add(batch)
            elif not json:
                sys.stdout.writelines(shown(f"delete {store.url}/{key}") + "\n" for key in batch)
        if remover is not None:
            remover.finish()
    finally:
        if remover is not None:
            remover.close()
    if not found:
        raise NotFoundError(f"{url}: nothing there")
    return (found, []) if remover is None else (remover.deleted, remover.failures)
