"""Columns of values made of values: what a batch holds after its samples were mapped."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.loader.mapping.tensors import is_tensor, to_bits

__all__ = ["Allocate", "stack"]

Allocate = Callable[[tuple[int, ...], Any], Any]


def _stack_arrays(values: Sequence[Any], allocate: Allocate) -> Any:
    """One array of arrays that are alike, else None."""
    first = values[0]
    if first.dtype.hasobject or any(v.dtype != first.dtype or v.shape != first.shape for v in values):
        return None
    out = allocate((len(values), *first.shape), first.dtype)
    for row, value in enumerate(values):
        out[row] = value
    return out


def _stack_tensors(values: Sequence[Any], allocate: Allocate) -> Any:
    import torch

    bits = [to_bits(value) for value in values]
    dtypes = {dtype for _, dtype in bits}
    out = _stack_arrays([array for array, _ in bits], allocate) if len(dtypes) == 1 else None
    if out is None:
        return list(values)
    tensor, dtype = torch.from_numpy(out), dtypes.pop()
    return tensor.view(getattr(torch, dtype)) if dtype else tensor


def _numbers(value: Any) -> Any:
    """A list or tuple of numbers (dates), also nested, as an array; else None, also where an array would
    round whole numbers."""
    inner = value
    while type(inner) in (list, tuple) and inner:
        inner = inner[0]
    if not isinstance(inner, numbers.Number | np.generic):
        return None
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):
        return None
    if array.dtype == np.float64 and isinstance(inner, int) and np.abs(array).max() >= 2**53:
        return None
    return array if array.dtype.kind in "biufcmM" else None


def stack(values: list[Any], allocate: Allocate = np.empty) -> Any:
    """A column of values: numbers become an array of numbers; arrays (tensors, lists of numbers) of one shape
    and dtype an array (tensor) with one axis more, else a list of them; anything else a list.

    :param allocate: makes the array, as ``np.empty(shape, dtype)``.
    """
    first = values[0]
    if isinstance(first, np.ndarray) and all(isinstance(v, np.ndarray) for v in values):
        out = _stack_arrays(values, allocate)
        return values if out is None else out
    if is_tensor(first) and all(map(is_tensor, values)):
        return _stack_tensors(values, allocate)
    if isinstance(first, numbers.Number | np.generic):
        found = _numbers(values)
        return values if found is None else found
    if type(first) in (list, tuple) and first:
        found = [_numbers(value) for value in values]
        if all(array is not None for array in found):
            return stack(found, allocate)
    return values
