"""Tables: what pyarrow and lance do for the engine. Called by the engine (src/bindings/table.cc), never by
users.

``describe`` answers while an index is built; ``unpack`` turns the bytes of one block into Arrow columns. The
engine fetched those bytes; pyarrow opens no file here. docs/formats.md, "Tables", says which type becomes
which column.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.data import unischema
from headrace.errors import (
    CorruptError,
    ExhaustedError,
    HeadraceError,
    InvalidArgumentError,
    UnsupportedError,
)


class _Output(NamedTuple):
    """One column as it is delivered."""

    name: str
    path: tuple[str, ...]
    """Names from the table's field down through structs."""
    how: str
    """What makes the values ready to cut: a key of ``_PREPARE``."""
    encoding: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    size: int = 0
    leaves: tuple[int, ...] = ()
    """Parquet leaves that it needs."""
    is_unknown: bool = False
    """No row has a value, so the writer chose the type of nothing: another part of the table may know better."""

    def column(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoding": self.encoding,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "size": self.size,
        }


@functools.cache
def _arrow() -> Any:
    try:
        for name in ("pyarrow.compute", "pyarrow.parquet"):
            importlib.import_module(name)
        return importlib.import_module("pyarrow")
    except ImportError as error:
        raise UnsupportedError(f"tables need pyarrow: pip install pyarrow ({error})") from None


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Exceptions of pyarrow and lance become ours."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (HeadraceError, KeyboardInterrupt):
            raise
        except NotImplementedError as error:
            raise UnsupportedError(str(error)) from error
        except MemoryError as error:
            raise ExhaustedError(f"unpacking: {error}") from error
        except (
            ValueError,
            OSError,
            LookupError,
            TypeError,
            OverflowError,
            RuntimeError,
            _arrow().ArrowException,
        ) as error:
            raise CorruptError(str(error) or type(error).__name__) from error

    return call


# ---- types ----


def _numpy_name(kind: Any) -> str:
    """numpy dtype of a type of fixed width that numpy can hold; times and dates are their integers. "" for
    others."""
    types = _arrow().types
    if types.is_boolean(kind):
        return "bool"
    if types.is_integer(kind):
        return str(kind)
    if types.is_floating(kind):
        return f"float{kind.bit_width}"
    if types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind) or types.is_duration(kind):
        return f"int{kind.bit_width}"
    return ""


def _leaf_count(kind: Any) -> int:
    types = _arrow().types
    if isinstance(kind, _arrow().BaseExtensionType):
        return _leaf_count(kind.storage_type)
    if types.is_struct(kind):
        return sum(_leaf_count(kind.field(i).type) for i in range(kind.num_fields))
    if types.is_map(kind):
        return _leaf_count(kind.key_type) + _leaf_count(kind.item_type)
    if _is_list(kind):
        return _leaf_count(kind.value_type)
    return 1


