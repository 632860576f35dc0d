"""Which columns a table's fields become: docs/formats.md, "Tables"."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace.data.tables.arrow import arrow
from headrace.errors import InvalidArgumentError, UnsupportedError


class Output(NamedTuple):
    """One column as it is delivered."""

    name: str
    path: tuple[str, ...]
    """Names from the table's field down through structs."""
    how: str
    """What makes the values ready to cut: see ``prepared`` (values.py)."""
    encoding: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    size: int = 0
    leaves: tuple[int, ...] = ()
    """Parquet leaves that it needs."""
    is_unknown: bool = False
    """No row has a value, so the writer chose the type of nothing: another part of the table may know
    better."""

    def column(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoding": self.encoding,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "size": self.size,
        }


def _numpy_name(kind: Any) -> str:
    """numpy dtype of a type of fixed width that numpy can hold; times and dates are their integers. "" for
    others."""
    types = arrow().types
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
    types = arrow().types
    if isinstance(kind, arrow().BaseExtensionType):
        return _leaf_count(kind.storage_type)
    if types.is_struct(kind):
        return sum(_leaf_count(kind.field(i).type) for i in range(kind.num_fields))
    if types.is_map(kind):
        return _leaf_count(kind.key_type) + _leaf_count(kind.item_type)
    if _is_list(kind):
        return _leaf_count(kind.value_type)
    return 1


def _is_list(kind: Any) -> bool:
    types = arrow().types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def _is_text(kind: Any) -> bool:
    types = arrow().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: Any) -> bool:
    types = arrow().types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _list_output(kind: Any) -> dict[str, Any] | None:
    """A list of numbers; None for other lists."""
    item = kind.value_type
    dtype = _numpy_name(item)
    if not dtype:
        return None
    prefix = "nullable_list" if kind.value_field.nullable else "list"
    if arrow().types.is_fixed_size_list(kind) and kind.list_size > 0:
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
    types = arrow().types
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
    return kind.storage_type if isinstance(kind, arrow().BaseExtensionType) else kind


def _outputs(kind: Any, declared: Any, name: str, path: tuple[str, ...], first_leaf: int) -> Iterable[Output]:
    """``kind``: the type as it is unpacked. ``declared``: as the writer had it in Arrow, which knows sizes of
    lists and shapes."""
    extension_shape = tuple(getattr(declared, "shape", None) or ())
    permutation = list(getattr(declared, "permutation", None) or ())
    if permutation != sorted(permutation):
        raise UnsupportedError(
            f"column '{name}': its tensors have the permutation {permutation}; write them in the order of "
            "their axes, or leave the column out with columns="
        )
    kind, declared = _storage(kind), _storage(declared)
    leaves = tuple(range(first_leaf, first_leaf + _leaf_count(kind)))
    if not arrow().types.is_struct(kind):
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
        yield Output(name, path, leaves=leaves, **output)
        return
    if kind.num_fields == 0:
        raise UnsupportedError(
            f"column '{name}': a struct without fields; leave the column out with columns="
        )
    is_media = _is_media(kind)
    for i in range(kind.num_fields):
        child = kind.field(i)
        child_name = name if is_media and child.name == "bytes" else f"{name}.{child.name}"
        is_alike = arrow().types.is_struct(declared) and declared.num_fields == kind.num_fields
        yield from _outputs(
            child.type,
            declared.field(i).type if is_alike else child.type,
            child_name,
            (*path, child.name),
            first_leaf,
        )
        first_leaf += _leaf_count(child.type)


def all_outputs(schema: Any, declared: Any, wanted: Sequence[str], codecs: dict[str, str]) -> list[Output]:
    outputs: list[Output] = []
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


def _with_codec(output: Output, codecs: dict[str, str]) -> Output:
    """What Petastorm stored in a binary column."""
    encoding = codecs.get(output.name)
    return output._replace(encoding=encoding) if encoding and output.encoding == "bytes" else output


def answer(outputs: Sequence[Output], **more: Any) -> str:
    leaves = sorted({leaf for output in outputs for leaf in output.leaves})
    spec = {
        "columns": [[list(o.path), o.how, list(o.leaves)] for o in outputs],
        "leaves": leaves,
        **more.pop("spec", {}),
    }
    return json.dumps(
        {"columns": [o.column() for o in outputs], "leaves": leaves, "spec": json.dumps(spec), **more}
    )
