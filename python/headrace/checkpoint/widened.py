"""Saved arrays as numpy has them: what it lacks (bfloat16, eight-bit floats) becomes float32, exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.checkpoint.loading import read_bytes
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.place import Place
from headrace.errors import NotFoundError

__all__ = ["read_array"]

_DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
    "C64": "<c8",
}


class _Eight(NamedTuple):
    """A float of eight bits: sign, exponent, mantissa."""

    mantissa_bits: int
    bias: int
    has_infinity: bool = False
    is_fn: bool = False
    """Only all ones are not a number (e4m3fn)."""
    is_fnuz: bool = False
    """Minus zero is the one that is not a number."""


_EIGHTS = {
    "F8_E4M3": _Eight(3, 7, is_fn=True),
    "F8_E5M2": _Eight(2, 15, has_infinity=True),
    "F8_E4M3FNUZ": _Eight(3, 8, is_fnuz=True),
    "F8_E5M2FNUZ": _Eight(2, 16, is_fnuz=True),
}
"""OCP 8-bit floating point specification 1.0, and https://arxiv.org/abs/2206.02915 for FNUZ."""


def read_array(place: Place, manifest: Manifest, name: str) -> np.ndarray[Any, Any]:
    """One array, whole, every byte proved. Raises NotFoundError, naming those that are alike."""
    names = [array.name for array in manifest.arrays]
    if name not in names:
        import difflib

        near = difflib.get_close_matches(name, names, 5, 0.5) or names[:5]
        raise NotFoundError(
            f"{place.url}: step {manifest.step} has no array {name!r}"
            + (f"; there is {', '.join(near)}" if near else "")
        )
    number = names.index(name)
    array = manifest.arrays[number]
    return _widened(read_bytes(place, manifest, number), array.dtype).reshape(array.shape)


def _widened(data: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "BF16":
        return (data.view("<u2").astype("<u4") << 16).view("<f4")
    if dtype == "F8_E8M0":
        return np.take(_powers(), data)
    if dtype in _EIGHTS:
        return np.take(_values(_EIGHTS[dtype]), data)
    return data.view(_DTYPES[dtype])


def _powers() -> np.ndarray[Any, Any]:
    return np.append(np.ldexp(1.0, np.arange(255) - 127), np.nan).astype("<f4")


def _values(kind: _Eight) -> np.ndarray[Any, Any]:
    """Of all 256 bit patterns."""
    codes = np.arange(256)
    mantissa = codes & ((1 << kind.mantissa_bits) - 1)
    top = (1 << (7 - kind.mantissa_bits)) - 1
    exponent = (codes >> kind.mantissa_bits) & top
    fraction = mantissa / (1 << kind.mantissa_bits)
    values = np.where(
        exponent == 0,
        np.ldexp(fraction, 1 - kind.bias),
        np.ldexp(1 + fraction, exponent - kind.bias),
    )
    values = np.where(codes & 0x80, -values, values)
    if kind.has_infinity:
        special = np.where(mantissa == 0, np.where(codes & 0x80, -np.inf, np.inf), np.nan)
        values = np.where(exponent == top, special, values)
    if kind.is_fn:
        values = np.where(codes & 0x7F == 0x7F, np.nan, values)
    if kind.is_fnuz:
        values = np.where(codes == 0x80, np.nan, values)
    return values.astype("<f4")
