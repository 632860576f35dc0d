"""Petastorm's Unischema, as far as it says how binary columns are coded, read without running what it holds.

Petastorm keeps a pickle of its schema in the Parquet metadata. Unpickling runs code that the file names, so
here every class of the pickle becomes a stand-in that only remembers its arguments, and names and opcodes
outside of short lists are refused. What is left takes memory and time in proportion to its bytes: only texts
are hashed, and nothing that the pickle names again is copied.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from headrace.errors import CorruptError, UnsupportedError

KEY = b"dataset-toolkit.unischema.v1"

_MOST_BYTES = 1 << 20  # A field takes some 200.
_MOST_ARRAY_BYTES = 256 << 20  # Unpacked: deflate makes up to a thousand bytes of one.
_MOST_ARGUMENTS = 32  # A UnischemaField has five.
_MOST_CLASSES = 256
# `dataset_toolkit` and `av`: names of petastorm before its release, which old files have.
_PACKAGES = ("petastorm", "dataset_toolkit", "av", "pyspark", "numpy")
_PLAIN = {
    ("collections", "OrderedDict"),
    ("decimal", "Decimal"),
    ("copyreg", "_reconstructor"),
    ("copy_reg", "_reconstructor"),
}
_BUILTIN_MODULES = ("builtins", "__builtin__")
_BUILTINS = {"object", "tuple", "str", "unicode", "int", "long", "float", "bool", "bytes", "set", "frozenset"}
_ENCODINGS = {"NdarrayCodec": "npy", "CompressedNdarrayCodec": "npz"}
_IMAGE_ENCODINGS = {".png": "png", ".jpeg": "jpeg", ".jpg": "jpeg"}


# fmt: off
_OPCODES = (
    pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP, pickle.POP_MARK,
    pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG, pickle.LONG1, pickle.LONG4,  # noqa: E501
    pickle.FLOAT, pickle.BINFLOAT, pickle.STRING, pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.BINBYTES, pickle.SHORT_BINBYTES,  # noqa: E501
    pickle.UNICODE, pickle.BINUNICODE, pickle.SHORT_BINUNICODE,
    pickle.TUPLE, pickle.EMPTY_TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.LIST, pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS,  # noqa: E501
    pickle.DICT, pickle.EMPTY_DICT, pickle.SETITEM, pickle.SETITEMS,
    pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.NEWOBJ, pickle.BUILD,
    pickle.GET, pickle.BINGET, pickle.LONG_BINGET, pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE,  # noqa: E501
)
# fmt: on


class _StandIn:
    """An object of a class that is not loaded."""

    __slots__ = ("__dict__", "arguments")

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments


def _reconstruct(cls: Any, base: Any = None, state: Any = None) -> Any:
    """copyreg._reconstructor, of stand-ins only."""
    return _make(cls, state if isinstance(state, tuple) else ())


def _ordered_dict(items: Any = ()) -> dict[str, Any]:
    """Of pairs in a list, as Python 2 wrote it, or to be filled."""
    made: dict[str, Any] = {}
    for key, value in items:
        _put(made, key, value)
    if items:
        items.clear()  # A pickle may name the list again and again.
    return made


def _put(target: Any, key: Any, value: Any) -> None:
    """Texts only: the hash of what a pickle can nest or share may take for ever, or the whole stack."""
    if type(target) is not dict or type(key) is not str:
        raise pickle.UnpicklingError("an item of something else than a dict with names as keys")
    target[key] = value


def _make(cls: Any, arguments: Any) -> Any:
    if not (isinstance(cls, type) and issubclass(cls, _StandIn)):
        raise pickle.UnpicklingError("makes something else than an object of a class")
    if type(arguments) is not tuple or len(arguments) > _MOST_ARGUMENTS:
        raise pickle.UnpicklingError(
            f"makes an object of something else than at most {_MOST_ARGUMENTS} arguments"
        )
    return cls(*arguments)


class _Opcodes(dict[int, Any]):
    def __missing__(self, code: int) -> Any:
        raise pickle.UnpicklingError(f"opcode {code:#04x}, which no schema needs")


# The unpickler in Python: the one in C reserves memory for any memo index that a pickle names.
class _Reader(pickle._Unpickler):
    # What load() makes; the stubs know of none.
    stack: list[Any]
    append: Any
    pop_mark: Any

    def __init__(self, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled), encoding="latin-1")
        self._classes: dict[tuple[str, str], type] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return _ordered_dict
        if name == "_reconstructor" and (module, name) in _PLAIN:
            return _reconstruct
        is_known = (
            module.split(".")[0] in _PACKAGES
            or (module, name) in _PLAIN
            or (module in _BUILTIN_MODULES and name in _BUILTINS)
        )
        if not is_known:
            raise UnsupportedError(
                f"Petastorm schema: names {module:.100}.{name:.100}, which no schema needs; not read"
            )
        if (module, name) not in self._classes and len(self._classes) == _MOST_CLASSES:
            raise UnsupportedError(f"Petastorm schema: names more than {_MOST_CLASSES} classes; not read")
        return self._classes.setdefault(
            (module, name), type(name.split(".")[-1], (_StandIn,), {"__slots__": ()})
        )

    def read_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        _put(self.stack[-1], key, value)

    def read_setitems(self) -> None:
        items = self.pop_mark()
        for key, value in zip(items[::2], items[1::2], strict=True):
            _put(self.stack[-1], key, value)

    def read_dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        for key, value in zip(items[::2], items[1::2], strict=True):
            _put(self.stack[-1], key, value)

    def read_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        is_ours = function is _ordered_dict or function is _reconstruct
        self.append(function(*arguments) if is_ours else _make(function, arguments))

    def read_newobj(self) -> None:
        arguments, cls = self.stack.pop(), self.stack.pop()
        self.append(_make(cls, arguments))

    def read_build(self) -> None:
        state = self.stack.pop()
        if isinstance(self.stack[-1], _StandIn) and type(state) is dict:
            self.stack[-1].__dict__ = state

    dispatch: ClassVar[dict[int, Any]] = _Opcodes(
        {code[0]: pickle._Unpickler.dispatch[code[0]] for code in _OPCODES}
        | {
            pickle.SETITEM[0]: read_setitem,
            pickle.SETITEMS[0]: read_setitems,
            pickle.DICT[0]: read_dict,
            pickle.REDUCE[0]: read_reduce,
            pickle.NEWOBJ[0]: read_newobj,
            pickle.BUILD[0]: read_build,
        }
    )


def read_codecs(pickled: bytes | None) -> dict[str, str]:
    """Encoding of each field that has a codec for binary data, by name; nothing when there is no schema."""
    if not pickled:
        return {}
    if len(pickled) > _MOST_BYTES:
        raise UnsupportedError(f"Petastorm schema: {len(pickled):,} bytes; at most {_MOST_BYTES:,} are read")
    try:
        fields = _Reader(pickled).load().__dict__["_fields"]
        return {name: encoding for name, field in fields.items() if (encoding := _encoding_of(field))}
    except UnsupportedError:
        raise
    except Exception as error:  # Whatever broken opcodes lead to.
        raise CorruptError(
            f"Petastorm schema: not readable ({type(error).__name__:.100}: {error!s:.200})"
        ) from None


def _encoding_of(field: Any) -> str:
    """A UnischemaField is (name, numpy type, shape, codec, nullable)."""
    codec = field.arguments[3]
    kind = type(codec).__name__
    if kind == "CompressedImageCodec":
        image_codec = codec.__dict__.get("_image_codec")
        return _IMAGE_ENCODINGS.get(image_codec, "bytes") if isinstance(image_codec, str) else "bytes"
    return _ENCODINGS.get(kind, "")


def load_npy(value: bytes) -> Any:
    """A value of Petastorm's NdarrayCodec. Raises ValueError, also for arrays of objects, which would be
    pickles."""
    return _only_value_errors(_array, value)


def load_npz(value: bytes) -> Any:
    """A value of CompressedNdarrayCodec: an ``.npz`` with the array ``arr``. Raises ValueError."""
    return _only_value_errors(lambda packed: _array(_unpack(packed)), value)


def load_npz_arrays(value: bytes) -> dict[str, Any]:
    """Of any ``.npz``: its arrays by name. Raises ValueError."""
    return _only_value_errors(_arrays, value)  # type: ignore[no-any-return]


def _only_value_errors(load: Callable[[bytes], Any], value: bytes) -> Any:
    """ValueError says that the value is broken (src/bindings/decode.cc); what broken ones raise in zipfile or
    numpy is of many kinds."""
    try:
        return load(value)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


_npy: Any = np.lib.format  # Without types in the stubs.
_HEADERS = {(1, 0): _npy.read_array_header_1_0, (2, 0): _npy.read_array_header_2_0}


def _array(value: bytes) -> Any:
    stream = io.BytesIO(value)
    version = _npy.read_magic(stream)
    if version == (3, 0):  # numpy has no public reader of its header.
        stream.seek(0)
        array = _npy.read_array(stream, allow_pickle=False)
        if stream.read(1):
            raise ValueError(f"bytes behind {array.dtype} and shape {array.shape}")
        return array
    if version not in _HEADERS:
        raise ValueError(f"version {version} of .npy is not known")
    shape, is_fortran, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise ValueError("an array of objects, which would be a pickle")
    data = bytearray(stream.read())
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data):,} bytes do not fit {dtype} and shape {shape}")
    return np.ndarray(shape, dtype, data, order="F" if is_fortran else "C")


def _unpack(value: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(value)) as packed:
        if "arr.npy" not in packed.namelist():
            raise ValueError("no array 'arr' in it")
        return _member(packed, packed.getinfo("arr.npy"))


def _arrays(value: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(value)) as packed:
        return {
            info.filename.removesuffix(".npy"): _array(_member(packed, info)) for info in packed.infolist()
        }


def _member(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.file_size > _MOST_ARRAY_BYTES:
        raise ValueError(f"an array of {info.file_size:,} bytes; at most {_MOST_ARRAY_BYTES:,} are unpacked")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"compression {info.compress_type}, which numpy does not write")
    return packed.read(info)
