"""What PyTorch's distributed checkpoint (DCP) knows of a checkpoint, as a manifest, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from headrace.checkpoint.arrays import Chunk, saved_dtype, torch_dtype
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.plan import Planned
from headrace.checkpoint.tree import DICTS, TORCH_SAVE, Node, made_key
from headrace.errors import InvalidArgumentError, UnavailableError, UnsupportedError

__all__ = ["Leaves", "Numbers", "Written", "arrays_of", "metadata_of", "names_of", "numbers_of", "tree_of"]

Numbers = dict[tuple[str, tuple[int, ...]], tuple[int, int]]
"""(array, chunk) in the manifest, by name and offsets."""


class Written(NamedTuple):
    """What came of an item, told to the coordinator."""

    file: int
    size_bytes: int


def key_of(index: MetadataIndex) -> tuple[str, tuple[int, ...]]:
    return index.fqn, tuple(index.offset) if index.offset is not None else ()


def numbers_of(indexes: Iterable[MetadataIndex]) -> Numbers:
    """Of all items of all ranks: arrays by name, chunks by offsets."""
    numbers: Numbers = {}
    array, chunk, last = -1, 0, None
    for name, offsets in sorted({key_of(index) for index in indexes}):
        array, chunk = (array, chunk + 1) if name == last else (array + 1, 0)
        numbers[name, offsets], last = (array, chunk), name
    return numbers


# --- Saving ---


def arrays_of(metadata: Metadata, written: Mapping[MetadataIndex, Written]) -> list[Planned]:
    """In the order of numbers_of(). Raises UnavailableError where something that is in the checkpoint was not
    written."""
    return [_planned(name, about, written) for name, about in sorted(metadata.state_dict_metadata.items())]


def _planned(name: str, about: Any, written: Mapping[MetadataIndex, Written]) -> Planned:
    if isinstance(about, BytesStorageMetadata):
        said = _written(MetadataIndex(name), written)
        return Planned(
            name, "torch", "U8", (said.size_bytes,), ((Chunk((0,), (said.size_bytes,)), said.file),)
        )
    rows = [
        (
            Chunk(tuple(each.offsets), tuple(each.sizes)),
            _written(MetadataIndex(name, each.offsets), written).file,
        )
        for each in about.chunks
    ]
    dtype = saved_dtype(name, str(about.properties.dtype).removeprefix("torch."))
    return Planned(name, "torch", dtype, tuple(about.size), tuple(sorted(rows)))


def _written(index: MetadataIndex, written: Mapping[MetadataIndex, Written]) -> Written:
    try:
        return written[index]
    except KeyError:
        at = f" at {list(index.offset)}" if index.offset is not None else ""
        raise UnavailableError(
            f"{index.fqn}{at} is in the plan of the checkpoint, but no rank has written it"
        ) from None


class _Leaf(NamedTuple):
    node: Node


def tree_of(metadata: Metadata) -> Node:
    """Raises UnsupportedError for a planner whose own data is no path for each name."""
    paths = metadata.planner_data or {}
    if not isinstance(paths, Mapping) or not all(_is_path(path) for path in paths.values()):
        raise UnsupportedError(
            f"the planner's data is a {type(paths).__name__} that only pickle can hold; DefaultSavePlanner "
            "gives a path for each name"
        )
    nested: dict[str, Any] = {}
    for name, about in metadata.state_dict_metadata.items():
        kind = TORCH_SAVE if isinstance(about, BytesStorageMetadata) else "array"
        set_element(nested, paths.get(name, (name,)), _Leaf({kind: name}))
    return _node(nested)


def _is_path(path: Any) -> bool:
    return isinstance(path, Sequence) and all(type(each) in (str, int) for each in path)


def _node(value: Any) -> Node:
    if isinstance(value, _Leaf):
        return value.node
    if isinstance(value, list):
        return [_node(each) for each in value]
    return {"dict": [[key, _node(each)] for key, each in value.items()]} if isinstance(value, dict) else None


# --- Loading ---


class Leaves(NamedTuple):
    """Of a checkpoint, under DCP's names."""

    metadata: Metadata
    arrays: Mapping[str, int]
    """Tensors: their number in the manifest."""
    values: Mapping[str, Node]
    """All else."""


class _Placeholders:
    """A state with nothing in it, and which node each part of it stands for."""

    def __init__(self, manifest: Manifest) -> None:
        self._arrays = {array.name: array for array in manifest.arrays}
        self._made: list[tuple[Any, Node]] = []  # Keeps what is named by id() alive.

    def make(self, node: Node) -> Any:
        made = self._of(node)
        self._made.append((made, node))
        return made

    def _of(self, node: Node) -> Any:
        if isinstance(node, list):
            return [self.make(each) for each in node]
        kind: str = ""
        value: Any = None
        if isinstance(node, dict):
            ((kind, value),) = node.items()
        if kind in DICTS:
            return {made_key(key): self.make(each) for key, each in value}
        if kind == "array" and self._arrays[value].kind != "numpy":  # DCP knows no other arrays than tensors.
            array = self._arrays[value]
            return torch.empty(array.shape, dtype=torch_dtype(array.dtype), device="meta")
        return _Leaf(node)

    def nodes(self) -> dict[int, Node]:
        return {id(made): node for made, node in self._made}


def names_of(state: dict[str, Any], where: str) -> tuple[dict[str, Any], Any]:
    """What is in a state by the names that DCP has for it, and the path of each. Raises InvalidArgumentError
    where two have one name."""
    try:
        return flatten_state_dict(state)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{where}: DCP calls each value by its keys, joined by dots, and two would have one name "
            f"({error}): rename a key"
        ) from None


def metadata_of(manifest: Manifest, where: str) -> Leaves:
    """Names are what DCP would call it, had it saved the same state. Raises UnsupportedError for a state that
    is no dict, and what names_of() raises."""
    made = _Placeholders(manifest)
    state = made.make(manifest.tree)
    if not isinstance(state, dict):
        raise UnsupportedError(f"{where}: DCP loads dicts, and the state of step {manifest.step} is none")
    flat, paths = names_of(state, where)
    nodes = made.nodes()
    numbers = {array.name: number for number, array in enumerate(manifest.arrays)}
    arrays = {
        name: numbers[nodes[id(value)]["array"]]
        for name, value in flat.items()
        if isinstance(value, torch.Tensor)
    }
    about: dict[str, Any] = {
        name: _about(manifest.arrays[arrays[name]]) if name in arrays else BytesStorageMetadata()
        for name in flat
    }
    values = {name: nodes[id(value)] for name, value in flat.items() if name not in arrays}
    return Leaves(Metadata(about, planner_data=paths), arrays, values)


def _about(array: Planned) -> TensorStorageMetadata:
    chunks = [
        ChunkStorageMetadata(torch.Size(chunk.offsets), torch.Size(chunk.sizes)) for chunk, _ in array.chunks
    ]
    return TensorStorageMetadata(
        TensorProperties(dtype=torch_dtype(array.dtype)), torch.Size(array.shape), chunks
    )
