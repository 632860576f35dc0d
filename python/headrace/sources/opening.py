"""From a URL to a native dataset: what the URL names, which index, how it is opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from headrace import _native
from headrace.base.packages import telling_missing_package
from headrace.base.progress import progress_bar
from headrace.base.units import parse_bytes
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.sources.options import DatasetOptions, native_options
from headrace.sources.splits import with_split
from headrace.store.store import Store, open_native
from headrace.store.tiers import parse_tiers
from headrace.store.urls import lies_inside, local_path, named_objects, parent_and_key

__all__ = ["default_index_cache", "open_native_dataset", "open_root", "parse_block_bytes"]

T = TypeVar("T")

logger = logging.getLogger("headrace.index")


def default_index_cache() -> str:
    """``$HEADRACE_INDEX_CACHE``, else ``headrace/index`` in the user's cache directory."""
    given = os.environ.get("HEADRACE_INDEX_CACHE")
    if given is not None:
        return given
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(root) / "headrace" / "index")


def parse_block_bytes(value: int | str | None) -> int:
    """The engine's option; 0 lets it choose."""
    return 0 if value is None else parse_bytes(value, "block_bytes")


def open_native_dataset(
    store: _native.Store,
    format: str,
    block_bytes: int | str | None,
    index_cache: str | os.PathLike[str] | None,
    use_stored_index: bool,
    options: DatasetOptions | None = None,
) -> _native.Dataset:
    cache = default_index_cache() if index_cache is None else os.fspath(index_cache)
    with telling_missing_package(store.url), progress_bar("indexing", "shards") as report:
        dataset = _native.Dataset(
            store,
            format=format,
            block_bytes=parse_block_bytes(block_bytes),
            index_cache_dir=cache,
            use_stored_index=use_stored_index,
            progress=report,
            **native_options(options or {}),
        )
    if broken := dataset.broken_shards():
        _tell_broken(dataset, broken)
    if cut := dataset.cut_ends():
        named = ", ".join(f"{size:,} of {key}" for key, size in cut[:5])
        more = f" and of {len(cut) - 5:,} more" if len(cut) > 5 else ""
        logger.warning("%s: lenient: bytes at the end were passed over: %s%s", dataset.url, named, more)
    return dataset


def _tell_broken(dataset: _native.Dataset, broken: list[Any]) -> None:
    kept = sum(row[-1] for row in broken)
    named = "; ".join(f"{row[0]}: {row[4]}" for row in broken[:5])
    more = f"; and {len(broken) - 5:,} more" if len(broken) > 5 else ""
    logger.warning(
        "%s: goes on without %d broken shard%s%s: %s%s",
        dataset.url,
        len(broken),
        "" if len(broken) == 1 else "s",
        f" ({kept:,} samples)" if kept else "",
        named,
        more,
    )


def _list_keys(
    root: str, prefix: str, is_deep: bool, memory: int | str, store_options: Mapping[str, Any]
) -> list[str]:
    with Store(root, memory=memory, **store_options) as store:
        try:
            return [info.key for info in store.list(prefix, recursive=is_deep)]
        except NotFoundError:
            return []


def _read_object(root: str, key: str, memory: int | str, store_options: Mapping[str, Any]) -> bytes:
    store = open_native(root, memory, **store_options)
    try:
        return store.get(key)
    finally:
        store.close()


def _refuse_cache_inside(url: str | os.PathLike[str], store_options: Mapping[str, Any]) -> None:
    """InvalidArgumentError for a cache whose files would be taken for those of a dataset in a directory."""
    cache, data = parse_tiers(store_options.get("cache")).directory, local_path(os.fspath(url))
    if cache and data and os.path.isdir(data) and lies_inside(cache, data):
        raise InvalidArgumentError(
            f"cache {cache} lies inside of {data}, whose files are the data: its own would be among them. "
            "Give it a directory of its own"
        )


def open_root(
    url: str | os.PathLike[str],
    memory: int | str,
    options: DatasetOptions,
    store_options: Mapping[str, Any],
    use: Callable[[_native.Store, DatasetOptions], T],
) -> tuple[_native.Store, T]:
    """Calls ``use(store, options)`` for the store at a URL; where nothing is below the URL but the URL is an
    object, for its folder and that one key; for a URL that names many objects, for their folder and keys."""
    _refuse_cache_inside(url, store_options)
    named = named_objects(
        url,
        lambda root, key: _read_object(root, key, memory, store_options),
        lambda root, prefix, is_deep: _list_keys(root, prefix, is_deep, memory, store_options),
    )
    if named is not None and options.get("keys") is None:
        url, options = named[0], {**options, "keys": named[1]}
    if options.get("split"):
        url, options = with_split(url, memory, options, store_options)
    store = open_native(url, memory, **store_options)
    try:
        return store, use(store, options)
    except NotFoundError as missing:
        store.close()
        place = parent_and_key(url)
        if place is None or options.get("keys") is not None:
            raise
        store = open_native(place[0], memory, **store_options)
        try:
            store.head(place[1])
            return store, use(store, {**options, "keys": [place[1]]})
        except NotFoundError:
            store.close()
            raise missing from None
        except BaseException:
            store.close()
            raise
    except BaseException:
        store.close()
        raise
