"""How a local file becomes an object: read into memory of our own, because what shortens a file that is
mapped ends the process."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Mapping

from headrace import _native
from headrace._native import ObjectInfo
from headrace.errors import ChangedError, InvalidArgumentError

PART_BYTES = 8 << 20
# S3 takes 10,000 parts: with parts that double after each 2,000 an object may have 500 GB.
PARTS_OF_ONE_SIZE = 2000


class _Source:
    """A file that is read once, in order."""

    def __init__(self, file: io.FileIO, path: str) -> None:
        self._file, self._path = file, path
        self._before = os.fstat(file.fileno())
        self.size = self._before.st_size if stat.S_ISREG(self._before.st_mode) else 0
        """0: not known. Files of /proc say so as well."""
        self._count = 0
        self._buffer = bytearray()

    def read(self, most: int) -> memoryview:
        """The next bytes, fewer than ``most`` only at the end. Valid until the next call."""
        if self.size:
            most = min(most, self.size - self._count)
        if len(self._buffer) < most:
            self._buffer = bytearray(most)
        view = memoryview(self._buffer)[:most]
        count = 0
        while count < most and (got := self._file.readinto(view[count:])):
            count += got
        self._count += count
        return view[:count]

    def check(self) -> None:
        """ChangedError: what was read is not one version of the file."""
        if not stat.S_ISREG(self._before.st_mode):
            return
        after = os.fstat(self._file.fileno())
        is_same = (after.st_size, after.st_mtime_ns) == (self._before.st_size, self._before.st_mtime_ns)
        if not is_same or (self.size and self._count != self.size):
            raise ChangedError(
                f"{self._path}: was written while it was read, or has not the {self.size} bytes that it "
                "says; nothing was stored"
            )


def put_file(
    store: _native.Store,
    key: str,
    path: str,
    *,
    if_absent: bool,
    settings: Mapping[str, object],
    memory_bytes: int,
) -> ObjectInfo:
    """Writes an object from the file at a path, or from what comes out of a pipe or device until it ends.
    Small ones, and with ``if_absent`` all, are one request; else a part of 8 MiB is held here.

    ChangedError: the file was written meanwhile, or ``if_absent`` and the object exists.
    InvalidArgumentError: ``if_absent``, and more than ``memory_bytes``.
    """
    with open(path, "rb", buffering=0) as file:
        source = _Source(file, path)
        if if_absent:
            whole = _read_all(source, key, memory_bytes)
            source.check()
            return store.put(key, whole, True, settings)
        if 0 < source.size <= 2 * PART_BYTES:
            part = source.read(source.size)
            is_all = True
        else:
            part = source.read(PART_BYTES)
            is_all = len(part) < PART_BYTES
        if is_all:
            source.check()
            return store.put(key, part, False, settings)
        return _put_parts(store, key, source, part, settings)


def _read_all(source: _Source, key: str, memory_bytes: int) -> bytearray:
    whole = bytearray()
    while len(whole) <= memory_bytes and source.size <= memory_bytes:
        part = source.read(PART_BYTES)
        if not part:
            return whole
        whole += part
    raise InvalidArgumentError(
        f"PUT {key}: with if_absent=True it is one request, and more than memory= ({memory_bytes} bytes): "
        "raise it"
    )


def _put_parts(
    store: _native.Store, key: str, source: _Source, part: memoryview, settings: Mapping[str, object]
) -> ObjectInfo:
    upload = _native.Upload(store, key, settings)
    part_bytes, count = PART_BYTES, 0
    try:
        while part:
            upload.put(part)
            count += 1
            if count % PARTS_OF_ONE_SIZE == 0:
                part_bytes *= 2
            part = source.read(part_bytes)
        source.check()
        return upload.finish()
    finally:
        upload.abort()
