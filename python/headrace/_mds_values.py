"""Values of MDS columns that hold images: made from their bytes, for the decoder."""

from __future__ import annotations

import struct
from typing import Any


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


def load_pil_list(data: bytes) -> list[Any]:
    """``list[pil]``."""
    if data[:4] != bytes(4):
        raise ValueError("its first word is not 0")
    return [load_pil(item) for item in _split(data, 4)]
