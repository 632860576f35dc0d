"""Makes the values of an Arrow column ready for the engine to cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.data.tables.arrow import arrow


def unwrap(column: Any) -> Any:
    """Without extension types, dictionaries and run ends."""
    pa = arrow()
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
    if pa.types.is_dictionary(column.type):
        # Indices of files are not to be trusted; take() checks them.
        column.validate(full=True)
        kind = _without_view(column.type.value_type)
        column = pa.chunked_array([_looked_up(chunk, kind) for chunk in column.chunks], kind)
    if pa.types.is_run_end_encoded(column.type):
        column.validate(full=True)
        column = pa.chunked_array(
            [pa.compute.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type
        )
    return column


def _without_view(kind: Any) -> Any:
    pa = arrow()
    return (
        pa.large_string()
        if pa.types.is_string_view(kind)
        else pa.large_binary()
        if pa.types.is_binary_view(kind)
        else kind
    )


def _looked_up(chunk: Any, kind: Any) -> Any:
    """The values of a dictionary array. pyarrow 26 cannot look up views."""
    pa = arrow()
    return pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(kind)).dictionary_decode()


def _text(column: Any) -> Any:
    pa = arrow()
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _binary(column: Any) -> Any:
    pa = arrow()
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def _list(column: Any) -> Any:
    """Lists that are cut from offsets: fixed sizes and views become large lists."""
    pa = arrow()
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return column
    large = pa.large_list(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return column.cast(large)
    return pa.chunked_array([_without_views(chunk, large) for chunk in column.chunks], large)


def _without_views(chunk: Any, large: Any) -> Any:
    """The large list of a list view: pyarrow 26's own cast leaves out the last offset."""
    pa = arrow()
    offsets = np.zeros(len(chunk) + 1, np.int64)
    np.cumsum(chunk.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), out=offsets[1:])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets), chunk.flatten(), type=large, mask=chunk.is_null() if chunk.null_count else None
    )


def _array(column: Any) -> Any:
    """Lists of one size. Nulls inside become NaN where the items have one."""
    pa = arrow()
    column = _list(column)
    absent = float("nan") if pa.types.is_floating(column.type.value_type) else 0
    return pa.chunked_array([_without_nulls(chunk, absent) for chunk in column.chunks], column.type)


def _without_nulls(chunk: Any, absent: float) -> Any:
    """Without null items, which lie below each row that is null in a list of one size. Where 0 stands for
    them only such ones: the engine refuses others."""
    pa = arrow()
    if chunk.values.null_count == 0 or (absent == 0 and chunk.flatten().null_count > 0):
        return chunk
    values = chunk.values.fill_null(absent)
    return (
        type(chunk).from_arrays(
            chunk.offsets, values, type=chunk.type, mask=chunk.is_null() if chunk.null_count else None
        )
        if (chunk.offset == 0)
        else _without_nulls(pa.concat_arrays([chunk]), absent)
    )


def _bool_list(column: Any) -> Any:
    """Bits become bytes."""
    pa = arrow()
    column = _list(column).cast(pa.large_list(pa.uint8()))
    return pa.chunked_array([_without_nulls(chunk, 0) for chunk in column.chunks], column.type)


def _decimal(column: Any) -> Any:
    return column.cast(arrow().string())


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    return str(value)


def _json(column: Any) -> Any:
    """The slow path, value by value: nested lists, lists of texts, maps."""
    pa = arrow()
    texts = [
        None if value is None else json.dumps(value, default=_json_default) for value in column.to_pylist()
    ]
    return pa.chunked_array([pa.array(texts, pa.large_string())])


_PREPARE: dict[str, Callable[[Any], Any] | None] = {
    "plain": None,
    "text": _text,
    "binary": _binary,
    "list": _list,
    "array": _array,
    "bool_list": _bool_list,
    "decimal": _decimal,
    "json": _json,
}


def prepared(column: Any, how: str) -> Any:
    if how.startswith("list of "):  # of a part of a table that has no values (ipc.py)
        dtype = how.removeprefix("list of ")
        return column.cast(arrow().large_list(arrow().type_for_alias("uint8" if dtype == "bool" else dtype)))
    prepare = _PREPARE[how]
    return column if prepare is None else prepare(column)


def is_cut_by_engine(kind: Any, how: str) -> bool:
    """Whether nothing here follows the offsets of such a column: the engine checks each one that it follows
    (src/shard/formats/table/unpacked_table.cc)."""
    types = arrow().types
    if how == "list":
        return bool(types.is_list(kind) or types.is_large_list(kind))
    return how in ("plain", "decimal") or bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )
