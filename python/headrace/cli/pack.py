"""pack."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from headrace import _native
from headrace._progress import progress_bar
from headrace._store import Store
from headrace._units import format_bytes, parse_bytes
from headrace.cli.common import Anonymous, Endpoint, Json, Region, console, print_json
from headrace.errors import InvalidArgumentError

FILES = "files"
PYTHON = "python"

# Names that are worth a look inside: then the content says what it is.
DATASET_SUFFIXES = (
    *(".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tfrecord", ".tfrecords", ".tfrecord.gz", ".parquet", ".arrow"),
    *(".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst", ".arrayrecord", ".npy", ".npz"),
)


def looks_like_dataset(store: _native.Store) -> bool:
    """Whether the first page of the listing has nothing but shards, or an index."""
    objects, _, _ = store.list_page("", "", "")
    names = [info.key for info in objects if not info.key.rpartition("/")[2].startswith(".")]
    if "index.json" in names or "index.hri" in names:
        return True
    return bool(names) and all(name.endswith(DATASET_SUFFIXES) for name in names)


def pack(
    source: Annotated[str, typer.Argument(metavar="SRC", help="Directory or prefix of files, a dataset, or (with --from python) module:function.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Where the shards go.")],
    format: Annotated[str, typer.Option("--format", help="mds, webdataset, tfrecord, litdata or parquet.")] = "mds",
    kind: Annotated[str, typer.Option("--from", help="files (each one a sample), a dataset format, python, or auto.")] = "auto",
    columns: Annotated[str | None, typer.Option("--columns", metavar="LIST", help="TARGET[=SOURCE][:ENCODING],...; default all.")] = None,
    map: Annotated[str, typer.Option("--map", metavar="MODULE:FUNCTION", help="Function from a sample (dict) to the sample to write, or None.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", min=0, help="MDS of uint16 byte tokens, this many a sample; 0: one sample a file.")] = 0,
    compression: Annotated[
        str, typer.Option("--compression", help="zstd[:LEVEL] (mds, litdata), gzip[:LEVEL] (webdataset, tfrecord), a codec of parquet; default none.")
    ] = "",
    hash: Annotated[str, typer.Option("--hash", help="MDS: sha1, sha256, xxh64 or xxh3_64; default none.")] = "",
    shard_bytes: Annotated[str, typer.Option("--shard-bytes", help="Size of a shard.")] = "64MiB",
    workers: Annotated[int, typer.Option("--workers", min=0, help="Threads, or with --ray tasks; 0: one a core.")] = 0,
    ray: Annotated[bool, typer.Option("--ray", help="On the Ray cluster of RAY_ADDRESS, else on one of this machine.")] = False,
    lease: Annotated[float, typer.Option("--lease", min=0.5, help="With --ray: seconds of silence until a part is made anew.")] = 15.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, write nothing.")] = False,
    memory: Annotated[str, typer.Option("--memory", help="Limit of the memory for data.", rich_help_panel="Store")] = "512MiB",
    endpoint: Endpoint = None,
    region: Region = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Pack files, a dataset or samples of a program into shards: parallel, the same bytes every time; a killed run goes on where it stood.

    Examples:

    * `headrace pack ./photos s3://bucket/photos-wds --format webdataset` — one sample a file

    * `headrace pack s3://bucket/text s3://bucket/tokens --tokens 1025` — bytes as tokens, 1,025 a sample

    * `headrace pack s3://bucket/wds s3://bucket/mds --columns image=jpg:jpeg,label=cls` — tars to MDS

    * `headrace pack mymodule:samples ./out --from python --format parquet` — runs your code
    """
    started = time.monotonic()
    options: dict[str, Any] = {"endpoint": endpoint, "region": region, "anonymous": anonymous}
    common: dict[str, Any] = {"format": format, "shard_bytes": shard_bytes, "compression": compression, "hash": hash}
    if kind == PYTHON:
        result = _pack_python(
            source, target, columns, {**common, **options, "memory": memory}, refused={"--map": map, "--ray": ray, "--tokens": tokens, "--dry-run": dry_run}
        )
    elif tokens or (_is_files(source, kind, options, memory) and format in ("mds", "webdataset") and not (columns or map or ray or _is_gzip(compression))):
        result = _pack_files(
            source, target, {**common, "tokens_per_sample": tokens, "workers": workers, "dry_run": dry_run}, {**options, "memory": memory}, memory
        )
    else:
        from headrace.prepare import convert

        source_format = "raw" if kind == FILES or (kind == "auto" and _is_files(source, kind, options, memory)) else kind
        conversion: dict[str, Any] = {"source_format": source_format, "columns": columns, "map": map, "workers": workers, "memory": memory, "dry_run": dry_run}
        result = convert(source, target, **common, **conversion, ray=ray, lease=lease, **options)
    seconds = time.monotonic() - started
    if json:
        print_json({**result, "seconds": seconds})
        return
    _print_summary(result, seconds, dry_run)


def _is_gzip(compression: str) -> bool:
    return compression.partition(":")[0] == "gzip"


def _is_files(source: str, kind: str, options: dict[str, Any], memory: str) -> bool:
    if kind != "auto":
        return kind == FILES
    with Store(source, memory=memory, **options) as store:
        return not looks_like_dataset(store._native)


def _pack_files(source: str, target: str, settings: dict[str, Any], options: dict[str, Any], memory: str) -> dict[str, Any]:
    settings = {**settings, "shard_bytes": parse_bytes(settings["shard_bytes"], "--shard-bytes"), "memory_bytes": parse_bytes(memory, "--memory")}
    with Store(source, **options) as from_store, Store(target, **options) as to_store, progress_bar("packing", "files") as report:
        return _native.pack(from_store._native, to_store._native, progress=report, **settings)


def _pack_python(source: str, target: str, columns: str | None, settings: dict[str, Any], refused: dict[str, object]) -> dict[str, Any]:
    from headrace.prepare import load_callable, parse_columns, write

    for option, value in refused.items():
        if value:
            raise InvalidArgumentError(f"{option} is not for samples of a program")
    chosen = parse_columns(columns)
    if chosen is not None:
        if wrong := [target for source, target, encoding in chosen if source != target or not encoding]:
            raise InvalidArgumentError(f"--columns {wrong[0]}: samples of a program take NAME:ENCODING")
        settings = {**settings, "columns": {target: encoding for _, target, encoding in chosen}}
    return write(load_callable(source)(), target, **settings)


def _print_summary(result: dict[str, Any], seconds: float, dry_run: bool) -> None:
    if dry_run:
        written = f" ({format_bytes(result['written_bytes'])} before compression)" if "written_bytes" in result else ""
        console().print(f"{result['sample_count']:,} samples from {format_bytes(result['read_bytes'])} would become {result['shard_count']:,} shards{written}")
        return
    kept = f", {result['resumed_shard_count']:,} kept from an earlier run" if result["resumed_shard_count"] else ""
    what = f"{result['file_count']:,} files ({format_bytes(result['read_bytes'])}) packed into " if "file_count" in result else ""
    console().print(
        f"{what}{result['sample_count']:,} samples in {result['shard_count']:,} shards ({format_bytes(result['written_bytes'])} written{kept}) in {seconds:.1f} s"
    )


def register(app: typer.Typer) -> None:
    app.command()(pack)
