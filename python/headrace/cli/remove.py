"""rm. Imports nothing that is slow to import."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from headrace.base.batches import batches
from headrace.cli.base import (
    Stores,
    confirm,
    fail,
    is_local,
    local_path,
    print_json,
    shown,
    split_url,
    stop_if_asked,
    together,
)
from headrace.cli.declare import DryRun, Json, Names, Where, argument, option
from headrace.cli.find import find, has_pattern, need_key
from headrace.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from headrace.store.store import Store

DELETE_BATCH = 1000


class Remover:
    """Deletes keys in batches, as many at a time as the store takes: the engine finds out how many that are."""

    def __init__(self, store: Store) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._store = store
        self._workers = (os.cpu_count() or 1) if is_local(store.url) else store.max_in_flight
        self._pool = ThreadPoolExecutor(self._workers)
        self._pending: list[Any] = []
        self.deleted = 0
        self.failures: list[tuple[str, Exception]] = []

    def add(self, keys: list[str]) -> None:
        stop_if_asked()
        self._pending.append((len(keys), self._pool.submit(self._store._native.remove_many, keys)))
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
    """Directories that a recursive rm has emptied."""
    for directory, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(directory)
        except OSError:
            continue


def _is_link(url: str) -> bool:
    """A local link that is named itself: as for rm, a slash at its end would name what it leads to."""
    return is_local(url) and not url.endswith("/") and os.path.islink(local_path(url))


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


def _without_links(root: str, keys: Iterable[str]) -> Iterator[str]:
    """The names in a local tree that stand for these keys: a link to a directory for everything behind it."""
    links = Links(root)
    done: set[str] = set()
    for key in keys:
        link = links.above(key)
        if not link:
            yield key
        elif link not in done:
            done.add(link)
            yield link


def rm(
    urls: Annotated[
        list[str], argument(metavar="URL...", help="Objects, files or patterns, or with -r prefixes.")
    ],
    *,
    recursive: Annotated[bool, option("--recursive", "-r", help="Everything below each URL.")] = False,
    dry_run: DryRun = False,
    yes: Annotated[bool, option("--yes", "-y", "--force", "-f", help="Do not ask.")] = False,
    names: Names,
    where: Where,
    json: Json = False,
) -> int:
    """Delete objects. With -r or a pattern it says how many it will delete and asks first.

    Examples:

    * `headrace rm s3://bucket/old.tar`

    * `headrace rm -r s3://bucket/tmp/ --yes`

    * `headrace rm -r --include '*.tmp' s3://bucket/train`

    * `headrace rm --dry-run 's3://bucket/logs/2024-*.txt'`
    """
    deleted, failures = 0, []
    keys: Iterable[str]
    with Stores(where) as stores:
        for url in urls:
            has_wildcards = has_pattern(url, names)
            is_many = recursive or has_wildcards
            if _is_link(url):
                directory, name = os.path.split(local_path(url))
                store, keys, is_many = stores.open(directory or "."), [name], False
            elif not is_many:
                store, key = stores.split(url)
                store.head(need_key(url, key))
                keys = [key]
            else:
                if recursive and not has_wildcards and split_url(url)[1] and not url.endswith("/"):
                    url += "/"
                store, _, objects = find(stores, url, names, recursive)
                keys = (info.key for info in objects if recursive or not info.key.endswith("/"))
                if recursive and is_local(url) and not has_wildcards:
                    keys = _without_links(local_path(url), keys)
            if is_many and not yes and not dry_run:
                if not sys.stdin.isatty() or together.stores is not None:
                    raise InvalidArgumentError(
                        f"Delete what is at {url}? Cannot ask without a terminal: add --yes"
                    )
                keys = list(keys)
                confirm(f"Delete {len(keys):,} objects at {url}?")
            done, failed = _remove(store, url, keys, dry_run, json)
            deleted += done
            failures += failed
            if recursive and is_local(url) and is_many and not dry_run and not failed:
                remove_directories(local_path(url))
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
    for key, error in failures[:50]:
        fail(f"{key}: {error}")
    return 1 if failures else 0


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
