"""ls, stat, cat, cp, rm."""

from __future__ import annotations

import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import datetime, timezone
from typing import Annotated, Any, NamedTuple

import typer

from headrace._native import ObjectInfo
from headrace._store import Store
from headrace._units import format_bytes
from headrace.cli.common import Anonymous, Endpoint, Json, Region, Stores, console, fail, print_json, split_url, transfer_bar
from headrace.errors import InvalidArgumentError, NotFoundError

# A part of a copy: 8 MiB is the engine's block; S3 allows 10,000 parts of an upload.
PART_BYTES = 8 << 20
MAX_PARTS = 10_000
WORKERS = 16


def _when(info: ObjectInfo) -> str:
    if info.modified is None:
        return "-"
    return datetime.fromtimestamp(info.modified, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def _as_json(info: ObjectInfo) -> dict[str, Any]:
    return {"key": info.key, "size": info.size, "etag": info.etag, "modified": info.modified}


def list_objects(
    url: Annotated[str, typer.Argument(metavar="URL", help="Bucket, prefix or directory.")],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Everything below, not one level.")] = False,
    total: Annotated[bool, typer.Option("--summary", "-s", help="Only the number of objects and bytes.")] = False,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> int:
    """List objects: time, size, key. A prefix that ends in / lists what is in it.

    Examples:

    * `headrace ls s3://bucket/` — one level

    * `headrace ls -r s3://bucket/train` — every key that starts with train

    * `headrace ls -rs /data/shards` — count and bytes of a local tree
    """
    with Stores(endpoint, region, anonymous) as stores:
        store, prefix = stores.split(url)
        found, size = 0, 0
        for info in store.list(prefix, recursive=recursive or total):
            found, size = found + 1, size + info.size
            if total:
                continue
            if json:
                print_json(_as_json(info))
            elif info.key.endswith("/"):
                sys.stdout.write(f"{'':19} {'-':>14} {info.key}\n")
            else:
                sys.stdout.write(f"{_when(info):19} {info.size:>14,} {info.key}\n")
        if total and json:
            print_json({"objects": found, "bytes": size})
        elif total:
            sys.stdout.write(f"{found:,} objects, {size:,} bytes ({format_bytes(size)})\n")
        if not found and prefix:
            return fail(f"{url}: no object starts with this; list the bucket with: headrace ls {split_url(url)[0].rstrip('/')}/")
    return 0


def stat(
    url: Annotated[str, typer.Argument(metavar="URL", help="One object or file.")],
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Show size, version and time of one object.

    Example: `headrace stat s3://bucket/train/index.json --json`
    """
    with Stores(endpoint, region, anonymous) as stores:
        store, key = stores.split(url)
        info = store.head(_need_key(url, key))
    if json:
        print_json(_as_json(info))
        return
    console().print(
        f"url       {url}\nsize      {info.size:,} bytes ({format_bytes(info.size)})\nversion   {info.etag}\nmodified  {_when(info)} UTC", markup=False
    )


def _need_key(url: str, key: str) -> str:
    if not key or key.endswith("/"):
        raise InvalidArgumentError(f"{url} names no object; to list it: headrace ls {url}")
    return key


def cat(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Objects or files.")],
    offset: Annotated[int, typer.Option(min=0, help="First byte.")] = 0,
    length: Annotated[int | None, typer.Option(min=1, help="Number of bytes; default: to the end.")] = None,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Write objects to stdout, one after another.

    Examples:

    * `headrace cat s3://bucket/train/index.json | jq .version`

    * `headrace cat --offset 0 --length 512 s3://bucket/a.tar | xxd`

    With `--json` each object is one line with its key, offset, length and base64 data.
    """
    with Stores(endpoint, region, anonymous) as stores:
        for url in urls:
            store, key = stores.split(url)
            info = store.head(_need_key(url, key))
            end = info.size if length is None else offset + length
            if offset > info.size or end > info.size:
                raise InvalidArgumentError(f"{url} has {info.size} bytes: [{offset}, {end}) is not in it")
            for start in range(offset, end, PART_BYTES):
                part = store.get_range(key, start, min(PART_BYTES, end - start))
                if json:
                    import base64

                    print_json({"key": key, "offset": start, "length": len(part), "data": base64.b64encode(part).decode()})
                else:
                    sys.stdout.buffer.write(part)
    if not json:
        sys.stdout.buffer.flush()


class Copy(NamedTuple):
    """One object to copy."""

    source: Store
    from_key: str
    info: ObjectInfo
    target: Store
    to_key: str


def _plan_copies(stores: Stores, source_url: str, target_url: str, recursive: bool) -> list[Copy]:
    source, key = stores.split(source_url)
    if not recursive:
        info = source.head(_need_key(source_url, key))
        into_directory = target_url.endswith("/") or not split_url(target_url)[1]
        target, to_key = stores.split(target_url)
        name = key.rsplit("/", 1)[-1]
        return [Copy(source, key, info, target, to_key + name if into_directory else to_key)]
    prefix = key if not key or key.endswith("/") else key + "/"
    target = stores.open(target_url.rstrip("/") or "/")
    found = [Copy(source, o.key, o, target, o.key[len(prefix) :]) for o in source.list(prefix)]
    if not found:
        raise NotFoundError(f"{source_url}: nothing below it; to copy one object leave out -r")
    return found


class _Copier:
    """Copies objects with a pool of threads; large ones in parts. Bytes stay in the engine's memory."""

    def __init__(self, advance: Any) -> None:
        self._advance = advance
        self._pool = ThreadPoolExecutor(WORKERS)
        self._pending: set[Future[None]] = set()

    def _submit(self, work: Any, *arguments: Any) -> None:
        # A bounded queue: a tree of millions of files must not become millions of futures.
        while len(self._pending) >= 4 * WORKERS:
            self._collect()
        self._pending.add(self._pool.submit(work, *arguments))

    def _collect(self) -> None:
        done, self._pending = wait(self._pending, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()

    def run(self, copies: list[Copy]) -> None:
        try:
            for copy in copies:
                if copy.info.size > PART_BYTES:
                    self._copy_parts(copy)
                else:
                    self._submit(self._copy_whole, copy)
            while self._pending:
                self._collect()
        except BaseException:
            # Ends the transfers under way, so that the threads can be joined.
            for copy in copies:
                copy.source.close()
                copy.target.close()
            raise
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _copy_whole(self, copy: Copy) -> None:
        info = copy.info
        copy.source._native.relay((copy.from_key, info.etag, 0, info.size), copy.target._native, copy.to_key)
        self._advance(info.size)

    def _copy_parts(self, copy: Copy) -> None:
        part_bytes = max(PART_BYTES, -(-copy.info.size // MAX_PARTS))
        target = copy.target._native
        upload = target.create_upload(copy.to_key)
        parts: list[tuple[int, str]] = []

        def copy_part(number: int, offset: int) -> None:
            length = min(part_bytes, copy.info.size - offset)
            etag = copy.source._native.relay((copy.from_key, copy.info.etag, offset, length), target, copy.to_key, upload, number)
            parts.append((number, etag))
            self._advance(length)

        try:
            for number, offset in enumerate(range(0, copy.info.size, part_bytes), start=1):
                self._submit(copy_part, number, offset)
            while self._pending:
                self._collect()
            target.complete_upload(copy.to_key, upload, sorted(parts))
        except BaseException:
            wait(self._pending)
            target.abort_upload(copy.to_key, upload)
            raise


def cp(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Object, file, or with -r a prefix or directory.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where to; a trailing / or a directory keeps the name.")],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Everything below SRC.")] = False,
    no_clobber: Annotated[bool, typer.Option("--no-clobber", "-n", help="Skip what exists at DST.")] = False,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Copy between stores and the local disk, in parallel. What exists at DST is replaced unless -n.

    Examples:

    * `headrace cp s3://bucket/model.bin .`

    * `headrace cp -r ./shards s3://bucket/train` — ./shards/a becomes s3://bucket/train/a

    * `headrace cp -r -n s3://bucket/train s3://other/train` — only what is missing
    """
    started = time.monotonic()
    with Stores(endpoint, region, anonymous) as stores:
        copies = _plan_copies(stores, source, target, recursive)
        found = len(copies)
        if no_clobber:
            copies = _without_existing(copies, recursive)
        total = sum(copy.info.size for copy in copies)
        with transfer_bar("copying", total) as advance:
            _Copier(advance).run(copies)
    seconds = time.monotonic() - started
    if json:
        print_json({"objects": len(copies), "skipped": found - len(copies), "bytes": total, "seconds": seconds})
    else:
        skipped = f", {found - len(copies):,} skipped" if found > len(copies) else ""
        console().print(f"{len(copies):,} objects, {format_bytes(total)} in {seconds:.1f} s ({format_bytes(total / max(seconds, 1e-9))}/s){skipped}")


def _without_existing(copies: list[Copy], recursive: bool) -> list[Copy]:
    if not recursive:
        return [copy for copy in copies if not copy.target.exists(copy.to_key)]
    try:
        existing = {info.key for info in copies[0].target.list()}
    except NotFoundError:
        return copies
    return [copy for copy in copies if copy.to_key not in existing]


def rm(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Objects or files, or with -r prefixes.")],
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Everything below each URL.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Delete objects. With -r it says what it will delete and asks first.

    Examples:

    * `headrace rm s3://bucket/old.tar`

    * `headrace rm -r s3://bucket/tmp/ --yes`
    """
    deleted = 0
    with Stores(endpoint, region, anonymous) as stores:
        for url in urls:
            store, key = stores.split(url)
            if not recursive:
                store.head(_need_key(url, key))
                store.delete(key)
                deleted += 1
                continue
            prefix = key if not key or key.endswith("/") else key + "/"
            keys = [info.key for info in store.list(prefix)]
            if not keys:
                raise NotFoundError(f"{url}: nothing below it")
            if not yes:
                _confirm(f"Delete {len(keys):,} objects below {url}?")
            with ThreadPoolExecutor(WORKERS) as pool:
                list(pool.map(store.delete, keys))
            deleted += len(keys)
    if json:
        print_json({"deleted": deleted})
    else:
        console().print(f"{deleted:,} deleted")


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidArgumentError(f"{question} Cannot ask without a terminal: add --yes")
    typer.confirm(question, abort=True, err=True)


def register(app: typer.Typer) -> None:
    app.command("ls")(list_objects)
    app.command("stat")(stat)
    app.command("cat")(cat)
    app.command("cp")(cp)
    app.command("rm")(rm)
