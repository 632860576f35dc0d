"""Petastorm's Unischema, as far as it says how binary columns are coded, read without running what it holds.

Petastorm keeps a pickle of its schema in the Parquet metadata. Unpickling runs code that the file names, so here every class
of the pickle becomes a stand-in that only remembers its arguments, and names outside of a short list are refused.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np

from headrace.errors import CorruptError, UnsupportedError

KEY = b"dataset-toolkit.unischema.v1"

_MOST_BYTES = 16 << 20
# `dataset_toolkit` and `av`: names of petastorm before its release, which old files have.
_PACKAGES = ("petastorm", "dataset_toolkit", "av", "pyspark", "numpy")
_PLAIN = {("collections", "OrderedDict"), ("decimal", "Decimal"), ("copyreg", "_reconstructor"), ("copy_reg", "_reconstructor")}
_BUILTIN_MODULES = ("builtins", "__builtin__")
_BUILTINS = {"object", "tuple", "str", "unicode", "int", "long", "float", "bool", "bytes", "set", "frozenset"}
_ENCODINGS = {"NdarrayCodec": "npy", "CompressedNdarrayCodec": "npz"}
_IMAGE_ENCODINGS = {".png": "png", ".jpeg": "jpeg", ".jpg": "jpeg"}


class _StandIn:
    """An object of a class that is not loaded."""

    arguments: tuple[Any, ...]

    def __new__(cls, *arguments: Any) -> _StandIn:
        made = object.__new__(cls)
        made.__dict__["arguments"] = arguments
        return made

    def __init__(self, *arguments: Any) -> None: ...


def _reconstruct(cls: Any, base: Any = None, state: Any = None) -> Any:
    """copyreg._reconstructor, of stand-ins only."""
    if not (isinstance(cls, type) and issubclass(cls, _StandIn)):
        raise pickle.UnpicklingError("reconstructs something else than a class of petastorm")
    return cls(*state) if isinstance(state, tuple) else cls()


# The unpickler in Python: the one in C reserves memory for any memo index that a pickle names.
class _Reader(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if name == "_reconstructor" and (module, name) in _PLAIN:
            return _reconstruct
        is_known = module.split(".")[0] in _PACKAGES or (module, name) in _PLAIN or (module in _BUILTIN_MODULES and name in _BUILTINS)
        if not is_known:
            raise UnsupportedError(f"Petastorm schema: names {module}.{name}, which no schema needs; not read")
        return type(name.split(".")[-1], (_StandIn,), {})

    def persistent_load(self, pid: Any) -> Any:
        raise UnsupportedError("Petastorm schema: refers to objects outside of it; not read")


def read_codecs(pickled: bytes | None) -> dict[str, str]:
    """Encoding of each field that has a codec for binary data, by name; nothing when there is no schema."""
    if not pickled:
        return {}
    if len(pickled) > _MOST_BYTES:
        raise UnsupportedError(f"Petastorm schema: {len(pickled):,} bytes; at most {_MOST_BYTES:,} are read")
    try:
        schema = _Reader(io.BytesIO(pickled), encoding="latin-1").load()
        fields = schema.__dict__["_fields"]
        return {str(name): encoding for name, field in fields.items() if (encoding := _encoding_of(field))}
    except UnsupportedError:
        raise
    except Exception as error:  # Whatever broken opcodes lead to.
        raise CorruptError(f"Petastorm schema: not readable ({type(error).__name__}: {error})") from None


def _encoding_of(field: Any) -> str:
    """A UnischemaField is (name, numpy type, shape, codec, nullable)."""
    codec = field.arguments[3]
    kind = type(codec).__name__
    if kind == "CompressedImageCodec":
        return _IMAGE_ENCODINGS.get(str(codec.__dict__.get("_image_codec")), "bytes")
    return _ENCODINGS.get(kind, "")


def load_npy(value: bytes) -> Any:
    """A value of Petastorm's NdarrayCodec. Raises ValueError, also for arrays of objects, which would be pickles."""
    return np.load(io.BytesIO(value), allow_pickle=False)


def load_npz(value: bytes) -> Any:
    """A value of CompressedNdarrayCodec: an ``.npz`` with the array ``arr``."""
    with np.load(io.BytesIO(value), allow_pickle=False) as arrays:
        if "arr" not in arrays:
            raise ValueError("no array 'arr' in it")
        return arrays["arr"]
