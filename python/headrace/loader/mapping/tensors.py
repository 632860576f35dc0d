"""Arrays and tensors of torch, one as the other. torch is imported only by who has tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

__all__ = [
    "as_arrays",
    "as_dtype",
    "as_tensors",
    "is_tensor",
    "to_bfloat16",
    "to_bits",
    "to_tensor",
    "to_wide_array",
    "to_wide_tensor",
    "walk",
]


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_bits(tensor: Any) -> tuple[Any, str]:
    """A tensor as an array over the same memory where it can be, and the name of its dtype where numpy lacks
    that: the array then holds the bits (bfloat16: uint16)."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return tensor.numpy(), ""
    except TypeError:
        import torch

        bits = {1: torch.uint8, 2: torch.uint16}[tensor.element_size()]
        return tensor.contiguous().view(bits).numpy(), str(tensor.dtype).removeprefix("torch.")


def walk(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The value with ``leaf(part)`` for each part that is no list, tuple or dict; dicts are changed in
    place."""
    kind = type(value)
    if kind in (list, tuple):
        return kind(walk(part, leaf) for part in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(walk(part, leaf) for part in value))
    if isinstance(value, dict):
        for name in value:
            value[name] = walk(value[name], leaf)
        return value
    return leaf(value)


def as_arrays(value: Any) -> Any:
    """The value with arrays for tensors, also within lists, tuples and dicts."""
    if "torch" not in sys.modules:
        return value
    return walk(value, lambda leaf: to_bits(leaf)[0] if is_tensor(leaf) and not leaf.is_nested else leaf)


def to_tensor(part: Any) -> Any:
    """An array as a tensor over the same memory, where torch has its dtype; anything else as it is."""
    import torch

    is_array = isinstance(part, np.ndarray) and not isinstance(part, np.ma.MaskedArray)
    if not is_array or part.dtype.kind not in "biufc":
        return part
    if (
        part.dtype.char == "Q"
    ):  # unsigned long long: of numpy's two names for uint64 the one that torch refuses.
        part = part.view(np.uint64)
    return torch.from_numpy(part)


_WIDE = {"<u2": np.int32, "<u4": np.int64}


def to_wide_array(part: Any) -> Any:
    """An array or a number of numpy's of int32 for one of uint16, of int64 for one of uint32; anything else
    as it is."""
    if isinstance(part, (np.ndarray, np.generic)) and (wide := _WIDE.get(part.dtype.str)):
        return part.astype(wide)
    return part


def to_wide_tensor(part: Any) -> Any:
    """As to_tensor(), with int32 for uint16 and int64 for uint32, of which torch knows little more than the
    names; also of what is a tensor or a single number already."""
    import torch

    if isinstance(part, np.generic):
        return to_wide_array(part)
    tensor = to_tensor(part)
    if not isinstance(tensor, torch.Tensor):
        return tensor
    wide = {torch.uint16: torch.int32, torch.uint32: torch.int64}.get(tensor.dtype)
    return tensor if wide is None else tensor.to(wide)


def to_bfloat16(part: Any) -> Any:
    """The same of an array of uint16 that holds the bits of such numbers, which numpy lacks."""
    import torch

    tensor = to_tensor(part)
    is_bits = isinstance(tensor, torch.Tensor) and tensor.dtype == torch.uint16
    return tensor.view(torch.bfloat16) if is_bits else tensor


def as_dtype(columns: Mapping[str, Any], chosen: Collection[str], dtype: Any) -> dict[str, Any]:
    """Columns of the engine's, the chosen ones as arrays of this dtype over the same memory, also within
    lists."""

    def viewed(part: Any) -> Any:
        return part.view(dtype) if isinstance(part, np.ndarray) else part

    return {name: walk(column, viewed) if name in chosen else column for name, column in columns.items()}


def as_tensors(columns: Mapping[str, Any], bfloat16: Collection[str], widens: bool) -> dict[str, Any]:
    """Columns of the engine's with tensors for arrays, also within lists, tuples and dicts; without a copy,
    but for those that are widened.

    :param bfloat16: names of those whose values are such numbers.
    """
    others = to_wide_tensor if widens else to_tensor
    return {
        name: walk(column, to_bfloat16 if name in bfloat16 else others) for name, column in columns.items()
    }
