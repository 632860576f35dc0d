"""bench fetch, bench load: what this machine and store can do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace._loader import Loader
from headrace._native import ObjectInfo
from headrace._store import Store
from headrace._units import format_bytes, parse_bytes
from headrace.cli.common import Anonymous, Endpoint, Format, Json, Memory, Region, console, print_json, split_url
from headrace.errors import InvalidArgumentError, NotFoundError

app = typer.Typer(no_args_is_help=True, help="Measure fetching and loading.", rich_markup_mode="markdown")


class Stopwatch:
    """Wall and CPU seconds (user + system, all threads) since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def read(self) -> dict[str, float]:
        return {"seconds": time.monotonic() - self._wall, "cpu_seconds": time.process_time() - self._cpu}


def _ranges(objects: list[ObjectInfo], part_bytes: int, total: int) -> Iterator[tuple[str, int, int]]:
    """Parts of the objects, going round until `total` bytes are asked for."""

    def parts() -> Iterator[tuple[str, int, int]]:
        for info in objects:
            for offset in range(0, info.size, part_bytes):
                yield info.key, offset, min(part_bytes, info.size - offset)

    asked = 0
    for part in cycle(list(islice(parts(), 1_000_000))):
        if asked >= total:
            return
        asked += part[2]
        yield part


def _fetch_once(store: Store, objects: list[ObjectInfo], part_bytes: int, in_flight: int, total: int) -> dict[str, Any]:
    received, requests, watch = 0, 0, Stopwatch()
    for result in store.get_ranges(_ranges(objects, part_bytes, total), in_flight=in_flight):
        received, requests = received + len(result.data), requests + 1
    row: dict[str, Any] = {"part_bytes": part_bytes, "in_flight": in_flight, "bytes": received, "requests": requests, **watch.read()}
    row["gb_per_s"] = received / row["seconds"] / 1e9
    row["cpu_seconds_per_gb"] = row["cpu_seconds"] / max(received / 1e9, 1e-9)
    return row


def _numbers(text: str, name: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        raise InvalidArgumentError(f"{name} {text}: expected numbers with commas between, such as 4,16,64") from None


@app.command()
def fetch(
    url: Annotated[str, typer.Argument(metavar="URL", help="Prefix, directory or object to read from.")],
    part_bytes: Annotated[str, typer.Option("--part-bytes", help="Sizes of a read, with commas.")] = "64KiB,1MiB,8MiB",
    in_flight: Annotated[str, typer.Option("--in-flight", help="Reads under way, with commas.")] = "4,16,64",
    total: Annotated[str, typer.Option("--bytes", help="Bytes to read for each row.")] = "256MiB",
    memory: Memory = "1GiB",
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Read ranges as fast as the store gives them: throughput and CPU by part size and reads under way.

    Examples:

    * `headrace bench fetch s3://bucket/shards`

    * `headrace bench fetch s3://bucket/shards --part-bytes 8MiB --in-flight 32,128 --bytes 4GiB --json`
    """
    root, prefix = split_url(url)
    rows = []
    with Store(root, memory=memory, endpoint=endpoint, region=region, anonymous=anonymous) as lister:
        objects = [info for info in islice(lister.list(prefix), 100_000) if info.size]
    if not objects:
        raise NotFoundError(f"{url}: nothing to read there")
    for size in part_bytes.split(","):
        for count in _numbers(in_flight, "--in-flight"):
            # A fresh store each: connections, their number and the counters belong to the row.
            with Store(root, memory=memory, endpoint=endpoint, region=region, anonymous=anonymous, max_in_flight=count) as store:
                rows.append(_fetch_once(store, objects, parse_bytes(size, "--part-bytes"), count, parse_bytes(total, "--bytes")))
    if json:
        print_json({"url": url, "rows": rows})
        return
    table = Table("part", "in flight", "GB/s", "CPU s/GB", "requests/s", box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            format_bytes(row["part_bytes"]),
            str(row["in_flight"]),
            f"{row['gb_per_s']:.2f}",
            f"{row['cpu_seconds_per_gb']:.3f}",
            f"{row['requests'] / row['seconds']:,.0f}",
        )
    console().print(table)


@app.command()
def load(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    batch_size: Annotated[int, typer.Option("--batch-size", min=1)] = 64,
    batches: Annotated[int, typer.Option("--batches", min=0, help="Stop after this many; 0: one epoch.")] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    sequential: Annotated[bool, typer.Option("--sequential", help="Without shuffling.")] = False,
    prefetch: Annotated[int, typer.Option("--prefetch", min=1)] = 16,
    format: Format = "auto",
    memory: Memory = "4GiB",
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Run the loader without a model: samples a second, CPU, time to the first batch, stalls by cause.

    Examples:

    * `headrace bench load s3://bucket/tokens --batch-size 64`

    * `headrace bench load ./shards --batches 1000 --memory 256MiB --json`
    """
    started = Stopwatch()
    options: dict[str, Any] = {"endpoint": endpoint, "region": region, "anonymous": anonymous}
    with Loader(
        url, batch_size=batch_size, shuffle=not sequential, seed=seed, prefetch=prefetch, format=format, memory=memory, rank=0, world_size=1, **options
    ) as loader:
        samples, count, first = 0, 0, 0.0
        for batch in islice(loader, batches or None):
            first = first or started.read()["seconds"]
            samples, count = samples + len(batch.ids), count + 1
        stats = loader.stats()
    report: dict[str, Any] = {"url": url, "batches": count, "samples": samples, "first_batch_s": first, **started.read()}
    report["samples_per_s"] = samples / report["seconds"]
    report["samples_per_cpu_s"] = samples / max(report["cpu_seconds"], 1e-9)
    report["stats"] = stats
    if json:
        print_json(report)
        return
    out = console()
    out.print(
        f"{samples:,} samples in {report['seconds']:.2f} s: {report['samples_per_s']:,.0f} a second, {report['samples_per_cpu_s']:,.0f} a CPU second; "
        f"first batch after {1000 * first:.0f} ms; at most {format_bytes(stats.get('pool.peak_bytes', 0))} of memory"
    )
    stalls = {cause: s for cause, s in stats["stall_seconds"].items() if s >= 0.0005}
    out.print("waited for: " + (", ".join(f"{cause} {s:.3f} s" for cause, s in sorted(stalls.items(), key=lambda kv: -kv[1])) or "nothing"))


def register(parent: typer.Typer) -> None:
    parent.add_typer(app, name="bench")
