"""Arrays of torch, numpy and JAX as a checkpoint sees them: a global shape, and the chunks that this process
has."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace._native import crc32c
from headrace.checkpoint.landing import Landing
from headrace.checkpoint.overlap import Extent
from headrace.checkpoint.row_major import Memory, RowMajor, shows_its_memory
from headrace.errors import InvalidArgumentError

__all__ = [
    "Array",
    "Chunk",
    "describe",
    "empty_like_saved",
    "saved_dtype",
    "torch_dtype",
    "width_of",
]

_NUMPY = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "uint32": "U32",
    "int32": "I32",
    "float32": "F32",
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
"""numpy's, ml_dtypes' and torch's names, and safetensors'."""
_NAMES = {saved: name for name, saved in _NUMPY.items()}
# What a save compares between ranks: a tenth of a millisecond of each array, whatever its size.
_COMPARED_BYTES, _SAMPLES = 1 << 20, 4096
_WIDTHS = {"BOOL": 1, "BF16": 2, "C64": 8}


class Chunk(NamedTuple):
    """A box of an array."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class Array:
    """An array and the chunks of it that this process has.

    :ivar kind: ``"torch"``, ``"numpy"`` or ``"jax"``.
    :ivar dtype: as safetensors spells it.
    :ivar shape: of the whole, on all processes.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        dtype: str,
        shape: Sequence[int],
        parts: list[tuple[Chunk, Any]],
        sharding: Any = None,
    ) -> None:
        """``sharding``: JAX's, where the whole has one."""
        self.name, self.kind, self.dtype, self._sharding = name, kind, dtype, sharding
        self.shape = tuple(int(size) for size in shape)
        self.chunks = [chunk for chunk, _ in parts]
        self._parts = [part for _, part in parts]

    def row_major(self, number: int) -> RowMajor:
        """A chunk's bytes."""
        return RowMajor(self._parts[number])

    def contiguous(self, number: int) -> Memory:
        """A chunk's bytes, row-major: where they lie, or a copy of all."""
        part = self._parts[number]
        if self.kind == "torch":
            return Memory.of_torch(part.detach().resolve_conj().resolve_neg().cpu().contiguous())
        return Memory.of_numpy(np.ascontiguousarray(part).reshape(np.shape(part)))

    def sample(self) -> str:
        """Digest of the first chunk: whether two have the same. Of one that is larger than 1 MiB it is of
        4,096 elements, all over it."""
        part: Any = self._parts[0]
        part = part.detach() if self.kind == "torch" else np.asarray(part)
        count = int(np.prod(part.shape))
        if count == 0:
            return ""
        if count * width_of(self.dtype) > _COMPARED_BYTES:
            places = np.linspace(0, count - 1, _SAMPLES).astype(np.int64)
            index = np.unravel_index(places, tuple(part.shape))
            part = part[tuple(_torch_index(i, part) for i in index) if self.kind == "torch" else index]
            count = _SAMPLES
        part = part.reshape(-1)
        some = Array(self.name, self.kind, self.dtype, (count,), [(_whole((count,)), part)])
        return f"{crc32c(some.bytes_of(0)):08x}"

    def bytes_of(self, number: int) -> bytes:
        """A chunk's bytes, row-major: a copy."""
        memory = self.contiguous(number)
        return ctypes.string_at(memory.address, width_of(self.dtype) * math.prod(self.chunks[number].sizes))

    def check_writable(self) -> None:
        """Raises InvalidArgumentError where nothing can be loaded into it."""
        for part in self._parts:
            if self.kind == "numpy" and not part.flags.writeable:
                raise InvalidArgumentError(f"{self.name}: the array to load into is read-only")
            if self.kind != "jax" and Extent.of(part).overlaps_itself():
                raise InvalidArgumentError(
                    f"{self.name}: elements share memory (expand()); nothing can be loaded into it"
                )

    @property
    def extents(self) -> list[Extent]:
        """Of the chunks. Not of an array of JAX, which is not filled where it is."""
        return [Extent.of(part) for part in self._parts]

    @property
    def nbytes(self) -> int:
        """Of the chunks that this process has."""
        return width_of(self.dtype) * sum(math.prod(chunk.sizes) for chunk in self.chunks)

    @property
    def is_whole(self) -> bool:
        """Whether this process has all of it, in one chunk."""
        return len(self.chunks) == 1 and self.chunks[0].sizes == self.shape

    @property
    def staged_bytes(self) -> int:
        """Of the chunks that cannot be filled where they are: see :meth:`places_to_fill`."""
        return sum(part.nbytes for part in self._parts if self.kind == "torch" and not shows_its_memory(part))

    def places_to_fill(self, number: int, landing: Landing) -> Iterator[tuple[Chunk, Memory]]:
        """Memory to fill a chunk in, box by box: its own; or, where that cannot be filled (other devices,
        views that conjugate or negate), some of ``landing``, as many rows at a time as that has room for. It
        is taken when it is asked for. See :meth:`check_writable`."""
        part, chunk = self._parts[number], self.chunks[number]
        if self.kind == "torch" and not shows_its_memory(part):
            yield from _rows_to_fill(part.detach(), chunk, landing)
        else:
            yield chunk, self.memory_to_fill(number)

    def memory_to_fill(self, number: int) -> Memory:
        """A chunk's own. Of an array of numpy or JAX, or a tensor that can be filled."""
        part = self._parts[number]
        if self.kind == "torch":
            return Memory.of_torch(part.detach())
        if self.kind == "jax":  # Its arrays do not change: see renewed().
            self._parts[number] = part = np.empty(part.shape, part.dtype)
        return Memory.of_numpy(part)

    def renewed(self) -> Any:
        """Another array of JAX, in the same place, of what was written to memory_to_fill()."""
        import jax

        chunks = dict(zip(self.chunks, self._parts, strict=True))
        return jax.make_array_from_callback(
            self.shape, self._sharding, lambda index: chunks[_chunk_at(index, self.shape)]
        )


