"""inspect, pack, index, order."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from headrace import _native
from headrace._dataset import INDEX_KEY, Dataset, write_index
from headrace._loader import Loader
from headrace._progress import progress_bar
from headrace._store import Store, StoreOptions
from headrace._units import format_bytes, parse_bytes
from headrace.cli.common import Anonymous, Endpoint, Format, Json, Memory, Region, console, fail, print_json

BlockBytes = Annotated[str | None, typer.Option("--block-bytes", help="Encoded size of a block, about; default: 8 MiB, less for small datasets.")]


def inspect(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    shards: Annotated[bool, typer.Option("--shards", help="List every shard.")] = False,
    format: Format = "auto",
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Show what a dataset is: format, samples, columns, shards, sizes, fingerprint.

    Examples:

    * `headrace inspect s3://bucket/imagenet-mds`

    * `headrace inspect ./tars --format webdataset --shards --json`
    """
    with Dataset(url, format=format, endpoint=endpoint, region=region, anonymous=anonymous) as dataset:
        largest = max((b.raw_bytes for b in dataset.blocks), default=0)
        summary: dict[str, Any] = {
            "url": dataset.url,
            "format": dataset.format,
            "samples": len(dataset),
            "bytes": dataset.nbytes,
            "shard_count": len(dataset.shards),
            "block_count": len(dataset.blocks),
            "largest_block_bytes": largest,
            "fingerprint": dataset.fingerprint,
            "columns": [column._asdict() for column in dataset.schema.values()],
        }
        if shards:
            summary["shards"] = [shard._asdict() for shard in dataset.shards]
    if json:
        print_json(summary)
        return
    out = console()
    mean = summary["bytes"] / max(summary["samples"], 1)
    out.print(
        f"{summary['url']}: {summary['format']}, {summary['samples']:,} samples, {format_bytes(summary['bytes'])} ({format_bytes(mean)} each)", markup=False
    )
    out.print(
        f"{summary['shard_count']:,} shards, {summary['block_count']:,} blocks of up to {format_bytes(largest)}, fingerprint {summary['fingerprint']}",
        markup=False,
    )
    out.print(
        _rows(
            "column encoding dtype shape bytes", [(c["name"], c["encoding"], c["dtype"], list(c["shape"]), c["size"] or "varies") for c in summary["columns"]]
        )
    )
    if shards:
        out.print(
            _rows("shard samples bytes compression", [(s["key"], f"{s['sample_count']:,}", f"{s['size']:,}", s["compression"]) for s in summary["shards"]])
        )


def _rows(headings: str, rows: list[tuple[Any, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings.split():
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell).replace("[", r"\[") for cell in row))
    return table


