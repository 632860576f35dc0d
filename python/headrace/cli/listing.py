"""ls, du, stat, cat, rm: what they do. Imports nothing that is slow to import."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from headrace import _native
from headrace.base.units import format_bytes
from headrace.cli.base import (
    Stores,
    confirm,
    fail,
    is_local,
    local_path,
    print_json,
    shown,
    split_url,
    split_wildcard,
    wildcard,
)
from headrace.cli.declare import DataWhere, DryRun, Json, Where, argument, option
from headrace.errors import CancelledError, InvalidArgumentError, NotFoundError
from headrace.store.urls import without_secrets

if TYPE_CHECKING:
    from headrace._native import ObjectInfo
    from headrace.store.store import Store

DELETE_BATCH = 1000
DELETE_WORKERS = 8
READ_BYTES = 8 << 20


Recursive = Annotated[bool, option("--recursive", "-r", help="Everything below, not one level.")]
Human = Annotated[bool, option("--human", "-h", help="Sizes as 1.5 GiB.")]


def _when(info: ObjectInfo) -> str:
    if info.modified is None:
        return "-"
    import time

    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(info.modified))


def _as_json(info: ObjectInfo) -> dict[str, Any]:
    return {"key": info.key, "size": info.size, "etag": info.etag, "modified": info.modified}


def need_key(url: str, key: str) -> str:
    if not key or key.endswith("/"):
        raise InvalidArgumentError(f"{url} names no object; to list it: headrace ls {url}")
    return key


def _find(stores: Stores, url: str, recursive: bool) -> tuple[Store, str, Iterator[ObjectInfo]]:
    """(store, prefix, what a URL with or without wildcards names)."""
    glob = wildcard(url)
    if glob is None:
        store, prefix = stores.split(url)
        return store, prefix, store.list(prefix, recursive=recursive)
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
    return store, keys.prefix, found


def list_objects(
    url: Annotated[str, argument(metavar="URL", help="Bucket, prefix, directory or pattern.")],
    *,
    recursive: Recursive = False,
    long: Annotated[bool, option("--long", "-l", help="Versions (ETags) too.")] = False,
    human: Human = False,
    total: Annotated[bool, option("--summary", "-s", help="Only the number of objects and bytes.")] = False,
    summarize: Annotated[
        bool, option("--summarize", help="The number of objects and bytes at the end.")
    ] = False,
    where: Where,
    json: Json = False,
) -> int:
    """List objects: time, size, key. A prefix that ends in / lists what is in it. Quote patterns, or the
    shell takes them.

    Examples:

    * `headrace ls s3://bucket/` — one level

    * `headrace ls -r s3://bucket/train` — every key that starts with train

    * `headrace ls 's3://bucket/train/shard-{0,1}*.tar'` — by pattern: `*` and `?` stay in one directory, `**`
      does not

    * `headrace ls -rs /data/shards` — count and bytes of a local tree
    """
    write = sys.stdout.write
    with Stores(where) as stores:
        _, prefix, objects = _find(stores, url, recursive or total)
        found, size = 0, 0
        for info in objects:
            found, size = found + 1, size + info.size
            if total:
                continue
            if json:
                print_json(_as_json(info))
                continue
            is_directory = info.key.endswith("/") and not info.size
            bytes_ = "-" if is_directory else format_bytes(info.size) if human else f"{info.size:,}"
            tail = f" {info.etag}" if long and not is_directory else ""
            write(f"{'' if is_directory else _when(info):19} {bytes_:>14} {shown(info.key + tail)}\n")
        if (total or summarize) and json:
            print_json({"objects": found, "bytes": size})
        elif total or summarize:
            write(f"{found:,} objects, {size:,} bytes ({format_bytes(size)})\n")
        if not found and prefix:
            return fail(
                f"{url}: no object starts with this; list the bucket with: headrace ls {split_url(url)[0].rstrip('/')}/"
            )
    return 0


def du(
    urls: Annotated[list[str], argument(metavar="URL...", help="Prefixes, directories or patterns.")],
    *,
    depth: Annotated[
        int, option("--depth", least=0, metavar="N", help="Sums of directories down to this level, too.")
    ] = 0,
    human: Human = False,
    where: Where,
    json: Json = False,
) -> int:
    """Add up sizes: bytes, objects, URL.

    Examples:

    * `headrace du -h s3://bucket/train/`

    * `headrace du --depth 1 s3://bucket/` — every first-level prefix
    """
    with Stores(where) as stores:
        for url in urls:
            _, prefix, objects = _find(stores, url, True)
            base = prefix[: prefix.rfind("/") + 1]
            sums: dict[str, list[int]] = {"": [0, 0]}
            for info in objects:
                components = info.key[len(base) :].split("/")[:-1][:depth]
                for level in range(len(components) + 1):
                    entry = sums.setdefault("/".join(components[:level]), [0, 0])
                    entry[0] += info.size
                    entry[1] += 1
            if not sums[""][1] and prefix:
                raise NotFoundError(f"{url}: nothing below it")
            for name in sorted(sums, key=lambda n: (n == "", n)):
                size, count = sums[name]
                below = without_secrets(url if not name else f"{split_url(url)[0].rstrip('/')}/{base}{name}/")
                if json:
                    print_json({"url": below, "bytes": size, "objects": count})
                else:
                    sys.stdout.write(
                        f"{format_bytes(size) if human else f'{size:,}':>16} {count:>10,} {shown(below)}\n"
                    )
    return 0


def stat(
    url: Annotated[str, argument(metavar="URL", help="One object or file.")],
    *,
    where: Where,
    json: Json = False,
) -> int:
    """Show size, version and time of one object.

    Example: `headrace stat s3://bucket/train/index.json --json`
    """
    with Stores(where) as stores:
        store, key = stores.split(url)
        info = store.head(need_key(url, key))
    if json:
        print_json(_as_json(info))
    else:
        name = shown(without_secrets(url))
        sys.stdout.write(
            f"url       {name}\nsize      {info.size:,} bytes ({format_bytes(info.size)})\nversion   {shown(info.etag)}\nmodified  {_when(info)} UTC\n"
        )
    return 0


def _parse_range(text: str) -> tuple[int, int]:
    """[begin, end) of "0-511", "512-"."""
    first, dash, last = text.partition("-")
    if not dash or not first.isdigit() or (last and not last.isdigit()):
        raise InvalidArgumentError(f"--range {text}: expected FIRST-LAST or FIRST-, such as 0-511")
    end = int(last) + 1 if last else (1 << 64) - 1
    if end <= int(first):
        raise InvalidArgumentError(f"--range {text}: the last byte comes before the first")
    return int(first), end


def cat(
    urls: Annotated[list[str], argument(metavar="URL...", help="Objects or files.")],
    *,
    offset: Annotated[int, option("--offset", least=0, help="First byte.")] = 0,
    length: Annotated[
        int | None, option("--length", least=1, help="Number of bytes; default: to the end.")
    ] = None,
    range: Annotated[
        str | None,
        option("--range", metavar="FIRST-LAST", help="Bytes as HTTP counts them: 0-511 are 512."),
    ] = None,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Write objects to stdout, one after another, read ahead in parallel parts.

    Examples:

    * `headrace cat s3://bucket/train/index.json | jq .version`

    * `headrace cat --range 0-511 s3://bucket/a.tar | xxd`

    With `--json` each part is one line with its key, offset, length and base64 data.
    """
    begin, end = (
        (offset, (1 << 64) - 1 if length is None else offset + length)
        if range is None
        else _parse_range(range)
    )
    with Stores(where) as stores:
        for url in urls:
            store, key = stores.split(url)
            need_key(url, key)
            if json:
                _print_parts(store, key, begin, end)
                continue
            sys.stdout.flush()
            try:
                _native.read_stream(store._native, key, 1, begin=begin, end=end)
            except CancelledError:
                raise BrokenPipeError from None
    return 0


