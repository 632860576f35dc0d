"""Values to the bytes that MDS shards hold, as mosaicml-streaming encodes them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from headrace.data.mds_values import TYPE_BYTES, save_image, save_pil, save_shape

_SCALARS = tuple(TYPE_BYTES)


class Encoder(NamedTuple):
    """How a column's values become bytes."""

    size: int | None
    """Bytes of each value; None: varies."""
    encode: Callable[[Any], bytes]


def _of(kind: type, encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def checked(value: Any) -> bytes:
        if not isinstance(value, kind):
            raise AttributeError(f"data should be of type {kind}, but instead, found as {type(value)}")
        return encode(value)

    return checked


def _text(value: Any) -> bytes:
    return str(value).encode()


def _json(value: Any) -> bytes:
    return json.dumps(value.tolist() if isinstance(value, np.ndarray) else value).encode()


def _image(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def checked(value: Any) -> bytes:
        from PIL import Image

        return _of(Image.Image, encode)(value)

    return checked


_PIL = _image(save_pil)
_JPEG = _image(lambda image: save_image(image, "jpeg"))
_PNG = _image(lambda image: save_image(image, "png"))


def _sizes(items: list[bytes]) -> bytes:
    sizes: bytes = np.array([len(items), *map(len, items)], np.uint32).tobytes()
    return sizes


def _list(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def encode_list(values: Any) -> bytes:
        items = [encode(value) for value in values]
        return bytes(4) + _sizes(items) + b"".join(items)

    return _of(list, encode_list)


def _jpeg_array(values: Any) -> bytes:
    return _sizes(list(values)) + b"".join(values)


_PLAIN: dict[str, Encoder] = {
    "bytes": Encoder(None, _of(bytes, lambda value: value)),
    "str": Encoder(None, _of(str, lambda value: value.encode())),
    "int": Encoder(8, _of(int, lambda value: np.int64(value).tobytes())),
    "str_int": Encoder(None, _of(int, _text)),
    "str_float": Encoder(None, _of(float, _text)),
    "str_decimal": Encoder(None, _of(Decimal, _text)),
    "pil": Encoder(None, _PIL),
    "jpeg": Encoder(None, _JPEG),
    "png": Encoder(None, _PNG),
    "jpeg_array": Encoder(None, _jpeg_array),
    "jpegarray": Encoder(None, _jpeg_array),
    "list[pil]": Encoder(None, _list(_PIL)),
    "list[jpeg]": Encoder(None, _list(_JPEG)),
    "list[png]": Encoder(None, _list(_PNG)),
    "json": Encoder(None, _json),
    "pkl": Encoder(None, pickle.dumps),
}


def _scalar(name: str) -> Encoder:
    dtype = np.dtype(name)
    return Encoder(dtype.itemsize, lambda value: dtype.type(value).tobytes())


def _checked_shape(shape: tuple[int, ...]) -> bytes:
    if not shape:
        raise ValueError("Attempting to encode a scalar with NDArray encoding. Please use a scalar encoding.")
    return save_shape(shape)


def _ndarray(config: str) -> Encoder:
    parts = config.split(":") if config else []
    dtype = parts[0] if parts else None
    shape = tuple(map(int, parts[1].split(","))) if len(parts) == 2 else None
    if (
        len(parts) > 2
        or (dtype is not None and dtype not in TYPE_BYTES)
        or (shape is not None and min(shape) < 1)
    ):
        raise TypeError(f"ndarray:{config}: expected ndarray[:DTYPE[:AXIS,AXIS,...]]")

    def encode(value: Any) -> bytes:
        if value.dtype.name not in TYPE_BYTES:
            raise ValueError(f"Unsupported dtype: {value.dtype.name}.")
        if dtype is not None and value.dtype != dtype:
            raise ValueError(f"Wrong dtype: expected {dtype}, got {value.dtype.name}.")
        if value.size == 0:
            raise ValueError("Attempting to encode a numpy array with 0 elements.")
        if shape is not None and value.shape != shape:
            raise ValueError(f"Wrong shape: expected {shape}, got {value.shape}.")
        head = b"" if dtype is not None else bytes([TYPE_BYTES[value.dtype.name]])
        data: bytes = value.tobytes()
        return head + (b"" if shape is not None else _checked_shape(value.shape)) + data

    size = None if dtype is None or shape is None else int(np.prod(shape)) * np.dtype(dtype).itemsize
    return Encoder(size, encode)


def find_encoder(name: str) -> Encoder | None:
    """The encoder of an MDS encoding; None for an unknown one."""
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _SCALARS:
        return _scalar(name)
    kind, _, config = name.partition(":")
    return _ndarray(config) if kind == "ndarray" else None


def encoding_names() -> list[str]:
    return sorted([*_PLAIN, *_SCALARS, "ndarray"])
