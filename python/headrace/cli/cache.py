"""``headrace cache``: what a cache directory holds, and making room in it."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from headrace.base.units import format_bytes
from headrace.cli.base import shown
from headrace.cli.common import console, print_json
from headrace.cli.declare import Json
from headrace.cli.library import add
from headrace.errors import InvalidArgumentError
from headrace.store.cache import Cache, CachedExtent

app = typer.Typer(
    no_args_is_help=True,
    help="Look into the directory that `cache=` of a loader or store keeps, and make room in it. Jobs may run meanwhile.",
)

Directory = Annotated[str, typer.Argument(metavar="DIR", help="As given to cache= or --cache.")]


def _by_object(cache: Cache) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for extent in cache.extents():
        row = rows.setdefault(
            (extent.url, extent.etag),
            {"url": extent.url, "etag": extent.etag, "size": extent.object_size, "extents": 0, "cached": 0},
        )
        row["extents"] += 1
        row["cached"] += extent.length
    return sorted(rows.values(), key=lambda row: (row["url"], row["etag"]))


def ls(
    directory: Directory,
    *,
    extents: Annotated[
        bool, typer.Option("--extents", help="A line a file instead of one an object.")
    ] = False,
    json: Json = False,
) -> None:
    """List what is cached: each version of an object, and how much of it is there.

    Examples:

    * `headrace cache ls /nvme/headrace`
    """
    cache = Cache(directory)
    rows: list[Any] = list(cache.extents()) if extents else _by_object(cache)
    if json:
        print_json([row._asdict() if isinstance(row, CachedExtent) else row for row in rows])
        return
    for row in rows:
        if isinstance(row, CachedExtent):
            sys.stdout.write(f"{row.offset:>14} {row.length:>12} {shown(row.url)}\n")
        else:
            share = f"{100 * row['cached'] / row['size']:.0f}%" if row["size"] else "?"
            sys.stdout.write(
                f"{format_bytes(row['cached']):>10} {share:>5} {shown(row['url'] or '(broken)')}\n"
            )


def stat(directory: Directory, *, json: Json = False) -> None:
    """Say how much a cache holds.

    Examples:

    * `headrace cache stat /nvme/headrace --json`
    """
    usage = Cache(directory).usage()
    if json:
        print_json(usage._asdict())
        return
    sys.stdout.write(
        f"{usage.extents} extents, {format_bytes(usage.data_bytes)} of data, {format_bytes(usage.file_bytes)} of files\n"
    )


def verify(directory: Directory, *, json: Json = False) -> int:
    """Read every file of a cache and delete those that are broken. Exit code 1 when there were any.

    Jobs check what they read, so this is for disks in doubt.

    Examples:

    * `headrace cache verify /nvme/headrace`
    """
    cache = Cache(directory)
    with console().status("reading") as line:
        check = cache.verify(lambda done: line.update(f"read {format_bytes(done)}"))
    if json:
        print_json(check._asdict())
    else:
        sys.stdout.write(
            f"{check.extents} extents, {format_bytes(check.data_bytes)}: {check.broken} broken{', deleted' if check.broken else ''}\n"
        )
    return 1 if check.broken else 0


def free(
    directory: Directory,
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help="Objects whose URL begins so, such as s3://bucket/old/.")
    ] = "",
    *,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    json: Json = False,
) -> None:
    """Delete what is cached of some objects, or everything. The objects themselves stay.

    Examples:

    * `headrace cache free /nvme/headrace s3://bucket/old/`
    """
    if bool(url) == everything:
        raise InvalidArgumentError("name the objects by the beginning of their URL, or give --all")
    _told(Cache(directory).remove(url), json)


def gc(
    directory: Directory,
    *,
    limit: Annotated[
        str, typer.Option("--limit", metavar="SIZE", help="Bytes that may stay, such as 500GB.")
    ],
    json: Json = False,
) -> None:
    """Make a cache smaller: what is least likely to be read again goes first.

    Examples:

    * `headrace cache gc /nvme/headrace --limit 500GB`
    """
    _told(Cache(directory).shrink(limit), json)


def _told(freed: int, json: bool) -> None:
    if json:
        print_json({"freed_bytes": freed})
    else:
        sys.stdout.write(f"{format_bytes(freed)} deleted\n")


def register(parent: typer.Typer) -> None:
    for function in (ls, stat, verify, free, gc):
        add(app, function)
    parent.add_typer(app, name="cache")
