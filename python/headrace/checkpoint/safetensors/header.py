"""The header of a safetensors file: judged as the safetensors package (0.8) judges it, no milder and no
stricter, since what one of two readers refuses the other must not misread."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace import _native
from headrace.errors import CorruptError, InvalidArgumentError, UnsupportedError

__all__ = ["LENGTH_BYTES", "MOST_HEADER_BYTES", "Header", "Stored", "header_length", "parse_header"]

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000
_FIELDS = ("dtype", "shape", "data_offsets")
_MOST = 2**64
_CHECKPOINTS = {
    b"HRPACKED": (
        "compression='zstd'",
        "headrace ckpt convert URL TARGET --to safetensors makes safetensors files of the checkpoint",
    ),
    b"HRSEALED": (
        "encryption_key=",
        "Checkpointer(url, encryption_key=...).load() reads the checkpoint, safetensors.save_sharded() "
        "writes what it gives",
    ),
}
"""What stands where a safetensors file has the length of its header."""


class Stored(NamedTuple):
    """A tensor of a file."""

    dtype: str
    """As safetensors spells it."""
    shape: tuple[int, ...]
    """Row-major. Of F4 two elements are a byte."""
    begin: int
    end: int
    """Bytes of the file, ``[begin, end)``."""


class Header(NamedTuple):
    tensors: Mapping[str, Stored]
    metadata: Mapping[str, str]


class _Object(dict[str, Any]):
    """A JSON object that remembers what came more than once: the last counts, but all must make sense."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs
        self.twice = set() if len(self) == len(pairs) else _repeated([key for key, _ in pairs])


def _repeated(keys: list[str]) -> set[str]:
    seen: set[str] = set()
    return {key for key in keys if key in seen or seen.add(key)}  # type: ignore[func-returns-value]


def header_length(first: bytes, size: int, where: str) -> int:
    """Bytes of the header, of a file of ``size`` bytes that begins with ``first``. Raises CorruptError,
    UnsupportedError (a data file of our own that is none)."""
    if size < LENGTH_BYTES or len(first) < LENGTH_BYTES:
        raise CorruptError(f"{where}: has {size} bytes, too few for a safetensors file")
    if first[:LENGTH_BYTES] in _CHECKPOINTS:
        option, way = _CHECKPOINTS[first[:LENGTH_BYTES]]
        raise UnsupportedError(
            f"{where}: is no safetensors file, but one of a checkpoint that was saved with {option}; {way}"
        )
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if length > MOST_HEADER_BYTES:
        raise CorruptError(
            f"{where}: says that its header has {length} bytes, more than the 100,000,000 that are allowed; "
            "is it a safetensors file?"
        )
    if LENGTH_BYTES + length > size:
        raise CorruptError(f"{where}: its header ends at byte {LENGTH_BYTES + length}, the file at {size}")
    return length


def parse_header(text: bytes, size: int, where: str) -> Header:
    """``text``: the header without its length; ``size``: of the file. Raises CorruptError, naming the
    tensor."""
    try:
        body = json.loads(
            text.decode(),
            object_pairs_hook=_Object,
            parse_int=_whole_number,
            parse_float=_fraction,
            parse_constant=_no_constant,
        )
        if b"\\u" in text:
            json.dumps(body, ensure_ascii=False).encode()  # Half a surrogate pair is no text.
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{where}: its header is no JSON: {error}") from None
    if not isinstance(body, _Object):
        raise CorruptError(f"{where}: its header is no JSON object")
    metadata = _metadata(body, where)
    data_at = LENGTH_BYTES + len(text)
    tensors = {name: _stored(name, row, where) for name, row in body.pairs if name != "__metadata__"}
    _check_cover(tensors, size - data_at, where)
    return Header(
        {
            name: each._replace(begin=data_at + each.begin, end=data_at + each.end)
            for name, each in tensors.items()
        },
        metadata,
    )


def _whole_number(text: str) -> int | float:
    """What does not fit 64 bits without a sign is a fraction, as for the package."""
    return float(text) if text.startswith("-") or len(text) > 20 or int(text) >= _MOST else int(text)


def _fraction(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text} is out of range")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _metadata(body: _Object, where: str) -> dict[str, str]:
    if "__metadata__" in body.twice:
        raise CorruptError(f"{where}: __metadata__ is there more than once")
    found = body.get("__metadata__")
    if found is None:
        return {}
    if not isinstance(found, _Object) or not all(isinstance(value, str) for _, value in found.pairs):
        raise CorruptError(f"{where}: __metadata__ is not texts by name")
    return dict(found)


def _stored(name: str, row: Any, where: str) -> Stored:
    """Offsets are still those in the data."""
    what = f"{where}: tensor {name!r}"
    if not isinstance(row, _Object):
        raise CorruptError(f"{what} is described by no JSON object")
    for field in _FIELDS:
        if field not in row:
            raise CorruptError(f"{what} has no {field}")
        if field in row.twice:
            raise CorruptError(f"{what} has more than one {field}")
    dtype, shape, offsets = (row[field] for field in _FIELDS)
    if not _are_sizes(shape):
        raise CorruptError(f"{what}: its shape is {shape!r:.80}, not a list of sizes")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise CorruptError(f"{what}: its data_offsets are {offsets!r:.80}, not two offsets")
    return Stored(_known(dtype, what), tuple(shape), *offsets)


def _known(dtype: Any, what: str) -> str:
    try:
        if isinstance(dtype, str):
            _native.bits_of_dtype(dtype)
            return dtype
    except InvalidArgumentError:
        pass
    raise CorruptError(f"{what}: {dtype!r:.80} is no dtype of the safetensors format")


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in value)


def _check_cover(tensors: Mapping[str, Stored], data_bytes: int, where: str) -> None:
    """Every byte of the data is one tensor's, and each has as many as its shape says."""
    at = 0
    for name, each in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        what = f"{where}: tensor {name!r}"
        if each.begin != at or each.end < each.begin:
            raise CorruptError(
                f"{what} lies at bytes {each.begin} to {each.end} of the data; the one before ends at {at}"
            )
        at = each.end
        bits = _bits(each, what)
        if bits % 8:
            raise CorruptError(f"{what}: its last element does not end on a byte")
        if bits // 8 != each.end - each.begin:
            raise CorruptError(
                f"{what}: {each.dtype}{list(each.shape)} has {bits // 8} bytes, not the "
                f"{each.end - each.begin} that it is given"
            )
    if at != data_bytes:
        raise CorruptError(
            f"{where}: its tensors have {at} bytes, and {data_bytes} follow the header; it was cut, or "
            "something was added"
        )


def _bits(each: Stored, what: str) -> int:
    count = 1
    for size in each.shape:
        count *= size
        if count >= _MOST:
            raise CorruptError(f"{what}: its size does not fit 64 bits")
    bits = count * _native.bits_of_dtype(each.dtype)
    if bits >= _MOST:
        raise CorruptError(f"{what}: its size does not fit 64 bits")
    return bits
