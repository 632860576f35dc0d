"""Reading a checkpoint: of each array the boxes that are wanted, from whoever wrote them, proved."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from headrace import _native
from headrace.checkpoint.arrays import Array, Chunk, describe, empty_like_saved, width_of
from headrace.checkpoint.earlier import verify_earlier
from headrace.checkpoint.landing import Landing
from headrace.checkpoint.manifest import Index, Manifest
from headrace.checkpoint.overlap import find_common
from headrace.checkpoint.place import Place
from headrace.checkpoint.plan import Planned
from headrace.checkpoint.row_major import Memory
from headrace.checkpoint.tree import (
    adopt,
    differences,
    only_saved,
    overlay,
    paths_of,
    rebuild,
    template_of,
    values_in,
)
from headrace.errors import CorruptError, InvalidArgumentError

__all__ = ["Boxes", "Filling", "ReadTotals", "Reads", "read_all", "read_bytes", "read_into", "verify"]


class ReadTotals(NamedTuple):
    requests: int
    bytes: int
    """Read from data files."""


class _Part(NamedTuple):
    """What a saved chunk has of a box."""

    chunk: int
    common: Chunk
    piece: Any


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

    def check(self, number: int, target: Chunk) -> None:
        """Raises CorruptError where the checkpoint does not have all of a box of an array."""
        for _ in self._parts(number, target):
            pass

    def add(self, number: int, target: Chunk, memory: Memory) -> None:
        """A box of an array, to be put into memory of that shape."""
        array = self.manifest.arrays[number]
        width = width_of(array.dtype)
        self._owners.append(memory.owner)
        for part in self._parts(number, target):
            chunk, rank = array.chunks[part.chunk]
            address = memory.address + sum(
                (c - t) * stride
                for c, t, stride in zip(part.common.offsets, target.offsets, memory.strides, strict=True)
            )
            start = [c - o for c, o in zip(part.common.offsets, chunk.offsets, strict=True)]
            index, piece = self._indexes[rank], part.piece
            file = self._own[rank] + piece.file
            self.named[file] = index, piece.file
            self.first_blocks[file].append(index.first_block(number, part.chunk))
            self._named_rows[file].append(f"{array.name}, of rank {rank}")
            self.rows[file].append(
                (
                    piece.offset,
                    piece.length,
                    piece.proofs,
                    width,
                    chunk.sizes,
                    start,
                    part.common.sizes,
                    address,
                    memory.strides,
                )
            )

    def _parts(self, number: int, target: Chunk) -> Iterator[_Part]:
        """Of the saved chunks of an array what lies in a box of it."""
        array = self.manifest.arrays[number]
        found = 0
        for chunk_number, (chunk, rank) in enumerate(array.chunks):
            common = _common(target, chunk)
            if common is None:
                continue
            found += math.prod(common.sizes)
            piece = self._piece(array, number, chunk_number, rank)
            if piece.length != math.prod(chunk.sizes) * width_of(array.dtype):
                raise CorruptError(
                    f"{self.manifest.files[rank].index_key}: {array.name} has another length than its shape"
                )
            yield _Part(chunk_number, common, piece)
        if found != math.prod(target.sizes):
            raise CorruptError(f"{array.name}: the checkpoint does not have all of it")

    def forget(self) -> None:
        """Those that were added: they have been read."""
        for some in (self.rows, self.first_blocks, self._named_rows, self.named):
            some.clear()
        self._owners.clear()

    def make(self, number: int) -> Any:
        """A whole array as it was saved, to be read."""
        array = self.manifest.arrays[number]
        value = empty_like_saved(array.name, array.kind, array.dtype, array.shape)
        own = describe(array.name, value)
        self.add(number, own.chunks[0], own.memory_to_fill(0))
        return value

    def _piece(self, array: Planned, number: int, chunk: int, rank: int) -> Any:
        if rank not in self._indexes:
            self._indexes[rank] = self.place.index(self.manifest, rank)
        try:
            return self._indexes[rank].piece(number, chunk)
        except KeyError:
            raise CorruptError(
                f"{self.place.url}/{self.manifest.files[rank].index_key}: does not have {array.name}, which "
                "the manifest says it has"
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


class Reads:
    """How boxes are read: here, by each process for itself."""

    may_read_early = True
    """Whether read() may be called whenever a process likes: see Filling."""

    def plan_rounds(self, manifest: Manifest, staged_bytes: int) -> Sequence[Collection[int]]:
        """Numbers of the arrays that are read together, each in one round. ``staged_bytes``: what this
        process has to stage in all."""
        return [range(len(manifest.arrays))]

    def read(self, boxes: Boxes) -> ReadTotals:
        return boxes.read()


class Filling:
    """Fills arrays of this process. What nothing can be read into comes through a Landing; where ``reads``
    allows it, that is read when it is full."""

    def __init__(self, boxes: Boxes, reads: Reads) -> None:
        self._boxes, self._reads = boxes, reads
        self._landing = Landing(when_full=self.run if reads.may_read_early else None)
        self._requests = self._read_bytes = 0

    @property
    def totals(self) -> ReadTotals:
        """So far."""
        return ReadTotals(self._requests, self._read_bytes)

    def add(self, number: int, own: Array, chunk_number: int, chunk: Chunk | None = None) -> None:
        """Wants a chunk of ``own`` filled; ``chunk``: where it lies in the saved array, if not where ``own``
        says."""
        whole = own.chunks[chunk_number]
        shift = [0] * len(whole.offsets)
        if chunk is not None:
            shift = [a - b for a, b in zip(chunk.offsets, whole.offsets, strict=True)]
        for box, memory in own.places_to_fill(chunk_number, self._landing):
            offsets = tuple(a + b for a, b in zip(box.offsets, shift, strict=True))
            self._boxes.add(number, Chunk(offsets, box.sizes), memory)

    def run(self) -> None:
        """Reads what was added and was not read yet."""
        some = self._reads.read(self._boxes)
        self._requests, self._read_bytes = self._requests + some.requests, self._read_bytes + some.bytes
        self._boxes.forget()
        self._landing.land()

    def close(self) -> None:
        """Nothing more is added."""
        self._landing.close()


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
    reads: Reads | None = None,
) -> tuple[Any, ReadTotals]:
    """The state as it was saved; sharded arrays as whole ones."""
    reads = reads or Reads()
    boxes = Boxes(place, manifest)
    filling = Filling(boxes, reads)
    for array in {each.dtype: each for each in reversed(manifest.arrays) if each.kind == "jax"}.values():
        _check_jax_holds(array)
    made = {}
    for numbers in reads.plan_rounds(manifest, 0):
        for number in numbers:
            made[manifest.arrays[number].name] = boxes.make(number)
        filling.run()
    return rebuild(manifest.tree, lambda name: _as_saved(manifest, made, name), allow_pickle), filling.totals


def read_bytes(
    place: Place, manifest: Manifest, number: int, chunk: Chunk | None = None
) -> np.ndarray[Any, Any]:
    """Of one array, whole or a chunk: uint8, row-major."""
    array = manifest.arrays[number]
    chunk, width = chunk or Chunk((0,) * len(array.shape), array.shape), width_of(array.dtype)
    out = np.empty(math.prod(chunk.sizes) * width, np.uint8)
    strides = tuple(width * math.prod(chunk.sizes[i + 1 :]) for i in range(len(chunk.sizes)))
    boxes = Boxes(place, manifest)
    boxes.add(number, chunk, Memory(out.ctypes.data, strides, out))
    boxes.read()
    return out


def _check_jax_holds(array: Planned) -> None:
    """JAX makes arrays of 32 bits of those of 64, without a word, unless it is told to keep them."""
    import jax.numpy as jnp

    saved = empty_like_saved(array.name, array.kind, array.dtype, (0,)).dtype
    here = jnp.asarray(np.empty(0, saved)).dtype
    if here != saved:
        raise InvalidArgumentError(
            f"{array.name}: was saved as an array of JAX of {saved}, and JAX would make one of {here} here: "
            "call "
            'jax.config.update("jax_enable_x64", True), set JAX_ENABLE_X64=1, or give load() arrays of numpy '
            "with into="
        )


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
    replaced: Set[str] = frozenset(),
    reads: Reads | None = None,
) -> tuple[Any, ReadTotals]:
    """Fills the arrays of ``state`` in place, whatever part of each this process has; those of JAX are made
    anew, in the same place. Returns the state with the saved values of what is no array.

    ``growing``: keys of the state below which arrays that only the checkpoint has are made, whole.
    ``replaced``: those of them below which the state is the saved one: of what is there only arrays that are
    saved alike are filled. ``partial``: of what is not ``replaced`` what both have."""
    reads = reads or Reads()
    template, found, objects = template_of(state)
    numbers = {array.name: number for number, array in enumerate(manifest.arrays)}
    template = _replaced(manifest, template, found, numbers, replaced)
    paths, saved_paths = paths_of(template), paths_of(manifest.tree)
    grown = replaced if partial else growing
    made = {path for path in saved_paths.keys() - paths.keys() if path and json.loads(path[0]) in grown}
    if partial and paths and not made:
        _check_any_array(place, manifest, paths.keys(), saved_paths.keys())
    if not partial:
        _check_same_arrays(place, manifest, paths.keys(), saved_paths.keys() - made)
        _check_same_values(place, manifest, template, growing)
    saved_names = _saved_names(place, manifest, paths, saved_paths, numbers)
    boxes = Boxes(place, manifest)
    owns: list[tuple[int, Array]] = []
    for name, saved_name in saved_names.items():
        own, array = describe(name, found[name]), manifest.arrays[numbers[saved_name]]
        if (own.dtype, own.shape) != (array.dtype, array.shape):
            raise InvalidArgumentError(
                f"{name}: is {own.dtype}{list(own.shape)} here, and {array.dtype}{list(array.shape)} in the "
                f"checkpoint of step {manifest.step}"
            )
        own.check_writable()
        owns.append((numbers[saved_name], own))
    wanted = {numbers[saved_paths[path]] for path in made} | {
        numbers[name] for name in values_in(manifest.tree)
    }
    filling = Filling(boxes, reads)
    new = {}
    staged_bytes = sum(own.staged_bytes for _, own in owns)
    if staged_bytes:  # Some of it is read before all of it was looked for.
        for number, own in owns:
            for chunk in own.chunks:
                boxes.check(number, chunk)
    for some in reads.plan_rounds(manifest, staged_bytes):
        for number, own in owns:
            for chunk_number in range(len(own.chunks) if number in some else 0):
                filling.add(number, own, chunk_number)
        for number in wanted.intersection(some):
            new[manifest.arrays[number].name] = boxes.make(number)
        filling.run()
    filling.close()
    _check_kept(place, manifest, [row for row in owns if row[1].kind != "jax"])
    found = {**found, **{own.name: own.renewed() for _, own in owns if own.kind == "jax"}}
    tree = overlay(template, manifest.tree, union=not partial)
    return rebuild(
        tree, lambda name: new[only_saved(name)] if only_saved(name) else found[name], allow_pickle, objects
    ), filling.totals


def _replaced(
    manifest: Manifest,
    template: Any,
    found: Mapping[str, Any],
    numbers: Mapping[str, int],
    keys: Set[str],
) -> Any:
    """The template with the saved tree below these outermost keys; its arrays stay where they are saved
    alike."""
    if not keys or not isinstance(template, dict) or not isinstance(manifest.tree, dict):
        return template

    def is_alike(name: str, saved_name: str) -> bool:
        own, array = describe(name, found[name]), manifest.arrays[numbers[saved_name]]
        return (own.dtype, own.shape) == (array.dtype, array.shape)

    ((kind, pairs),) = template.items()
    ((_, saved),) = manifest.tree.items()
    there = {key: node for key, node in saved if key in keys}
    return {kind: [[key, adopt(each, there[key], is_alike) if key in there else each] for key, each in pairs]}


def _saved_names(
    place: Place,
    manifest: Manifest,
    paths: Mapping[tuple[Any, ...], str],
    saved_paths: Mapping[tuple[Any, ...], str],
    numbers: Mapping[str, int],
) -> dict[str, str]:
    """Which saved array each of the template's is filled from. One that is several places' (tied weights) may
    be so on one side only: then what was saved of them must be the same. Raises InvalidArgumentError."""
    found: dict[str, str] = {}
    first: dict[str, tuple[Any, ...]] = {}
    for path, name in paths.items():
        if path not in saved_paths:
            continue
        saved = saved_paths[path]
        if found.setdefault(name, saved) == saved:
            first.setdefault(name, path)
            continue
        one, other = (numbers[each] for each in (found[name], saved))
        if not np.array_equal(read_bytes(place, manifest, one), read_bytes(place, manifest, other)):
            raise InvalidArgumentError(
                f"{place.url}, step {manifest.step}: {_shown(first[name])} and {_shown(path)} are one array "
                "here, and differ in the checkpoint: one of the two would be lost"
            )
    return found


def _check_kept(place: Place, manifest: Manifest, owns: Sequence[tuple[int, Array]]) -> None:
    """That each array which has memory in common with another has what was saved of it, now that all were
    filled. Raises InvalidArgumentError."""
    rows = [(own, number, i) for number, own in owns for i in range(len(own.chunks))]
    common = find_common([extent for _, own in owns for extent in own.extents])
    for at, other in common.items():
        own, number, i = rows[at]
        if own.bytes_of(i) != read_bytes(place, manifest, number, own.chunks[i]).tobytes():
            raise InvalidArgumentError(
                f"{place.url}, step {manifest.step}: {own.name} and {rows[other][0].name} have memory in "
                "common here, and differ in the checkpoint: one of the two would be lost"
            )


def _check_same_arrays(
    place: Place, manifest: Manifest, wanted: Set[tuple[Any, ...]], saved: Set[tuple[Any, ...]]
) -> None:
    parts = [
        f"{len(paths)} arrays {what} ({_some(paths)})"
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


def _check_any_array(
    place: Place, manifest: Manifest, wanted: Set[tuple[Any, ...]], saved: Set[tuple[Any, ...]]
) -> None:
    """Raises InvalidArgumentError where a part would be loaded that has no array."""
    if not wanted & saved:
        raise InvalidArgumentError(
            f"{place.url}, step {manifest.step}: none of the state's arrays ({_some(wanted)}) is in it; it "
            f"has {_some(saved) or 'none'}"
        )


def _some(paths: Set[tuple[Any, ...]]) -> str:
    return ", ".join(map(_shown, sorted(paths)[:5])) + (", ..." if len(paths) > 5 else "")


def _check_same_values(place: Place, manifest: Manifest, template: Any, growing: Set[str]) -> None:
    odd = list(islice(differences(template, manifest.tree, growing), 6))
    if odd:
        more = "; ..." if len(odd) > 5 else ""
        raise InvalidArgumentError(
            f"{place.url}, step {manifest.step}: {'; '.join(odd[:5])}{more}; partial=True loads what is in "
            "both"
        )


def _shown(path: tuple[Any, ...]) -> str:
    return ".".join(map(_shown_key, path))


def _shown_key(key: str) -> str:
    """Of a key as JSON. Text is shown without quotes, where it does not look like another key then."""
    text = json.loads(key)
    if not isinstance(text, str):
        return key
    try:
        json.loads(text)
    except ValueError:
        return text
    return key


def verify(place: Place, manifest: Manifest, progress: Callable[[int, int], None] | None = None) -> None:
    """Reads everything and compares it with its sums. Raises CorruptError."""
    place = place.holder(manifest)
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
