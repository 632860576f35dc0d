"""Results of samples that are put where their batch will have them as soon as they are made.

A result is warm in the CPU's caches then, and its memory is free for the next one. Results that wait for the last
one to be stacked are read from memory again, and theirs is touched anew for each batch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from headrace.loader.mapping.stack import Allocate, stack
from headrace.loader.mapping.tensors import is_tensor, of_bits, to_bits

__all__ = ["Settler", "column_of"]

_LEAST_BYTES = 16 << 10
"""Smaller ones are stacked together, which costs less than one by one."""


class _Column:
    """One array for all samples of a batch."""

    def __init__(self, out: Any, is_tensor: bool, dtype: str) -> None:
        self._out, self._is_tensor, self._dtype = out, is_tensor, dtype

    def __len__(self) -> int:
        return len(self._out)

    def take(self, row: int, bits: Any, is_tensor: bool, dtype: str) -> bool:
        """Copies a value into its row, unless it is of another kind than the first one."""
        if (is_tensor, dtype, bits.dtype) != (self._is_tensor, self._dtype, self._out.dtype):
            return False
        if bits.shape != self._out.shape[1:]:
            return False
        self._out[row] = bits
        return True

    def values(self) -> Any:
        return of_bits(self._out, self._dtype) if self._is_tensor else self._out


class _Settled:
    """Stands for a value that lies in its row."""

    __slots__ = ("column", "row")

    def __init__(self, column: _Column, row: int) -> None:
        self.column, self.row = column, row


class Settler:
    """Of one chain, one batch after the other.

    :param allocate: makes the arrays, as ``np.empty(shape, dtype)``.
    """

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._count = 0
        self._columns: dict[str, _Column] = {}
        self._varying: set[str] = set()
        """Names of columns whose values were not all alike: their room would be left empty."""

    def begin(self, count: int) -> None:
        """What follows are samples of another batch of so many."""
        self._count = count
        self._columns.clear()

    def settle(self, row: int, sample: Any) -> Any:
        """The sample, with others standing for its large arrays and tensors."""
        if type(sample) is not dict or self._count < 2:
            return sample
        found = {name: self._settled(name, row, value) for name, value in sample.items() if _is_large(value)}
        return {**sample, **found} if found else sample

    def _settled(self, name: str, row: int, value: Any) -> Any:
        if name in self._varying:
            return value
        is_of_torch = is_tensor(value)
        bits, dtype = to_bits(value) if is_of_torch else (value, "")
        column = self._columns.get(name)
        if column is None:
            out = self._allocate((self._count, *bits.shape), bits.dtype)
            column = self._columns[name] = _Column(out, is_of_torch, dtype)
        if column.take(row, bits, is_of_torch, dtype):
            return _Settled(column, row)
        self._varying.add(name)
        return value


def column_of(values: list[Any], allocate: Allocate) -> Any:
    """As :func:`stack`, of values of which some may be settled; all of a batch in their rows cost nothing."""
    if not any(type(value) is _Settled for value in values):
        return stack(values, allocate)
    first = values[0]
    if type(first) is _Settled and len(values) == len(first.column):
        rows = (type(v) is _Settled and v.column is first.column and v.row == i for i, v in enumerate(values))
        if all(rows):
            return first.column.values()
    return stack([v.column.values()[v.row] if type(v) is _Settled else v for v in values], allocate)


def _is_large(value: Any) -> bool:
    if type(value) is np.ndarray:
        return value.nbytes >= _LEAST_BYTES and not value.dtype.hasobject
    if not is_tensor(value) or value.is_nested or value.layout is not sys.modules["torch"].strided:
        return False
    return bool(value.numel() * value.element_size() >= _LEAST_BYTES)
