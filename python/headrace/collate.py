"""Batches of samples whose columns differ in length, for ``loader.collate()``.

Each function here returns one that takes the samples of a batch and returns its columns. They work within one
batch and remember nothing, so a loader's state says all about them. Other columns are stacked as those of
``map()`` are. Values may be arrays, tensors of torch or lists of numbers. What they make of a column has a
dtype that all its values fit into; an empty list has that of the others.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.base.units import whole_number
from headrace.errors import InvalidArgumentError
from headrace.loader.mapping.stack import rounds, stack
from headrace.loader.mapping.tensors import is_tensor, to_bits

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["bucket", "nested", "pack", "pad"]

Sample = dict[str, Any]


def _array(value: Any, where: str) -> tuple[npt.NDArray[Any], str]:
    """A value as an array with at least one axis, and the dtype as :func:`to_bits` names it."""
    try:
        array, bits = to_bits(value) if is_tensor(value) else (np.asarray(value), "")
    except (ValueError, OverflowError):
        array, bits = np.asarray(None), ""
    if array.dtype.hasobject or (isinstance(value, list | tuple) and rounds(value, array)):
        raise InvalidArgumentError(f"{where} has {value!r:.100}, which is no array of one type of numbers")
    if array.ndim == 0:
        raise InvalidArgumentError(f"{where} has a value without a length")
    return array, bits


def _column(samples: Sequence[Sample], name: str, fill: Any = 0) -> tuple[list[npt.NDArray[Any]], str]:
    """Values of a column, each with at least one axis, and the dtype whose bits they are where numpy lacks
    it.

    :param fill: where all are empty lists, they have the dtype of this.
    """
    if name not in samples[0]:
        raise InvalidArgumentError(
            f"there is no column {name!r}; there are {', '.join(map(repr, samples[0]))}"
        )
    found = {
        row: _array(sample[name], f"column {name!r}, sample {row} of the batch,")
        for row, sample in enumerate(samples)
        if not (isinstance(sample[name], list | tuple) and len(sample[name]) == 0)
    }
    kinds = {bits or str(array.dtype) for array, bits in found.values()}
    bits = next((bits for _, bits in found.values() if bits), "")
    if bits and len(kinds) > 1:
        raise InvalidArgumentError(f"column {name!r} has values of {' and '.join(sorted(kinds))}")
    like = next((array for array, _ in found.values()), np.atleast_1d(np.asarray(fill)))
    return [found[row][0] if row in found else like[:0] for row in range(len(samples))], bits


def _arrays(samples: Sequence[Sample], name: str) -> list[npt.NDArray[Any]]:
    return _column(samples, name)[0]


def _common_dtype(samples: Sequence[Sample], arrays: list[npt.NDArray[Any]], name: str) -> np.dtype[Any]:
    """Of all of them; InvalidArgumentError where it would round whole numbers, or one is masked."""
    dtype: np.dtype[Any] = np.result_type(*{array.dtype for array in arrays})
    for row, array in enumerate(arrays):
        value = samples[row][name]
        if isinstance(value, np.ma.MaskedArray) and np.any(value.mask):
            raise InvalidArgumentError(
                f"column {name!r}, sample {row} of the batch, has masked numbers, whose mask would be lost: "
                "fill them first"
            )
        if array.dtype.kind not in "iu" or dtype.kind in "iu":
            continue
        with np.errstate(invalid="ignore"):
            is_same = (array.astype(dtype).astype(array.dtype) == array).all()
        if not is_same:
            raise InvalidArgumentError(
                f"column {name!r}, sample {row} of the batch, has {array.dtype} that {dtype}, which all "
                "samples fit into, would round: give all the same dtype"
            )
    return dtype


def _filling(value: Any, dtype: np.dtype[Any], bits: str, what: str) -> Any:
    """``value`` in this dtype, or the bits of it. InvalidArgumentError where it is another value there; only
    fractions may be rounded, to fractions."""
    given = np.asarray(value)
    try:
        with np.errstate(all="ignore"):
            made = filling = given.astype(np.float64 if bits else dtype)
            if bits:
                import torch

                tensor = torch.from_numpy(made).to(getattr(torch, bits))
                made, filling = tensor.to(torch.float64).numpy(), to_bits(tensor)[0]
            if given.dtype.kind == "f" and made.dtype.kind in "fc":
                # Types without an infinity have their largest number for what is too large.
                is_same = (np.isfinite(given) == np.isfinite(made)) & ~(np.abs(made) * 2 < np.abs(given))
            elif (given.dtype.kind in "US") != (made.dtype.kind in "US"):
                is_same = np.False_  # numpy makes "0" of 0.
            else:
                is_same = made.astype(given.dtype) == given
    except (TypeError, ValueError, OverflowError):
        is_same = np.False_
    if not np.all(is_same):
        raise InvalidArgumentError(f"{what}={value!r} is no {bits or dtype}, which the column has")
    return filling


def _viewed(array: npt.NDArray[Any], bits: str) -> Any:
    """The array, or a tensor of the numbers whose bits it has."""
    if not bits:
        return array
    import torch

    return torch.from_numpy(array).view(getattr(torch, bits))


def _others(samples: list[Sample], names: Sequence[str]) -> dict[str, Any]:
    return {name: stack([sample[name] for sample in samples]) for name in samples[0] if name not in names}


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _at_least_one(name: str, value: Any) -> int:
    if whole_number(name, value, 32) < 1:
        raise InvalidArgumentError(f"{name}={value!r}: expected at least 1")
    return int(value)


@dataclass(frozen=True)
class _Pad:
    names: tuple[str, ...]
    value: Any
    length: int | None
    multiple_of: int
    truncate: bool

    def __call__(self, samples: list[Sample]) -> dict[str, Any]:
        columns = _others(samples, self.names)
        for name in self.names:
            columns.update(self._padded(samples, name))
        return columns

    def _padded(self, samples: list[Sample], name: str) -> dict[str, Any]:
        arrays, bits = _column(samples, name, self.value)
        shapes = {array.shape[1:] for array in arrays}
        if len(shapes) > 1:
            raise InvalidArgumentError(
                f"column {name!r} has values of {' and '.join(map(str, sorted(shapes)))} behind the first "
                "axis: they are filled up along that alone"
            )
        longest = max(map(len, arrays))
        length = self.length
        if length is None:
            length = -(-longest // self.multiple_of) * self.multiple_of
        if longest > length and not self.truncate:
            raise InvalidArgumentError(
                f"column {name!r} has a value of {longest}, and length={length}: raise it, or give "
                "truncate=True"
            )
        dtype = _common_dtype(samples, arrays, name)
        filling = _filling(self.value, dtype, bits, "value")
        padded = np.full((len(arrays), length, *arrays[0].shape[1:]), filling, dtype)
        lengths = np.array([min(len(array), length) for array in arrays], np.int64)
        for row, array in enumerate(arrays):
            padded[row, : lengths[row]] = array[:length]
        mask = np.arange(length) < lengths[:, None]
        return {name: _viewed(padded, bits), f"{name}_lengths": lengths, f"{name}_mask": mask}


def pad(
    columns: str | Sequence[str],
    *,
    value: Any = 0,
    length: int | None = None,
    multiple_of: int = 1,
    truncate: bool = False,
) -> Callable[[list[Sample]], dict[str, Any]]:
    """Fills up values along their first axis: of column ``x`` are made ``x`` [samples, length, ...],
    ``x_lengths`` (int64 [samples]) and ``x_mask`` (bool [samples, length], True where there is a value).

    :param value: what fills up: a number that the column's dtype has, rounded only where it is a fraction.
    :param length: of all batches; default: of the longest value of the batch, rounded up to a multiple of
        ``multiple_of``. A longer value is InvalidArgumentError, or cut with ``truncate=True``.
    """
    if length is not None:
        _at_least_one("length", length)
    return _Pad(_names(columns), value, length, _at_least_one("multiple_of", multiple_of), truncate)


@dataclass(frozen=True)
class _Nested:
    names: tuple[str, ...]

    def __call__(self, samples: list[Sample]) -> dict[str, Any]:
        import torch

        columns = _others(samples, self.names)
        for name in self.names:
            arrays, bits = _column(samples, name)
            dtype = _common_dtype(samples, arrays, name)
            kind = torch.as_tensor(_viewed(np.empty(0, dtype), bits)).dtype
            tensors = [
                sample[name].to(kind)
                if is_tensor(sample[name])
                else torch.as_tensor(_viewed(np.ascontiguousarray(array, dtype), bits))
                for sample, array in zip(samples, arrays, strict=True)
            ]
            offsets = torch.tensor([0, *np.cumsum([len(array) for array in arrays])])
            columns[name] = torch.nested.nested_tensor_from_jagged(torch.cat(tensors), offsets)
        return columns


def nested(columns: str | Sequence[str]) -> Callable[[list[Sample]], dict[str, Any]]:
    """Makes jagged tensors of torch: values one after the other, and their offsets, without padding."""
    return _Nested(_names(columns))


@dataclass(frozen=True)
class _Bucket:
    by: str
    count: int
    then: Callable[[list[Sample]], Any]

    def __call__(self, samples: list[Sample]) -> list[Any]:
        lengths = [len(array) for array in _arrays(samples, self.by)]
        rows = np.argsort(lengths, kind="stable")
        parts = np.array_split(rows, min(self.count, len(samples)))
        return [self.then([samples[row] for row in part]) for part in parts]


def bucket(
    by: str, count: int, *, then: Callable[[list[Sample]], Any]
) -> Callable[[list[Sample]], list[Any]]:
    """Shares out the samples of a batch by the length of a column: a list of ``count`` smaller batches of
    nearly equal numbers of samples, shortest first, each made by ``then``. For gradient accumulation with
    little padding."""
    return _Bucket(by, _at_least_one("count", count), then)


class _Piece(NamedTuple):
    """Part of a document, as it lies in a sequence."""

    document: int
    begin: int
    length: int


def _concatenated(lengths: list[int], length: int) -> list[list[_Piece]]:
    """Documents end to end, cut at every ``length``."""
    rows: list[list[_Piece]] = []
    room = 0
    for document, total in enumerate(lengths):
        begin = 0
        while begin < total:
            if room == 0:
                rows.append([])
                room = length
            size = min(room, total - begin)
            rows[-1].append(_Piece(document, begin, size))
            begin, room = begin + size, room - size
    return rows


def _best_fit(lengths: list[int], length: int) -> list[list[_Piece]]:
    """The longest piece first, each where the least room is left; only documents above ``length`` are cut."""
    pieces = [
        _Piece(document, begin, min(length, total - begin))
        for document, total in enumerate(lengths)
        for begin in range(0, total, length)
    ]
    rows: list[list[_Piece]] = []
    rooms: list[tuple[int, int]] = []  # What is left of each row, and its number, in order.
    for piece in sorted(pieces, key=lambda each: -each.length):
        at = bisect.bisect_left(rooms, (piece.length, 0))
        if at == len(rooms):
            room, row = length, len(rows)
            rows.append([])
        else:
            room, row = rooms.pop(at)
        rows[row].append(piece)
        bisect.insort(rooms, (room - piece.length, row))
    return rows


_METHODS = {"concatenate": _concatenated, "best_fit": _best_fit}


@dataclass(frozen=True)
class _Pack:
    name: str
    length: int
    method: str
    pad_token: int

    def __call__(self, samples: list[Sample]) -> dict[str, Any]:
        documents, bits = _column(samples, self.name, self.pad_token)
        if any(document.ndim > 1 for document in documents):
            raise InvalidArgumentError(f"column {self.name!r} has values of several axes; documents have one")
        rows = _METHODS[self.method]([len(document) for document in documents], self.length)
        shape = len(rows), self.length
        dtype = _common_dtype(samples, documents, self.name)
        tokens = np.full(shape, _filling(self.pad_token, dtype, bits, "pad_token"), dtype)
        segments, positions, numbers = (
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            np.full(shape, -1, np.int32),
        )
        for row, pieces in enumerate(rows):
            end = 0
            for segment, piece in enumerate(pieces, 1):
                begin, end = end, end + piece.length
                tokens[row, begin:end] = documents[piece.document][piece.begin : piece.begin + piece.length]
                segments[row, begin:end] = segment
                positions[row, begin:end] = np.arange(piece.length)
                numbers[row, begin:end] = piece.document
        return {
            self.name: _viewed(tokens, bits),
            "segment_ids": segments,
            "positions": positions,
            "document_rows": numbers,
        }


def pack(
    column: str = "tokens", *, length: int, method: str = "concatenate", pad_token: int = 0
) -> Callable[[list[Sample]], dict[str, Any]]:
    """Packs the documents of a batch into sequences of one length; other columns are left out.

    Columns, all [sequences, length]: the tokens; ``segment_ids`` (1, 2, ... by piece, 0 is padding) and
    ``positions`` (from 0 in each piece), as :func:`headrace.pack_tokens` has them; ``document_rows``, the
    document's row in ``batch.ids``, -1 where there is padding. Batches differ in the number of sequences.
    Nothing is carried into the next batch, so the state stays exact; the last sequence is filled up: give
    large batches.

    :param method: ``"concatenate"``: end to end, cut at every ``length``. ``"best_fit"``: only documents
        longer than a sequence are cut.
    """
    if method not in _METHODS:
        raise InvalidArgumentError(f"method={method!r} is unknown; there are {', '.join(_METHODS)}")
    return _Pack(column, _at_least_one("length", length), method, pad_token)
