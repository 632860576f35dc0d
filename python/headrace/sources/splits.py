"""Datasets with several splits: the keys or the folder that a name means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from headrace import _native
from headrace.errors import NotFoundError
from headrace.sources.energon import split_keys
from headrace.sources.options import DatasetOptions
from headrace.store.store import open_native

__all__ = ["INDEX_JSON_KEY", "INDEX_KEY", "with_split"]

INDEX_KEY = "index.hri"
INDEX_JSON_KEY = "index.json"

# Names of one split, as Hugging Face takes them.
_SPLIT_NAMES = (
    ("train", "training"),
    ("validation", "valid", "val", "dev"),
    ("test", "testing", "eval", "evaluation"),
)


def with_split(
    url: str | os.PathLike[str], memory: int | str, options: DatasetOptions, store_options: Mapping[str, Any]
) -> tuple[str | os.PathLike[str], DatasetOptions]:
    """The URL and the options with the keys or the folder of a split instead of its name, where the dataset
    itself says which these are."""
    split = options["split"]
    if split is None or split == "all" or options.get("keys") is not None:
        return url, options
    rest: DatasetOptions = options.copy()
    del rest["split"]
    store = open_native(url, memory, **store_options)
    try:
        keys = split_keys(store.url, split, store.get)
        if keys is not None:
            return url, {**rest, "keys": keys}
        same = next((names for names in _SPLIT_NAMES if split in names), ())
        for folder in dict.fromkeys((split, *same)):
            if any(exists(store, f"{folder}/{name}") for name in (INDEX_JSON_KEY, INDEX_KEY)):
                return _below(store.url, folder), rest
    finally:
        store.close()
    return url, options


def exists(store: _native.Store, key: str) -> bool:
    try:
        store.head(key)
    except NotFoundError:
        return False
    return True


def _below(url: str, folder: str) -> str:
    is_web = url.startswith(("http://", "https://"))
    path, mark, query = url.partition("?") if is_web else (url, "", "")
    return f"{path.rstrip('/')}/{folder}{mark}{query}"
