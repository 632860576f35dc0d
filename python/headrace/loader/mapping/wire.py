"""How values travel in shared memory: a pickle of what they are, and beside it the bytes of every array.

A parcel in a slab is, from low to high offsets, what was assembled in place, the pickle, the arrays that had
to be copied (each at a multiple of 64 bytes) and a table of int64 pairs (offset, bytes) of all arrays in the
order in which the pickle asks for them. Arrays are never pickled, and read without a copy.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.loader.mapping.slab import Slab

__all__ = ["Place", "SlabWriter", "read", "write"]

_ALIGNMENT_BYTES = 64


class Place(NamedTuple):
    """Where a parcel lies in its slab, in bytes."""

    pickle_begin: int
    pickle_bytes: int
    table_begin: int
    array_count: int

    @property
    def end(self) -> int:
        return self.table_begin + 16 * self.array_count


class SlabWriter:
    """Fills a slab from its beginning. One parcel each."""

    def __init__(self, slab: Slab) -> None:
        self._slab = slab
        self._bytes = slab.whole()
        self._wholes = [self._bytes]  # All mappings that arrays were assembled in.
        self.end = 0

    def _take(self, size: int) -> int:
        """Offset of new room, right behind what is there."""
        begin, self.end = self.end, self.end + size
        if self.end > self._bytes.nbytes:
            self._slab.reserve(self.end)
            self._bytes = self._slab.whole()
            self._wholes.append(self._bytes)
        return begin

    def write(self, data: Any) -> int:
        """A file's write(), for the pickler."""
        view = memoryview(data).cast("B")
        begin = self._take(view.nbytes)
        self._bytes[begin : self.end] = view
        return view.nbytes

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A new array in the slab, as numpy's."""
        kind = np.dtype(dtype)
        count = 1
        for length in shape:
            count *= length
        if count * kind.itemsize == 0:
            return np.empty(tuple(shape), kind)
        self.end += -self.end % _ALIGNMENT_BYTES
        begin = self._take(count * kind.itemsize)
        return np.ndarray(tuple(shape), kind, self._bytes, begin)

    def place(self, array: npt.NDArray[np.uint8]) -> int:
        """Offset of bytes in the slab, into which they are copied unless they were assembled there."""
        if array.nbytes == 0:
            return 0
        address = array.__array_interface__["data"][0]
        for whole in self._wholes:
            begin = address - whole.__array_interface__["data"][0]
            if begin >= 0 and begin + array.nbytes <= whole.nbytes:
                return int(begin)
        copy = self.empty(array.shape, np.uint8)
        copy[...] = array
        return self.end - array.nbytes


def _array(shape: tuple[int, ...], dtype: Any, data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, data)


def _tensor(array: npt.NDArray[Any], dtype: str) -> Any:
    import torch

    tensor = torch.from_numpy(array)
    return tensor.view(getattr(torch, dtype)) if dtype else tensor


def _ragged(values: npt.NDArray[Any], shapes: list[tuple[int, ...]]) -> list[npt.NDArray[Any]]:
    found, begin = [], 0
    for shape in shapes:
        count = 1
        for length in shape:
            count *= length
        found.append(values[begin : begin + count].reshape(shape))
        begin += count
    return found


class _Ragged:
    """A list of arrays of one dtype, which travels as one."""

    def __init__(self, arrays: list[npt.NDArray[Any]], writer: SlabWriter) -> None:
        self._values = writer.empty((sum(array.size for array in arrays),), arrays[0].dtype)
        self._shapes = [array.shape for array in arrays]
        begin = 0
        for array in arrays:
            self._values[begin : begin + array.size] = array.reshape(-1)
            begin += array.size

    def __reduce__(self) -> Any:
        return _ragged, (self._values, self._shapes)


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return not dtype.hasobject


class _Pickler(pickle.Pickler):
    """Puts arrays beside the pickle. Tensors of torch become arrays, or stay tensors on the other side."""

    def __init__(self, writer: SlabWriter, as_tensors: bool) -> None:
        self.arrays: list[pickle.PickleBuffer] = []
        super().__init__(writer, 5, buffer_callback=self.arrays.append)
        self._as_tensors = as_tensors
        self._torch = sys.modules.get("torch")

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and _is_plain(value.dtype):
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            dtype = value.dtype.str if value.dtype.isbuiltin == 1 else value.dtype
            return _array, (value.shape, dtype, pickle.PickleBuffer(data.data))
        if self._torch is not None and isinstance(value, self._torch.Tensor):
            return self._reduce_tensor(value)
        return NotImplemented

    def _reduce_tensor(self, value: Any) -> Any:
        from headrace.loader.mapping.tensors import to_bits

        array, dtype = to_bits(value)
        if self._as_tensors:
            return _tensor, (array, dtype)
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return _array, (array.shape, array.dtype.str, pickle.PickleBuffer(data.data))


def _gather(value: Any, writer: SlabWriter) -> Any:
    """A column as it travels: lists of arrays of one dtype in one piece."""
    if type(value) is not list or len(value) < 2 or type(value[0]) is not np.ndarray:
        return value
    dtype = value[0].dtype
    if not _is_plain(dtype) or not all(type(v) is np.ndarray and v.dtype == dtype for v in value):
        return value
    return _Ragged(value, writer)


def write(value: Any, writer: SlabWriter, as_tensors: bool = False) -> Place:
    """Puts a value into a slab. Of a tuple, dicts in it are taken for columns.

    :param as_tensors: tensors are tensors on the other side; else arrays (bfloat16: its bits in uint16).
    """
    if type(value) is tuple:
        value = tuple(
            {name: _gather(column, writer) for name, column in part.items()} if type(part) is dict else part
            for part in value
        )
    pickler = _Pickler(writer, as_tensors)
    begin = writer.end
    pickler.dump(value)
    size = writer.end - begin
    table = []
    for buffer in pickler.arrays:
        with buffer.raw() as raw:
            table += [writer.place(np.frombuffer(raw, np.uint8)), raw.nbytes]
    writer.empty((len(table),), np.int64)[:] = table
    return Place(begin, size, writer.end - 8 * len(table), len(table) // 2)


def read(whole: npt.NDArray[np.uint8], place: Place) -> Any:
    """What :func:`write` put there; its arrays are made of ``whole``, and may be written to."""
    table = whole[place.table_begin : place.end].view(np.int64).tolist()
    arrays = [whole[begin : begin + size] for begin, size in zip(table[::2], table[1::2], strict=True)]
    data = whole[place.pickle_begin : place.pickle_begin + place.pickle_bytes]
    return pickle.loads(data.data, buffers=arrays)
