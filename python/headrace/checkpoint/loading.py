"""Reading a checkpoint: of each array the boxes that are wanted, from whoever wrote them, proved."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

import numpy as np

from headrace import _native
from headrace.checkpoint.arrays import Array, Chunk, describe, empty_like_saved, width_of
from headrace.checkpoint.earlier import verify_earlier
from headrace.checkpoint.manifest import Index, Manifest
from headrace.checkpoint.place import Place
from headrace.checkpoint.plan import Planned
from headrace.checkpoint.row_major import Memory
from headrace.checkpoint.tree import flatten, only_saved, overlay, paths_of, rebuild, values_in
from headrace.errors import CorruptError, InvalidArgumentError

__all__ = ["Boxes", "ReadTotals", "read_all", "read_bytes", "read_into", "verify"]


class ReadTotals(NamedTuple):
    requests: int
    bytes: int
    """Read from data files."""


class Boxes:
    """Boxes of a checkpoint's arrays that are to be read, by file."""

    def __init__(self, place: Place, manifest: Manifest) -> None:
        self.place, self.manifest = place, manifest
        self.keys = manifest.data_keys
        """Of data files, by number."""
        self.rows: dict[int, list[Any]] = defaultdict(list)
        """Of each file what _native.checkpoint_read() takes."""
        self.first_blocks: dict[int, list[int]] = defaultdict(list)
        """Of each row that of its piece: see Index."""
        self._named_rows: dict[int, list[str]] = defaultdict(list)
        """Of each row: whose values it has, and who wrote them."""
        self.named: dict[int, tuple[Index, int]] = {}
        """Of the files that have rows: an index, and which of those that it names."""
        self._own = list(itertools.accumulate((1 + len(file.earlier) for file in manifest.files), initial=0))
        """Number of the file that each rank has written."""
        self._indexes: dict[int, Index] = {}
        self._owners: list[Any] = []

    def add(self, number: int, target: Chunk, memory: Memory) -> None:
        """A box of an array, to be put into memory of that shape."""
        array = self.manifest.arrays[number]
        width = width_of(array.dtype)
        self._owners.append(memory.owner)
        found = 0
        for chunk_number, (chunk, rank) in enumerate(array.chunks):
            common = _common(target, chunk)
            if common is None:
                continue
            found += math.prod(common.sizes)
            piece = self._piece(array, number, chunk_number, rank)
            if piece.length != math.prod(chunk.sizes) * width:
                raise CorruptError(
                    f"{self.manifest.files[rank].index_key}: {array.name} has another length than its shape"
                )
            address = memory.address + sum(
                (c - t) * stride
                for c, t, stride in zip(common.offsets, target.offsets, memory.strides, strict=True)
            )
            start = [c - o for c, o in zip(common.offsets, chunk.offsets, strict=True)]
            index = self._indexes[rank]
            file = self._own[rank] + piece.file
            self.named[file] = index, piece.file
            self.first_blocks[file].append(index.first_block(number, chunk_number))
            self._named_rows[file].append(f"{array.name}, of rank {rank}")
            self.rows[file].append(
                (
                    piece.offset,
                    piece.length,
                    piece.proofs,
                    width,
                    chunk.sizes,
                    start,
                    common.sizes,
                    address,
                    memory.strides,
                )
            )
        if found != math.prod(target.sizes):
            raise CorruptError(f"{array.name}: the checkpoint does not have all of it")

    def make(self, number: int) -> Any:
        """A whole array as it was saved, to be read."""
        array = self.manifest.arrays[number]
        value = empty_like_saved(array.name, array.kind, array.dtype, array.shape)
        own = describe(array.name, value)
        self.add(number, own.chunks[0], own.writable(0)[0])
        return value

    def _piece(self, array: Planned, number: int, chunk: int, rank: int) -> Any:
        if rank not in self._indexes:
            self._indexes[rank] = self.place.index(self.manifest, rank)
        try:
            return self._indexes[rank].piece(number, chunk)
        except KeyError:
            raise CorruptError(
                f"{self.place.url}/{self.manifest.files[rank].index_key}: does not have {array.name}, which the manifest says it has"
            ) from None

    def read(self) -> ReadTotals:
        requests = count = 0
        for file, rows in self.rows.items():
            try:
                some = self.place.read(self.keys[file], rows)
            except CorruptError as error:
                raise self._explained(file, error) from error
            requests, count = requests + some[0], count + some[1]
        return ReadTotals(requests, count)

    def _explained(self, file: int, error: CorruptError) -> CorruptError:
        """The error, with the array that it came of: each is read alone to tell."""
        for row, name in zip(self.rows[file], self._named_rows[file], strict=True):
            try:
                self.place.read(self.keys[file], [row])
            except CorruptError as own:
                return CorruptError(f"{name}: {own}")
        return error


def _common(one: Chunk, other: Chunk) -> Chunk | None:
    starts = tuple(map(max, one.offsets, other.offsets))
    ends = (
        min(a + m, b + n)
        for a, m, b, n in zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    )
    sizes = tuple(end - start for start, end in zip(starts, ends, strict=True))
    return Chunk(starts, sizes) if all(size > 0 for size in sizes) else None


