"""What Hugging Face's `datasets` writes into the files of a table about its columns."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

from headrace import _native
from headrace.data.tables.arrow import arrow, guarded

__all__ = ["declared_features"]

_KEY = b"huggingface"
_PARQUET, _FILE, _STREAM = b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff"


@guarded
def declared_features(store: _native.Store, key: str) -> dict[str, Mapping[str, Any]]:
    """The features that the schema of a Parquet or Arrow file declares, by column, each a dict with ``_type``
    (``"Image"``, ``"ClassLabel"``, ...); empty where it declares none. Reads the head or the footer alone."""
    said = (_schema(store, key).metadata or {}).get(_KEY, b"")
    try:
        return dict(_flat(json.loads(said)["info"]["features"], ""))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}  # Not of a kind that we know.


def _schema(store: _native.Store, key: str) -> Any:
    pa = arrow()
    start = store.get_range(key, 0, 16)
    if start.startswith(_PARQUET):
        return pa.parquet.read_schema(io.BytesIO(_footer(store, key)))
    begin = len(_FILE) if start.startswith(_FILE) else 0
    mark, size = start[begin : begin + 4], int.from_bytes(start[begin + 4 : begin + 8], "little")
    if mark != _STREAM:
        return pa.schema([])
    return pa.ipc.read_schema(pa.py_buffer(store.get_range(key, begin, 8 + size)))


def _footer(store: _native.Store, key: str) -> bytes:
    """A file of the footer alone, without data."""
    size = store.head(key).size
    end = store.get_range(key, size - 8, 8)
    footer = int.from_bytes(end[:4], "little") + 8
    return _PARQUET + store.get_range(key, size - footer, footer)


def _flat(features: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Fields of structs as the columns that they become."""
    for name, feature in features.items():
        if not isinstance(feature, Mapping):
            continue
        if isinstance(feature.get("_type"), str):
            yield prefix + name, feature
        else:
            yield from _flat(feature, f"{prefix}{name}.")