def _is_list(kind: Any) -> bool:
    types = _arrow().types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _is_text(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _list_output(kind: Any) -> dict[str, Any] | None:
    """A list of numbers; None for other lists."""
    item = kind.value_type
    dtype = _numpy_name(item)
    if not dtype:
        return None
    prefix = "nullable_list" if kind.value_field.nullable else "list"
    if _arrow().types.is_fixed_size_list(kind) and kind.list_size > 0:
        width = 1 if dtype == "bool" else item.bit_width // 8
        return {
            "how": "bool_list" if dtype == "bool" else "array",
            "encoding": f"ndarray:{dtype}:{kind.list_size}",
            "dtype": dtype,
            "shape": (kind.list_size,),
            "size": width * kind.list_size,
        }
    return {"how": "bool_list" if dtype == "bool" else "list", "encoding": f"{prefix}:{dtype}"}


def _value_output(kind: Any, declared: Any) -> dict[str, Any]:
    """How a column that is no struct is delivered."""
    types = _arrow().types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _value_output(kind.value_type, declared)
    if types.is_null(kind):
        return {"how": "plain", "encoding": "str", "is_unknown": True}
    if _is_text(kind):
        return {"how": "text", "encoding": "str"}
    if _is_binary(kind):
        return {"how": "binary", "encoding": "bytes"}
    if types.is_fixed_size_binary(kind):
        return {"how": "plain", "encoding": "bytes", "size": kind.byte_width}
    if types.is_decimal(kind):
        return {"how": "decimal", "encoding": "str_decimal"}
    if dtype := _numpy_name(kind):
        size = 1 if dtype == "bool" else kind.bit_width // 8
        name = declared if types.is_duration(declared) and dtype == "int64" else kind
        return {
            "how": "plain",
            "encoding": str(name) if dtype.startswith("int") else dtype,
            "dtype": dtype,
            "size": size,
        }
    if _is_list(kind) and types.is_null(kind.value_type):
        return {"how": "json", "encoding": "json", "is_unknown": True}
    if _is_list(kind):
        return _list_output(declared if types.is_fixed_size_list(declared) else kind) or {
            "how": "json",
            "encoding": "json",
        }
    if types.is_map(kind):
        return {"how": "json", "encoding": "json"}
    raise UnsupportedError(f"type {kind} cannot be delivered; leave the column out with columns=")


def _is_media(kind: Any) -> bool:
    """The struct {bytes, path} of Hugging Face's Image and Audio features."""
    names = [kind.field(i).name for i in range(kind.num_fields)]
    return (
        sorted(names) == ["bytes", "path"]
        and _is_binary(kind.field("bytes").type)
        and _is_text(kind.field("path").type)
    )


def _storage(kind: Any) -> Any:
    return kind.storage_type if isinstance(kind, _arrow().BaseExtensionType) else kind


def _outputs(
    kind: Any, declared: Any, name: str, path: tuple[str, ...], first_leaf: int
) -> Iterable[_Output]:
    """``kind``: the type as it is unpacked. ``declared``: as the writer had it in Arrow, which knows sizes of
    lists and shapes."""
    extension_shape = tuple(getattr(declared, "shape", None) or ())
    kind, declared = _storage(kind), _storage(declared)
    leaves = tuple(range(first_leaf, first_leaf + _leaf_count(kind)))
    if not _arrow().types.is_struct(kind):
        try:
            output = _value_output(kind, declared)
        except UnsupportedError as error:
            raise UnsupportedError(f"column '{name}': {error}") from None
        if extension_shape and output.get("shape"):
            dtype = output["dtype"]
            output |= {
                "shape": extension_shape,
                "encoding": f"ndarray:{dtype}:{','.join(map(str, extension_shape))}",
            }
        yield _Output(name, path, leaves=leaves, **output)
        return
    if kind.num_fields == 0:
        raise UnsupportedError(
            f"column '{name}': a struct without fields; leave the column out with columns="
        )
    is_media = _is_media(kind)
    for i in range(kind.num_fields):
        child = kind.field(i)
        child_name = name if is_media and child.name == "bytes" else f"{name}.{child.name}"
        is_alike = _arrow().types.is_struct(declared) and declared.num_fields == kind.num_fields
        yield from _outputs(
            child.type,
            declared.field(i).type if is_alike else child.type,
            child_name,
            (*path, child.name),
            first_leaf,
        )
        first_leaf += _leaf_count(child.type)


def _all_outputs(schema: Any, declared: Any, wanted: Sequence[str], codecs: dict[str, str]) -> list[_Output]:
    outputs: list[_Output] = []
    leaf = 0
    for i, field in enumerate(schema):
        # An unsupported type is an error only for those who want the column.
        is_wanted = not wanted or any(
            name == field.name or name.startswith(f"{field.name}.") for name in wanted
        )
        if is_wanted:
            outputs.extend(_outputs(field.type, declared.field(i).type, field.name, (field.name,), leaf))
        leaf += _leaf_count(field.type)
    outputs = [_with_codec(output, codecs) for output in outputs]
    known = [output.name for output in outputs]
    for name in wanted:
        if not any(
            output.name == name or output.path[0] == name or output.name.startswith(f"{name}.")
            for output in outputs
        ):
            raise InvalidArgumentError(
                f"no column '{name}'; the columns are {', '.join(known or schema.names)}"
            )
    if wanted:
        outputs = [
            o
            for o in outputs
            if any(o.name == w or o.path[0] == w or o.name.startswith(f"{w}.") for w in wanted)
        ]
    for name in known:
        if known.count(name) > 1:
            raise UnsupportedError(f"two columns are named '{name}'; leave one out with columns=")
    return outputs


def _with_codec(output: _Output, codecs: dict[str, str]) -> _Output:
    """What Petastorm stored in a binary column."""
    encoding = codecs.get(output.name)
    return output._replace(encoding=encoding) if encoding and output.encoding == "bytes" else output


# ---- describe ----


def _answer(outputs: Sequence[_Output], **more: Any) -> str:
    leaves = sorted({leaf for output in outputs for leaf in output.leaves})
    spec = {
        "columns": [[list(o.path), o.how, list(o.leaves)] for o in outputs],
        "leaves": leaves,
        **more.pop("spec", {}),
    }
    return json.dumps(
        {"columns": [o.column() for o in outputs], "leaves": leaves, "spec": json.dumps(spec), **more}
    )


def _describe_parquet(spec: dict[str, Any], head: memoryview, body: memoryview) -> str:
    pa = _arrow()
    schema, declared = (pa.parquet.read_schema(pa.BufferReader(bytes(part))) for part in (head, body))
    metadata = dict(declared.metadata or {})
    if spec["common"]:
        common = pa.parquet.read_schema(pa.BufferReader(bytes.fromhex(spec["common"])))
        metadata = {**(common.metadata or {}), **metadata}
    codecs = unischema.read_codecs(metadata.get(unischema.KEY))
    return _answer(_all_outputs(schema, declared, spec["columns"], codecs))


def _describe_ipc(spec: dict[str, Any], head: memoryview, body: memoryview) -> str:
    pa = _arrow()
    schema = pa.ipc.read_schema(pa.py_buffer(bytes(head)))
    outputs = [output._replace(leaves=()) for output in _all_outputs(schema, schema, spec["columns"], {})]
    order = spec["order"]
    if sorted(order) == sorted(output.name for output in outputs):
        outputs.sort(key=lambda output: order.index(output.name))
    likes = {column["name"]: column for column in spec["likes"]}
    outputs = [
        _alike(output, likes[output.name]) if output.is_unknown and output.name in likes else output
        for output in outputs
    ]
    return _answer(outputs, unknown=[output.name for output in outputs if output.is_unknown])


def _alike(output: _Output, like: dict[str, Any]) -> _Output:
    """A column without values, delivered as the other parts of the table have it: null fits all, empty lists
    fit lists."""
    known = output._replace(
        encoding=like["encoding"],
        dtype=like["dtype"],
        shape=tuple(like["shape"]),
        size=like["size"],
        is_unknown=False,
    )
    if output.how == "plain" or like["encoding"] == "json":
        return known
    prefix, _, dtype = like["encoding"].partition(":")
    return known._replace(how=f"list of {dtype}") if prefix in ("list", "nullable_list") else output


_OPERATORS: dict[str, Callable[[Any, Any, Any], bool]] = {
    # (minimum, maximum, value): whether a value between them may match.
    "==": lambda low, high, value: bool(low <= value <= high),
    "!=": lambda low, high, value: not (low == high == value),
    "<": lambda low, high, value: bool(low < value),
    "<=": lambda low, high, value: bool(low <= value),
    ">": lambda low, high, value: bool(high > value),
    ">=": lambda low, high, value: bool(high >= value),
    "in": lambda low, high, value: any(low <= item <= high for item in value),
}


def _parse_where(text: str) -> list[tuple[str, str, Any]]:
    try:
        terms = [(str(column), str(operator), value) for column, operator, value in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f'row_groups_where={text!r}: must be JSON [["column", "op", value], ...] ({error})'
        ) from None
    for column, operator, value in terms:
        if operator not in _OPERATORS:
            raise InvalidArgumentError(
                f"row_groups_where: {column} {operator!r}: the operator must be one of {' '.join(_OPERATORS)}"
            )
        if operator == "in" and not isinstance(value, list):
            raise InvalidArgumentError(f"row_groups_where: {column} in: needs a list")
    return terms


def _like(value: Any, example: Any) -> Any:
    """A value of the predicate as statistics hold it: JSON has no bytes, dates or decimals."""
    if isinstance(value, list):
        return [_like(item, example) for item in value]
    if isinstance(example, bytes) and isinstance(value, str):
        return value.encode()
    if hasattr(example, "isoformat") and isinstance(value, str):
        parsed = type(example).fromisoformat(value)
        if getattr(example, "tzinfo", None) is not None and parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=example.tzinfo)
        return parsed
    if type(example).__name__ == "Decimal" and isinstance(value, (str, int, float)):
        return type(example)(str(value))
    return value


