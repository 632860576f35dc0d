"""How values travel in shared memory: a pickle of what they are, and beside it the bytes of every array.

A value is a tuple of parts. A parcel in a slab is, in any order, the arrays (each at a multiple of 64 bytes),
the pickle, and a table of int64 pairs (offset, bytes) of those arrays that the pickle asks for by their
number. Arrays that are parts, or columns of a dict that is a part, are named in the pickle with dtype, shape
and offset: that is quicker. Arrays are never pickled, and read without a copy.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.loader.mapping.tensors import to_bits

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
        self._wholes = [self._bytes]  # All mappings that arrays may lie in.
        self._is_assembled = False
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

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> npt.NDArray[Any]:
        self.end += -self.end % _ALIGNMENT_BYTES
        begin = self._take(size)
        return np.ndarray(shape, dtype, self._bytes, begin)

    def empty(self, shape: Sequence[int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A new array in the slab, as numpy's."""
        kind, count = np.dtype(dtype), 1
        for length in shape:
            count *= length
        if count * kind.itemsize == 0:
            return np.empty(tuple(shape), kind)
        self._is_assembled = True
        return self._new(tuple(shape), kind, count * kind.itemsize)

    def place(self, array: npt.NDArray[Any]) -> int:
        """Offset of an array in the slab, into which it is copied unless it was assembled there."""
        size = array.nbytes
        if size == 0:
            return 0
        if self._is_assembled and array.flags.c_contiguous:
            address = array.__array_interface__["data"][0]
            for whole in self._wholes:
                begin = address - whole.__array_interface__["data"][0]
                if begin >= 0 and begin + size <= whole.nbytes:
                    return int(begin)
        self._new(array.shape, array.dtype, size)[...] = array
        return self.end - size


def _array(shape: tuple[int, ...], dtype: Any, data: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, data)


def _tensor(array: npt.NDArray[Any], dtype: str) -> Any:
    import torch

    tensor = torch.from_numpy(array)
    return tensor.view(getattr(torch, dtype)) if dtype else tensor


def _jagged(values: tuple[npt.NDArray[Any], str], offsets: npt.NDArray[Any]) -> Any:
    import torch

    return torch.nested.nested_tensor_from_jagged(_tensor(*values), torch.from_numpy(offsets))


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


def _is_plain(value: Any) -> bool:
    return type(value) is np.ndarray and not value.dtype.hasobject


class _Pickler(pickle.Pickler):
    """Puts arrays beside the pickle. Tensors of torch become arrays, or stay tensors on the other side."""

    def __init__(self, writer: SlabWriter, as_tensors: bool) -> None:
        self.arrays: list[pickle.PickleBuffer] = []
        super().__init__(writer, 5, buffer_callback=self.arrays.append)
        self._as_tensors = as_tensors
        self._torch = sys.modules.get("torch")

    def reducer_override(self, value: Any) -> Any:
        if _is_plain(value):
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            return _array, (value.shape, _dtype(value), pickle.PickleBuffer(data.data))
        if self._torch is not None and isinstance(value, self._torch.Tensor):
            if value.is_nested:
                return _jagged, (to_bits(value.values()), to_bits(value.offsets())[0])
            array, dtype = to_bits(value)
            return (_tensor, (array, dtype)) if self._as_tensors else self.reducer_override(array)
        return NotImplemented


def _dtype(array: npt.NDArray[Any]) -> Any:
    return array.dtype.str if array.dtype.isbuiltin == 1 else array.dtype


def _gather(value: Any, writer: SlabWriter) -> Any:
    """A column as it travels: lists of arrays of one dtype in one piece."""
    if type(value) is not list or len(value) < 2 or not _is_plain(value[0]):
        return value
    dtype = value[0].dtype
    if not all(_is_plain(each) and each.dtype == dtype for each in value):
        return value
    return _Ragged(value, writer)


_Spots = dict[Any, tuple[Any, tuple[int, ...], int]]


def _lift(parts: tuple[Any, ...], writer: SlabWriter) -> tuple[list[Any], _Spots]:
    """The parts without those arrays that are found at once, and where they lie: (dtype, shape, offset) by
    number of the part, or (number, name of the column)."""
    rest: list[Any] = list(parts)
    spots: _Spots = {}
    for number, part in enumerate(parts):
        if _is_plain(part):
            spots[number] = _dtype(part), part.shape, writer.place(part)
            rest[number] = None
        elif type(part) is dict:
            columns = rest[number] = dict(part)
            for name, column in part.items():
                if _is_plain(column):
                    spots[number, name] = _dtype(column), column.shape, writer.place(column)
                    columns[name] = None
                else:
                    columns[name] = _gather(column, writer)
    return rest, spots


def write(parts: tuple[Any, ...], writer: SlabWriter, as_tensors: bool = False) -> Place:
    """Puts a value into a slab.

    :param as_tensors: tensors are tensors on the other side; else arrays (bfloat16: its bits in uint16).
    """
    value = _lift(parts, writer)
    pickler = _Pickler(writer, as_tensors)
    begin = writer.end
    pickler.dump(value)
    size = writer.end - begin
    if not pickler.arrays:
        return Place(begin, size, writer.end, 0)
    table = []
    for buffer in pickler.arrays:
        with buffer.raw() as raw:
            table += [writer.place(np.frombuffer(raw, np.uint8)), raw.nbytes]
    return Place(begin, size, writer.place(np.array(table, np.int64)), len(table) // 2)


def read(whole: npt.NDArray[np.uint8], place: Place) -> list[Any]:
    """The parts that :func:`write` put there; their arrays are made of ``whole``, and may be written to."""
    arrays: list[npt.NDArray[np.uint8]] = []
    if place.array_count:
        table = whole[place.table_begin : place.end].view(np.int64).tolist()
        arrays = [whole[begin : begin + size] for begin, size in zip(table[::2], table[1::2], strict=True)]
    data = whole[place.pickle_begin : place.pickle_begin + place.pickle_bytes]
    parts: list[Any]
    spots: _Spots
    parts, spots = pickle.loads(data.data, buffers=arrays)
    for key, (dtype, shape, begin) in spots.items():
        array: Any = np.ndarray(shape, dtype, whole, begin)
        if type(key) is int:
            parts[key] = array
        else:
            parts[key[0]][key[1]] = array
    return parts
