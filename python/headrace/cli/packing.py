"""What pack does. Imports nothing that is slow to import: packing small files takes less time than that."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from typing import Annotated, Any

from headrace import _native
from headrace.base.progress import progress_bar
from headrace.base.units import format_bytes, parse_bytes
from headrace.cli.base import local_path, note, print_json, refuse_pattern, told_when_stopped
from headrace.cli.dead_links import name_dead_links
from headrace.cli.declare import DataWhere, FileFields, Json, Memory, argument, option
from headrace.errors import InvalidArgumentError
from headrace.store.store import Store
from headrace.store.urls import is_hidden, is_pattern, refuse_inside, refuse_memory

GOES_ON = "the same command goes on"
FILES = "files"
PYTHON = "python"

# Names that are worth a look inside: then the content says what it is.
DATASET_SUFFIXES = (
    *(".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"),
    *(".tfrecord", ".tfrecords", ".tfrecord.gz", ".array_record", ".arrayrecord", ".parquet", ".arrow"),
    *(".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst", ".npy", ".npz"),
)


_NUMBERED = re.compile(r"-\d+-of-\d+$")
"""Ends of names as TensorFlow Datasets and others write them: ``train.tfrecord-00000-of-00010``, or without a
suffix of the format at all. Worth a look inside as well."""
_NOTES = re.compile(r"(metadata|labels|manifest)\.(jsonl|ndjson|csv)")
"""What is likely the manifest of the files beside it."""
_CSV = re.compile(r"\.(csv|tsv|tab)(\.(gz|zstd?|bz2|xz))?$")
_JSON = re.compile(r"\.json(\.(gz|zstd?|bz2|xz))?$")
"""Rows, or notes: opening says which."""
_INDEXED_SHARD = re.compile(
    r"\.mds(\.(zstd|gz|bz2|br|snappy))?$|(^|/)shard\.\d+\.(json|[ctx]sv)\.meta|(^|/)chunk-\d+-\d+(\.\w+)?\.bin$"
)
"""Shards that need an index.json: without one they are an error, never files to pack."""


# Few or large `.bin` files may as well be tokens: the rule is that of may_be_tokens() in
# tokens_driver.cc.
_FEW_FILES = 16
_LARGE_OF_FEW = 256 << 10
_LARGE_OF_MANY = 8 << 20

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _refuse_function(source: str, kind: str) -> None:
    """What no file is called, and a function may be: "no such file" helps nobody there."""
    if kind == "auto" and _FUNCTION.fullmatch(source) and not os.path.exists(source):
        raise InvalidArgumentError(
            f"{source}: no such file or directory; samples of a function take --from {PYTHON}"
        )


def looks_like_files(objects: Sequence[_native.ObjectInfo]) -> bool:
    """Whether the first page of the listing has anything but shards, and no index. Files of CSV or JSON are
    no shards here: see hold_rows()."""
    try:
        names = [info.key for info in objects]
    except UnicodeDecodeError:
        return True  # The packer names the file.
    if not names or "index.json" in names or "index.hri" in names or any(map(_INDEXED_SHARD.search, names)):
        return False
    shown = [name for name in names if not name.rpartition("/")[2].startswith(".")]
    return not shown or not all(name.endswith(DATASET_SUFFIXES) or _NUMBERED.search(name) for name in shown)


def hold_rows(
    objects: Sequence[_native.ObjectInfo], source: str, split: str, options: dict[str, Any], memory: str
) -> bool:
    """Whether the first page of the listing has nothing but CSV, or nothing but JSON that opens as rows."""
    try:
        names = [info.key for info in objects if not is_hidden(info.key)]
    except UnicodeDecodeError:
        return False
    if all(map(_CSV.search, names)):
        return bool(names)
    if not all(map(_JSON.search, names)):
        return False
    from headrace.data.dataset import Dataset

    with Dataset(source, split=split, memory=memory, **options) as dataset:
        return dataset.format != "raw"


def name_of_tokens(objects: Sequence[_native.ObjectInfo]) -> str:
    """A file of the first page of the listing that may hold tokens; empty: they are samples."""
    try:
        sizes = {info.key: info.size for info in objects if not is_hidden(info.key)}
    except UnicodeDecodeError:
        return ""
    tokens = {name: size for name, size in sizes.items() if name.endswith(".bin")}
    if not tokens or 2 * sum(tokens.values()) < sum(sizes.values()):
        return ""
    largest = max(tokens, key=tokens.__getitem__)
    is_large = (
        tokens[largest] >= _LARGE_OF_FEW
        if len(tokens) <= _FEW_FILES
        else sum(tokens.values()) >= _LARGE_OF_MANY * len(tokens)
    )
    return largest if is_large else ""


def pack(
    source: Annotated[
        str,
        argument(
            metavar="SRC",
            help="Directory or prefix of files, a dataset, or (with --from python) module:function.",
        ),
    ],
    target: Annotated[str, argument(metavar="DST", help="Where the shards go.")],
    *,
    format: Annotated[str, option("--format", help="mds, webdataset, tfrecord, litdata or parquet.")] = "mds",
    kind: Annotated[
        str,
        option(
            "--from",
            help=(
                "files (each one a sample; in a WebDataset those that differ in their extensions are one), a "
                "dataset format, python, or auto."
            ),
        ),
    ] = "auto",
    split: Annotated[
        str,
        option(
            "--split",
            metavar="NAME",
            help="Of a dataset with several splits: this one (train, test, ...), or all.",
        ),
    ] = "",
    columns: Annotated[
        str | None,
        option(
            "--columns", metavar="LIST", help="TARGET[=SOURCE][:ENCODING], several with commas; default all."
        ),
    ] = None,
    map: Annotated[
        str,
        option(
            "--map",
            metavar="MODULE:FUNCTION",
            help="Function from a sample (dict) to the sample to write, or None.",
        ),
    ] = "",
    tokens: Annotated[
        int,
        option(
            "--tokens", least=0, help="MDS of uint16 byte tokens, this many a sample; 0: one sample a file."
        ),
    ] = 0,
    compression: Annotated[
        str,
        option(
            "--compression",
            help=(
                "zstd[:LEVEL] (mds, litdata), gzip[:LEVEL] (webdataset, tfrecord), a codec of parquet; "
                "default none."
            ),
        ),
    ] = "",
    hash: Annotated[str, option("--hash", help="MDS: sha1, sha256, xxh64 or xxh3_64; default none.")] = "",
    shard_bytes: Annotated[str, option("--shard-bytes", help="Size of a shard.")] = "64MiB",
    workers: Annotated[
        int, option("--workers", least=0, help="Threads, or with --ray tasks; 0: one a core.")
    ] = 0,
    ray: Annotated[
        bool, option("--ray", help="On the Ray cluster of RAY_ADDRESS, else on one of this machine.")
    ] = False,
    lease: Annotated[
        float,
        option("--lease", least=0.5, help="With --ray: seconds of silence until a part is made anew."),
    ] = 15.0,
    dry_run: Annotated[bool, option("--dry-run", help="Print the plan, write nothing.")] = False,
    memory: Memory = "512MiB",
    fields: FileFields,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Pack files, a dataset or samples of a program into shards: parallel, the same bytes every time; a
    killed run goes on where it stood.

    Examples:

    * `headrace pack ./photos s3://bucket/photos-wds --format webdataset` — one sample a file; x.jpg and
      x.json are one

    * `headrace pack ./imagenet/train ./out --labels folder` — train/n01440764/1.jpg has the label of
      n01440764

    * `headrace pack s3://bucket/text s3://bucket/tokens --tokens 1025` — bytes as tokens, 1,025 a sample

    * `headrace pack s3://bucket/wds s3://bucket/mds --columns image=jpg:jpeg,label=cls` — tars to MDS

    * `headrace pack mymodule:samples ./out --from python --format parquet` — runs your code
    """
    started = time.monotonic()
    refuse_memory(target)
    refuse_pattern(target)
    _refuse_function(source, kind)
    options = where.as_dict()
    common: dict[str, Any] = {
        "format": format,
        "shard_bytes": shard_bytes,
        "compression": compression,
        "hash": hash,
    }
    of_datasets: dict[str, object] = {
        "--split": split,
        "--labels": fields.labels,
        "--manifest": fields.manifest,
        "--map": map,
        "--ray": ray,
    }
    if kind == PYTHON:
        result = _pack_python(
            source,
            target,
            columns,
            {**common, **options, "memory": memory},
            refused={**of_datasets, "--tokens": tokens, "--dry-run": dry_run},
        )
    else:
        if tokens:
            _refuse_with_tokens(
                {
                    **of_datasets,
                    "--columns": columns,
                    f"--from {kind}": kind not in ("auto", FILES),
                }
            )
        is_files = bool(tokens) or _is_files(source, kind, bool(fields.given()), split, options, memory)
        if is_files and (
            tokens
            or (
                format in ("mds", "webdataset")
                and not (columns or any(of_datasets.values()) or _is_gzip(compression))
            )
        ):
            settings: dict[str, Any] = {
                **common,
                "tokens_per_sample": tokens,
                "workers": workers,
                "dry_run": dry_run,
            }
            result = _pack_files(source, target, settings, {**options, "memory": memory}, memory)
        else:
            from headrace.prepare.conversion import convert

            conversion: dict[str, Any] = {
                "split": split,
                "columns": columns,
                "map": map,
                "workers": workers,
                "memory": memory,
                "dry_run": dry_run,
            }
            with told_when_stopped(GOES_ON):
                result = convert(
                    source,
                    target,
                    source_format="raw" if is_files else kind,
                    **common,
                    **conversion,
                    dataset_options=fields.given(),
                    ray=ray,
                    lease=lease,
                    **options,
                )
    seconds = time.monotonic() - started
    if json:
        print_json({**result, "seconds": seconds})
    else:
        _print_summary(result, seconds, dry_run)
    return 0 if kind == PYTHON else name_dead_links(source, lambda key: not is_hidden(key))