def _rows_to_fill(part: Any, chunk: Chunk, landing: Landing) -> Iterator[tuple[Chunk, Memory]]:
    """Of a tensor that cannot be filled where it is."""
    if not part.nbytes:
        return
    if not part.dim():
        landing.room_for(part.nbytes, part.is_cuda)
        yield chunk, Memory.of_torch(landing.take(part))
        return
    first, row_bytes = 0, part[:1].nbytes
    while first < len(part):
        end = first + landing.room_for(row_bytes, part.is_cuda) // row_bytes
        some = part[first:end]
        box = Chunk((chunk.offsets[0] + first, *chunk.offsets[1:]), tuple(some.shape))
        yield box, Memory.of_torch(landing.take(some))
        first = end


def _torch_index(places: Any, like: Any) -> Any:
    import torch

    return torch.from_numpy(places).to(like.device)


def width_of(dtype: str) -> int:
    """Bytes of an element."""
    return _WIDTHS.get(dtype) or int(dtype.partition("_")[0].lstrip("FIU")) // 8


def describe(name: str, value: Any) -> Array:
    """Raises InvalidArgumentError for an array that has no place in a checkpoint."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidArgumentError(f"{name}: is a masked array; save its data and its mask")
    if isinstance(value, np.ndarray):
        parts = [(_whole(value.shape), _native(name, value))]
        return Array(name, "numpy", saved_dtype(name, value.dtype.name), value.shape, parts)
    if hasattr(value, "untyped_storage"):
        return _describe_torch(name, value)
    if hasattr(value, "addressable_shards"):
        return _describe_jax(name, value)
    return _describe_torch(name, value)


def empty_like_saved(name: str, kind: str, dtype: str, shape: Sequence[int]) -> Any:
    """An array as it was saved, without its values; of numpy where torch is not there."""
    if kind == "torch":
        import torch

        return torch.empty(tuple(shape), dtype=torch_dtype(dtype), device="cpu")
    return np.empty(tuple(shape), _numpy_dtype(name, dtype))


def torch_dtype(dtype: str) -> Any:
    """What torch calls it."""
    import torch

    return getattr(torch, _NAMES[dtype])


def _numpy_dtype(name: str, dtype: str) -> Any:
    try:
        return np.dtype(_NAMES[dtype])
    except TypeError:
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]

        return np.dtype(getattr(ml_dtypes, _NAMES[dtype]))
    except KeyError:
        raise InvalidArgumentError(f"{name}: numpy has no {dtype}") from None


def saved_dtype(name: str, spelled: str) -> str:
    """As safetensors spells what torch and numpy call ``spelled``. Raises InvalidArgumentError."""
    try:
        return _NUMPY[spelled]
    except KeyError:
        raise InvalidArgumentError(
            f"{name}: arrays of {spelled} have no place in a safetensors file; one of "
            f"{', '.join(sorted(_NUMPY))}"
        ) from None


def _whole(shape: Sequence[int]) -> Chunk:
    return Chunk((0,) * len(shape), tuple(int(size) for size in shape))


def _native(name: str, value: np.ndarray[Any, Any]) -> Any:
    if value.dtype.byteorder == ">":
        raise InvalidArgumentError(
            f"{name}: is big-endian; save array.astype({value.dtype.newbyteorder('=').str!r})"
        )
    return value


def _describe_torch(name: str, value: Any) -> Array:
    if hasattr(value, "to_local"):
        return _describe_dtensor(name, _dtype_of(name, value), value)
    if hasattr(value, "local_shards"):
        parts = [
            (
                Chunk(tuple(s.metadata.shard_offsets), tuple(s.metadata.shard_sizes)),
                _with_memory(name, s.tensor),
            )
            for s in value.local_shards()
        ]
        return Array(name, "torch", _dtype_of(name, value), value.size(), parts)
    if hasattr(value, "materialize"):
        raise InvalidArgumentError(
            f"{name}: is a parameter of a LazyModule and has no values yet: run the module once, on a batch, "
            "before"
        )
    if value.device.type == "meta":
        raise InvalidArgumentError(f"{name}: is on the meta device and has no values")
    if value.is_nested:
        raise InvalidArgumentError(f"{name}: is a nested tensor; save its values and offsets")
    if value.layout is not _strided():
        raise InvalidArgumentError(f"{name}: is a {value.layout} tensor; save its indices and values")
    if value.is_quantized:
        raise InvalidArgumentError(f"{name}: is quantized; save its int_repr(), scales and zero points")
    part = _with_memory(name, value)
    return Array(name, "torch", _dtype_of(name, value), value.shape, [(_whole(value.shape), part)])


def _dtype_of(name: str, value: Any) -> str:
    return saved_dtype(name, str(value.dtype).removeprefix("torch."))


def _with_memory(name: str, value: Any) -> Any:
    """The tensor, where its numbers are in its memory. Those of a subclass may lie in other tensors: it has
    an address of 0 then, or none."""
    if hasattr(value, "trigger_wait"):  # Of a collective that may be under way.
        value = value.trigger_wait()
    try:
        has_memory = value.numel() == 0 or value.data_ptr() != 0
    except RuntimeError:
        has_memory = False
    if has_memory:
        return value
    raise InvalidArgumentError(
        f"{name}: is a {type(value).__module__}.{type(value).__qualname__}, which keeps its numbers in other "
        "tensors; save those, or a plain tensor of its values"
    )


def _strided() -> Any:
    import torch

    return torch.strided


def _describe_dtensor(name: str, dtype: str, value: Any) -> Array:
    if any(placement.is_partial() for placement in value.placements):
        raise InvalidArgumentError(f"{name}: is a partial sum; redistribute() it to Replicate or Shard first")
    if value.device_mesh.get_coordinate() is None:
        return Array(name, "torch", dtype, value.shape, [])
    local = _with_memory(name, value.to_local())
    parts = []
    for each in value.__create_chunk_list__():
        chunk = Chunk(tuple(each.offsets), tuple(each.sizes))
        if tuple(local.shape) != chunk.sizes and local.numel() != 0:
            from torch.distributed.checkpoint.metadata import MetadataIndex

            shard = value.__get_tensor_shard__(MetadataIndex(name, each.offsets))
            parts.append((chunk, _with_memory(name, shard)))
        elif local.numel() != 0:
            parts.append((chunk, local))
    return Array(name, "torch", dtype, value.shape, parts)


def _describe_jax(name: str, value: Any) -> Array:
    parts: list[tuple[Chunk, Any]] = []
    for shard in value.addressable_shards:
        chunk = _chunk_at(shard.index, value.shape)
        if all(chunk != each for each, _ in parts):
            parts.append((chunk, np.asarray(shard.data)))
    return Array(name, "jax", saved_dtype(name, value.dtype.name), value.shape, parts, value.sharding)


def _chunk_at(index: Sequence[slice], shape: Sequence[int]) -> Chunk:
    """Of slices, one for each dimension."""
    spans = [each.indices(size)[:2] for each, size in zip(index, shape, strict=True)]
    return Chunk(tuple(a for a, _ in spans), tuple(b - a for a, b in spans))
