"""What msgpack has no type for: timestamps, and arrays as the package msgpack-numpy writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

_FIELDS = ("nd", "type", "kind", "shape", "data", "complex")
"""Source: encode() of msgpack_numpy 0.4.8, which has these names as bytes; packers may make str of them."""
_KINDS = "biufcmMSU?"  # Those whose bytes are the values.


def timestamp(seconds: int, nanoseconds: int) -> np.datetime64:
    """A timestamp, exactly. Raises ValueError for one that 64 bits of nanoseconds do not hold (1677 ..
    2262)."""
    since = seconds * 1_000_000_000 + nanoseconds
    if not -(1 << 63) < since < 1 << 63:
        raise ValueError(f"a timestamp of {seconds} seconds since 1970 is beyond numpy's datetime64[ns]")
    return np.datetime64(since, "ns")


def of_map(value: dict[Any, Any]) -> Any:
    """The array, numpy number or complex number that a map of msgpack-numpy is; another map as it is. Raises
    ValueError for one that is broken or holds pickles, which are never read."""
    fields = {name: value.get(name.encode(), value.get(name)) for name in _FIELDS}
    kind, data = fields["nd"], fields["data"]
    is_whole = fields["type"] is not None and (kind is False or fields["shape"] is not None)
    if isinstance(kind, bool) and is_whole and data is not None:
        return _array(fields)
    if fields["complex"] is True and isinstance(data, bytes | str):
        return complex(_text(data))
    return value


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _array(fields: dict[Any, Any]) -> Any:
    dtype = _dtype(fields["type"], _text(fields["kind"]))
    data, is_array = fields["data"], fields["nd"]
    if not isinstance(data, bytes):
        raise ValueError("an array of msgpack-numpy whose data are no bytes")
    shape = fields["shape"] if is_array else []
    if not isinstance(shape, list) or not all(isinstance(side, int) and side >= 0 for side in shape):
        raise ValueError("an array of msgpack-numpy without a shape")
    try:
        array = np.frombuffer(data, dtype).reshape(shape) if data else np.empty(shape, dtype)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"an array of msgpack-numpy: {error}") from None
    if array.nbytes != len(data):
        raise ValueError(
            f"an array of msgpack-numpy has {len(data)} bytes, not the {array.nbytes} of its shape"
        )
    return array.copy() if is_array else array[()]


def _dtype(given: Any, kind: Any) -> np.dtype[Any]:
    if kind == "O":
        raise ValueError("an array of Python objects: pickles can run any code when they are read")
    if kind == "V":
        if not isinstance(given, list):
            raise ValueError("an array of msgpack-numpy without a type")
        if not all(isinstance(field, list) for field in given):
            raise ValueError("an array of msgpack-numpy whose type is no list of fields")
        given = [tuple(map(_part, field)) for field in given]
    else:
        given = _text(given)
        if not isinstance(given, str):
            raise ValueError("an array of msgpack-numpy without a type")
    try:
        dtype = np.dtype(given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"an array of msgpack-numpy: {error}") from None
    if dtype.hasobject or (dtype.fields is None and dtype.kind not in _KINDS):
        raise ValueError(f"an array of msgpack-numpy of dtype {dtype}")
    return dtype


def _part(value: Any) -> Any:
    """Of a field's description: its name, its type, its shape."""
    return tuple(value) if isinstance(value, list) else _text(value)
