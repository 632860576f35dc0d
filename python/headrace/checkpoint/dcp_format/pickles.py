"""Pickles of DCP and torch.save, by an unpickler that knows a few globals and calls nothing else.

What a pickle builds is plain: records of ours instead of torch's classes, made anew for each pickle, so that
nothing that one pickle does to a class is seen by another.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

from headrace.errors import CorruptError, UnsupportedError

__all__ = ["Storage", "StoredTensor", "read_metadata", "read_value"]

_METADATA = "torch.distributed.checkpoint.metadata"
_RECORDS = (
    *((_METADATA, name) for name in ("Metadata", "TensorStorageMetadata", "BytesStorageMetadata")),
    *((_METADATA, name) for name in ("ChunkStorageMetadata", "TensorProperties", "StorageMeta")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
)
_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "",
}


class Storage(NamedTuple):
    """Bytes of tensors: a record of the archive."""

    key: str
    dtype: str
    """As torch spells it; empty: the tensor says it."""


class StoredTensor(NamedTuple):
    storage: Storage
    dtype: str
    offset: int
    """Elements of the storage before its first."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Elements."""
    is_conj: bool = False
    """Its numbers are the conjugates of those in the storage."""
    is_neg: bool = False
    """Its numbers are those of the storage, negated."""


def read_metadata(data: bytes, where: str) -> Any:
    """Of a ``.metadata`` file: a record with the attributes of torch's Metadata. Raises UnsupportedError,
    naming the global, for a pickle that wants more than DCP's own; CorruptError for what is no pickle."""
    return _load(data, where, _metadata_globals(where))


def read_value(data: bytes, where: str) -> Any:
    """Of an archive's ``data.pkl``; tensors in it are StoredTensor. Raises as read_metadata()."""
    return _load(data, where, _value_globals(where))


def _load(data: bytes, where: str, known: dict[tuple[str, str], Any]) -> Any:
    try:
        return _Unpickler(io.BytesIO(data), where, known).load()
    except UnsupportedError:
        raise
    except Exception as error:  # Whatever a pickle that makes no sense may raise.
        raise CorruptError(f"{where}: is no pickle that can be read: {error!r:.200}") from None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, where: str, known: dict[tuple[str, str], Any]) -> None:
        super().__init__(file, encoding="utf-8")
        self._where, self._known = where, known

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._known:
            return self._known[module, name]
        dtype = _torch_dtype(module, name)
        if dtype is not None:
            return dtype
        raise _unknown(self._where, f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Storage:
        kind, storage, key = pid[:3]
        if kind != "storage" or not isinstance(key, str) or not isinstance(storage, Storage):
            raise ValueError(f"storage {pid!r:.80}")
        return storage._replace(key=key)


def _unknown(where: str, name: str) -> UnsupportedError:
    return UnsupportedError(
        f"{where}: its pickle wants {name}, which a checkpoint needs not; nothing was run. If you trust "
        "whoever wrote it, load it with torch and save it again"
    )


def _torch_dtype(module: str, name: str) -> Any:
    if module != "torch":
        return None
    import torch

    found = getattr(torch, name, None)
    return found if isinstance(found, torch.dtype) else None


def _record() -> Any:
    """A class whose objects have the attributes that a pickle gives them."""

    def take(self: Any, state: Any) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {"state": state})

    return type("Record", (), {"__setstate__": take, "__init__": take})


def _index() -> Any:
    """As MetadataIndex: equal where name and offset are."""
    kind = _record()
    kind.offset = None  # What has its default is not pickled.
    kind.key = property(lambda self: (self.fqn, None if self.offset is None else tuple(self.offset)))
    kind.__eq__ = lambda self, other: self.key == other.key
    kind.__hash__ = lambda self: hash(self.key)
    return kind


def _metadata_globals(where: str) -> dict[tuple[str, str], Any]:
    known: dict[tuple[str, str], Any] = {each: _record() for each in _RECORDS}
    memory_formats = _same()
    known |= {
        (_METADATA, "MetadataIndex"): _index(),
        (_METADATA, "_MEM_FORMAT_ENCODING"): memory_formats,
        ("builtins", "getattr"): _member_of(memory_formats, where),
        ("torch.serialization", "_get_layout"): _same(),
    }
    for module in ("pathlib", "pathlib._local"):
        for name in ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "Path"):
            known[module, name] = _joined()
    return known | _common_globals()


def _value_globals(where: str) -> dict[tuple[str, str], Any]:
    known = _common_globals()
    for module in ("torch", "torch.storage"):
        known |= {(module, name): Storage("", dtype) for name, dtype in _STORAGES.items()}
    known["torch._utils", "_rebuild_tensor_v2"] = _tensor(where, None, 6)
    known["torch._utils", "_rebuild_tensor_v3"] = _tensor(where, 6, 7)
    known["torch._utils", "_rebuild_parameter"] = _first()
    known["torch", "device"] = _device()
    return known


def _common_globals() -> dict[tuple[str, str], Any]:
    known: dict[tuple[str, str], Any] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch", "Size"): _size(),
    }
    for module in ("builtins", "__builtin__"):
        known |= {(module, kind.__name__): kind for kind in (set, frozenset, complex)}
    known["_codecs", "encode"] = _latin1()
    return known


# Functions are made anew for each pickle: it may set attributes of what it is given.


def _same() -> Callable[[Any], Any]:
    return lambda value: value


def _member_of(enumeration: Any, where: str) -> Callable[[Any, str], str]:
    """How Python 3.11.0 to 3.11.3 pickle a member of an enumeration: getattr(enumeration, name)."""

    def member(kind: Any, name: str) -> str:
        if kind is not enumeration:
            raise _unknown(where, f"builtins.getattr of {name!r:.80}")
        return name

    return member


def _first() -> Callable[..., Any]:
    return lambda value, *_: value


def _joined() -> Callable[..., str]:
    return lambda *parts: "/".join(parts)


def _size() -> Callable[..., Any]:
    import torch

    return lambda sizes=(): torch.Size(tuple(sizes))


def _device() -> Callable[..., Any]:
    import torch

    return lambda *names: torch.device(*names)


def _latin1() -> Callable[[str, str], bytes]:
    """How protocol 2 has bytes."""

    def encode(text: str, encoding: str) -> bytes:
        if encoding not in ("latin1", "latin-1"):
            raise ValueError(f"bytes as {encoding!r:.40}")
        return text.encode("latin-1")

    return encode


def _tensor(where: str, dtype_at: int | None, bits_at: int) -> Callable[..., StoredTensor]:
    """``dtype_at``: which argument is the dtype; None: the storage has it. ``bits_at``: which one says, where
    there are so many, what torch does to the numbers of the storage when they are read."""

    def rebuild(*arguments: Any) -> StoredTensor:
        storage, offset, shape, strides = arguments[:4]
        dtype = storage.dtype if dtype_at is None else str(arguments[dtype_at]).removeprefix("torch.")
        bits = (arguments[bits_at] if len(arguments) > bits_at else None) or {}
        unknown = bits.keys() - {"conj", "neg"}
        if unknown:
            raise UnsupportedError(
                f"{where}: a tensor of it is marked as {', '.join(sorted(map(repr, unknown)))}, which is not "
                "known here: load it with torch and save a plain copy of it"
            )
        is_conj, is_neg = bool(bits.get("conj")), bool(bits.get("neg"))
        return StoredTensor(storage, dtype, offset, tuple(shape), tuple(strides), is_conj, is_neg)

    return rebuild
