"""Checkpoints as text: the tree of a state, and its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.base.units import format_bytes
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.plan import Planned
from headrace.checkpoint.tree import DICTS, Node

__all__ = ["array_row", "tree_json", "tree_lines"]


def array_row(array: Planned) -> dict[str, Any]:
    return {
        "name": array.name,
        "dtype": array.dtype,
        "shape": list(array.shape),
        "bytes": array.size_bytes,
        "shards": len(array.chunks),
        "from": array.kind,
    }


def _items(kind: str, value: Any) -> list[tuple[str, Node]]:
    if kind in ("list", "tuple"):
        return [(str(i), each) for i, each in enumerate(value)]
    return [(_key(key), each) for key, each in value]


def _key(key: Any) -> str:
    if isinstance(key, dict):
        return "(" + ", ".join(_key(each) for each in key["tuple"]) + ")"
    return key if isinstance(key, str) else str(key)


def _parts(node: Node) -> tuple[str, Any]:
    """(kind, value) of a node; "" of a scalar."""
    if isinstance(node, list):
        return "list", node
    if isinstance(node, dict):
        ((kind, value),) = node.items()
        return kind, value
    return "", node


def tree_json(node: Node, arrays: Mapping[str, Planned]) -> Any:
    """Dicts, lists and values as JSON has them; arrays as what is known of them."""
    kind, value = _parts(node)
    if kind == "array":
        row = array_row(arrays[value])
        return {"array": row["name"], "dtype": row["dtype"], "shape": row["shape"]}
    if kind in ("list", "tuple"):
        return [tree_json(each, arrays) for each in value]
    if kind in DICTS:
        return {name: tree_json(each, arrays) for name, each in _items(kind, value)}
    return value if kind == "" else {kind: value}


def _leaf(node: Node) -> str:
    kind, value = _parts(node)
    if kind == "":
        return "None" if value is None else repr(value)
    if kind == "bytes":
        return f"{len(value) * 3 // 4 - value[-2:].count('=')} bytes"
    if kind in ("float", "complex", "scalar"):
        return str(value) if kind == "float" else f"{kind} {value}"
    if kind == "pickle":
        return f"pickle of {len(value) * 3 // 4} bytes"
    return f"{kind} {value}"


def tree_lines(manifest: Manifest, depth: int) -> Iterator[str]:
    """The state as it was saved, indented; what is deeper than ``depth`` (0: no end) as sums."""
    arrays = {array.name: array for array in manifest.arrays}
    rows = list(_rows(manifest.tree, "", 0, depth, arrays))
    width = min(60, max((len(name) for name, _ in rows), default=0))
    for name, text in rows:
        yield f"{name:<{width}}  {text}".rstrip()


def _rows(
    node: Node, name: str, level: int, depth: int, arrays: Mapping[str, Planned]
) -> Iterator[tuple[str, str]]:
    kind, value = _parts(node)
    indent = "  " * max(0, level - 1) + name
    if kind == "array":
        yield indent, _array_text(arrays[value], name, value)
        return
    if kind not in ("list", "tuple", *DICTS):
        yield indent, _short(_leaf(node))
        return
    items = _items(kind, value)
    if level:
        if not items:
            yield indent, "{}" if kind in DICTS else "[]"
        elif depth and level >= depth:
            yield indent, _sum_text(node, arrays)
            return
        else:
            yield indent, ""
    for key, each in items:
        yield from _rows(each, key, level + 1, depth, arrays)


def _array_text(array: Planned, key: str, name: str) -> str:
    shards = f"  {len(array.chunks)} shards" if len(array.chunks) > 1 else ""
    tied = f"  ({name})" if not name.endswith(key) else ""
    return f"{array.dtype}{list(array.shape)}  {format_bytes(array.size_bytes)}{shards}{tied}"


def _sum_text(node: Node, arrays: Mapping[str, Planned]) -> str:
    names: set[str] = set()
    values = _count(node, names)
    size = sum(arrays[name].size_bytes for name in names)
    parts = ([f"{len(names):,} arrays, {format_bytes(size)}"] if names else []) + (
        [f"{values:,} values"] if values else []
    )
    return ", ".join(parts)


def _count(node: Node, names: set[str]) -> int:
    """Adds the arrays' names; returns how many other values there are."""
    kind, value = _parts(node)
    if kind == "array":
        names.add(value)
        return 0
    if kind in ("list", "tuple", *DICTS):
        return sum(_count(each, names) for _, each in _items(kind, value))
    return 1


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
