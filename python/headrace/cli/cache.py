"""``headrace cache``: what a cache directory holds, and making room in it."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from headrace.base.units import format_bytes, parse_bytes, parse_seconds
from headrace.caching.cache import Cache
from headrace.caching.simulation import Machine
from headrace.cli import _cache_curve
from headrace.cli._plot import Html, check_writable, prepare_pictures
from headrace.cli.base import shown, told_when_stopped
from headrace.cli.common import console, print_json, status_line
from headrace.cli.declare import Json, Memory, OptionSet, Where, option
from headrace.cli.index import BlockBytes
from headrace.cli.library import add
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.sources.filling import FillProgress
from headrace.store.cache import CachedExtent

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Look into the directory that `cache=` of a loader or store keeps, and make room in it. Jobs may run "
        "meanwhile."
    ),
)


class Run(OptionSet):
    """How a run reads, where the order matters."""

    batch_size: Annotated[
        int,
        option(
            "--batch-size",
            help="Samples a rank; 0: the order of the run does not matter.",
            least=0,
            panel="Run",
        ),
    ] = 0
    world_size: Annotated[int, option("--world-size", help="Ranks.", least=1, panel="Run")] = 1
    epochs: Annotated[
        int, option("--epochs", help="Of the run; 0: 1 to warm, 3 to simulate.", least=0, panel="Run")
    ] = 0
    seed: Annotated[int | None, option("--seed", help="Default: the order's own.", least=0, panel="Run")] = (
        None
    )
    order: Annotated[
        str | None,
        option("--order", help="headrace (default), sequential, mosaic:py1e ... or litdata.", panel="Run"),
    ] = None

    def order_options(self) -> dict[str, Any]:
        """Of the loader, those that are given."""
        if not self.batch_size and (self.seed is not None or self.order is not None):
            raise InvalidArgumentError("--seed and --order belong to a run: give its --batch-size too")
        given: dict[str, Any] = {"seed": self.seed, "order": self.order}
        return {name: value for name, value in given.items() if value is not None}


Directory = Annotated[str, typer.Argument(metavar="DIR", help="As given to cache= or --cache.")]

Beginning = Annotated[
    str, typer.Argument(metavar="[URL]", help="Objects whose URL begins so, such as s3://bucket/old/.")
]

Key = Annotated[
    str | None,
    typer.Option(
        "--cache-key", metavar="SOURCE", help="Of an encrypted cache: file:PATH, env:NAME or command:PROGRAM."
    ),
]


def _by_object(cache: Cache) -> list[dict[str, Any]]:
    """``cached``: bytes of the object that are there, however often; lanes cut blocks elsewhere in each
    epoch, so that files overlap."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    ends: dict[tuple[str, str], int] = {}
    pins = cache.pins()
    for extent in sorted(cache.extents(), key=lambda each: each.offset):
        row = rows.setdefault(
            (extent.url, extent.etag),
            {
                "url": extent.url,
                "etag": extent.etag,
                "size": extent.object_size,
                "extents": 0,
                "cached": 0,
                "pinned": any(extent.url.startswith(pin) for pin in pins),
            },
        )
        row["extents"] += 1
        name, end = (extent.url, extent.etag), extent.offset + extent.length
        row["cached"] += max(0, end - max(extent.offset, ends.get(name, 0)))
        ends[name] = max(end, ends.get(name, 0))
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
                f"{format_bytes(row['cached']):>10} {share:>5} "
                f"{shown(row['url'] or '(broken)')}{' pinned' if row['pinned'] else ''}\n"
            )


def stat(directory: Directory, *, json: Json = False) -> None:
    """Say how much a cache holds.

    Examples:

    * `headrace cache stat /nvme/headrace --json`
    """
    cache = Cache(directory)
    usage, pins = cache.usage(), cache.pins()
    if json:
        print_json({**usage._asdict(), "pins": pins})
        return
    sys.stdout.write(
        f"{usage.extents} extents, {format_bytes(usage.data_bytes)} of data, "
        f"{format_bytes(usage.file_bytes)} of files\n"
    )
    if usage.key_id:
        sys.stdout.write(f"encrypted under the key {usage.key_id}\n")
    for pin in pins:
        sys.stdout.write(f"pinned: {shown(pin)}\n")


