"""Compressions and hashes of MDS files, by the same libraries that mosaicml-streaming uses: equal bytes."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import _native

if TYPE_CHECKING:
    from typing_extensions import Buffer


def _library(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"this compression needs the package {package}: pip install {package}") from error


# Family: default level, levels, function.
_FAMILIES: dict[str, tuple[int | None, range, Callable[[bytes, int | None], bytes]]] = {
    "br": (11, range(12), lambda data, level: _library("brotli", "brotli").compress(data, quality=level)),
    "bz2": (9, range(1, 10), lambda data, level: bz2.compress(data, level or 9)),
    "gz": (9, range(10), lambda data, level: gzip.compress(data, 9 if level is None else level)),
    "snappy": (None, range(0), lambda data, level: _library("snappy", "python-snappy").compress(data)),
    "zstd": (3, range(1, 23), lambda data, level: _library("zstd", "zstd").compress(data, level)),
}


def _split(name: str) -> tuple[str, int | None]:
    family, colon, level = name.partition(":")
    default, levels, _ = _FAMILIES.get(family, (None, range(0), None))
    if family not in _FAMILIES or (colon and (not level.isdigit() or int(level) not in levels)):
        raise ValueError(f"Invalid compression: {name}.")
    return family, int(level) if colon else default


def compression_extension(name: str) -> str:
    """``"zstd:7"`` -> ``"zstd"``. Raises ValueError for an unknown one."""
    return _split(name)[0]


def compress(name: str, data: bytes) -> bytes:
    family, level = _split(name)
    return _FAMILIES[family][2](data, level)


def decompress(name: str, data: Buffer, raw_bytes: int) -> bytes:
    """By the engine. Raises CorruptError for more or fewer bytes than ``raw_bytes``."""
    return _native.inflate(_split(name)[0], data, raw_bytes)


def _hashes() -> dict[str, Callable[..., Any]]:
    found = {
        name: getattr(hashlib, name)
        for name in hashlib.algorithms_available
        if hasattr(hashlib, name) and not name.startswith("shake_")
    }
    try:
        xxhash = importlib.import_module("xxhash")
    except ImportError:
        return found
    return found | {name: getattr(xxhash, name) for name in xxhash.algorithms_available}


def hash_names() -> set[str]:
    """Of all hashes; those of the package xxhash where it is installed."""
    return set(_hashes())


def find_hash(name: str) -> Callable[[Any], str]:
    """A function to the hex digest. Raises ValueError for an unknown name."""
    if name.startswith("xxh"):
        _library("xxhash", "xxhash")
    function = _hashes().get(name)
    if function is None:
        raise ValueError(f"Invalid hash: {name}.")
    return lambda data: str(function(data).hexdigest())