def _refuse_with_tokens(others: dict[str, object]) -> None:
    for name, value in others.items():
        if value:
            raise InvalidArgumentError(
                f"{name} does not go with --tokens, which cuts the bytes of files into samples"
            )


def _is_gzip(compression: str) -> bool:
    return compression.partition(":")[0] == "gzip"


def _is_files(
    source: str, kind: str, has_fields: bool, split: str, options: dict[str, Any], memory: str
) -> bool:
    if kind != "auto":
        return kind == FILES
    path = local_path(source)
    if os.path.isfile(path) or (is_pattern(source) and not os.path.exists(path)):
        return False
    with Store(source, memory=memory, **options) as store:
        objects, _, _ = store._native.list_page("", "", "")
    # Where nothing is below it, it may be one object: that is a dataset.
    if not looks_like_files(objects):
        return False
    if has_fields:
        return True
    if name := name_of_tokens(objects):
        raise InvalidArgumentError(
            f"{source}: nothing tells what {name} is: one sample a file (--from {FILES}), or tokens (--from "
            "tokens; flat ones, without .idx, take an index first: headrace index SRC --format tokens "
            "--tokens-per-sample N)? Say which"
        )
    if hold_rows(objects, source, split, options, memory):
        return False
    if len(objects) > 1 and (name := next((info.key for info in objects if _NOTES.fullmatch(info.key)), "")):
        note(f"{name} becomes a sample like others; where it says what they are: --manifest {name}")
    return True


