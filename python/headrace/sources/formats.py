"""Names of formats, and objects that are only parts of a dataset."""

from __future__ import annotations

import json
import re

from headrace import _native
from headrace.errors import HeadraceError, InvalidArgumentError
from headrace.sources.splits import exists

__all__ = ["check_format", "refuse_part"]

# What a name stands for besides itself.
_READS = {
    "mds": "of mosaicml-streaming",
    "webdataset": "tars",
    "raw": "files of any kind",
    "text": "text and JSON lines",
    "tokens": "flat token files, Megatron",
    "numpy": ".npy",
    "table": "Parquet, Arrow, Feather, Lance",
    "csv": "CSV, TSV",
}
_ALSO_CALLED = {
    **dict.fromkeys(("ipc", "feather"), "arrow"),
    "petastorm": "parquet",
    **dict.fromkeys(("jsonl", "json", "ndjson", "txt"), "text"),
    **dict.fromkeys(("tar", "wds", "energon", "wids"), "webdataset"),
    **dict.fromkeys(("megatron", "bin"), "tokens"),
    **dict.fromkeys(("streaming", "mosaic"), "mds"),
    **dict.fromkeys(("tfrecords", "tf"), "tfrecord"),
    **dict.fromkeys(("npy", "np"), "numpy"),
    **dict.fromkeys(("images", "imagefolder", "files", "folder"), "raw"),
    **dict.fromkeys(("array_record", "riegeli"), "arrayrecord"),
    "lit": "litdata",
    "tsv": "csv",
}

_SHARD_OF_MDS = re.compile(r"\.mds(\.\w+)?$")
_INDEXED_BY_IDX = (".bin", ".tar", ".tfrecord", ".tfrecords")


def check_format(name: str) -> None:
    """Raises InvalidArgumentError for what is no name of a format: with the name of the one that reads it,
    else with all that there are."""
    known = [*_native.format_names(), *_native.format_kinds()]
    if name in known:
        return
    lower = str(name).lower()
    meant = lower if lower in known else _ALSO_CALLED.get(lower)
    if meant is not None:
        raise InvalidArgumentError(
            f"format={name!r} is called {_shown(meant)}; left out, it is found from the content"
        )
    names = ", ".join(_shown(each) for each in known if each != "auto")
    raise InvalidArgumentError(
        f"format={name!r} is unknown; there are auto (found from the content), {names}"
    )


def _shown(name: str) -> str:
    return f"{name} ({_READS[name]})" if name in _READS else name


def refuse_part(store: _native.Store, key: str, format: str) -> None:
    """Raises InvalidArgumentError where the only object to be read is a part of a dataset that makes no sense
    alone, unless the format says that this is meant."""
    if format == "raw":
        return
    part = _part_of(store, key, format)
    if part:
        raise InvalidArgumentError(f"{store.url}/{key}: {part}. format='raw' reads it as a file")


def _part_of(store: _native.Store, key: str, format: str) -> str:
    """What the object is a part of, and what to open."""
    folder = f"open the folder {store.url}"
    if _SHARD_OF_MDS.search(key):
        return f"is a shard of MDS, which is read as a whole through its index.json: {folder}"
    if key == "index.hri":
        return f"is the index of the dataset beside it: {folder}"
    if key == "index.json" and format in ("auto", "mds", "litdata") and _is_list_of_shards(store, key):
        return f"lists the shards of a dataset: {folder}"
    stem, _, ending = key.rpartition(".")
    if ending == "idx":
        data = next((stem + each for each in _INDEXED_BY_IDX if exists(store, stem + each)), None)
        if data is None:
            return f"is an index, and what it is of ({stem}.bin, .tar or .tfrecord) is not beside it"
        return f"is the index of {data} beside it: {folder}"
    if ending == "bin" and format == "auto" and exists(store, f"{stem}.idx"):
        return f"has its samples listed in {stem}.idx beside it: give format='tokens' for Megatron's documents, or {folder}"  # noqa: E501
    return ""


def _is_list_of_shards(store: _native.Store, key: str) -> bool:
    try:
        document = json.loads(store.get(key))
    except (ValueError, HeadraceError):
        return False
    return isinstance(document, dict) and bool({"shards", "chunks"} & document.keys())
