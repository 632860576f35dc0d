"""Loading models from safetensors files, whoever wrote them: ranges in parallel, straight into the arrays."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import _native
from headrace.checkpoint.arrays import Array, Chunk, describe, empty_like_saved, width_of
from headrace.checkpoint.files_at_once import read_files
from headrace.checkpoint.landing import Landing
from headrace.checkpoint.overlap import Extent, find_common
from headrace.checkpoint.row_major import Memory
from headrace.checkpoint.safetensors.files import Found, find_files, split_url
from headrace.checkpoint.safetensors.header import Stored
from headrace.checkpoint.safetensors.states import as_bytes, as_float4, values_of
from headrace.checkpoint.safetensors.ties import one_memory
from headrace.errors import InvalidArgumentError, UnsupportedError
from headrace.store.store import Store

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from headrace.store.store import StoreOptions

__all__ = ["load"]

_COMPARED_BYTES = 16 << 20


def load(
    url: str | os.PathLike[str],
    into: Any = None,
    *,
    names: Collection[str] | None = None,
    device: Any = "cpu",
    framework: str = "torch",
    memory: int | str = "1GiB",
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[StoreOptions],
) -> dict[str, Any]:
    """Loads a model in safetensors: one file, or many with an index.

    >>> weights = headrace.checkpoint.safetensors.load("s3://bucket/llama")  # doctest: +SKIP
    >>> headrace.checkpoint.safetensors.load("s3://bucket/llama", into=model)  # doctest: +SKIP

    Only the ranges that are needed are read, in parallel, into the memory of the arrays. All files are of the
    version whose header was read. There are no sums in this format: what the store and the wire say is
    believed, unlike with Checkpointer.

    :param url: a directory (``model.safetensors``, else ``model.safetensors.index.json``, else the only one
        there is), a file, or an index.
    :param into: a model, or arrays by name: filled in place, whatever part of each this process has (DTensor,
        FSDP2, numpy; arrays of JAX are made anew). Names, dtypes and shapes must be the same as in the files,
        unless ``names`` says which are wanted. Of names that are one memory (tied weights) one is enough.
    :param names: only those; files in which none of them lies are not looked at.
    :param device: of the tensors that are made; with ``into`` each is where it is.
    :param framework: of the arrays that are made: ``"torch"`` or ``"numpy"``.
    :param memory: bytes under way.
    :param progress: called with (bytes read, bytes of all files that are read from) after each file, from any
        thread.
    :param options: of the store, as :class:`headrace.Store` takes them.
    :returns: arrays by name.
    :raises NotFoundError: no such file, or tensor; it is named.
    :raises CorruptError: a file that the safetensors package refuses as well; file and tensor are named.
    :raises InvalidArgumentError: ``into`` has other names, dtypes or shapes; or arrays that have memory in
        common, and other values in the files.
    :raises ChangedError: a file was replaced meanwhile.

    Threads: any. Ranks need not call it together, and each reads for itself; of a model that is replaced
    meanwhile one may load the old and another the new one.
    """
    if framework not in ("torch", "numpy"):
        raise InvalidArgumentError(f"framework={framework!r}: expected 'torch' or 'numpy'")
    root, name = split_url(url)
    targets = None if into is None else values_of(into)
    store = Store(root, memory=memory, **options)
    try:
        if targets is None:
            return _Making(store, find_files(store, name, names), framework, device, progress).run()
        found = find_files(store, name, None)
        return _Filling(store, found, targets, names, progress).run()
    finally:
        store.close()


class _Reading:
    """What is to be read, by file."""

    def __init__(self, store: Store, found: Found, progress: Callable[[int, int], None] | None) -> None:
        self.store, self.found = store, found
        self._progress, self._done = progress, Counter[str]()
        self._rows: dict[str, list[Any]] = defaultdict(list)
        self._owners: dict[str, list[Any]] = defaultdict(list)

    def add(self, name: str, target: Chunk, memory: Memory) -> None:
        """A box of a tensor, to be put into memory of that shape."""
        key, stored = self.found.tensors[name]
        if math.prod(target.sizes) == 0:
            return
        dtype, shape = plain(stored, f"{self.store.url}/{key}: tensor {name!r}")
        self._owners[key].append(memory.owner)
        self._rows[key].append(
            (
                stored.begin,
                stored.end - stored.begin,
                None,
                width_of(dtype),
                shape,
                target.offsets,
                target.sizes,
                memory.address,
                memory.strides,
            )
        )

    def read(self, key: str) -> None:
        """What was added of one file."""
        rows = self._rows.pop(key, [])
        if rows:
            _native.checkpoint_read(self.store._native, key, self.found.files[key].etag, rows)
        self._owners.pop(key, None)

    def end(self, key: str) -> None:
        """Nothing more is wanted of a file."""
        self._done[key] = self.found.files[key].size
        if self._progress is not None:
            self._progress(self._done.total(), sum(file.size for file in self.found.files.values()))


def plain(stored: Stored, what: str) -> tuple[str, tuple[int, ...]]:
    """dtype and shape as arrays have them: of F4 two elements are one of torch's."""
    if stored.dtype == "F4" and stored.shape and stored.shape[-1] % 2 == 0:
        return "U8", (*stored.shape[:-1], stored.shape[-1] // 2)
    if stored.dtype in ("F4", "F6_E2M3", "F6_E3M2"):
        raise UnsupportedError(f"{what} is {stored.dtype}{list(stored.shape)}, which no array can have here")
    return stored.dtype, stored.shape


class _Making:
    """Arrays that are made, whole."""

    def __init__(
        self,
        store: Store,
        found: Found,
        framework: str,
        device: Any,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._reading, self._found = _Reading(store, found, progress), found
        self._framework, self._device = framework, device
        self._made: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        by_file: dict[str, list[str]] = defaultdict(list)
        for name, (key, stored) in self._found.tensors.items():
            plain(stored, f"{self._reading.store.url}/{key}: tensor {name!r}")
            by_file[key].append(name)
        read_files(self._reading.store, lambda key: self._read(key, by_file[key]), list(by_file))
        made = {name: self._made[name] for name in self._found.tensors}
        return made | {name: self._made[kept] for name, kept in self._found.tied.items() if kept in made}

    def _read(self, key: str, names: list[str]) -> None:
        values = {}
        for name in names:
            stored = self._found.tensors[name][1]
            dtype, shape = plain(stored, name)
            values[name] = empty_like_saved(name, self._framework, dtype, shape)
            own = describe(name, values[name])
            self._reading.add(name, own.chunks[0], own.memory_to_fill(0))
        self._reading.read(key)
        self._reading.end(key)
        for name, value in values.items():
            made = as_float4(value) if self._found.tensors[name][1].dtype == "F4" else value
            self._made[name] = made if self._framework == "numpy" else made.to(self._device)


class _Filling:
    """Arrays that are there, of which this process may have parts."""

    def __init__(
        self,
        store: Store,
        found: Found,
        targets: Mapping[str, Any],
        names: Collection[str] | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._reading, self._found, self._targets = _Reading(store, found, progress), found, targets
        self._sources = self._matched(names)
        self._renewed: dict[str, Array] = {}

    def _matched(self, names: Collection[str] | None) -> dict[str, str]:
        """Which tensor of the files each target is filled from."""
        found, targets = self._found, self._targets
        sources = {name: found.tied.get(name, name) for name in targets}
        sources = {name: source for name, source in sources.items() if source in found.tensors}
        if names is not None:
            self._check(set(names) - sources.keys(), set())
            return self._of_one_memory({name: sources[name] for name in names})
        filled = {_memory_of(targets[name]) for name in sources}
        missing = {
            name for name in targets.keys() - sources.keys() if _memory_of(targets[name]) not in filled
        }
        self._check(missing, found.tensors.keys() - set(sources.values()))
        return self._of_one_memory(sources)

    def _of_one_memory(self, sources: dict[str, str]) -> dict[str, str]:
        """Of targets that are one memory in every respect one is filled. Raises InvalidArgumentError where
        the files have different values of them."""
        first: dict[Any, str] = {}
        kept: dict[str, str] = {}
        for name, source in sources.items():
            value = self._targets[name]
            other = first.setdefault(one_memory(value) or id(value), name)
            if other == name:
                kept[name] = source
            elif sources[other] != source and not self._are_equal(sources[other], source):
                raise InvalidArgumentError(
                    f"{self._reading.store.url}: tensors {sources[other]!r} and {source!r} differ, and are "
                    "one array in into=: one of the two would be lost (is the model made with tied weights, "
                    "and the files not?)"
                )
        return kept

    def _are_equal(self, one: str, other: str) -> bool:
        (first_key, first), (second_key, second) = self._found.tensors[one], self._found.tensors[other]
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            return False
        store, files = self._reading.store, self._found.files
        for at in range(0, first.end - first.begin, _COMPARED_BYTES):
            length = min(_COMPARED_BYTES, first.end - first.begin - at)
            mine = store.get_range(first_key, first.begin + at, length, etag=files[first_key].etag)
            theirs = store.get_range(second_key, second.begin + at, length, etag=files[second_key].etag)
            if mine != theirs:
                return False
        return True

    def _check(self, missing: set[str], surplus: set[str]) -> None:
        parts = [
            f"{len(some)} tensors {what} ({', '.join(sorted(some)[:5])}{', ...' if len(some) > 5 else ''})"
            for some, what in ((missing, "of into= are not in it"), (surplus, "of it are not in into="))
            if some
        ]
        if parts:
            raise InvalidArgumentError(
                f"{self._reading.store.url}: {', and '.join(parts)}; names= says which to load"
            )

    def run(self) -> dict[str, Any]:
        wanted: dict[str, list[tuple[str, Array]]] = defaultdict(list)
        for name, source in self._sources.items():
            wanted[self._found.tensors[source][0]].append((source, self._described(name, source)))
        staged = {key for key, some in wanted.items() if any(own.staged_bytes for _, own in some)}
        at_once = [key for key in wanted if key not in staged]
        read_files(self._reading.store, lambda key: self._fill(key, wanted[key]), at_once)
        # Here, and one after the other: what torch copies depends on the thread (its stream, its modes).
        for key in sorted(staged):
            self._fill(key, wanted[key])
        self._check_kept([each for some in wanted.values() for each in some if each[1].kind != "jax"])
        return {**self._targets, **{name: array.renewed() for name, array in self._renewed.items()}}

    def _check_kept(self, filled: list[tuple[str, Array]]) -> None:
        """That each array which has memory in common with another has what the files have of it. Raises
        InvalidArgumentError."""
        rows = [(source, own, i) for source, own in filled for i in range(len(own.chunks))]
        common = find_common([extent for _, own in filled for extent in own.extents])
        for at, other in common.items():
            source, own, i = rows[at]
            if own.bytes_of(i) != self._saved_bytes(source, own.chunks[i]):
                raise InvalidArgumentError(
                    f"{self._reading.store.url}: {own.name} and {rows[other][1].name} have memory in common "
                    "in into=, and differ in the files: one of the two would be lost"
                )

    def _saved_bytes(self, source: str, chunk: Chunk) -> bytes:
        key, stored = self._found.tensors[source]
        out = np.empty(chunk.sizes, f"V{width_of(plain(stored, source)[0])}")
        self._reading.add(source, chunk, Memory.of_numpy(out))
        self._reading.read(key)
        return out.tobytes()

    def _described(self, name: str, source: str) -> Array:
        key, stored = self._found.tensors[source]
        what = f"{self._reading.store.url}/{key}: tensor {source!r}"
        target = self._targets[name]
        own = describe(name, as_bytes(target) if stored.dtype == "F4" else target)
        dtype, shape = plain(stored, what)
        if (own.dtype, own.shape) != (dtype, shape):
            raise InvalidArgumentError(
                f"{what} is {dtype}{list(shape)}, and {own.dtype}{list(own.shape)} in into="
            )
        own.check_writable()
        if own.kind == "jax":
            self._renewed[name] = own
        return own

    def _fill(self, key: str, wanted: list[tuple[str, Array]]) -> None:
        """From one file."""

        def read() -> None:
            self._reading.read(key)
            landing.land()

        landing = Landing(when_full=read)
        for source, own in wanted:
            for number in range(len(own.chunks)):
                for box, memory in own.places_to_fill(number, landing):
                    self._reading.add(source, box, memory)
        read()
        landing.close()
        self._reading.end(key)


def _memory_of(value: Any) -> Any:
    """The same for arrays that are one memory, in whatever order they show it."""
    local = value.to_local() if hasattr(value, "to_local") else value
    if not hasattr(local, "data_ptr") or not local.data_ptr():
        return id(value)
    extent = Extent.of(local)
    is_dense = extent.end - extent.begin == local.nbytes
    return extent.device, extent.begin, local.nbytes, None if is_dense else extent
