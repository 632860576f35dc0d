"""Writes the index of a dataset, and rebuilds index.json."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.base.new_file import new_file
from headrace.base.packages import telling_missing_package
from headrace.base.progress import progress_bar
from headrace.errors import InvalidArgumentError
from headrace.sources.formats import check_format
from headrace.sources.opening import default_index_cache, open_root, parse_block_bytes
from headrace.sources.options import DatasetOptions, native_options, split_options
from headrace.sources.splits import INDEX_JSON_KEY, INDEX_KEY
from headrace.store.store import StoreOptions, open_native

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["build_index", "check_place", "rebuild_index_json", "store_index", "write_index"]


def build_index(
    store: _native.Store,
    format: str,
    block_bytes: int | str | None,
    index_cache: str,
    options: DatasetOptions,
) -> bytes:
    with telling_missing_package(store.url), progress_bar("indexing", "shards") as report:
        return _native.build_index(
            store,
            format=format,
            block_bytes=parse_block_bytes(block_bytes),
            index_cache_dir=index_cache,
            progress=report,
            **native_options(options),
        )


def check_place(url: str | os.PathLike[str], given: DatasetOptions, chosen: DatasetOptions) -> None:
    """Refuses an index beside a dataset of some objects of a folder: whoever opened the folder would see no
    others."""
    keys = chosen.get("keys")
    if keys is None or given.get("keys") is not None or given.get("split") is not None:
        return
    raise InvalidArgumentError(
        f"{os.fspath(url)} names {len(keys):,} object{'s' if len(keys) > 1 else ''} of a folder, and an "
        "index beside them would stand for the whole folder: give a file for it (--output, path=), or index "
        "the folder"
    )


def store_index(store: _native.Store, index: bytes, path: str | os.PathLike[str] | None) -> int:
    _store_file(store, INDEX_KEY, index, path)
    return len(index)


def _store_file(store: _native.Store, key: str, content: bytes, path: str | os.PathLike[str] | None) -> None:
    """Writes an object, or the local file ``path`` instead."""
    if path is None:
        store.put(key, content, False)
    else:
        with new_file(path) as file:
            file.write(content)


def write_index(
    url: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    format: str = "auto",
    memory: int | str = "256MiB",
    block_bytes: int | str | None = None,
    index_cache: str | os.PathLike[str] | None = None,
    **options: Any,
) -> int:
    """``Dataset(url).write_index(path)`` with one scan: nothing is opened before. Returns the size of the
    index in bytes.

    Without ``path`` it is written beside the dataset, which must then be a folder: one object, a pattern or a
    list needs a path.

    What a killed call had found is kept in ``index_cache`` and used by the next. ``options``: of the dataset
    (:class:`DatasetOptions`) and of its store.
    """
    check_format(format)
    cache = default_index_cache() if index_cache is None else os.fspath(index_cache)
    dataset_options, store_options = split_options(options)

    def build(store: _native.Store, chosen: DatasetOptions) -> bytes:
        if path is None:
            check_place(url, dataset_options, chosen)
        return build_index(store, format, block_bytes, cache, chosen)

    store, index = open_root(url, memory, dataset_options, store_options, build)
    try:
        return store_index(store, index, path)
    finally:
        store.close()


def rebuild_index_json(
    url: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    keys: Sequence[str] | None = None,
    memory: int | str = "256MiB",
    **options: Unpack[StoreOptions],
) -> tuple[int, int]:
    """Writes the ``index.json`` of the MDS shards at a URL, from what they say of themselves, or to ``path``.
    Returns (shards, samples).

    It is what mosaicml-streaming's writer would have written of these shards, hashes included. A sound
    ``index.json`` is never replaced.
    ``keys``: exactly these shards; default: all right there, which must be numbered without a gap.
    """
    store = open_native(url, memory, **options)
    try:
        with progress_bar("reading", "shards") as report:
            index = json.loads(
                _native.rebuild_index_json(store, progress=report, **native_options({"keys": keys}))
            )
        _store_file(store, INDEX_JSON_KEY, json.dumps(index, sort_keys=True).encode(), path)
    finally:
        store.close()
    return len(index["shards"]), sum(shard["samples"] for shard in index["shards"])