def verify(directory: Directory, *, cache_key: Key = None, json: Json = False) -> int:
    """Read every file of a cache and delete those that are broken. Exit code 1 when there were any.

    Jobs check what they read, so this is for disks in doubt. Of an encrypted cache the key finds also what
    was changed on purpose.

    Examples:

    * `headrace cache verify /nvme/headrace`
    """
    cache = Cache(directory, key=cache_key)
    with console().status("reading") as line:
        check = cache.verify(lambda done: line.update(f"read {format_bytes(done)}"))
    if json:
        print_json(check._asdict())
    else:
        sys.stdout.write(
            f"{check.extents} extents, {format_bytes(check.data_bytes)}: {check.broken} "
            f"broken{', deleted' if check.broken else ''}\n"
        )
    return 1 if check.broken else 0


def free(
    directory: Directory,
    url: Beginning = "",
    *,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    json: Json = False,
) -> None:
    """Delete what is cached of some objects, or everything. The objects themselves stay. Objects are named by
    the beginning of their URL: there are no patterns, and no --include or --exclude.

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


def warm(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    *,
    cache: Annotated[str, typer.Option("--cache", metavar="DIR", help="The cache; made when it is missing.")],
    cache_limit: Annotated[
        str | None, typer.Option("--cache-limit", metavar="SIZE", help="As the run will say, such as 2TB.")
    ] = None,
    cache_key: Key = None,
    cache_share: Annotated[
        str | None,
        typer.Option("--cache-share", metavar="group", help="Make a new directory for its group, too."),
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help="And pin it, so that no other job evicts it.")] = False,
    memory: Memory = "1GiB",
    run: Run,
    where: Where,
    json: Json = False,
) -> int:
    """Fetch a dataset into a cache before a run, on any machine that has the disk. What is there is not read,
    so one that was interrupted goes on. Exit code 1 when not all has room. A dataset is fetched as a whole:
    instead of
    --include or --exclude name the part that the run reads, as it will name it (a folder, a pattern, one
    object).

    Where the cache is smaller than the dataset, tell how the run will read: what it needs first is fetched.

    Examples:

    * `headrace cache warm s3://bucket/train --cache /nvme/headrace`

    * `headrace cache warm s3://bucket/train --cache /nvme/headrace --cache-limit 2TB --batch-size 256 --world-size 8 --seed 7`
    """  # noqa: E501
    into = Cache(cache, create=True, limit=cache_limit, key=cache_key, share=cache_share)
    progress = FillProgress(f"warming {url}")
    with told_when_stopped("what was fetched stays: the same command goes on"):
        try:
            report = into.warm(
                url,
                batch_size=run.batch_size or None,
                world_size=run.world_size,
                epochs=run.epochs or 1,
                pin=pin,
                progress=progress,
                memory=memory,
                **run.order_options(),
                **where.as_dict(),
            )
        finally:
            progress.end()
    if json:
        print_json(report._asdict())
    else:
        there = report.total_bytes - report.missing_bytes
        share = 100 * there // report.total_bytes if report.total_bytes else 100
        sys.stdout.write(
            f"{format_bytes(report.fetched_bytes)} fetched, {format_bytes(report.held_bytes)} were there: "
            f"{share}% of {format_bytes(report.total_bytes)} is in the cache\n"
        )
        if report.missing_bytes:
            sys.stdout.write(
                f"{format_bytes(report.missing_bytes)} have no room: all of it takes "
                f"{format_bytes(report.file_bytes)}\n"
            )
    return 1 if report.missing_bytes else 0


def pin(
    directory: Directory,
    url: Beginning = "",
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Take the pin away.")] = False,
    json: Json = False,
) -> None:
    """Keep what is cached of some objects from ever being evicted, by any job, or list what is pinned.

    It may be pinned before it is there. `free` deletes it all the same.

    Examples:

    * `headrace cache pin /nvme/headrace s3://bucket/validation/`

    * `headrace cache pin /nvme/headrace s3://bucket/validation/ --remove`
    """
    cache = Cache(directory)
    if remove and not url:
        raise InvalidArgumentError("--remove: say which pin")
    if remove and not cache.unpin(url):
        raise NotFoundError(
            f"{url}: not pinned in {directory}; `headrace cache pin {directory}` lists what is"
        )
    if url and not remove:
        cache.pin(url)
    pins = cache.pins()
    if json:
        print_json({"pins": pins})
    elif not url:
        for each in pins:
            sys.stdout.write(f"{shown(each)}\n")


def simulate(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    *,
    sizes: Annotated[
        str,
        typer.Option(
            "--sizes",
            metavar="SIZE,SIZE",
            help="Caches to try, such as 0,500GB,1TB; default: eleven up to all of it.",
        ),
    ] = "",
    ranks_per_node: Annotated[
        int, typer.Option("--ranks-per-node", min=0, help="Ranks that share the cache; 0: all.")
    ] = 0,
    bandwidth: Annotated[
        str, typer.Option("--bandwidth", metavar="SIZE", help="From the store a second, for all these ranks.")
    ] = "1.25GB",
    first_byte: Annotated[
        str, typer.Option("--first-byte", metavar="TIME", help="Until the store begins to answer.")
    ] = "30ms",
    disk: Annotated[
        str, typer.Option("--disk", metavar="SIZE", help="From the cache a second, for all these ranks.")
    ] = "3GB",
    step: Annotated[
        str, typer.Option("--step", metavar="TIME", help="Of training, from batch to batch.")
    ] = "100ms",
    plot: Annotated[
        str, typer.Option("--plot", metavar="FILE", help="Draw the curve, such as cache.png.")
    ] = "",
    page: Html = "",
    block_bytes: BlockBytes = None,
    memory: Memory = "4GiB",
    run: Run,
    where: Where,
    json: Json = False,
) -> None:
    """Say what a cache would bring to a run by its size: hits, bytes from the store, and how long the loop
    waits.

    The real loader goes through the run without moving data, and its reads are replayed against caches: with
    our rule of eviction, and with LRU. Bytes are exact as long as the store keeps up; waiting follows from
    the rates that are given.

    Examples:

    * `headrace cache simulate s3://bucket/train --batch-size 256 --world-size 8 --epochs 3`

    * `headrace cache simulate s3://bucket/train --batch-size 256 --sizes 0,500GB,1TB,2TB --html cache.html`
    """
    if not run.batch_size:
        raise InvalidArgumentError("--batch-size: say how the run reads")
    figure, epochs = prepare_pictures(plot), run.epochs or 3
    if page:
        check_writable(page)
    with status_line("simulating"):
        found = Cache.simulate(
            url,
            batch_size=run.batch_size,
            sizes=sizes.split(",") if sizes else None,
            epochs=epochs,
            world_size=run.world_size,
            ranks_per_node=ranks_per_node or None,
            memory=memory,
            machine=Machine(
                parse_bytes(bandwidth, "--bandwidth"),
                parse_seconds(first_byte, "--first-byte"),
                parse_bytes(disk, "--disk"),
                parse_seconds(step, "--step"),
            ),
            block_bytes=block_bytes,
            **run.order_options(),
            **where.as_dict(),
        )
    if figure is not None:
        _cache_curve.picture(found, figure, plot, f"{url}, {epochs} epochs")
    if page:
        with open(page, "w", encoding="utf-8") as file:
            file.write(_cache_curve.page(found, f"A cache for {shown(url)}, {epochs} epochs"))
    if json:
        print_json(
            {
                "data_bytes": found.data_bytes,
                "file_bytes": found.file_bytes,
                "machine": found.machine._asdict(),
                "rows": [row._asdict() for row in found.rows],
            }
        )
        return
    out = console()
    out.print(
        f"{format_bytes(found.data_bytes)} of data, {format_bytes(found.file_bytes)} of files when all of it "
        f"is cached; {epochs} epochs"
    )
    out.print(_cache_curve.table(found))


def _told(freed: int, json: bool) -> None:
    if json:
        print_json({"freed_bytes": freed})
    else:
        sys.stdout.write(f"{format_bytes(freed)} deleted\n")


def register(parent: typer.Typer) -> None:
    for function in (ls, stat, warm, pin, verify, free, gc, simulate):
        add(app, function)
    parent.add_typer(app, name="cache")
