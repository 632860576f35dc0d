"""bench fetch, bench load, bench train: what this machine and store can do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace import _native
from headrace._native import ObjectInfo
from headrace.base.units import format_bytes, parse_bytes
from headrace.cli import _knee_picture, _settings
from headrace.cli._knee import bar, knee, recommend, sweep
from headrace.cli._plot import Html, Plot, prepare_pictures, write_pictures
from headrace.cli.common import Format, console, print_json, split_url, status_line
from headrace.cli.declare import Json, Memory, Where
from headrace.cli.index import Split
from headrace.cli.library import add
from headrace.cli.train import train
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.loader.loader import Loader
from headrace.loader.report import check_ending
from headrace.store.store import Store
from headrace.store.urls import is_hidden, without_secrets

app = typer.Typer(
    no_args_is_help=True, help="Measure fetching, loading and emulated training.", rich_markup_mode="markdown"
)


DOUBLINGS = [1 << i for i in range(11)]


class Stopwatch:
    """Wall and CPU seconds (user + system, all threads) since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def read(self) -> dict[str, float]:
        return {"seconds": time.monotonic() - self._wall, "cpu_seconds": time.process_time() - self._cpu}


def _numbers(text: str, name: str) -> list[int]:
    try:
        numbers = [int(item) for item in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise InvalidArgumentError(
            f"{name} {text}: expected numbers of at least 1 with commas between, such as 4,16,64"
        )
    return sorted(set(numbers))


def _probe(
    root: str, options: dict[str, Any], objects: list[ObjectInfo], shape: dict[str, Any]
) -> dict[str, Any]:
    """One row: a fresh store, so that connections and counters belong to it alone."""
    part, count, seconds = shape["part_bytes"], shape["in_flight"], shape["seconds"]
    # Size classes round up: a quarter more than the parts themselves.
    memory = max(count * part * 5 // 4, 1 << 20)
    with Store(
        root, memory=memory, max_in_flight=count, adaptive=False, hedge_fraction=0.0, **options
    ) as store:
        watch = Stopwatch()
        row = {**shape, **_native.probe_fetch(store._native, objects, part, count, seconds)}
        row["cpu_seconds"] = watch.read()["cpu_seconds"]
    row["gb_per_s"] = row["bytes"] / max(row["seconds"], 1e-9) / 1e9
    row["cpu_seconds_per_gb"] = row["cpu_seconds"] / max(row["bytes"] / 1e9, 1e-9)
    return row


def _milliseconds(microseconds: float) -> str:
    return f"{microseconds / 1000:.3g}" if microseconds < 1e6 else f"{microseconds / 1000:,.0f}"


def _print_rows(rows: list[dict[str, Any]]) -> None:
    """Table and plot: throughput as bars, and the first-byte times beside them."""
    best = max(row["gb_per_s"] for row in rows)
    table = Table(box=None, pad_edge=False)
    for name in (
        "part",
        "in flight",
        "GB/s",
        "CPU s/GB",
        "requests/s",
        "p50",
        "p90",
        "p99",
        "p99.9 ms to first byte",
        "retries",
    ):
        table.add_column(name, justify="right")
    table.add_column("throughput", no_wrap=True, min_width=31)
    for row in rows:
        first = [_milliseconds(row[f"first_byte_{p}_us"]) for p in ("p50", "p90", "p99", "p999")]
        table.add_row(
            format_bytes(row["part_bytes"]),
            str(row["in_flight"]),
            f"{row['gb_per_s']:.3f}",
            f"{row['cpu_seconds_per_gb']:.3f}",
            f"{row['requests'] / max(row['seconds'], 1e-9):,.0f}",
            *first,
            str(row["extra_attempts"]),
            bar(row["gb_per_s"] / best) + (" ◀ knee" if row.get("is_knee") else ""),
        )
    out = console()
    out.print(table)


def fetch(
    url: Annotated[str, typer.Argument(metavar="URL", help="Prefix, directory or object to read from.")],
    *,
    part_bytes: Annotated[
        str, typer.Option("--part-bytes", help="Sizes of a read, with commas.")
    ] = "64KiB,1MiB,8MiB",
    in_flight: Annotated[
        str,
        typer.Option(
            "--in-flight",
            help="Reads under way, with commas; default: 1, 2, 4, ... until the knee is passed.",
        ),
    ] = "",
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="Measured time of each row.")] = 3.0,
    memory: Annotated[
        str,
        typer.Option(
            "--memory",
            help="Most memory for one row; rows that need more are left out.",
            rich_help_panel="Store",
        ),
    ] = "4GiB",
    plot: Plot = "",
    page: Html = "",
    where: Where,
    json: Json = False,
) -> None:
    """Find the knee of a store: throughput, CPU and first-byte times against part size and reads under way.

    Reads random ranges, raising the number under way until throughput stops growing, and recommends settings.
    The rows run with a fixed concurrency; loaders find theirs by themselves (`adaptive=True`) and need
    `max_in_flight` only as a ceiling.

    Examples:

    * `headrace bench fetch s3://bucket/shards`

    * `headrace bench fetch s3://bucket/shards --part-bytes 8MiB --in-flight 32,128,512 --seconds 10 --json`

    * `headrace bench fetch s3://bucket/shards --plot knee.png --html knee.html`
    """
    figure = prepare_pictures(plot, page)
    root, prefix = split_url(url)
    options = where.as_dict()
    limit = parse_bytes(memory, "--memory")
    with Store(root, **options) as lister:
        # What lies hidden beside data, as the records of pack, is read once and is not what to measure.
        found = (info for info in lister.list(prefix) if not is_hidden(info.key.removeprefix(prefix)))
        objects = [info for info in islice(found, 100_000) if info.size]
    if not objects:
        raise NotFoundError(f"{url}: nothing to read there")
    fixed = _numbers(in_flight, "--in-flight") if in_flight else []
    rows: list[dict[str, Any]] = []
    for size in sorted({parse_bytes(item, "--part-bytes") for item in part_bytes.split(",")}):
        fitting = [count for count in fixed or DOUBLINGS if count * size * 5 // 4 <= limit]

        def measure(count: int, size: int = size) -> dict[str, Any]:
            with status_line(f"{format_bytes(size)} reads, {count} under way"):
                return _probe(
                    root, options, objects, {"part_bytes": size, "in_flight": count, "seconds": seconds}
                )

        group = [measure(count) for count in fitting] if fixed else list(sweep(measure, fitting))
        if group:
            knee(group)["is_knee"] = True
        rows += group
    if not rows:
        raise InvalidArgumentError(f"--memory {memory}: too little for one read of {part_bytes}")
    advice = recommend(rows)
    if figure is not None:
        title = f"headrace bench fetch {without_secrets(url)}"
        numbers = _knee_picture.table(rows)
        write_pictures(
            figure, plot, page, title, numbers, lambda drawing: _knee_picture.draw(drawing, rows, advice)
        )
    if json:
        print_json(
            {"url": without_secrets(url), "objects": len(objects), "rows": rows, "recommendation": advice}
        )
        return
    _print_rows(rows)
    text = (
        f"best here: {advice['max_in_flight']} reads of {format_bytes(advice['part_bytes'])} under way, "
        f"{advice['gb_per_s']:.2f} GB/s with {format_bytes(advice['memory_bytes'])}. Readers find that by "
        "themselves; max_in_flight= of a Loader, Dataset or Store is the most that they try, block_bytes= "
        "what a loader reads at once"
    )
    if advice["collapses_at"]:
        text += f"; throughput falls again from {advice['collapses_at']} on"
    console().print(text)


def load(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    *,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Samples.")] = 64,
    batches: Annotated[int, typer.Option("--batches", min=0, help="Stop after this many; 0: one epoch.")] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the order.")] = 0,
    sequential: Annotated[bool, typer.Option("--sequential", help="Without shuffling.")] = False,
    prefetch: Annotated[int, typer.Option("--prefetch", min=1, help="Batches made ahead.")] = 16,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Threads of the engine; 0: chosen.")] = 0,
    sweep_settings: Annotated[
        bool,
        typer.Option(
            "--sweep", help="A run for each of several prefetch, workers and memory, the others as given."
        ),
    ] = False,
    plot: Annotated[
        str,
        typer.Option(
            "--plot",
            metavar="FILE.png",
            help="Draw the run over time, stalls by cause; or the sweep (needs matplotlib).",
        ),
    ] = "",
    page: Html = "",
    format: Format = "auto",
    split: Split = "",
    memory: Memory = "4GiB",
    where: Where,
    json: Json = False,
) -> None:
    """Run the loader without a model: samples a second, CPU, time to the first batch, stalls by cause.

    Examples:

    * `headrace bench load s3://bucket/tokens --batch-size 64`

    * `headrace bench load ./shards --batches 1000 --memory 256MiB --json`

    * `headrace bench load s3://bucket/tokens --plot run.png --html run.html` — what did it wait for, and when?

    * `headrace bench load s3://bucket/shards --batches 500 --sweep --html settings.html` — which
      settings matter here?
    """  # noqa: E501
    figure = prepare_pictures(plot, page)
    if page and not sweep_settings:
        check_ending(page)
    options: dict[str, Any] = {
        "batch_size": batch_size,
        "shuffle": not sequential,
        "seed": seed,
        "prefetch": prefetch,
        "workers": workers,
        "format": format,
        "split": split or None,
        "memory": memory,
        **where.as_dict(),
    }
    if not sweep_settings:
        report = {
            "url": without_secrets(url),
            **_load(url, batches, {**options, "progress": True}, [name for name in (plot, page) if name]),
        }
        if json:
            print_json(report)
        else:
            _print_load(report)
        return
    rows = []
    _load(url, 1, options)  # what only a first run costs is none of its settings'
    for changed in _settings.to_try(options):
        with status_line(", ".join(f"{name} {value}" for name, value in changed.items()) or "as given"):
            rows.append({"changed": changed, **_load(url, batches, {**options, **changed})})
    if figure is not None:
        title = f"headrace bench load --sweep {without_secrets(url)}"
        numbers = [_settings.HEAD, *map(_settings.cells, rows)]
        write_pictures(
            figure, plot, page, title, numbers, lambda drawing: _settings.draw(drawing, rows, options)
        )
    if json:
        print_json({"url": without_secrets(url), "rows": rows})
    else:
        console().print(_settings.table(rows))


def _load(url: str, batches: int, options: dict[str, Any], reports: Sequence[str] = ()) -> dict[str, Any]:
    """Measures a run.

    :param reports: files to write about it.
    """
    started = Stopwatch()
    with Loader(url, rank=0, world_size=1, **options) as loader:
        samples, count, first = 0, 0, 0.0
        for batch in islice(loader, batches or None):
            first = first or started.read()["seconds"]
            samples, count = samples + int(batch.mask.sum()), count + 1  # without what fills the last up
        stats, measured = loader.stats(), started.read()
        for path in reports:
            loader.report(path)
    report: dict[str, Any] = {"batches": count, "samples": samples, "first_batch_s": first, **measured}
    report["samples_per_s"] = samples / report["seconds"]
    report["samples_per_cpu_s"] = samples / max(report["cpu_seconds"], 1e-9)
    report["stats"] = stats
    return report


def _print_load(report: dict[str, Any]) -> None:
    stats, out = report["stats"], console()
    out.print(
        f"{report['samples']:,} samples in {report['seconds']:.2f} s: {report['samples_per_s']:,.0f} a "
        f"second, {report['samples_per_cpu_s']:,.0f} a CPU second; first batch after "
        f"{1000 * report['first_batch_s']:.0f} ms; at most {format_bytes(stats.get('pool.peak_bytes', 0))} "
        "of memory"
    )
    stalls = {cause: s for cause, s in stats["stall_seconds"].items() if s >= 0.0005}
    out.print(
        "waited for: "
        + (
            ", ".join(f"{cause} {s:.3f} s" for cause, s in sorted(stalls.items(), key=lambda kv: -kv[1]))
            or "nothing"
        )
    )


def register(parent: typer.Typer) -> None:
    add(app, fetch)
    add(app, load)
    add(app, train)
    parent.add_typer(app, name="bench")
