"""Which files a model in safetensors consists of, and which tensor lies in which."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headrace.checkpoint.safetensors.header import (
    LENGTH_BYTES,
    Header,
    Stored,
    header_length,
    parse_header,
)
from headrace.errors import CorruptError, InvalidArgumentError, NotFoundError
from headrace.store.store import Store
from headrace.store.urls import parent_and_key

__all__ = ["INDEX", "INDEX_END", "SINGLE", "File", "Found", "find_files", "read_index", "split_url"]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
END, INDEX_END = ".safetensors", ".safetensors.index.json"
_FIRST_BYTES = 256 << 10
_THREADS = 16


class File(NamedTuple):
    key: str
    size: int
    etag: str
    """Of the version whose header was read; empty where the store tells none."""
    header: Header


class Found(NamedTuple):
    """The tensors that were asked for, and where they lie."""

    files: Mapping[str, File]
    """By key; those in which something was asked for."""
    tensors: Mapping[str, tuple[str, Stored]]
    """By name: the key of the file, and the place in it."""
    tied: Mapping[str, str]
    """Names that were left out when it was written, and under which name their values are."""


def split_url(url: str | os.PathLike[str]) -> tuple[str, str]:
    """The directory of a URL, and the file in it that it names: a safetensors file or an index; else
    empty."""
    text = os.fspath(url)
    if not text.endswith((END, INDEX_END)):
        return text, ""
    found = parent_and_key(text)
    if found is None:
        raise InvalidArgumentError(f"{text}: expected a directory, or a file in one")
    return found


def find_files(store: Store, name: str, names: Collection[str] | None) -> Found:
    """Reads the headers of the files in which ``names`` lie; None: all.

    :param name: of the file or index; empty: that of a model, or the only one there.
    :raises NotFoundError: no such file; or tensors that are not there, which it names.
    :raises CorruptError: an index or a header that makes no sense.
    """
    name = name or _find_name(store)
    if not name.endswith(INDEX_END):
        file = _read_file(store, name)
        rows = {each: (name, stored) for each, stored in file.header.tensors.items()}
        return _chosen({name: file}, rows, _ties(file.header, rows), names, store.url)
    weight_map, tied = read_index(store, name)
    wanted = weight_map if names is None else {tied.get(each, each) for each in names}
    keys = sorted({weight_map[each] for each in wanted if each in weight_map})
    with ThreadPoolExecutor(_THREADS) as pool:
        files = dict(zip(keys, pool.map(lambda key: _read_file(store, key), keys), strict=True))
    rows = {
        each: (key, _in_file(store, files[key], each)) for each, key in weight_map.items() if key in files
    }
    return _chosen(files, rows, tied, names, store.url)


def _find_name(store: Store) -> str:
    """As transformers looks for it; else the only index, or the only file, that is there."""
    for name in (SINGLE, INDEX):
        if store.exists(name):
            return name
    there = [info.key for info in store.list(recursive=False) if info.key.endswith((END, INDEX_END))]
    indexes = [key for key in there if key.endswith(INDEX_END)]
    if len(indexes or there) == 1:
        return (indexes or there)[0]
    raise NotFoundError(
        f"{store.url}: has no {SINGLE} and no {INDEX}"
        + (f"; name one of those that are there: {', '.join(there[:8])}" if there else ", nor any other")
    )


def read_index(store: Store, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Of an index: the file of each tensor, and the names that are others' values. Raises CorruptError."""
    where = f"{store.url}/{name}"
    try:
        body = json.loads(store.get(name))
        weight_map, metadata = body["weight_map"], body.get("metadata")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptError(f"{where}: is no index of safetensors files: {error!r}") from None
    if not isinstance(weight_map, dict) or not all(isinstance(key, str) for key in weight_map.values()):
        raise CorruptError(f"{where}: its weight_map is not file names by tensor")
    folder = posixpath.dirname(name)
    for key in set(weight_map.values()):
        if not key.endswith(END) or posixpath.isabs(key) or ".." in key.split("/"):
            raise CorruptError(f"{where}: {key!r} is no safetensors file beside it")
    tied = metadata.get("tied") if isinstance(metadata, dict) else None
    if not isinstance(tied, dict):
        tied = {}
    return {each: posixpath.join(folder, key) for each, key in weight_map.items()}, {
        each: kept for each, kept in tied.items() if kept in weight_map and each not in weight_map
    }


def _in_file(store: Store, file: File, name: str) -> Stored:
    try:
        return file.header.tensors[name]
    except KeyError:
        raise CorruptError(
            f"{store.url}/{file.key}: does not have {name!r}, which the index says it has"
        ) from None


def _ties(header: Header, rows: Iterable[str]) -> dict[str, str]:
    """As safetensors.torch.save_model() notes them: the name that was left out, and that which was kept."""
    there = set(rows)
    notes = ((name, kept) for name, kept in header.metadata.items() if name != "format")
    return {name: kept for name, kept in notes if kept in there and name not in there}


def _chosen(
    files: Mapping[str, File],
    rows: Mapping[str, tuple[str, Stored]],
    tied: Mapping[str, str],
    names: Collection[str] | None,
    url: str,
) -> Found:
    if names is None:
        return Found(files, rows, tied)
    missing = [name for name in names if tied.get(name, name) not in rows]
    if missing:
        some = ", ".join(sorted(missing)[:5]) + (", ..." if len(missing) > 5 else "")
        raise NotFoundError(f"{url}: has no tensor {some}")
    wanted = {tied.get(name, name) for name in names}
    return Found(
        files,
        {name: row for name, row in rows.items() if name in wanted},
        {name: kept for name, kept in tied.items() if name in names},
    )


def _read_file(store: Store, key: str) -> File:
    info = store.head(key)
    where = f"{store.url}/{key}"
    first = store.get_range(key, 0, min(info.size, _FIRST_BYTES), etag=info.etag) if info.size else b""
    length = header_length(first, info.size, where)
    end = LENGTH_BYTES + length
    if end > len(first):
        first += store.get_range(key, len(first), end - len(first), etag=info.etag)
    return File(key, info.size, info.etag, parse_header(first[LENGTH_BYTES:end], info.size, where))