def read_all(
    place: Place,
    manifest: Manifest,
    allow_pickle: bool,
    read: Callable[[Boxes], ReadTotals] = Boxes.read,
) -> tuple[Any, ReadTotals]:
    """The state as it was saved; sharded arrays as whole ones. ``read``: how, once."""
    boxes = Boxes(place, manifest)
    made = {}
    for number, array in enumerate(manifest.arrays):
        made[array.name] = boxes.make(number)
    totals = read(boxes)
    return rebuild(manifest.tree, lambda name: _as_saved(manifest, made, name), allow_pickle), totals


def read_bytes(place: Place, manifest: Manifest, number: int) -> np.ndarray[Any, Any]:
    """Of one array, whole: uint8, row-major."""
    array = manifest.arrays[number]
    width = width_of(array.dtype)
    out = np.empty(math.prod(array.shape) * width, np.uint8)
    strides = tuple(width * math.prod(array.shape[i + 1 :]) for i in range(len(array.shape)))
    boxes = Boxes(place, manifest)
    boxes.add(number, Chunk((0,) * len(array.shape), array.shape), Memory(out.ctypes.data, strides, out))
    boxes.read()
    return out


def _as_saved(manifest: Manifest, made: Mapping[str, Any], name: str) -> Any:
    try:
        value = made[name]
    except KeyError:
        raise CorruptError(f"the tree of step {manifest.step} names {name}, which is not there") from None
    if any(array.name == name and array.kind == "jax" for array in manifest.arrays):
        import jax.numpy as jnp

        return jnp.asarray(value)
    return value


def read_into(
    place: Place,
    manifest: Manifest,
    state: Any,
    *,
    partial: bool,
    allow_pickle: bool,
    growing: Set[str] = frozenset(),
    read: Callable[[Boxes], ReadTotals] = Boxes.read,
) -> tuple[Any, ReadTotals]:
    """Fills the arrays of ``state`` in place, whatever part of each this process has; those of JAX are made
    anew, in the same place. Returns the state with the saved values of what is no array. ``growing``: keys of the state below which arrays that only the
    checkpoint has are made, whole. ``read``: how, once."""
    template, found = flatten(state, True)
    paths, saved_paths = paths_of(template), paths_of(manifest.tree)
    made = {path for path in saved_paths.keys() - paths.keys() if path and json.loads(path[0]) in growing}
    if not partial:
        _check_same_arrays(place, manifest, paths.keys(), saved_paths.keys() - made)
    # An array that is several places' (tied weights) may be so on one side only.
    saved_names = {name: saved_paths[path] for path, name in paths.items() if path in saved_paths}
    numbers = {array.name: number for number, array in enumerate(manifest.arrays)}
    boxes = Boxes(place, manifest)
    copies: list[Callable[[], Any]] = []
    renewed: list[Array] = []
    for name, saved_name in saved_names.items():
        own, array = describe(name, found[name]), manifest.arrays[numbers[saved_name]]
        if (own.dtype, own.shape) != (array.dtype, array.shape):
            raise InvalidArgumentError(
                f"{name}: is {own.dtype}{list(own.shape)} here, and {array.dtype}{list(array.shape)} in the checkpoint of step {manifest.step}"
            )
        for chunk_number, chunk in enumerate(own.chunks):
            memory, copy = own.writable(chunk_number)
            boxes.add(numbers[saved_name], chunk, memory)
            if copy is not None:
                copies.append(copy)
        if own.kind == "jax":
            renewed.append(own)
    wanted = {saved_paths[path] for path in made} | values_in(manifest.tree)
    new = {name: boxes.make(numbers[name]) for name in wanted}
    totals = read(boxes)
    for copy in copies:
        copy()
    found = {**found, **{array.name: array.renewed() for array in renewed}}
    tree = overlay(template, manifest.tree, union=not partial)
    return rebuild(
        tree, lambda name: new[only_saved(name)] if only_saved(name) else found[name], allow_pickle
    ), totals


def _check_same_arrays(
    place: Place, manifest: Manifest, wanted: Set[tuple[Any, ...]], saved: Set[tuple[Any, ...]]
) -> None:
    parts = [
        f"{len(paths)} arrays {what} ({', '.join(map(_shown, sorted(paths)[:5]))}{', ...' if len(paths) > 5 else ''})"
        for paths, what in (
            (wanted - saved, "of the state are not in it"),
            (saved - wanted, "of it are not in the state"),
        )
        if paths
    ]
    if parts:
        raise InvalidArgumentError(
            f"{place.url}, step {manifest.step}: {', and '.join(parts)}; partial=True loads what is in both"
        )


def _shown(path: tuple[Any, ...]) -> str:
    return ".".join(key.strip('"') for key in path)


def verify(place: Place, manifest: Manifest, progress: Callable[[int, int], None] | None = None) -> None:
    """Reads everything and compares it with its sums. Raises CorruptError."""
    done = 0

    def note(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, manifest.size)

    for rank, file in enumerate(manifest.files):
        index = place.index(manifest, rank)
        if len(index) != file.pieces:
            raise CorruptError(
                f"{place.url}/{file.index_key}: has another number of pieces than the manifest says"
            )
        _native.checkpoint_verify_file(place.native, file.key, file.size, file.crc32c)
        note(file.size)
        verify_earlier(place, file, index, note)
