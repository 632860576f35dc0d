"""How two checkpoints differ: structure from their manifests, values by the sums in their indexes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from headrace import _native
from headrace.checkpoint.arrays import Chunk
from headrace.checkpoint.loading import read_bytes
from headrace.checkpoint.manifest import Index, Manifest
from headrace.checkpoint.place import Place
from headrace.checkpoint.tree import Node

__all__ = ["ArrayDifference", "Differences", "compare", "values_of"]


class ArrayDifference(NamedTuple):
    """An array that is not the same in both."""

    name: str
    what: str
    """``"added"``, ``"removed"``, ``"type"``, ``"values"``, or ``"unknown"``: it was cut otherwise, so its
    sums say nothing; ``read=True`` does."""
    before: str
    after: str
    """Dtype and shape; of values how many bytes differ at most."""
    changed_bytes: int
    """Of blocks of 16 KiB that differ; of arrays that are in one only: all."""


class Differences(NamedTuple):
    arrays: list[ArrayDifference]
    equal: int
    """Arrays that are the same."""
    values: list[tuple[str, Any, Any]]
    """Of what is no array: (path, before, after); ``"(none)"`` where there is none."""
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
    arrays: list[ArrayDifference] = []
    equal = 0
    for name in sorted(sides[0].numbers.keys() | sides[1].numbers.keys()):
        found = _compare_array(name, sides, read)
        if found is None:
            equal += 1
        else:
            arrays.append(found)
    values = _changed(values_of(before.tree), values_of(after.tree))
    metadata = _changed(dict(before.metadata), dict(after.metadata))
    return Differences(arrays, equal, values, metadata)


class _Side:
    """One of the two, with the indexes that were needed so far."""

    def __init__(self, place: Place, manifest: Manifest) -> None:
        self.place, self.manifest = place, manifest
        self.numbers = {array.name: number for number, array in enumerate(manifest.arrays)}
        self._indexes: dict[int, Index] = {}

    def text(self, name: str) -> str:
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


def _compare_array(name: str, sides: tuple[_Side, _Side], read: bool) -> ArrayDifference | None:
    one, two = sides
    if name not in two.numbers:
        return ArrayDifference(name, "removed", one.text(name), "", one.bytes_of(name))
    if name not in one.numbers:
        return ArrayDifference(name, "added", "", two.text(name), two.bytes_of(name))
    texts = one.text(name), two.text(name)
    if texts[0] != texts[1]:
        return ArrayDifference(name, "type", *texts, two.bytes_of(name))
    before, after = one.sums(name), two.sums(name)
    if before.keys() == after.keys():
        changed = sum(_changed_bytes(before[chunk], after[chunk]) for chunk in before)
        return ArrayDifference(name, "values", *texts, changed) if changed else None
    if not read:
        return ArrayDifference(name, "unknown", *texts, 0)
    changed = _changed_blocks(one.read(name), two.read(name))
    return ArrayDifference(name, "values", *texts, changed) if changed else None


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


def values_of(tree: Node) -> dict[str, Any]:
    """What is no array, by path: JSON as the tree has it."""
    return dict(_values(tree, ""))


def _values(node: Node, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, list):
        node = {"list": node}
    if not isinstance(node, dict):
        yield path, node
        return
    ((kind, value),) = node.items()
    if kind in ("list", "tuple"):
        value = list(enumerate(value))
    elif kind == "array":
        return
    elif kind not in ("dict", "ordered"):
        yield path, node
        return
    if not value:
        yield path, {kind: []}
    for key, each in value:
        text = key if isinstance(key, str) else json.dumps(key)
        yield from _values(each, f"{path}.{text}" if path else text)


_NONE = "(none)"


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [
        (key, before.get(key, _NONE), after.get(key, _NONE))
        for key in sorted(before.keys() | after.keys())
        if (key in before) != (key in after) or not _same(before[key], after[key])
    ]


def _same(one: Any, two: Any) -> bool:
    """1, 1.0 and True are three values."""
    return json.dumps(one) == json.dumps(two)
