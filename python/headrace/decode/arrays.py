"""Arrays, text and sounds."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from headrace import _native
from headrace.base.units import whole_number
from headrace.decode.decoding import Decoding
from headrace.errors import InvalidArgumentError

__all__ = ["audio", "json", "ndarray", "npy", "npz", "sides_of", "text"]


def text() -> Decoding:
    """The bytes are UTF-8, else it is a bad sample: a list of str."""
    return Decoding(text, {}, _native.decode_as("str"))


def json() -> Decoding:
    """The bytes are JSON: a list of what they say. What is not UTF-8 is a bad sample; UTF-8 that is no JSON
    is never replaced, always an error."""
    return Decoding(json, {}, _native.decode_as("json"))


def npz() -> Decoding:
    """``.npz`` files: a list of dicts of arrays, each of at most 256 MiB. A broken file is never replaced,
    always an error."""
    return Decoding(npz, {}, _native.decode_as("npz:arrays"))


def ndarray(dtype: Any, shape: int | Sequence[int] = ()) -> Decoding:
    """Raw little-endian numbers in C order, every value of the same ``dtype`` and ``shape``: one array
    ``(samples, *shape)`` without a copy of its own. A value of another length is a bad sample."""
    kind, sides = _type("ndarray", dtype, shape)
    return Decoding(
        ndarray,
        {"dtype": kind.name, "shape": sides},
        _native.decode_array(kind.name, kind.itemsize, sides),
    )


def npy(dtype: Any = None, shape: int | Sequence[int] | None = None) -> Decoding:
    """``.npy`` files. With ``dtype`` and ``shape``, which every file must have: one array ``(samples,
    *shape)``; without: a list of arrays, and a broken file is never replaced, always an error."""
    if dtype is None and shape is None:
        return Decoding(npy, {}, _native.decode_as("npy"))
    if dtype is None or shape is None:
        raise InvalidArgumentError("npy: give dtype and shape both, or neither")
    kind, sides = _type("npy", dtype, shape)
    return Decoding(
        npy,
        {"dtype": kind.name, "shape": sides},
        _native.decode_npy(kind.name, kind.itemsize, sides, kind.newbyteorder("<").str),
    )


def audio(
    *,
    frames: int | None = None,
    channels: int = 1,
    mono: bool = False,
    sample_rate: int | None = None,
) -> Decoding:
    """WAV, FLAC, Ogg, AIFF and others to float32 in -1 .. 1.

    :param frames: cut, or fill up with zeros, to so many frames: one array ``(samples, frames, channels)``.
        None: a list of arrays ``(frames, channels)``.
    :param channels: with ``frames``: what every file has; another number is a bad sample.
    :param mono: the mean of all channels, as one.
    :param sample_rate: in Hz; a file with another one is a bad sample. Nothing is resampled.
    """
    if frames is not None:
        frames = whole_number("frames", frames, 33, least=1)
    channels = whole_number("channels", channels, 32, least=1, most=1024)
    if sample_rate is not None:
        sample_rate = whole_number("sample_rate", sample_rate, 31, least=1)
    arguments = {"frames": frames, "channels": channels, "mono": mono, "sample_rate": sample_rate}
    defaults = audio.__kwdefaults__ or {}
    given = {name: value for name, value in arguments.items() if value != defaults[name]}
    return Decoding(audio, given, _native.decode_audio(frames or 0, channels, mono, sample_rate or 0))


def _type(name: str, dtype: Any, shape: int | Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    import numpy as np

    kind = np.dtype(dtype)
    if kind.kind not in "biufc" or kind.itemsize > 16:
        raise InvalidArgumentError(f"{name}: dtype {kind} is not one of numbers")
    if kind != kind.newbyteorder("<"):
        raise InvalidArgumentError(
            f"{name}: dtype {kind.str} is big-endian, values here are little-endian; take the bytes as they "
            "are, or npy()"
        )
    return kind, sides_of(name, shape)


def sides_of(name: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape's sides. Raises InvalidArgumentError, in the name of who was given it, for other than whole
    numbers from 1 on."""
    try:
        sides = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError:
        raise InvalidArgumentError(f"{name}: shape={shape!r}: expected a whole number or several") from None
    if any(side < 1 for side in sides):
        raise InvalidArgumentError(f"{name}: shape {sides} has a side below 1")
    return sides