def _prune(where: str, head: memoryview) -> str:
    pa = _arrow()
    metadata = pa.parquet.read_metadata(pa.BufferReader(bytes(head)))
    terms = _parse_where(where)
    leaf_of = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for column, _, _ in terms:
        if column not in leaf_of:
            raise InvalidArgumentError(
                f"row_groups_where: no column '{column}'; the columns are {', '.join(leaf_of)}"
            )

    def may_match(group: Any, column: str, operator: str, value: Any) -> bool:
        statistics = group.column(leaf_of[column]).statistics
        if statistics is None or not statistics.has_min_max:
            # All null: no value matches. Else nothing is known.
            return not (
                statistics is not None
                and statistics.has_null_count
                and statistics.null_count == group.num_rows > 0
            )
        try:
            return _OPERATORS[operator](statistics.min, statistics.max, _like(value, statistics.min))
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"row_groups_where: {column} {operator} {value!r}: {error}") from None

    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return json.dumps([i for i, group in enumerate(groups) if all(may_match(group, *term) for term in terms)])


# ---- unpack ----


def _unwrap(column: Any) -> Any:
    """Without extension types, dictionaries and run ends."""
    pa = _arrow()
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
    pa = _arrow()
    return (
        pa.large_string()
        if pa.types.is_string_view(kind)
        else pa.large_binary()
        if pa.types.is_binary_view(kind)
        else kind
    )


