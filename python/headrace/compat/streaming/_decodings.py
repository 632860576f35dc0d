"""Bytes of MDS and text columns to values, for shards that lie in a directory as copies."""

from __future__ import annotations

import io
import json
import pickle
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

from headrace.data.mds_values import (
    TYPE_BYTES,
    load_array,
    load_jpeg_array,
    load_list,
    load_pil,
    load_pil_list,
)

Decoder = Callable[[bytes], Any]


def open_image(data: Any) -> Any:
    """An encoded image, lazily decoded; what is none stays as it is."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return data
    from PIL import Image

    return Image.open(io.BytesIO(data))


def open_images(items: Any) -> Any:
    return [open_image(item) for item in items]


_PLAIN: dict[str, Decoder] = {
    "bytes": lambda data: data,
    "str": lambda data: data.decode(),
    "int": lambda data: struct.unpack("<q", data)[0],
    "str_int": lambda data: int(data.decode()),
    "str_float": lambda data: float(data.decode()),
    "str_decimal": lambda data: Decimal(data.decode()),
    "pil": load_pil,
    "jpeg": open_image,
    "png": open_image,
    "jpeg_array": lambda data: open_images(load_jpeg_array(data)),
    "jpegarray": lambda data: open_images(load_jpeg_array(data)),
    "list[pil]": load_pil_list,
    "list[jpeg]": lambda data: open_images(load_list(data)),
    "list[png]": lambda data: open_images(load_list(data)),
    "json": lambda data: json.loads(data.decode()),
    "pkl": pickle.loads,
}
UNSAFE = frozenset({"pkl"})


def _scalar(name: str) -> Decoder:
    dtype = np.dtype(name)

    def decode(data: bytes) -> Any:
        if len(data) != dtype.itemsize:
            raise ValueError(f"{len(data)} bytes are no {name}")
        return np.frombuffer(data, dtype)[0]

    return decode


def find_decoder(encoding: str) -> Decoder:
    """Of an MDS encoding. Raises ValueError for an unknown one."""
    if encoding in _PLAIN:
        return _PLAIN[encoding]
    if encoding in TYPE_BYTES:
        return _scalar(encoding)
    kind, _, config = encoding.partition(":")
    dtype, _, axes = config.partition(":")
    if kind != "ndarray" or (dtype and dtype not in TYPE_BYTES):
        raise ValueError(f"Unsupported encoding: {encoding}.")
    shape = tuple(map(int, axes.split(","))) if axes else ()
    return lambda data: load_array(data, dtype, shape)


TEXT_DECODERS: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
"""Of the columns of text shards."""
