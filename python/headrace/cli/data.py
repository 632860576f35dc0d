"""inspect, order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from headrace import _native
from headrace.base.units import format_bytes
from headrace.cli import _order_picture, _prove
from headrace.cli._plot import Html, Plot, prepare_pictures, write_pictures
from headrace.cli.common import Format, console, fail, print_json, shown
from headrace.cli.declare import Json, Memory, Where
from headrace.cli.index import BlockBytes, Split
from headrace.cli.library import add
from headrace.data.dataset import Dataset
from headrace.data.rows import BrokenShard
from headrace.loader.loader import Loader
from headrace.store.urls import without_secrets

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def _samples_of(shard: BrokenShard) -> str:
    if not shard.sample_count:
        return "left out"
    return f"bad: {shard.first_sample:,} to {shard.first_sample + shard.sample_count - 1:,}"


def inspect(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    *,
    shards: Annotated[bool, typer.Option("--shards", help="List every shard.")] = False,
    format: Format = "auto",
    split: Split = "",
    where: Where,
    json: Json = False,
) -> None:
    """Show what a dataset is: format, samples, columns, shards, sizes, fingerprint.

    Examples:

    * `headrace inspect s3://bucket/imagenet-mds`

    * `headrace inspect ./tars --format webdataset --shards --json`
    """
    with Dataset(url, format=format, split=split, on_broken_shard="leave_out", **where.as_dict()) as dataset:
        largest = max((b.raw_bytes for b in dataset.blocks), default=0)
        broken = dataset.broken_shards
        summary: dict[str, Any] = {
            "url": without_secrets(url).rstrip("/") or "/",
            "format": dataset.format,
            "samples": len(dataset),
            "bytes": dataset.nbytes,
            "shard_count": len(dataset.shards),
            "block_count": len(dataset.blocks),
            "largest_block_bytes": largest,
            "fingerprint": dataset.fingerprint,
            "columns": [column._asdict() for column in dataset.schema.values()],
            "broken_shards": [shard._asdict() for shard in broken],
        }
        if shards:
            summary["shards"] = [shard._asdict() for shard in dataset.shards]
    if json:
        print_json(summary)
        return
    out = console()
    mean = summary["bytes"] / max(summary["samples"], 1)
    out.print(
        f"{summary['url']}: {summary['format']}, {summary['samples']:,} samples, "
        f"{format_bytes(summary['bytes'])} ({format_bytes(mean)} each)",
        markup=False,
    )
    out.print(
        f"{summary['shard_count']:,} shards, {summary['block_count']:,} blocks of up to "
        f"{format_bytes(largest)}, fingerprint {summary['fingerprint']}",
        markup=False,
    )
    out.print(
        _rows(
            "column encoding dtype shape bytes",
            [
                (c["name"], c["encoding"], c["dtype"], list(c["shape"]), c["size"] or "varies")
                for c in summary["columns"]
            ],
        )
    )
    if broken:
        out.print(f"{len(broken):,} broken shard{'' if len(broken) == 1 else 's'}:")
        out.print(
            _rows(
                "shard bytes samples why",
                [(b.key, f"{b.size:,}", _samples_of(b), b.message) for b in broken],
            )
        )
    if shards:
        out.print(
            _rows(
                "shard samples bytes compression",
                [
                    (s["key"], f"{s['sample_count']:,}", f"{s['size']:,}", s["compression"])
                    for s in summary["shards"]
                ],
            )
        )


def _rows(headings: str, rows: list[tuple[Any, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings.split():
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(shown(str(cell)).replace("[", r"\[") for cell in row))
    return table


def order(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    *,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Samples a rank.")] = 64,
    world_size: Annotated[int, typer.Option("--world-size", min=1, help="Ranks.")] = 1,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Default: the order's own.")] = None,
    epoch: Annotated[int, typer.Option("--epoch", min=0, help="Whose order.")] = 0,
    order: Annotated[
        str,
        typer.Option(
            "--order",
            help=(
                "headrace, sequential, mosaic:py1e (py1s, py1br, py2s, naive; none: in the order of the "
                "files) or litdata."
            ),
        ),
    ] = "headrace",
    order_option: Annotated[
        list[str] | None,
        typer.Option(
            "--order-option",
            metavar="KEY=VALUE",
            help="Argument of the other loader, such as num_canonical_nodes=4.",
        ),
    ] = None,
    ranks_per_node: Annotated[
        int, typer.Option("--ranks-per-node", min=1, help="For mosaic: and litdata.")
    ] = 8,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="DataLoader workers a rank, for mosaic: and litdata.")
    ] = 1,
    window: Annotated[int, typer.Option("--window", min=0, help="Blocks shuffled together; 0: default.")] = 0,
    lanes: Annotated[int, typer.Option("--lanes", min=0, help="Lanes; 0: chosen.")] = 0,
    first: Annotated[int, typer.Option("--first", min=0, help="How many ids to print.")] = 16,
    prove: Annotated[
        bool,
        typer.Option(
            "--prove", "--verify", help="Go through all ranks' batches and count how often each sample comes."
        ),
    ] = False,
    stops: Annotated[
        str,
        typer.Option(
            "--stops", metavar="N,N", help="With --prove: the run stops after these global batches."
        ),
    ] = "",
    world_sizes: Annotated[
        str,
        typer.Option(
            "--world-sizes", metavar="N,N", help="With --prove: ranks before, between and after the stops."
        ),
    ] = "",
    format: Format = "auto",
    split: Split = "",
    block_bytes: BlockBytes = None,
    memory: Memory = "4GiB",
    plot: Plot = "",
    page: Html = "",
    where: Where,
    json: Json = False,
) -> int:
    """Show the order of an epoch without reading data: first ids, how well it mixes, what memory it needs.

    Examples:

    * `headrace order s3://bucket/tokens --batch-size 64 --world-size 8`

    * `headrace order ./shards --world-size 3 --seed 7 --prove` — proves exactly-once over 3 ranks

    * `headrace order ./shards --prove --stops 100,250 --world-sizes 4,2,8` — stopped and resumed on other
      worlds

    * `headrace order ./mds --order mosaic:py1e --order-option num_canonical_nodes=2 --prove`

    * `headrace order s3://bucket/tokens --world-size 4 --plot order.png` — where in the dataset each batch lies
    """  # noqa: E501
    figure = prepare_pictures(plot, page)
    parts = _prove.parse_run(stops, world_sizes, world_size, batch_size)
    # The order is fixed by the world that the run begins in.
    world_size = parts[0].world_size
    with Dataset(url, format=format, block_bytes=block_bytes, split=split, **where.as_dict()) as dataset:
        listed = _prove.find_listed_order(
            dataset,
            order,
            seed,
            epoch,
            _prove.parse_options(order_option or []),
            ranks_per_node=ranks_per_node,
            workers=workers,
        )
        report: dict[str, Any] = {
            "url": dataset.url,
            "samples": len(dataset),
            "blocks": len(dataset.blocks),
            "epoch": epoch,
            "global_batch": parts[0].global_batch,
        }
        if listed is not None:
            slots = listed.begin(parts[0])
            report |= {
                "order": {"id": order},
                "slots": slots.size,
                "first_ids": slots.read(0, first).tolist(),
            }
            if figure is not None:
                _draw_order(figure, (plot, page), report, slots.read, parts[0])
            if prove:
                report["verified"] = _prove.prove_listed(listed, len(dataset), parts)
        else:
            loader_options: dict[str, Any] = {
                "batch_size": batch_size,
                "world_size": world_size,
                "seed": seed or 0,
                "shuffle": order != "sequential",
                "order": order,
                "window": window,
                "lanes": lanes,
                "memory": memory,
            }
            with Loader(dataset, rank=0, **loader_options) as loader:
                spec = loader.order_spec
            report |= _describe_own(dataset, spec, parts[0], epoch, first)
            if figure is not None:
                plan = _native.EpochOrder(dataset._native, spec, epoch)
                batch = parts[0].global_batch
                _draw_order(
                    figure, (plot, page), report, lambda start, n: plan.positions(start, n, batch), parts[0]
                )
            if prove:
                report["verified"] = _prove.prove_own(dataset, spec, epoch, parts)
    if json:
        print_json(report)
    else:
        _print_order(report)
    verified = report.get("verified")
    # Other loaders repeat and drop samples by their own rules: that is an answer, no failure.
    if verified is not None and listed is None and not verified["exactly_once"]:
        return fail(f"{url}: {verified['missing']} samples missing, {verified['repeated']} repeated")
    return 0


def _draw_order(
    figure: Any,
    files: tuple[str, str],
    report: dict[str, Any],
    read: Callable[[int, int], npt.NDArray[np.int64]],
    part: _prove.Part,
) -> None:
    """``files``: of the picture and of the page."""
    found = _order_picture.points(read, report.get("slots", report["samples"]), part.global_batch)
    title = (
        f"{report['url']}: order {report['order']['id']}, epoch {report['epoch']}, {part.world_size} "
        f"rank{'s' * (part.world_size > 1)}"
    )
    facts = {name: report[name] for name in ("samples", "blocks", "global_batch")} | report["order"]
    numbers = {**facts, **{name: f"{value:.4g}" for name, value in report.get("quality", {}).items()}}
    rows = [("what", "value"), *((name.replace("_", " "), value) for name, value in numbers.items())]
    shape = (part.global_batch, part.world_size)
    write_pictures(figure, *files, title, rows, lambda drawing: _order_picture.draw(drawing, found, shape))


def _describe_own(
    dataset: Dataset, spec: dict[str, Any], part: _prove.Part, epoch: int, first: int
) -> dict[str, Any]:
    """First ids, mixing and memory of one of Headrace's orders."""
    plan = _native.EpochOrder(dataset._native, spec, epoch)
    quality = plan.quality(part.global_batch)
    window_bytes = plan.largest_window_bytes()
    lanes_per_rank = max(1, spec["lane_count"] // part.world_size)
    return {
        "order": {
            name: spec[name]
            for name in ("id", "version", "seed", "lane_count", "window_blocks", "bundle_lanes")
        },
        "first_ids": plan.positions(0, first, part.global_batch).tolist(),
        "quality": quality | {"jump_ratio": quality["mean_jump"] / max(quality["mean_jump_full"], 1e-9)},
        "window_bytes": window_bytes,
        # Lanes are staggered, so at any time about half of them hold a second window in part.
        "rank_bytes": int(1.5 * lanes_per_rank * window_bytes),
    }


def _print_order(report: dict[str, Any]) -> None:
    out = console()
    spec = report["order"]
    head = (
        f"{report['url']}: {report['samples']:,} samples in {report['blocks']:,} blocks; order {spec['id']}"
    )
    if "quality" in report:
        head += f" version {spec['version']}, seed {spec['seed']}, epoch {report['epoch']}: {spec['lane_count']} lanes, windows of {spec['window_blocks']} blocks"  # noqa: E501
    else:
        head += f", epoch {report['epoch']}: {report['slots']:,} slots"
    out.print(head, markup=False)
    out.print("first ids  " + " ".join(map(str, report["first_ids"])), markup=False)
    if "quality" in report:
        _print_quality(report)
    verified = report.get("verified")
    if verified is None:
        return
    worlds = ", then ".join(map(str, verified["world_sizes"]))
    if verified["exactly_once"]:
        out.print(
            f"verified: each of {report['samples']:,} samples exactly once over {worlds} ranks, "
            f"{verified['batches']:,} global batches"
        )
    elif "quality" not in report:
        out.print(
            f"over {worlds} ranks, {verified['batches']:,} global batches: {verified['repeated']:,} samples "
            f"repeated, {verified['missing']:,} missing (the rules of that order)"
        )


def _print_quality(report: dict[str, Any]) -> None:
    quality = report["quality"]
    console().print(
        _rows(
            "measure this_order full_shuffle",
            [
                (
                    "mean jump between neighbours",
                    f"{quality['mean_jump']:,.0f}",
                    f"{quality['mean_jump_full']:,.0f} ({quality['jump_ratio']:.1%} reached)",
                ),
                ("mean displacement", f"{quality['mean_displacement']:.3f}", "0.333"),
                ("neighbour correlation", f"{quality['neighbour_correlation']:+.4f}", "0"),
                (
                    "blocks per global batch",
                    f"{quality['blocks_per_batch']:,.1f}",
                    f"of {min(report['global_batch'], report['blocks']):,}",
                ),
                ("memory a rank, about", format_bytes(report["rank_bytes"]), "-"),
            ],
        )
    )


def register(app: typer.Typer) -> None:
    for command in (inspect, order):
        add(app, command)