def _looked_up(chunk: Any, kind: Any) -> Any:
    """The values of a dictionary array. pyarrow 26 cannot look up views."""
    pa = _arrow()
    return pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(kind)).dictionary_decode()


def _text(column: Any) -> Any:
    pa = _arrow()
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _binary(column: Any) -> Any:
    pa = _arrow()
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def _list(column: Any) -> Any:
    """Lists that are cut from offsets: fixed sizes and views become large lists."""
    pa = _arrow()
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return column
    large = pa.large_list(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return column.cast(large)
    return pa.chunked_array([_without_views(chunk, large) for chunk in column.chunks], large)


def _without_views(chunk: Any, large: Any) -> Any:
    """The large list of a list view: pyarrow 26's own cast leaves out the last offset."""
    pa = _arrow()
    offsets = np.zeros(len(chunk) + 1, np.int64)
    np.cumsum(chunk.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), out=offsets[1:])
    return pa.LargeListArray.from_arrays(
        pa.array(offsets), chunk.flatten(), type=large, mask=chunk.is_null() if chunk.null_count else None
    )


def _array(column: Any) -> Any:
    """Lists of one size. Nulls inside become NaN where the items have one."""
    pa = _arrow()
    column = _list(column)
    absent = float("nan") if pa.types.is_floating(column.type.value_type) else 0
    return pa.chunked_array([_without_nulls(chunk, absent) for chunk in column.chunks], column.type)


def _without_nulls(chunk: Any, absent: float) -> Any:
    """Without null items, which lie below each row that is null in a list of one size. Where 0 stands for
    them only such ones: the engine refuses others."""
    pa = _arrow()
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
    pa = _arrow()
    column = _list(column).cast(pa.large_list(pa.uint8()))
    return pa.chunked_array([_without_nulls(chunk, 0) for chunk in column.chunks], column.type)


def _decimal(column: Any) -> Any:
    return column.cast(_arrow().string())


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    return str(value)


def _json(column: Any) -> Any:
    """The slow path, value by value: nested lists, lists of texts, maps."""
    pa = _arrow()
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


def _prepared(column: Any, how: str) -> Any:
    if how.startswith("list of "):  # _alike()
        dtype = how.removeprefix("list of ")
        return column.cast(
            _arrow().large_list(_arrow().type_for_alias("uint8" if dtype == "bool" else dtype))
        )
    prepare = _PREPARE[how]
    return column if prepare is None else prepare(column)


class _Column(NamedTuple):
    path: tuple[str, ...]
    how: str
    leaves: tuple[int, ...]


class _Plan(NamedTuple):
    leaves: list[int]
    columns: list[_Column]
    spec: dict[str, Any]


@functools.lru_cache(maxsize=256)
def _plan(spec: bytes) -> _Plan:
    fields = json.loads(spec)
    # Indexes made before 2026-11-22 do not say which leaves are whose.
    columns = [
        _Column(tuple(path), how, tuple(leaves[0] if leaves else fields["leaves"]))
        for path, how, *leaves in fields["columns"]
    ]
    return _Plan(fields["leaves"], columns, fields)


