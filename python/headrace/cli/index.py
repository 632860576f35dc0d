"""index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace import _native
from headrace.cli.base import local_file, told_when_stopped
from headrace.cli.common import Format, console, print_json
from headrace.cli.declare import DataWhere, FileFields, Json, Memory, option
from headrace.cli.library import add
from headrace.data.dataset import Dataset
from headrace.data.index import rebuild_index_json, write_index
from headrace.sources.splits import INDEX_JSON_KEY, INDEX_KEY

if TYPE_CHECKING:
    from headrace.sources.options import DatasetOptions

BlockBytes = Annotated[
    str | None,
    typer.Option(
        "--block-bytes", help="Encoded size of a block, about; default: 8 MiB, less for small datasets."
    ),
]


Split = Annotated[
    str,
    option(
        "--split",
        metavar="NAME",
        help="One of several splits, by folders or names of files (train, test, ...); all: all of them.",
    ),
]


class Shape(FileFields):
    """How the objects of a dataset become samples."""

    keys: Annotated[
        list[str] | None, option("--key", help="Exactly this object below the URL; may be repeated.")
    ] = None
    tokens_per_sample: Annotated[
        int, option("--tokens-per-sample", least=0, help="Flat tokens: tokens of one sample.")
    ] = 0
    token_dtype: Annotated[
        str, option("--token-dtype", help="Flat tokens without an index: uint16, uint32, ...")
    ] = ""
    split: Split = ""
    lenient: Annotated[
        bool, option("--lenient", help="Take a damaged end of a file as its end, as other readers do.")
    ] = False
    leave_out_broken: Annotated[
        bool,
        option(
            "--leave-out-broken",
            help="Go on without shards that cannot be indexed; the rest is another dataset.",
        ),
    ] = False
    allow_unsafe: Annotated[
        bool, option("--allow-unsafe", help="Also open datasets with pickled columns.")
    ] = False

    def given(self) -> DatasetOptions:
        """Those that say something."""
        given = dict(super().given())
        if given.pop("leave_out_broken", False):
            given["on_broken_shard"] = "leave_out"
        return given  # type: ignore[return-value]


def index(
    url: Annotated[str, typer.Argument(metavar="URL", help="A dataset.")],
    *,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help=f"Local file; default: {INDEX_KEY} beside the dataset."),
    ] = None,
    format: Format = "auto",
    block_bytes: BlockBytes = None,
    shape: Shape,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make a lost or damaged index.json from the MDS shards there.")
    ] = False,
    workers: Annotated[int, typer.Option("--workers", min=0, help="Objects read at once; 0: chosen.")] = 0,
    memory: Memory = "256MiB",
    where: DataWhere,
    json: Json = False,
) -> None:
    """Build the index of a dataset, so that every later start is quick.

    Reads each object at most once, many at a time; formats with tables or footers (MDS, LitData, Parquet)
    only those. A build that was killed goes on where it was when the same command is run again. Objects are
    recorded with size and ETag, and checked when they are read.

    Examples:

    * `headrace index s3://bucket/tars` — scans the tars once, writes s3://bucket/tars/index.hri

    * `headrace index ./shards --output shards.hri`; one object, a pattern or a list needs the option

    * `headrace index ./tokens --format tokens --tokens-per-sample 2049` — flat uint16 tokens

    * `headrace index s3://bucket/photos --labels folder` — photos/cat/1.jpg has the label of "cat", for
      whoever opens it from now on

    * `headrace index --rebuild s3://bucket/mds` — writes the index.json that a killed writer left out;
      mosaicml-streaming reads it as well
    """
    started = time.monotonic()
    options = where.as_dict()
    path = None if output is None else Path(local_file(output, "--output"))
    if path is not None:
        _native.check_replaceable(str(path))
    if rebuild:
        shards, samples = rebuild_index_json(url, path, keys=shape.keys, memory=memory, **options)
        made = str(path or f"{url.rstrip('/')}/{INDEX_JSON_KEY}")
        if json:
            print_json(
                {
                    "index": made,
                    "samples": samples,
                    "shard_count": shards,
                    "seconds": time.monotonic() - started,
                }
            )
        else:
            console().print(
                f"{made}: {samples:,} samples in {shards:,} shards; what a writer had not finished is not "
                "among them",
                markup=False,
            )
        return
    with told_when_stopped("the same command goes on"):
        size = write_index(
            url,
            path,
            format=format,
            memory=memory,
            block_bytes=block_bytes,
            index_workers=workers,
            **shape.given(),
            **options,
        )
    summary: dict[str, Any] = {
        "index": str(path or f"{url.rstrip('/')}/{INDEX_KEY}"),
        "bytes": size,
        "seconds": time.monotonic() - started,
    }
    counts = ""
    if path is None:
        # What was written for chosen keys, tokens or labels is what a plain open finds there.
        with Dataset(
            url,
            format=format,
            allow_unsafe=shape.allow_unsafe,
            on_broken_shard="leave_out" if shape.leave_out_broken else "raise",
            **options,
        ) as dataset:
            samples = len(dataset)
            summary |= {
                "format": dataset.format,
                "samples": samples,
                "shard_count": len(dataset.shards),
                "bytes_per_sample": size / max(samples, 1),
            }
            counts = f"{samples:,} samples ({dataset.format}) in {len(dataset.shards):,} shards, "
    if json:
        print_json(summary)
    else:
        console().print(f"{summary['index']}: {counts}{size:,} bytes", markup=False)


def register(app: typer.Typer) -> None:
    add(app, index)
