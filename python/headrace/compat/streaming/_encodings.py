"""Values to the bytes that MDS shards hold, as mosaicml-streaming encodes them."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from headrace._writers import MDS_TYPE_BYTES

_SCALARS = tuple(MDS_TYPE_BYTES)


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


def _pil(image: Any) -> bytes:
    mode: bytes = image.mode.encode()
    head: bytes = np.array([*image.size, len(mode)], np.uint32).tobytes()
    pixels: bytes = image.tobytes()
    return head + mode + pixels


def _jpeg(image: Any) -> bytes:
    # The file itself where the image came from one: no second loss.
    name = getattr(image, "filename", "")
    if type(image).__name__ == "JpegImageFile" and name:
        try:
            with open(name, "rb") as file:
                return file.read()
        except FileNotFoundError:
            pass
    return _saved(image, "JPEG")


def _saved(image: Any, format: str) -> bytes:
    out = io.BytesIO()
    image.save(out, format=format)
    return out.getvalue()


def _image(encode: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    def checked(value: Any) -> bytes:
        from PIL import Image

        return _of(Image.Image, encode)(value)

    return checked


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
    "pil": Encoder(None, _image(_pil)),
    "jpeg": Encoder(None, _image(_jpeg)),
    "png": Encoder(None, _image(lambda image: _saved(image, "PNG"))),
    "jpeg_array": Encoder(None, _jpeg_array),
    "jpegarray": Encoder(None, _jpeg_array),
    "list[pil]": Encoder(None, _list(_image(_pil))),
    "list[jpeg]": Encoder(None, _list(_image(_jpeg))),
    "list[png]": Encoder(None, _list(_image(lambda image: _saved(image, "PNG")))),
    "json": Encoder(None, _json),
    "pkl": Encoder(None, pickle.dumps),
}


def _scalar(name: str) -> Encoder:
    dtype = np.dtype(name)
    return Encoder(dtype.itemsize, lambda value: dtype.type(value).tobytes())


def _shape_head(shape: tuple[int, ...]) -> bytes:
    """One byte of axes and width, then the axes in the narrowest width that holds them."""
    if not shape:
        raise ValueError("Attempting to encode a scalar with NDArray encoding. Please use a scalar encoding.")
    if len(shape) > 63:
        raise ValueError(f"Array has too many axes: maximum 63, got {len(shape)}.")
    code = next(k for k in range(4) if max(shape) < 1 << (8 << k))
    axes: bytes = np.array(shape, f"<u{1 << code}").tobytes()
    return bytes([len(shape) << 2 | code]) + axes


def _ndarray(config: str) -> Encoder:
    parts = config.split(":") if config else []
    dtype = parts[0] if parts else None
    shape = tuple(map(int, parts[1].split(","))) if len(parts) == 2 else None
    if len(parts) > 2 or (dtype is not None and dtype not in MDS_TYPE_BYTES) or (shape is not None and min(shape) < 1):
        raise TypeError(f"ndarray:{config}: expected ndarray[:DTYPE[:AXIS,AXIS,...]]")

    def encode(value: Any) -> bytes:
        if value.dtype.name not in MDS_TYPE_BYTES:
            raise ValueError(f"Unsupported dtype: {value.dtype.name}.")
        if dtype is not None and value.dtype != dtype:
            raise ValueError(f"Wrong dtype: expected {dtype}, got {value.dtype.name}.")
        if value.size == 0:
            raise ValueError("Attempting to encode a numpy array with 0 elements.")
        if shape is not None and value.shape != shape:
            raise ValueError(f"Wrong shape: expected {shape}, got {value.shape}.")
        head = b"" if dtype is not None else bytes([MDS_TYPE_BYTES[value.dtype.name]])
        data: bytes = value.tobytes()
        return head + (b"" if shape is not None else _shape_head(value.shape)) + data

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