def pack(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Directory or prefix of files.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where the shards go.")],
    format: Annotated[str, typer.Option("--format", help="mds or webdataset.")] = "mds",
    tokens: Annotated[int, typer.Option("--tokens", min=0, help="MDS of uint16 byte tokens, this many a sample; 0: one sample a file.")] = 0,
    compression: Annotated[str, typer.Option("--compression", help="MDS: zstd or zstd:LEVEL; default none.")] = "",
    hash: Annotated[str, typer.Option("--hash", help="MDS: sha1, sha256, xxh64 or xxh3_64; default none.")] = "",
    shard_bytes: Annotated[str, typer.Option("--shard-bytes", help="Upper size of a shard.")] = "64MiB",
    workers: Annotated[int, typer.Option("--workers", min=0, help="Threads; 0: one a core.")] = 0,
    memory: Memory = "256MiB",
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Pack a tree of files into shards: parallel, the same bytes every time, and it goes on where a killed run stood.

    Examples:

    * `headrace pack ./photos s3://bucket/photos-wds --format webdataset` — one sample a file

    * `headrace pack s3://bucket/text s3://bucket/tokens --tokens 1025` — bytes as tokens, 1,025 a sample

    * `headrace pack ./text ./mds --compression zstd --hash xxh64`
    """
    started = time.monotonic()
    options: dict[str, Any] = {"endpoint": endpoint, "region": region, "anonymous": anonymous, "memory": memory}
    with Store(source, **options) as from_store, Store(target, **options) as to_store, progress_bar("packing", "files") as report:
        result = _native.pack(
            from_store._native,
            to_store._native,
            format=format,
            shard_bytes=parse_bytes(shard_bytes, "--shard-bytes"),
            compression=compression,
            hash=hash,
            tokens_per_sample=tokens,
            workers=workers,
            memory_bytes=parse_bytes(memory, "--memory"),
            progress=report,
        )
    seconds = time.monotonic() - started
    if json:
        print_json({**result, "seconds": seconds})
        return
    kept = f", {result['resumed_shard_count']:,} kept from an earlier run" if result["resumed_shard_count"] else ""
    console().print(
        f"{result['file_count']:,} files ({format_bytes(result['read_bytes'])}) packed into {result['sample_count']:,} samples in "
        f"{result['shard_count']:,} shards ({format_bytes(result['written_bytes'])} written{kept}) in {seconds:.1f} s"
    )


def index(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help=f"Local file; default: {INDEX_KEY} beside the dataset.")] = None,
    format: Format = "auto",
    block_bytes: BlockBytes = None,
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Build the index of a dataset, so that every later start is quick.

    Examples:

    * `headrace index s3://bucket/tars` — scans the tars once, writes s3://bucket/tars/index.hri

    * `headrace index ./shards --output shards.hri`
    """
    started = time.monotonic()
    where: StoreOptions = {"endpoint": endpoint, "region": region, "anonymous": anonymous}
    size = write_index(url, output, format=format, block_bytes=block_bytes, **where)
    summary: dict[str, Any] = {"index": str(output or f"{url.rstrip('/')}/{INDEX_KEY}"), "bytes": size, "seconds": time.monotonic() - started}
    counts = ""
    if output is None:
        with Dataset(url, format=format, **where) as dataset:
            summary |= {"samples": len(dataset), "shard_count": len(dataset.shards)}
            counts = f"{len(dataset):,} samples in {len(dataset.shards):,} shards, "
    if json:
        print_json(summary)
    else:
        console().print(f"{summary['index']}: {counts}{size:,} bytes", markup=False)


def order(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Samples a rank.")] = 64,
    world_size: Annotated[int, typer.Option("--world-size", min=1, help="Ranks.")] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    epoch: Annotated[int, typer.Option("--epoch", min=0)] = 0,
    order: Annotated[str, typer.Option("--order", help="headrace or sequential.")] = "headrace",
    window: Annotated[int, typer.Option("--window", min=0, help="Blocks shuffled together; 0: default.")] = 0,
    lanes: Annotated[int, typer.Option("--lanes", min=0, help="Lanes; 0: chosen.")] = 0,
    first: Annotated[int, typer.Option("--first", min=0, help="How many ids to print.")] = 16,
    verify: Annotated[bool, typer.Option("--verify", help="Go through all ranks' batches and prove that each sample comes exactly once.")] = False,
    format: Format = "auto",
    block_bytes: BlockBytes = None,
    memory: Memory = "4GiB",
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> int:
    """Show the order of an epoch without reading data: first ids, how well it mixes, what memory it needs.

    Examples:

    * `headrace order s3://bucket/tokens --batch-size 64 --world-size 8`

    * `headrace order ./shards --world-size 3 --seed 7 --verify` — proves exactly-once over 3 ranks
    """
    options: dict[str, Any] = {"endpoint": endpoint, "region": region, "anonymous": anonymous}
    global_batch = batch_size * world_size
    with Dataset(url, format=format, block_bytes=block_bytes, **options) as dataset:
        loader_options: dict[str, Any] = {
            "batch_size": batch_size,
            "world_size": world_size,
            "seed": seed,
            "shuffle": order != "sequential",
            "order": order,
            "window": window,
            "lanes": lanes,
            "memory": memory,
        }
        with Loader(dataset, rank=0, **loader_options) as loader:
            spec = loader.order_spec
        plan = _native.EpochOrder(dataset._native, spec, epoch)
        quality = plan.quality(global_batch)
        window_bytes = plan.largest_window_bytes()
        lanes_per_rank = max(1, spec["lane_count"] // world_size)
        report: dict[str, Any] = {
            "url": dataset.url,
            "samples": len(dataset),
            "blocks": len(dataset.blocks),
            "order": {name: spec[name] for name in ("id", "version", "seed", "lane_count", "window_blocks", "bundle_lanes")},
            "epoch": epoch,
            "global_batch": global_batch,
            "first_ids": plan.positions(0, first, global_batch).tolist(),
            "quality": quality | {"jump_ratio": quality["mean_jump"] / max(quality["mean_jump_full"], 1e-9)},
            "window_bytes": window_bytes,
            # Lanes are staggered, so at any time about half of them hold a second window in part.
            "rank_bytes": int(1.5 * lanes_per_rank * window_bytes),
        }
        if verify:
            report["verified"] = _verify(dataset, loader_options, world_size, epoch)
    if json:
        print_json(report)
    else:
        _print_order(report)
    verified = report.get("verified")
    if verified is not None and not verified["exactly_once"]:
        return fail(f"{url}: {verified['missing']} samples missing, {verified['repeated']} repeated")
    return 0


def _verify(dataset: Dataset, loader_options: dict[str, Any], world_size: int, epoch: int) -> dict[str, Any]:
    """Counts how often each sample comes over all ranks, padding left out, and compares the ranks' batches with the order."""
    counts = np.zeros(len(dataset), np.int64)
    batches = 0
    for rank in range(world_size):
        with Loader(dataset, rank=rank, epoch_end="uneven", **loader_options) as loader:
            for ids in loader.sample_ids(epoch):
                np.add.at(counts, ids, 1)
                batches += 1
    return {
        "exactly_once": bool((counts == 1).all()),
        "missing": int((counts == 0).sum()),
        "repeated": int((counts > 1).sum()),
        "world_size": world_size,
        "batches": batches,
    }


def _print_order(report: dict[str, Any]) -> None:
    out = console()
    spec, quality = report["order"], report["quality"]
    out.print(
        f"{report['url']}: {report['samples']:,} samples in {report['blocks']:,} blocks; order {spec['id']} version {spec['version']}, seed "
        f"{spec['seed']}, epoch {report['epoch']}: {spec['lane_count']} lanes, windows of {spec['window_blocks']} blocks",
        markup=False,
    )
    out.print("first ids  " + " ".join(map(str, report["first_ids"])), markup=False)
    out.print(
        _rows(
            "measure this_order full_shuffle",
            [
                ("mean jump between neighbours", f"{quality['mean_jump']:,.0f}", f"{quality['mean_jump_full']:,.0f} ({quality['jump_ratio']:.1%} reached)"),
                ("mean displacement", f"{quality['mean_displacement']:.3f}", "0.333"),
                ("neighbour correlation", f"{quality['neighbour_correlation']:+.4f}", "0"),
                ("blocks per global batch", f"{quality['blocks_per_batch']:,.1f}", f"of {min(report['global_batch'], report['blocks']):,}"),
                ("memory a rank, about", format_bytes(report["rank_bytes"]), "-"),
            ],
        )
    )
    verified = report.get("verified")
    if verified is not None and verified["exactly_once"]:
        out.print(f"verified: each of {report['samples']:,} samples exactly once over {verified['world_size']} ranks, {verified['batches']:,} batches")


def register(app: typer.Typer) -> None:
    for command in (inspect, pack, index, order):
        app.command()(command)
