"""Values of MDS columns and their bytes: images for the decoder; images and arrays for writers, as
mosaicml-streaming encodes them."""

from __future__ import annotations

import io
import math
import struct
from typing import Any

import numpy as np

TYPE_BYTES = {
    "uint8": 8,
    "int8": 9,
    "uint16": 16,
    "int16": 17,
    "float16": 18,
    "uint32": 32,
    "int32": 33,
    "float32": 34,
    "uint64": 64,
    "int64": 65,
    "float64": 66,
}
"""What stands for a dtype before an array of column ``ndarray``."""
_DTYPES = {byte: name for name, byte in TYPE_BYTES.items()}


def save_shape(shape: tuple[int, ...]) -> bytes:
    """A byte (dimensions << 2 | k), then dimensions of 2**k bytes, the fewest that hold the largest.
    ``shape`` is not empty."""
    k = next(k for k in range(4) if max(shape) < 1 << (8 << k))
    return bytes([len(shape) << 2 | k]) + np.array(shape, f"<u{1 << k}").tobytes()


def save_pil(image: Any) -> bytes:
    """``pil``: size, mode and pixels of an image of Pillow."""
    mode: bytes = image.mode.encode()
    head: bytes = np.array([*image.size, len(mode)], "<u4").tobytes()
    pixels: bytes = image.tobytes()
    return head + mode + pixels


def save_image(image: Any, format: str) -> bytes:
    """``jpeg``, ``png``: the image's file. A JPEG that was opened from a file is that file: no second
    loss."""
    name = getattr(image, "filename", "")
    if format == "jpeg" and type(image).__name__ == "JpegImageFile" and name:
        try:
            with open(name, "rb") as file:
                return file.read()
        except FileNotFoundError:
            pass
    out = io.BytesIO()
    image.save(out, format=format.upper())
    return out.getvalue()


def _split(data: bytes, at: int) -> list[bytes]:
    """``u32 n; u32 size[n]`` from ``at`` on, then the items back to back."""
    if len(data) < at + 4:
        raise ValueError("it ends inside of its header")
    (count,) = struct.unpack_from("<I", data, at)
    begin = at + 4 + 4 * count
    if begin > len(data):
        raise ValueError("it ends inside of its sizes")
    items = []
    for size in struct.unpack_from(f"<{count}I", data, at + 4):
        items.append(data[begin : begin + size])
        begin += size
    if begin != len(data):
        raise ValueError(f"its items end at {begin} of {len(data)} bytes")
    return items


def load_jpeg_array(data: bytes) -> list[bytes]:
    """``jpeg_array``: the encoded images."""
    return _split(data, 0)


def load_pil(data: bytes) -> Any:
    """``pil``: an image of Pillow; without Pillow a tuple (mode, (width, height), pixels)."""
    if len(data) < 12:
        raise ValueError("it ends inside of its header")
    width, height, mode_bytes = struct.unpack_from("<3I", data)
    if mode_bytes > len(data) - 12:
        raise ValueError("it ends inside of its mode")
    mode, pixels = data[12 : 12 + mode_bytes].decode(), data[12 + mode_bytes :]
    try:
        from PIL import Image
    except ImportError:
        return mode, (width, height), pixels
    return Image.frombytes(mode, (width, height), pixels)


def load_list(data: bytes) -> list[bytes]:
    """``list[...]``: the encoded items."""
    if data[:4] != bytes(4):
        raise ValueError("its first word is not 0")
    return _split(data, 4)


def load_pil_list(data: bytes) -> list[Any]:
    """``list[pil]``."""
    return [load_pil(item) for item in load_list(data)]


def load_array(data: bytes, dtype: str = "", shape: tuple[int, ...] = ()) -> Any:
    """``ndarray``: of this dtype and shape, or of those that stand before it."""
    at = 0
    if not dtype:
        dtype, at = _DTYPES.get(data[0], "") if data else "", 1
        if not dtype:
            raise ValueError("unknown array type byte")
    if not shape:
        shape, at = _load_shape(data, at)
    kind = np.dtype(dtype)
    if len(data) - at != math.prod(shape) * kind.itemsize:
        raise ValueError("the length does not fit the array's header")
    return np.frombuffer(data, kind, offset=at).reshape(shape).copy()


def _load_shape(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """A shape as save_shape() writes it, and where it ends."""
    if len(data) <= at:
        raise ValueError("it ends inside of its header")
    width, count = 1 << (data[at] & 3), data[at] >> 2
    end = at + 1 + width * count
    if end > len(data):
        raise ValueError("it ends inside of its header")
    return tuple(np.frombuffer(data[at + 1 : end], f"<u{width}").tolist()), end
