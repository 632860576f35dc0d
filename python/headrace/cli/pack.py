"""pack: its arguments and help. What it does is in packing.py."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import packing
from headrace.cli.common import AccessLog, Anonymous, Endpoint, Json, Region


def pack(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="Directory or prefix of files, a dataset, or (with --from python) module:function.",
        ),
    ],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where the shards go.")],
    format: Annotated[
        str, typer.Option("--format", help="mds, webdataset, tfrecord, litdata or parquet.")
    ] = "mds",
    kind: Annotated[
        str,
        typer.Option(
            "--from",
            help="files (each one a sample; in a WebDataset those that differ in their extensions are one), a dataset format, python, or auto.",
        ),
    ] = "auto",
    split: Annotated[
        str,
        typer.Option(
            "--split",
            metavar="NAME",
            help="Of a dataset with several splits: this one (train, test, ...), or all.",
        ),
    ] = "",
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="LIST", help="TARGET[=SOURCE][:ENCODING],...; default all."),
    ] = None,
    map: Annotated[
        str,
        typer.Option(
            "--map",
            metavar="MODULE:FUNCTION",
            help="Function from a sample (dict) to the sample to write, or None.",
        ),
    ] = "",
    tokens: Annotated[
        int,
        typer.Option(
            "--tokens", min=0, help="MDS of uint16 byte tokens, this many a sample; 0: one sample a file."
        ),
    ] = 0,
    compression: Annotated[
        str,
        typer.Option(
            "--compression",
            help="zstd[:LEVEL] (mds, litdata), gzip[:LEVEL] (webdataset, tfrecord), a codec of parquet; default none.",
        ),
    ] = "",
    hash: Annotated[
        str, typer.Option("--hash", help="MDS: sha1, sha256, xxh64 or xxh3_64; default none.")
    ] = "",
    shard_bytes: Annotated[str, typer.Option("--shard-bytes", help="Size of a shard.")] = "64MiB",
    workers: Annotated[
        int, typer.Option("--workers", min=0, help="Threads, or with --ray tasks; 0: one a core.")
    ] = 0,
    ray: Annotated[
        bool, typer.Option("--ray", help="On the Ray cluster of RAY_ADDRESS, else on one of this machine.")
    ] = False,
    lease: Annotated[
        float,
        typer.Option("--lease", min=0.5, help="With --ray: seconds of silence until a part is made anew."),
    ] = 15.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, write nothing.")] = False,
    memory: Annotated[
        str, typer.Option("--memory", help="Limit of the memory for data.", rich_help_panel="Store")
    ] = "512MiB",
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    access_log: AccessLog = None,
    json: Json = False,
) -> int:
    """Pack files, a dataset or samples of a program into shards: parallel, the same bytes every time; a
    killed run goes on where it stood.

    Examples:

    * `headrace pack ./photos s3://bucket/photos-wds --format webdataset` — one sample a file; x.jpg and
      x.json are one

    * `headrace pack s3://bucket/text s3://bucket/tokens --tokens 1025` — bytes as tokens, 1,025 a sample

    * `headrace pack s3://bucket/wds s3://bucket/mds --columns image=jpg:jpeg,label=cls` — tars to MDS

    * `headrace pack mymodule:samples ./out --from python --format parquet` — runs your code
    """
    return packing.pack(
        source,
        target,
        format,
        kind,
        split,
        columns,
        map,
        tokens,
        compression,
        hash,
        shard_bytes,
        workers,
        ray,
        lease,
        dry_run,
        memory,
        endpoint,
        region,
        anonymous,
        access_log,
        json,
    )


def register(app: typer.Typer) -> None:
    app.command()(pack)
