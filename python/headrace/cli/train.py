"""bench train: training without accelerators, as MLPerf Storage emulates it."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import typer
from rich.table import Table

from headrace import sim
from headrace.base.progress import progress_bar
from headrace.base.scratch import ScratchDirectory
from headrace.base.units import format_bytes, parse_bytes, parse_seconds
from headrace.bench import session
from headrace.bench.generate import generate, record_sizes
from headrace.bench.storage import SimulatedStorage
from headrace.bench.utilisation import find_largest
from headrace.bench.workloads import ACCELERATORS, WORKLOADS, Workload, find_workload
from headrace.cli._knee import bar
from headrace.cli._plot import prepare_pictures
from headrace.cli.base import is_local, is_web, local_path, split_url, wildcard
from headrace.cli.common import console, print_json
from headrace.cli.declare import Endpoint, Json
from headrace.errors import InvalidArgumentError
from headrace.store.store import Store
from headrace.store.urls import without_secrets

Row = dict[str, Any]


def parse_latencies(text: str) -> list[float]:
    """Seconds of ``"0,5,20ms"``: the last unit is that of those without one."""
    items = [item.strip() for item in text.split(",")]
    unit = items[-1].lstrip("+0123456789. ")
    given = [item if item[-1:].isalpha() else item + unit for item in items if item]
    if not given:
        raise InvalidArgumentError("--sweep-latency: expected times such as 0,5,20ms")
    return sorted({parse_seconds(item, "--sweep-latency") for item in given})


def train(
    url: Annotated[
        str,
        typer.Argument(
            metavar="[URL]",
            help="The data, or an empty place where to make and keep it; without: a temporary directory.",
        ),
    ] = "",
    *,
    workload: Annotated[str, typer.Option("--workload", help=f"{', '.join(WORKLOADS)}.")] = "resnet50",
    accelerator: Annotated[
        str, typer.Option("--accelerator", help="Whose compute times: h100 or a100.")
    ] = "h100",
    accelerators: Annotated[int, typer.Option("--accelerators", "-n", min=1, help="How many.")] = 1,
    find: Annotated[
        bool,
        typer.Option(
            "--find",
            help="Find the largest number that stays above the bar; --accelerators is no limit then.",
        ),
    ] = False,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            help="Put the simulator in front of the data: s3-standard, s3-express, gcs, azure, none, ...",
            rich_help_panel="Storage",
        ),
    ] = "",
    latency: Annotated[
        str,
        typer.Option(
            "--latency",
            metavar="TIME",
            help="Add this to each first byte, on top of the profile: +20ms.",
            rich_help_panel="Storage",
        ),
    ] = "",
    sweep_latency: Annotated[
        str,
        typer.Option(
            "--sweep-latency",
            metavar="TIMES",
            help="A row for each of these: 0,5,20,50,100ms.",
            rich_help_panel="Storage",
        ),
    ] = "",
    plot: Annotated[
        str, typer.Option("--plot", metavar="FILE.png", help="Draw the sweep (needs matplotlib).")
    ] = "",
    samples: Annotated[
        int,
        typer.Option(
            "--samples", min=0, help="How many to generate; 0: chosen.", rich_help_panel="Generated data"
        ),
    ] = 0,
    size: Annotated[
        str,
        typer.Option(
            "--size", metavar="BYTES", help="Or how much, such as 4GiB.", rich_help_panel="Generated data"
        ),
    ] = "",
    epochs: Annotated[
        int, typer.Option("--epochs", min=0, help="0: the workload's.", rich_help_panel="Changes")
    ] = 0,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=0, help="0: the workload's.", rich_help_panel="Changes")
    ] = 0,
    record_bytes: Annotated[
        str,
        typer.Option(
            "--record-bytes", help="Mean size of generated records, instead.", rich_help_panel="Changes"
        ),
    ] = "",
    time_scale: Annotated[
        float,
        typer.Option("--time-scale", min=0.0, help="Multiply the compute time.", rich_help_panel="Changes"),
    ] = 1.0,
    memory: Annotated[
        str,
        typer.Option(
            "--memory",
            help="Limit of each loader; default: 512 MiB, or 4 batches if they are more.",
            rich_help_panel="Loader",
        ),
    ] = "",
    prefetch: Annotated[
        int, typer.Option("--prefetch", min=1, help="Batches ahead, at most.", rich_help_panel="Loader")
    ] = 16,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, help="Of the order; default: another one each time.", rich_help_panel="Loader"
        ),
    ] = None,
    where: Endpoint,
    json: Json = False,
) -> int:
    """Train without accelerators: how many could this machine and storage keep busy?

    Emulates training as MLPerf Storage does. Each accelerator takes a batch from a loader of its own, sleeps
    for as long as the real one would compute, and waits for the others. Accelerator utilisation (AU) is the
    compute time divided by the time that passed: 100 % means that it never waited for data. A workload passes
    at 90 %, cosmoflow at 70 %. The first step of an epoch does not count, as published.

    Workloads (MLPerf Storage v2.0, for one H100; an A100 computes for about twice as long):

    * unet3d: npz files of 147 MB on average, 7 a step of 323 ms: 3.2 GB/s

    * resnet50: TFRecords of 115 kB, 400 a step of 224 ms: 205 MB/s

    * cosmoflow: TFRecords of 2.8 MB, each a file, 1 a step of 3.5 ms: 808 MB/s

    * llm (not MLPerf's): 2,049 tokens in MDS, 16 a step of 646 ms: 0.1 MB/s

    Exit code: 0 also when the bar is missed. The numbers are not MLPerf results.

    Examples:

    * `headrace bench train --workload resnet50` — one H100 on data that is made, read and removed

    * `headrace bench train --workload unet3d --accelerators 4 s3://bucket/unet3d --size 100GiB` — makes the
      data there the first time and keeps it; later runs read it

    * `headrace bench train --workload cosmoflow --find --profile s3-standard` — how many would this machine
      feed from S3?

    * `headrace bench train --workload resnet50 --sweep-latency 0,5,20,50,100ms --plot au.png` — how much
      latency does the loader hide?
    """
    chosen = find_workload(workload).changed(
        batch_size=batch_size,
        record_bytes=parse_bytes(record_bytes, "--record-bytes") if record_bytes else 0,
        epochs=epochs,
    )
    chosen = chosen.scaled(time_scale)
    if accelerator not in ACCELERATORS:
        raise InvalidArgumentError(f"--accelerator {accelerator}: expected {' or '.join(ACCELERATORS)}")
    delays = parse_latencies(sweep_latency) if sweep_latency else []
    added = parse_seconds(latency, "--latency") if latency else 0.0
    if sweep_latency and (find or latency):
        raise InvalidArgumentError("--sweep-latency goes with neither --find nor --latency")
    if plot and not sweep_latency:
        raise InvalidArgumentError("--plot draws a sweep: give --sweep-latency, too")
    if samples and size:
        raise InvalidArgumentError("--samples and --size say the same: give one of them")
    if profile and profile not in sim.profiles():
        raise InvalidArgumentError(f"--profile {profile}: there are {', '.join(sim.profiles())}")
    figure = prepare_pictures(plot)
    is_simulated = bool(profile or latency or sweep_latency)
    if is_simulated and url and not is_local(url):
        raise InvalidArgumentError(
            f"{without_secrets(url)}: the simulator stands in front of local data; --profile, --latency and "
            "--sweep-latency need a directory, or no URL"
        )
    with _stoppable(), ExitStack() as opened:
        if not samples:
            samples = _count_of(size, chosen) or chosen.default_samples(accelerator, accelerators)
        place, options = _data(opened, url, chosen, samples, where.as_dict())
        storage = None
        if is_simulated:
            storage = opened.enter_context(
                SimulatedStorage(local_path(place), profile=profile or "none", delay=added)
            )
            place, options = storage.url, {**storage.options, "index_cache": ""}
        setting = session.Setting(
            workload=chosen,
            accelerator=accelerator,
            url=place,
            epochs=chosen.epochs,
            seed=secrets.randbelow(1 << 32) if seed is None else seed,
            memory_bytes=parse_bytes(memory) if memory else session.accelerator_memory(chosen),
            prefetch=prefetch,
            options=options,
        )
        report: Row = {
            "workload": chosen.name,
            "accelerator": accelerator,
            "is_published": chosen.is_published,
            "bar": chosen.bar,
            "compute_s": setting.compute_seconds,
            "batch_size": chosen.batch_size,
            "epochs": chosen.epochs,
            "seed": setting.seed,
            "memory_bytes": setting.memory_bytes,
            "url": without_secrets(url) or None,
            "profile": (profile or "none") if is_simulated else None,
            "added_latency_s": added,
        }
        if find:
            report |= _find(setting, storage)
        elif storage is not None and delays:
            report["rows"] = _sweep(setting, accelerators, storage, delays)
        else:
            report["rows"] = [_measure(setting, accelerators, storage)]
        if foreign := _foreign(chosen, report["rows"][0]):
            report |= {"is_published": False, "foreign_data": foreign}
    if figure is not None:
        _draw(figure(figsize=(7, 4), layout="constrained"), report, plot)
    if json:
        print_json(report)
    else:
        _show(report)
    return 0


def _foreign(workload: Workload, row: Row) -> str:
    """What says that the data are not of the workload; "" where they may be."""
    found = row["dataset_bytes"] / max(row["dataset_samples"], 1)
    if workload.record_bytes / 4 < found < 4 * workload.record_bytes:
        return ""
    return (
        f"these are no data of {workload.name}: a sample has {format_bytes(round(found))}, its records have "
        f"{format_bytes(round(workload.record_bytes))}"
    )


def _count_of(size: str, workload: Workload) -> int:
    """Samples that have so many bytes; 0 when nothing was said."""
    return max(1, round(parse_bytes(size, "--size") / workload.record_bytes)) if size else 0


def _data(
    opened: ExitStack, url: str, workload: Workload, samples: int, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Where the data is and how to open it; made first where there is none."""
    if url and not _is_empty(url, options):
        return url, options
    if not url:
        url = opened.enter_context(ScratchDirectory("headrace-bench-"))
        options = {**options, "index_cache": ""}
    with progress_bar(f"generating {workload.name}", "MB") as report:
        total = sum(record_sizes(workload, samples)) // 1_000_000
        generate(
            workload,
            url,
            samples,
            report=None if report is None else lambda done: report(done // 1_000_000, total, done),
            **_reach(options),
        )
    return url, options


def _reach(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "index_cache"}


def _is_empty(url: str, options: dict[str, Any]) -> bool:
    """Whether nothing is there: neither an object of that name nor anything below it."""
    if is_web(url) or wildcard(url) is not None:
        return False
    if is_local(url):
        path = local_path(url)
        return not os.path.exists(path) or (os.path.isdir(path) and not os.listdir(path))
    root, key = split_url(url)
    with Store(root, **options) as store:
        if key and not key.endswith("/") and store.exists(key):
            return False
        return next(store.list(key.rstrip("/") + "/" if key else ""), None) is None


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: nothing is left behind."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _measure(setting: session.Setting, count: int, storage: SimulatedStorage | None, what: str = "") -> Row:
    before = storage.stats() if storage is not None else {}
    text = f"{setting.workload.name}, {count} x {setting.accelerator}{what}"
    # A warning is a note below the table, said once, not lines between the progress bars.
    with warnings.catch_warnings(record=True) as said, progress_bar(text, "steps") as report:
        warnings.simplefilter("always")
        row = session.measure(setting, count, None if report is None else lambda a, b: report(a, b, 0))
    row["warnings"] = sorted({str(each.message) for each in said})
    if storage is not None:
        after = storage.stats()
        row["simulator"] = {name: after[name] - before[name] for name in after}
    return row


def _sweep(setting: session.Setting, count: int, storage: SimulatedStorage, delays: list[float]) -> list[Row]:
    rows = []
    for delay in delays:
        storage.set_delay(delay)
        rows.append(
            {"added_latency_s": delay, **_measure(setting, count, storage, f", +{1000 * delay:g} ms")}
        )
    return rows


def _find(setting: session.Setting, storage: SimulatedStorage | None) -> Row:
    limit = session.largest_count(setting)
    rows: list[Row] = []

    def passes(count: int) -> bool:
        row = _measure(setting, count, storage)
        rows.append(row)
        return bool(row["passes"])

    found = find_largest(passes, limit)
    return {"found": found, "limit": limit, "rows": rows}


def _draw(figure: Any, report: Row, path: str) -> None:
    rows = report["rows"]
    axes = figure.add_subplot()
    added = [1000 * row["added_latency_s"] for row in rows]
    axes.plot(added, [100 * row["utilisation"] for row in rows], marker="o")
    axes.axhline(100 * report["bar"], linestyle="--", color="gray", label=f"bar, {report['bar']:.0%}")
    axes.set_xlabel("added to each first byte, ms")
    axes.set_ylabel("accelerator utilisation, %")
    axes.set_ylim(0, 105)
    axes.set_title(
        f"{report['workload']}, {rows[0]['accelerators']} x {report['accelerator']}, profile "
        f"{report['profile']}"
    )
    axes.legend(loc="lower left")
    figure.savefig(path, dpi=150)


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.3g}" if seconds < 1 else f"{1000 * seconds:,.0f}"


def _show(report: Row) -> None:
    out = console()
    rows = report["rows"]
    if "found" in report:
        _show_rows(report, "accelerators", lambda row: str(row["accelerators"]))
        text = f"{report['found']} x {report['accelerator']} stay at or above {report['bar']:.0%}"
        if report["found"] == report["limit"]:
            text += " (more have no room in this machine's memory, or no 2 steps of the data: --samples, --memory)"  # noqa: E501
        out.print(text)
    elif len(rows) > 1 or "added_latency_s" in rows[0]:
        _show_rows(report, "latency", lambda row: f"+{1000 * row['added_latency_s']:g} ms")
    else:
        _show_one(report, rows[0])
    _show_notes(report, rows[-1])


def _show_rows(report: Row, name: str, key: Callable[[Row], str]) -> None:
    table = Table(box=None, pad_edge=False)
    names = (
        "AU",
        "1st epoch",
        "samples/s",
        "MB/s",
        "p50",
        "p99",
        "p99.9 ms",
        "cores",
        "n/core",
        "utilisation",
    )
    for column in (name, *names):
        table.add_column(column, justify="left" if column == "utilisation" else "right", no_wrap=True)
    for row in sorted(report["rows"], key=lambda row: (row["accelerators"], row.get("added_latency_s", 0))):
        table.add_row(
            key(row),
            f"{row['utilisation']:.1%}",
            f"{row['utilisation_first_epoch']:.1%}",
            f"{row['samples_per_s']:,.0f}",
            f"{row['mb_per_s']:,.0f}",
            *(_milliseconds(row[f"wait_{p}_s"]) for p in ("p50", "p99", "p999")),
            f"{row['cores_used']:.2f}",
            f"{row['accelerators_per_core']:.1f}",
            bar(row["utilisation"], 12) + ("" if row["passes"] else " ✗"),
        )
    out = console()
    out.print(table)
    out.print("p50 to p99.9: waits for a batch. n/core: accelerators kept busy by a core. ✗: below the bar.")


def _show_one(report: Row, row: Row) -> None:
    later = row["utilisation_later_epochs"]
    lines = {
        "utilisation (AU)": (
            f"{row['utilisation']:.1%}, {'passes' if row['passes'] else 'fails'} the bar of "
            f"{report['bar']:.0%}"
        ),
        "first epoch, later ones": f"{row['utilisation_first_epoch']:.1%}"
        + ("" if later is None else f", {later:.1%}"),
        "steps": f"{row['steps']:,} of {report['compute_s'] * 1000:g} ms in {report['epochs']} epochs, "
        f"{row['accelerators']} x {report['accelerator']}, batches of {report['batch_size']}",
        "throughput": f"{row['samples_per_s']:,.1f} samples/s, {row['mb_per_s']:,.1f} MB/s",
        "fetched": (
            f"{format_bytes(row['fetched_bytes'])} from the store; {format_bytes(row['delivered_bytes'])} "
            "delivered"
        ),
        "wait for a batch": ", ".join(
            f"{name} {_milliseconds(row[f'wait_{key}_s'])}"
            for name, key in (("p50", "p50"), ("p99", "p99"), ("p99.9", "p999"), ("most", "max"))
        )
        + f" ms; first of an epoch at most {_milliseconds(row['first_batch_s'])} ms",
        "sleeps ended late by": (
            f"{_milliseconds(row['overslept_s'] / row['steps'])} ms on average (counted as waiting)"
        ),
        "CPU": (
            f"{row['cpu_seconds']:.2f} s, {row['cores_used']:.2f} cores: {row['accelerators_per_core']:.1f} "
            "accelerators a core"
        ),
        "memory": f"{format_bytes(row['peak_memory_bytes'])} at most, all loaders",
        "waited for": ", ".join(
            f"{cause} {s:.3f} s" for cause, s in row["stall_seconds"].items() if s >= 0.0005
        )
        or "nothing",
    }
    if "simulator" in row:
        lines["simulator"] = (
            f"{row['simulator']['requests']:,.0f} requests, {row['simulator']['cpu_seconds']:.2f} CPU s (not "
            "counted above)"
        )
    for name, text in lines.items():
        console().print(f"{name:<25}{text}")


def _show_notes(report: Row, row: Row) -> None:
    notes = list(row["warnings"])
    if "foreign_data" in report:
        notes.append(report["foreign_data"])
    if not report["is_published"]:
        notes.append("not the published workload: compare with runs of the same settings only")
    if row["steps"] // report["epochs"] < 10:
        notes.append(
            f"{row['steps'] // report['epochs']} steps an epoch are few (MLPerf Storage: 500 and more); "
            "--samples makes it more"
        )
    if report["profile"] is None and (not report["url"] or is_local(report["url"])):
        note = session.caching_note(row["dataset_bytes"])
        notes += [note] if note else []
    for note in notes:
        console().print(f"Note: {note}", style="dim" if sys.stdout.isatty() else None)