@functools.cache
def _pool() -> Any:
    """What unpacking allocates: jemalloc gives memory back at once where it is asked to, mimalloc (the
    default) keeps much of it."""
    pa = _arrow()
    try:
        pool = pa.jemalloc_memory_pool()
        pa.jemalloc_set_decay_ms(0)
    except NotImplementedError:
        return pa.system_memory_pool()
    return pool


def _is_cut_by_engine(kind: Any, how: str) -> bool:
    """Whether nothing here follows the offsets of such a column: the engine checks each one that it follows
    (src/shard/formats/table/unpacked_table.cc)."""
    types = _arrow().types
    if how == "list":
        return bool(types.is_list(kind) or types.is_large_list(kind))
    return how in ("plain", "decimal") or bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
    )


class _Request(NamedTuple):
    """One call of ``unpack``."""

    plan: _Plan
    head: memoryview
    body: memoryview
    unpacked_bytes: int
    """About what all columns take."""
    most_rows: int


_Part = tuple[int, Any, Any]
"""First column, capsules of schema and array (Arrow C data interface)."""


def _export(
    table: Any, columns: Sequence[_Column], first: int, has_own_offsets: bool = False
) -> Iterable[_Part]:
    """The columns, of which ``first`` is the first, ready to cut. ``has_own_offsets``: those of the file,
    which may lead anywhere."""
    pa = _arrow()
    table.validate()
    ready = []
    for path, how, _ in columns:
        column = _unwrap(table.column(path[0]))
        for name in path[1:]:
            column = _unwrap(pa.compute.struct_field(column, name))
        if has_own_offsets and not _is_cut_by_engine(column.type, how):
            column.validate(full=True)
        ready.append(_prepared(column, how))
    for batch in pa.table(ready, names=[str(i) for i in range(len(ready))]).to_batches():
        yield (first, *batch.__arrow_c_array__())


_TOGETHER_BYTES = 4 << 20
"""Columns of Parquet are unpacked together while their chunks have no more than this."""
_BATCH_BYTES = 1 << 20
"""Unpacked bytes of a batch: pyarrow needs up to eight times as much while it unpacks nested lists, and is
quickest with batches that fit in caches."""


def _column_groups(plan: _Plan, sizes: dict[int, int]) -> Iterable[tuple[int, int, int]]:
    """(begin, end, stored bytes once inflated) of columns that are unpacked together. ``sizes``: of leaves."""
    begin, total = 0, 0
    for i, column in enumerate(plan.columns):
        size = sum(sizes[leaf] for leaf in column.leaves)
        if i > begin and total + size > _TOGETHER_BYTES:
            yield begin, i, total
            begin, total = i, 0
        total += size
    yield begin, len(plan.columns), total


@functools.cache
def _parquet_options() -> dict[str, bool]:
    options = {"pre_buffer": False, "page_checksum_verification": True}
    # As pyarrow.parquet.read_schema() has it, which describe() asks; pyarrow before 21 knows no other way.
    if "arrow_extensions_enabled" in inspect.signature(_arrow().parquet.ParquetFile.__init__).parameters:
        options["arrow_extensions_enabled"] = True
    return options