def _print_parts(store: Store, key: str, begin: int, end: int) -> None:
    import base64

    end = min(end, store.head(key).size)
    for start in range(begin, end, READ_BYTES):
        part = store.get_range(key, start, min(READ_BYTES, end - start))
        print_json(
            {"key": key, "offset": start, "length": len(part), "data": base64.b64encode(part).decode()}
        )


# --- rm ---


class _Remover:
    """Deletes keys in batches, several at a time."""

    def __init__(self, store: Store) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._store = store
        self._pool = ThreadPoolExecutor(DELETE_WORKERS)
        self._pending: list[Any] = []
        self.deleted = 0
        self.failures: list[tuple[str, Exception]] = []

    def add(self, keys: list[str]) -> None:
        self._pending.append((len(keys), self._pool.submit(self._store._native.remove_many, keys)))
        if len(self._pending) > 2 * DELETE_WORKERS:
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


def _batches(keys: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for key in keys:
        batch.append(key)
        if len(batch) == DELETE_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _remove_directories(path: str) -> None:
    """Directories that a recursive rm has emptied."""
    for directory, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(directory)
        except OSError:
            continue


def _is_link(url: str) -> bool:
    """A local link that is named itself: as for rm, a slash at its end would name what it leads to."""
    return is_local(url) and not url.endswith("/") and os.path.islink(local_path(url))


def _without_links(root: str, keys: Iterable[str]) -> Iterator[str]:
    """The names in a local tree that stand for these keys: a link to a directory for everything behind it."""
    links: dict[str, str] = {"": ""}

    def link_above(directory: str) -> str:
        if directory not in links:
            found = link_above(directory.rpartition("/")[0])
            links[directory] = found or (directory if os.path.islink(os.path.join(root, directory)) else "")
        return links[directory]

    done: set[str] = set()
    for key in keys:
        link = link_above(key.rpartition("/")[0])
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
    where: Where,
    json: Json = False,
) -> int:
    """Delete objects. With -r or a pattern it says how many it will delete and asks first.

    Examples:

    * `headrace rm s3://bucket/old.tar`

    * `headrace rm -r s3://bucket/tmp/ --yes`

    * `headrace rm --dry-run 's3://bucket/logs/2024-*.txt'`
    """
    deleted, failures = 0, []
    keys: Iterable[str]
    with Stores(where) as stores:
        for url in urls:
            is_many = recursive or wildcard(url) is not None
            if _is_link(url):
                directory, name = os.path.split(local_path(url))
                store, keys, is_many = stores.open(directory or "."), [name], False
            elif not is_many:
                store, key = stores.split(url)
                store.head(need_key(url, key))
                keys = [key]
            else:
                if recursive and wildcard(url) is None and split_url(url)[1] and not url.endswith("/"):
                    url += "/"
                store, _, objects = _find(stores, url, recursive)
                keys = (info.key for info in objects if recursive or not info.key.endswith("/"))
                if recursive and is_local(url) and wildcard(url) is None:
                    keys = _without_links(local_path(url), keys)
            if is_many and not yes and not dry_run:
                if not sys.stdin.isatty():
                    raise InvalidArgumentError(
                        f"Delete what is at {url}? Cannot ask without a terminal: add --yes"
                    )
                keys = list(keys)
                confirm(f"Delete {len(keys):,} objects at {url}?")
            done, failed = _remove(store, url, keys, dry_run, json)
            deleted += done
            failures += failed
            if recursive and is_local(url) and is_many and not dry_run and not failed:
                _remove_directories(local_path(url))
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
    remover = None if dry_run else _Remover(store)
    try:
        for batch in _batches(keys):
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
