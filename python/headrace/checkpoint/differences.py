"""How two checkpoints differ: structure from their manifests, values by the sums in their indexes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from headrace import _native
from headrace.checkpoint.arrays import Chunk
from headrace.checkpoint.loading import read_bytes
from headrace.checkpoint.manifest import Index, Manifest
from headrace.checkpoint.place import Place
from headrace.checkpoint.tree import DICTS, TORCH_SAVE, Node

__all__ = ["ArrayDifference", "Differences", "compare"]


class ArrayDifference(NamedTuple):
    """An array that is not the same in both."""

    name: str
    """The keys on the way to it, joined by dots; those of text in quotes where other keys would look the
    same."""
    what: str
    """``"added"``, ``"removed"``, ``"type"``, ``"values"``; ``"ties"``: its values are the same, and it is
    one array with another in one of the two only; or ``"unknown"``: it was cut otherwise, so its sums say
    nothing; ``read=True`` does."""
    before: str
    after: str
    """Dtype and shape."""
    changed_bytes: int
    """Of blocks of 16 KiB that differ; of arrays that are in one only: all."""


class Differences(NamedTuple):
    arrays: list[ArrayDifference]
    equal: int
    """Arrays that are the same."""
    values: list[tuple[str, Any, Any]]
    """Of what is no array: (path, before, after); ``"(none)"`` where there is none, ``"(list)"`` and the like
    for what has items."""
    metadata: list[tuple[str, Any, Any]]
    """The same of ``save(metadata=)``."""

    @property
    def is_none(self) -> bool:
        return not (self.arrays or self.values or self.metadata)


def compare(
    place: Place, before: Manifest, other: Place, after: Manifest, *, read: bool = False
) -> Differences:
    """``read``: arrays that were cut otherwise are read and compared; of all others only sums are read.

    Blocks with equal sums are taken to be equal. Raises CorruptError for a broken index.
    """
    sides = (_Side(place, before), _Side(other, after))
    trees = (dict(_entries(before.tree)), dict(_entries(after.tree)))
    shown = _shown(trees[0].keys() | trees[1].keys())
    pairs = _pairs(trees)
    ties = _ties(trees)
    arrays: list[ArrayDifference] = []
    for names, path in pairs.items():
        found = _compare_array(shown[path], names, sides, read)
        if found is None and path in ties:
            one, two = (
                side.text(name) + ("" if first == path else f", one with {shown[first]}")
                for side, name, first in zip(sides, names, ties[path], strict=True)
            )
            found = ArrayDifference(shown[path], "ties", one, two, 0)
        arrays += [] if found is None else [found]
    values = [
        (text, *said)
        for path, text in shown.items()
        if (said := _compare_value(trees[0].get(path), trees[1].get(path))) is not None
    ]
    for rows in (arrays, values):
        rows.sort(key=lambda row: row[0])
    metadata = _changed(before.metadata, after.metadata)
    return Differences(arrays, len(pairs) - len(arrays), values, metadata)


class _Side:
    """One of the two, with the indexes that were needed so far."""

    def __init__(self, place: Place, manifest: Manifest) -> None:
        self.place, self.manifest = place, manifest
        self.numbers = {array.name: number for number, array in enumerate(manifest.arrays)}
        self._indexes: dict[int, Index] = {}

    def text(self, name: str) -> str:
        """Dtype and shape."""
        array = self.manifest.arrays[self.numbers[name]]
        return f"{array.dtype}{list(array.shape)}"

    def bytes_of(self, name: str) -> int:
        return self.manifest.arrays[self.numbers[name]].size_bytes

    def sums(self, name: str) -> dict[Chunk, tuple[int, bytes]]:
        """(length, sums) by chunk."""
        number = self.numbers[name]
        found = {}
        for chunk_number, (chunk, rank) in enumerate(self.manifest.arrays[number].chunks):
            if rank not in self._indexes:
                self._indexes[rank] = self.place.index(self.manifest, rank)
            piece = self._indexes[rank].piece(number, chunk_number)
            found[chunk] = piece.length, piece.sums
        return found

    def read(self, name: str) -> np.ndarray[Any, Any]:
        return read_bytes(self.place, self.manifest, self.numbers[name])


_Names: TypeAlias = tuple[str, str]


def _compare_array(
    shown: str, names: _Names, sides: tuple[_Side, _Side], read: bool
) -> ArrayDifference | None:
    """``names``: what it is called in the manifest of each side; ``""``: it has none."""
    (one, two), (name, other) = sides, names
    if not other:
        return ArrayDifference(shown, "removed", one.text(name), "", one.bytes_of(name))
    if not name:
        return ArrayDifference(shown, "added", "", two.text(other), two.bytes_of(other))
    texts = one.text(name), two.text(other)
    if texts[0] != texts[1]:
        return ArrayDifference(shown, "type", *texts, two.bytes_of(other))
    before, after = one.sums(name), two.sums(other)
    if before.keys() == after.keys():
        changed = sum(_changed_bytes(before[chunk], after[chunk]) for chunk in before)
        return ArrayDifference(shown, "values", *texts, changed) if changed else None
    if not read:
        return ArrayDifference(shown, "unknown", *texts, 0)
    changed = _changed_blocks(one.read(name), two.read(other))
    return ArrayDifference(shown, "values", *texts, changed) if changed else None


def _changed_bytes(one: tuple[int, bytes], two: tuple[int, bytes]) -> int:
    """Of the blocks whose sums differ."""
    differ = np.flatnonzero(np.frombuffer(one[1], "<u4") != np.frombuffer(two[1], "<u4"))
    return _bytes_in(differ, one[0])


def _changed_blocks(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> int:
    differ = np.unique(np.flatnonzero(one != two) // _native.checkpoint_sum_block_bytes())
    return _bytes_in(differ, len(one))


def _bytes_in(blocks: np.ndarray[Any, Any], length: int) -> int:
    block = _native.checkpoint_sum_block_bytes()
    if not len(blocks):
        return 0
    short = block - (length - int(blocks[-1]) * block) if (int(blocks[-1]) + 1) * block > length else 0
    return len(blocks) * block - short


# --- Trees ---

_Path: TypeAlias = tuple[str, ...]
"""Keys as JSON: 1 and "1" are two."""
_ARRAYS = ("array", TORCH_SAVE)
_CONTAINERS = ("list", "tuple", "dict")


class _Entry(NamedTuple):
    """What is at a path."""

    kind: str
    """One of _ARRAYS or _CONTAINERS, or ``"value"``."""
    value: Any
    """Name of an array; whether a container has items; of a value JSON as the tree has it."""


_Trees: TypeAlias = tuple[dict[_Path, _Entry], dict[_Path, _Entry]]


def _entries(node: Node, path: _Path = ()) -> Iterator[tuple[_Path, _Entry]]:
    kind, value = "value", node
    if isinstance(node, list):
        kind = "list"
    elif isinstance(node, dict):
        ((kind, value),) = node.items()
        kind = "dict" if kind in DICTS else kind
    if kind in _ARRAYS:
        yield path, _Entry(kind, value)
    elif kind in _CONTAINERS:
        yield path, _Entry(kind, bool(value))
        for key, each in value if kind == "dict" else enumerate(value):
            yield from _entries(each, (*path, json.dumps(key, ensure_ascii=False)))
    else:
        yield path, _Entry("value", node)


def _shown(paths: Iterable[_Path]) -> dict[_Path, str]:
    alike: dict[str, list[_Path]] = defaultdict(list)
    for path in paths:
        alike[".".join(json.loads(key) if key[0] == '"' else key for key in path) or "state"].append(path)
    return {
        path: text if len(some) == 1 else ".".join(path) or text
        for text, some in alike.items()
        for path in some
    }


def _is_array(entry: _Entry | None) -> bool:
    return entry is not None and entry.kind in _ARRAYS


def _pairs(trees: _Trees) -> dict[_Names, _Path]:
    """Arrays of one and of the other that are at the same path, with the first such path."""
    found: dict[_Names, _Path] = {}
    one, two = trees
    for path in (*one, *(path for path in two if path not in one)):
        here, there = one.get(path), two.get(path)
        both = here is not None and there is not None and here.kind == there.kind
        if here is not None and _is_array(here):
            found.setdefault((here.value, there.value if both and there is not None else ""), path)
        if there is not None and _is_array(there) and not both:
            found.setdefault(("", there.value), path)
    return found


def _ties(trees: _Trees) -> dict[_Path, tuple[_Path, _Path]]:
    """Of arrays in both: the first path of the same array in one and in the other, where these differ."""
    common = [path for path in trees[0] if all(_is_array(tree.get(path)) for tree in trees)]
    firsts: tuple[dict[Any, _Path], ...] = ({}, {})
    for path in common:
        for first, tree in zip(firsts, trees, strict=True):
            first.setdefault(tree[path].value, path)
    both = ((path, (firsts[0][trees[0][path].value], firsts[1][trees[1][path].value])) for path in common)
    return {path: (one, two) for path, (one, two) in both if one != two}


_NONE = "(none)"


def _compare_value(one: _Entry | None, two: _Entry | None) -> tuple[Any, Any] | None:
    """What to say of what is no array; None: nothing."""
    one, two = (None if _is_array(entry) else entry for entry in (one, two))
    if one is None or two is None:
        only = one or two
        if only is None or (only.kind in _CONTAINERS and only.value):
            return None  # Its items are told.
    elif one.kind == two.kind and (one.kind in _CONTAINERS or _same(one.value, two.value)):
        return None
    return _told(one), _told(two)


def _told(entry: _Entry | None) -> Any:
    if entry is None:
        return _NONE
    if entry.kind not in _CONTAINERS:
        return entry.value
    return f"({entry.kind})" if entry.value else {entry.kind: []}


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [
        (key, before.get(key, _NONE), after.get(key, _NONE))
        for key in sorted(before.keys() | after.keys())
        if (key in before) != (key in after) or not _same(before[key], after[key])
    ]


def _same(one: Any, two: Any) -> bool:
    """1, 1.0 and True are three values."""
    return json.dumps(one) == json.dumps(two)