def _unpack_parquet(request: _Request) -> Iterable[_Part]:
    pa = _arrow()
    plan = request.plan
    metadata = pa.parquet.read_metadata(pa.BufferReader(pa.py_buffer(request.head)))
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    sizes = {
        leaf: sum(group.column(leaf).total_uncompressed_size for group in groups) for leaf in plan.leaves
    }
    reader = importlib.import_module("pyarrow._parquet").ParquetReader(memory_pool=_pool())
    reader.open(pa.BufferReader(pa.py_buffer(request.body)), metadata=metadata, **_parquet_options())
    for begin, end, size in _column_groups(plan, sizes):
        columns = plan.columns[begin:end]
        leaves = sorted({leaf for column in columns for leaf in column.leaves})
        unpacked = max(size, request.unpacked_bytes * size // max(1, sum(sizes.values())), 1)
        rows = max(1, min(request.most_rows, _BATCH_BYTES * metadata.num_rows // unpacked))
        for batch in reader.iter_batches(
            rows, row_groups=range(len(groups)), column_indices=leaves, use_threads=False
        ):
            yield from _export(pa.Table.from_batches([batch]), columns, begin)


def _unpack_ipc(request: _Request) -> Iterable[_Part]:
    pa = _arrow()
    head, body = request.head, request.body
    # Record batches are views of the bytes they are read from, and a reader wants schema and batches in one
    # piece: a copy, in Arrow's memory.
    copy = pa.allocate_buffer(len(head) + len(body), memory_pool=_pool())
    target = memoryview(copy).cast("B")
    target[: len(head)] = head
    target[len(head) :] = body
    target.release()
    options = pa.ipc.IpcReadOptions(
        use_threads=False, included_fields=_included_fields(request.plan, bytes(head))
    )
    with pa.ipc.open_stream(pa.BufferReader(copy), options=options, memory_pool=_pool()) as stream:
        for batch in stream:
            yield from _export(pa.Table.from_batches([batch]), request.plan.columns, 0, has_own_offsets=True)


@functools.lru_cache(maxsize=256)
def _included(names: tuple[str, ...], schema: bytes) -> list[int]:
    pa = _arrow()
    return [i for i, name in enumerate(pa.ipc.read_schema(pa.py_buffer(schema)).names) if name in names]


def _included_fields(plan: _Plan, schema: bytes) -> list[int]:
    return _included(tuple(column.path[0] for column in plan.columns), schema)


# ---- Lance ----


@functools.cache
def _lance() -> Any:
    try:
        return importlib.import_module("lance")
    except ImportError as error:
        raise UnsupportedError(f"Lance tables need lance: pip install pylance ({error})") from None


@functools.lru_cache(maxsize=16)
def _open_lance(url: str, version: int | None) -> Any:
    return _lance().dataset(url, version=version)


_SAMPLED_ROWS = 64


def _describe_lance(spec: dict[str, Any], head: memoryview, body: memoryview) -> str:
    url = spec["url"].removeprefix("file://")
    table = _lance().dataset(url)
    outputs = [
        output._replace(leaves=()) for output in _all_outputs(table.schema, table.schema, spec["columns"], {})
    ]
    names = list(dict.fromkeys(output.path[0] for output in outputs))
    sample = table.head(_SAMPLED_ROWS, columns=names)
    return _answer(
        outputs,
        spec={"url": url, "version": table.version, "names": names},
        version=table.version,
        row_bytes=max(1, sample.nbytes // max(1, sample.num_rows)),
        fragments=[fragment.count_rows() for fragment in table.get_fragments()],
    )


_LANCE_READ_BYTES = 8 << 20
"""What lance reads ahead."""


def _unpack_lance(request: _Request) -> Iterable[_Part]:
    first, count = (int.from_bytes(request.head[at : at + 8], "little") for at in (0, 8))
    plan = request.plan
    table = _open_lance(plan.spec["url"], plan.spec["version"])
    rows = max(1, min(count, _BATCH_BYTES * count // max(1, request.unpacked_bytes)))
    scanner = table.scanner(
        columns=plan.spec["names"],
        offset=first,
        limit=count,
        batch_size=rows,
        batch_readahead=1,
        fragment_readahead=1,
        io_buffer_size=_LANCE_READ_BYTES,
    )
    for batch in scanner.to_batches():
        yield from _export(_arrow().Table.from_batches([batch]), plan.columns, 0)


# ---- what the engine calls ----


@_guarded
def describe(kind: str, spec: str, head: memoryview, body: memoryview) -> str:
    """What a table is, as JSON (src/shard/formats/table/table_plan.h)."""
    if kind == "prune":
        return _prune(spec, head)
    describers = {"parquet": _describe_parquet, "ipc": _describe_ipc, "lance": _describe_lance}
    return describers[kind](json.loads(spec), head, body)


class Batches:
    """What ``unpack`` gives, piece by piece."""

    def __init__(self, parts: Iterable[_Part]) -> None:
        self._parts: Iterator[_Part] | None = iter(parts)

    @_guarded
    def next(self) -> _Part | None:
        """The next rows of some columns; None after the last. Columns come in order, each with all its rows."""
        return next(self._parts, None) if self._parts is not None else None

    def close(self) -> None:
        """Lets go of what the engine lent."""
        self._parts = None


@_guarded
def unpack(
    kind: str, spec: bytes, head: memoryview, body: memoryview, unpacked_bytes: int, most_rows: int
) -> Batches:
    """The columns of a block. ``head`` and ``body`` are the engine's until ``close``, and so is what comes of
    them."""
    unpackers = {"parquet": _unpack_parquet, "ipc": _unpack_ipc, "lance": _unpack_lance}
    return Batches(unpackers[kind](_Request(_plan(spec), head, body, unpacked_bytes, most_rows)))