def _pack_files(
    source: str, target: str, settings: dict[str, Any], options: dict[str, Any], memory: str
) -> dict[str, Any]:
    refuse_inside(target, source)
    settings = {
        **settings,
        "shard_bytes": parse_bytes(settings["shard_bytes"], "--shard-bytes"),
        "memory_bytes": parse_bytes(memory, "--memory"),
    }
    with (
        told_when_stopped(GOES_ON),
        Store(source, **options) as from_store,
        Store(target, **options) as to_store,
        progress_bar("packing", "files") as report,
    ):
        return _native.pack(from_store._native, to_store._native, progress=report, **settings)


def _pack_python(
    source: str, target: str, columns: str | None, settings: dict[str, Any], refused: dict[str, object]
) -> dict[str, Any]:
    from headrace.prepare.conversion import write
    from headrace.prepare.job import parse_columns, samples_of

    for name, value in refused.items():
        if value:
            raise InvalidArgumentError(f"{name} is not for samples of a program")
    chosen = parse_columns(columns)
    if chosen is not None:
        if wrong := [target for source, target, encoding in chosen if source != target or not encoding]:
            raise InvalidArgumentError(f"--columns {wrong[0]}: samples of a program take NAME:ENCODING")
        settings = {**settings, "columns": {target: encoding for _, target, encoding in chosen}}
    with told_when_stopped(GOES_ON):
        return write(samples_of(source), target, **settings)


def _print_summary(result: dict[str, Any], seconds: float, dry_run: bool) -> None:
    if dry_run:
        written = (
            f" ({format_bytes(result['written_bytes'])} before compression)"
            if "written_bytes" in result
            else ""
        )
        print(
            f"{result['sample_count']:,} samples from {format_bytes(result['read_bytes'])} would become "
            f"{result['shard_count']:,} shards{written}"
        )
        return
    if result["resumed_shard_count"] == result["shard_count"]:  # The index may be new.
        print(
            f"all {result['shard_count']:,} shards ({result['sample_count']:,} samples) were there from an "
            "earlier run"
        )
        return
    kept = (
        f", {result['resumed_shard_count']:,} kept from an earlier run"
        if result["resumed_shard_count"]
        else ""
    )
    what = (
        f"{result['file_count']:,} files ({format_bytes(result['read_bytes'])}) packed into "
        if "file_count" in result
        else ""
    )
    print(
        f"{what}{result['sample_count']:,} samples in {result['shard_count']:,} shards "
        f"({format_bytes(result['written_bytes'])} written{kept}) in {seconds:.1f} s"
    )
