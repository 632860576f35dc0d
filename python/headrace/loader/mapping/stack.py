"""Columns of values made of values: what a batch holds after its samples were mapped."""

from __future__ import annotations

import numbers
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.loader.mapping.tensors import is_tensor, to_bits

__all__ = ["Allocate", "rounds", "stack"]

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
    if value and type(value[0]) is int:
        try:
            return np.frombuffer(
                array("q", value), np.int64
            )  # Twice as fast as numpy, which looks at all first.
        except (TypeError, OverflowError):
            pass
    inner = value
    while type(inner) in (list, tuple) and inner:
        inner = inner[0]
    if not isinstance(inner, numbers.Number | np.generic):
        return None
    try:
        made = np.asarray(value)
    except (ValueError, OverflowError):
        return None
    return made if made.dtype.kind in "biufcmM" and not rounds(value, made) else None


def rounds(value: Any, made: Any) -> bool:
    """Whether ``made``, an array of the list ``value``, may have rounded whole numbers to floating-point
    ones: those from 2**53 on."""
    if made.dtype.kind not in "fc" or made.dtype.itemsize < 8:
        return False
    large = np.abs(made) >= 2**53
    whole = (int, np.integer)
    return bool(large.any()) and any(isinstance(v, whole) for v in np.array(value, object)[large])


def stack(values: list[Any], allocate: Allocate = np.empty) -> Any:
    """A column of values: numbers become an array of numbers; arrays (tensors, lists of numbers) of one shape
    and dtype an array (tensor) with one axis more, else a list of them; anything else a list.

    Masked arrays are something else.

    :param allocate: makes the array, as ``np.empty(shape, dtype)``.
    """
    first = values[0]
    if isinstance(first, np.ndarray) and all(isinstance(v, np.ndarray) for v in values):
        if any(isinstance(v, np.ma.MaskedArray) for v in values):
            return values  # The batch's array would be without their masks.
        out = _stack_arrays(values, allocate)
        return values if out is None else out
    if is_tensor(first) and all(map(is_tensor, values)):
        return _stack_tensors(values, allocate)
    if isinstance(first, numbers.Number | np.generic):
        found = _numbers(values)
        return values if found is None else found
    if type(first) in (list, tuple):
        found = _lists_of_numbers(values)
        return values if found is None else stack(found, allocate)
    return values


def _lists_of_numbers(values: list[Any]) -> list[Any] | None:
    """Each as an array; None where not all are lists of numbers, or all are empty."""
    if not all(type(value) in (list, tuple) for value in values):
        return None  # Before any is asked whether it is empty: None, 0 and array([0]) would say so.
    empty = _numbers(next((value for value in values if value), ()))
    if empty is None:
        return None
    found = []
    for value in values:
        made = _numbers(value) if value else empty[:0]
        if made is None:
            return None
        found.append(made)
    return found
