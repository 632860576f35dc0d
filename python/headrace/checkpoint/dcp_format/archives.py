"""Archives of torch.save inside larger files: where the bytes of a tensor lie, by a few small reads."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headrace.checkpoint.dcp_format.pickles import read_value
from headrace.errors import CorruptError, HeadraceError, UnsupportedError
from headrace.store.store import Store

__all__ = ["Archive", "Item", "open_archives"]

_HEAD_BYTES, _TAIL_BYTES = 1024, 4096
_LOCAL_BYTES = 30


class Item(NamedTuple):
    """A range of a file."""

    key: str
    etag: str
    offset: int
    length: int


class Archive:
    """One archive. Raises CorruptError for what is none."""

    def __init__(self, item: Item, file: io.RawIOBase, where: str) -> None:
        self.item, self._file, self._where = item, file, where
        try:
            self._zip = zipfile.ZipFile(file)
            names = [name for name in self._zip.namelist() if name.endswith("/data.pkl")]
            (self._pickle,) = names
        except HeadraceError:
            raise
        except Exception as error:  # Whatever zipfile makes of damaged bytes.
            raise CorruptError(f"{where}: is no archive of torch.save: {error}") from None
        self._root = self._pickle.removesuffix("data.pkl")
        order = self._read(self._root + "byteorder", b"little")
        if order != b"little":
            raise UnsupportedError(
                f"{where}: was written on a machine with another order of bytes ({order!r:.20})"
            )

    def value(self) -> Any:
        """Tensors in it are StoredTensor."""
        return read_value(self._read(self._pickle), self._where)

    def place(self, storage: str) -> tuple[int, int]:
        """Of a storage's bytes: offset in the archive, and length."""
        try:
            info = self._zip.getinfo(f"{self._root}data/{storage}")
        except KeyError:
            raise CorruptError(f"{self._where}: has no storage {storage!r:.40}") from None
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise UnsupportedError(f"{self._where}: storage {storage} is compressed or encrypted")
        self._file.seek(info.header_offset)
        head = self._file.read(_LOCAL_BYTES) or b""
        if len(head) != _LOCAL_BYTES or head[:4] != b"PK\x03\x04":
            raise CorruptError(f"{self._where}: storage {storage} is not where the archive says")
        at = info.header_offset + _LOCAL_BYTES + sum(struct.unpack_from("<HH", head, 26))
        if at + info.file_size > self.item.length:
            raise CorruptError(f"{self._where}: storage {storage} ends behind the archive")
        return at, info.file_size

    def storage(self, key: str) -> bytes:
        self.place(key)
        return self._read(f"{self._root}data/{key}")

    def _read(self, name: str, default: bytes | None = None) -> bytes:
        try:
            return self._zip.read(name)
        except KeyError:
            if default is not None:
                return default
            raise CorruptError(f"{self._where}: has no {name}") from None
        except HeadraceError:
            raise
        except Exception as error:  # Whatever zipfile makes of damaged bytes.
            raise CorruptError(f"{self._where}: {error}") from None


def open_archives(store: Store, items: Iterable[Item], name_of: Callable[[Item], str]) -> list[Archive]:
    """Beginnings and ends of all are read at once, in parallel; the rest where it is needed."""
    items = list(items)
    wanted: list[tuple[str, int, int, str]] = []
    for each in items:
        head = min(each.length, _HEAD_BYTES + _TAIL_BYTES)
        spans = (
            [(0, each.length)]
            if head == each.length
            else [(0, _HEAD_BYTES), (each.length - _TAIL_BYTES, _TAIL_BYTES)]
        )
        wanted += [(each.key, each.offset + at, length, each.etag) for at, length in spans if length]
    found = {(each.key, each.offset): bytes(each.data) for each in store.get_ranges(wanted)}
    archives = []
    for each in items:
        where = f"{store.url}/{each.key}: {name_of(each)}"
        archives.append(Archive(each, _Sparse(store, each, found), where))
    return archives


class _Sparse(io.RawIOBase):
    """An item as a file of which some ranges have been read."""

    def __init__(self, store: Store, item: Item, found: dict[tuple[str, int], bytes]) -> None:
        self._store, self._item, self._at = store, item, 0
        starts = {0, max(0, item.length - _TAIL_BYTES)}
        self._known = [
            (at, found[item.key, item.offset + at])
            for at in sorted(starts)
            if (item.key, item.offset + at) in found
        ]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._item.length}[whence]
        if base + offset < 0:
            raise ValueError("an offset before the archive")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = max(0, self._item.length - self._at)
        size = left if size is None or size < 0 else min(size, left)
        data = self._range(self._at, size)
        self._at += size
        return data

    def _range(self, at: int, size: int) -> bytes:
        for begin, data in self._known:
            if begin <= at and at + size <= begin + len(data):
                return data[at - begin : at - begin + size]
        item = self._item
        return self._store.get_range(item.key, item.offset + at, size, etag=item.etag)
