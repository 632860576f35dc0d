"""Copies of a stream's shards in a local directory, shared by all processes of a machine.

A file has its name only when it is whole and its bytes were compared with the index. Which shards are there,
how much they take and when each was last used are asked of the file system: there is nothing else to keep in
step, and what dies leaves nothing to repair.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace import _native
from headrace.compat.streaming._codecs import decompress, find_hash
from headrace.compat.streaming._file_lock import claim, locked_directory, partial_of, remove_if_abandoned
from headrace.compat.streaming._shards import INDEX, FileInfo, Reader, parse_index
from headrace.errors import CorruptError, HeadraceError, NotFoundError
from headrace.store.store import Store

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS = 0.005
# Compared without being asked for, if the index has one of them: the cheapest first.
_HASHES = ("xxh3_64", "xxh3_128", "xxh128", "xxh64", "xxh32", "blake2b", "sha1", "md5", "sha256", "sha512")

MakeRoom = Callable[[int, Callable[[], None]], None]


def _reserve_freely(size: int, reserve: Callable[[], None]) -> None:
    reserve()


class Copies:
    """Files of one directory and where they come from: ``remote``, or None when they must be there."""

    def __init__(
        self,
        remote: str | None,
        directory: str,
        *,
        retry: int = 2,
        timeout: float = 60,
        validate_hash: str | None = None,
        keep_zip: bool = False,
    ) -> None:
        self.remote, self.directory = remote, directory
        self._retry, self._timeout = retry, timeout
        self._validate_hash, self._keep_zip = validate_hash, keep_zip
        self._store: Store | None = None
        self._store_pid = 0
        self._remote_index: dict[str, object] | None = None
        self.make_room: MakeRoom = _reserve_freely

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_store": None}

    @property
    def patience(self) -> float:
        """Seconds that another process may take for a file."""
        return self._timeout * (1 + self._retry) + 1

    def _open_store(self) -> Store:
        if self.remote is None:
            raise FileNotFoundError(errno.ENOENT, "No `remote` to copy it from", self.directory)
        if self._store is None or self._store_pid != os.getpid():
            self._store, self._store_pid = Store(self.remote, timeout=self._timeout), os.getpid()
        return self._store

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    # Fetching.

    def _attempt(self, name: str, fetch: Callable[[], bytes | None]) -> bytes | None:
        """Calls ``fetch`` until it succeeds, 1 + ``download_retry`` times at most."""
        for left in range(self._retry, -1, -1):
            try:
                return fetch()
            except NotFoundError as error:
                raise FileNotFoundError(
                    errno.ENOENT, f"{os.strerror(errno.ENOENT)} ({error})", f"{self.remote}/{name}"
                ) from error
            except (HeadraceError, ValueError) as error:
                if not left:
                    raise
                logger.info("%s/%s is read again: %s", self.remote, name, error)
        raise AssertionError("unreachable")

    def fetch_index(self) -> str:
        """Makes sure that ``index.json`` is there. Returns its path."""
        path = self.path(INDEX)
        if os.path.exists(path):
            return path
        store = self._open_store()
        with claim(path, self.patience) as fd:
            if fd is not None:
                text = self._attempt(INDEX, lambda: store.get(INDEX)) or b""
                parse_index(text, f"{self.remote}/{INDEX}")
                _write(fd, text)
        return path

    def _check_version(self, name: str, file: FileInfo) -> None:
        """Refuses to put files of another version of the data set beside those that are here."""
        if self._remote_index is None:
            try:
                shards = parse_index(self._open_store().get(INDEX), f"{self.remote}/{INDEX}")
            except NotFoundError:
                shards = []  # an index of the user's making, with the shards of a place that has none
            files = [
                shard.get(f"{form}_{part}")
                for shard in shards
                for form in ("raw", "zip")
                for part in ("data", "meta")
            ]
            self._remote_index = {info["basename"]: info for info in files if info}
        there = self._remote_index.get(name)
        here = {"basename": name, "bytes": file.bytes, "hashes": file.hashes}
        if there is not None and there != here:
            raise ValueError(
                f"{self.path(INDEX)} is of another version of the data set than {self.remote}/{INDEX}: "
                f"{name} is {here} here and {there} there. Delete {self.directory}, or give another `local`"
            )

    def _check(self, file: FileInfo, digest: Callable[[Callable[[bytes], str]], str], where: str) -> None:
        name = self._validate_hash
        if name and name not in file.hashes:
            raise ValueError(
                f"Hash algorithm `{name}` chosen for data validation does not match with those provided "
                f"during dataset creation `{sorted(file.hashes)}`. Provide one of those."
            )
        for algorithm in [name] if name else [known for known in _HASHES if known in file.hashes]:
            try:
                function = find_hash(algorithm)
            except ImportError:
                if name:
                    raise
                continue
            if digest(function) != file.hashes[algorithm]:
                raise ValueError(f"Checksum failure: {where}")
            return

    def _get_checked(self, file: FileInfo) -> bytes:
        self._check_version(file.basename, file)
        store = self._open_store()

        def fetch() -> bytes:
            data = store.get(file.basename)
            if len(data) != file.bytes:
                raise CorruptError(
                    f"{self.remote}/{file.basename} has {len(data)} bytes, but {INDEX} says {file.bytes}"
                )
            self._check(file, lambda function: function(data), f"{self.remote}/{file.basename}")
            return data

        return self._attempt(file.basename, fetch) or b""

    def _read_into(self, fd: int, file: FileInfo) -> None:
        self._check_version(file.basename, file)
        store = self._open_store()

        def fetch() -> None:
            os.lseek(fd, 0, os.SEEK_SET)
            size = _native.read_stream(store._native, file.basename, fd)
            if size != file.bytes:
                raise CorruptError(
                    f"{self.remote}/{file.basename} has {size} bytes, but {INDEX} says {file.bytes}"
                )
            self._check(file, lambda function: _digest(fd, function), f"{self.remote}/{file.basename}")

        self._attempt(file.basename, fetch)

    # Shards.

    def prepare(self, shard: Reader) -> int:
        """Makes sure that a shard can be read. Returns by how many bytes the directory has grown."""
        return sum(self._prepare_pair(shard, raw, zipped) for raw, zipped in shard.file_pairs)

    def _prepare_pair(self, shard: Reader, raw: FileInfo, zipped: FileInfo | None) -> int:
        path = self.path(raw.basename)
        self._remove_unless_whole(path, raw)
        if os.path.exists(path):
            if zipped and not self._keep_zip and self.remote is not None:
                return -zipped.bytes * _remove(self.path(zipped.basename))
            return 0
        with claim(path, self.patience) as fd:
            if fd is None:
                return 0
            if zipped and shard.compression:
                return raw.bytes + self._inflate_into(fd, shard.compression, raw, zipped)
            self.make_room(raw.bytes, lambda: os.ftruncate(fd, raw.bytes))
            self._read_into(fd, raw)
        return raw.bytes

    def _inflate_into(self, fd: int, compression: str, raw: FileInfo, zipped: FileInfo) -> int:
        """Returns by how much the directory has grown for the compressed file."""
        data, grown = self._take_zip(zipped), 0
        if data is not None:
            self.make_room(raw.bytes, lambda: os.ftruncate(fd, raw.bytes))
            grown = (
                0
                if self._keep_zip or self.remote is None
                else -zipped.bytes * _remove(self.path(zipped.basename))
            )
        elif self._keep_zip:
            with claim(self.path(zipped.basename), self.patience) as zip_fd:
                self.make_room(
                    raw.bytes + zipped.bytes, lambda: _reserve([(fd, raw.bytes), (zip_fd, zipped.bytes)])
                )
                data = self._get_checked(zipped)
                if zip_fd is not None:
                    _write(zip_fd, data)
                    grown = zipped.bytes
        else:
            self.make_room(raw.bytes, lambda: os.ftruncate(fd, raw.bytes))
            data = self._get_checked(zipped)
        _write(fd, decompress(compression, data, raw.bytes))
        return grown

    def _take_zip(self, zipped: FileInfo) -> bytes | None:
        """The compressed file, if it is here."""
        path = self.path(zipped.basename)
        self._remove_unless_whole(path, zipped)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        self._check(zipped, lambda function: function(data), path)
        return data

    def _remove_unless_whole(self, path: str, file: FileInfo) -> None:
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_size != file.bytes:
                if self.remote is None:
                    raise CorruptError(
                        f"{path} has {os.stat(path).st_size} bytes, but {INDEX} says {file.bytes}"
                    )
                _remove(path)

    def clear_abandoned(self, shards: Sequence[Reader]) -> None:
        """Removes what killed processes left half made."""
        for directory, names in self._listing(shards).items():
            for name in names:
                if name.endswith(partial_of("")):
                    remove_if_abandoned(os.path.join(directory, name.removesuffix(partial_of(""))))

    def _listing(self, shards: Sequence[Reader]) -> dict[str, list[str]]:
        """The names in each directory that has shards."""
        directories = {
            os.path.dirname(self.path(file.basename))
            for shard in shards
            for pair in shard.file_pairs
            for file in pair
            if file
        }
        found = {}
        for directory in directories:
            with contextlib.suppress(FileNotFoundError):
                found[directory] = os.listdir(directory)
        return found


class Room:
    """A limit on what the copies of a data set take, all streams and all processes together.

    Deciding is one process's at a time, under the lock of the first directory; a file under way counts in
    full.
    """

    def __init__(self, copies: Sequence[tuple[Copies, Sequence[Reader]]], limit: int | None) -> None:
        self._first, self._limit = copies[0][0], limit
        self._shards = [shard for _, shards in copies for shard in shards]
        files = [
            (number, shard.path(file))
            for number, shard in enumerate(self._shards)
            for pair in shard.file_pairs
            for file in pair
            if file
        ]
        self._shard_of = {path: number for number, path in files}
        # What counts but cannot go.
        self._partial = {partial_of(path): path for _, path in files}
        self._indexes = {place.path(INDEX) for place, _ in copies}
        self._directories = {os.path.dirname(path) for path in [*self._shard_of, *self._indexes]}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with locked_directory(self._first.directory, self._first.patience):
            yield

    def _scan(self) -> tuple[int, list[tuple[int, int, int]]]:
        """Bytes in use, and the shards that could go: (last use, bytes, number)."""
        used = 0
        shards: dict[int, tuple[int, int]] = {}
        seen: set[int] = set()
        for path in self._listed():
            size, used_at, inode = _look(path)
            if inode in seen:
                continue
            seen.add(inode)
            used += size
            if path in self._shard_of:
                number = self._shard_of[path]
                before = shards.get(number, (0, 0))
                shards[number] = max(before[0], used_at), before[1] + size
        return used, [(used_at, size, number) for number, (used_at, size) in shards.items()]

    def _listed(self) -> Iterator[str]:
        """Files that count.

        One that is being made may get its name between the listing and the look at it, and another process
        that wanted it, too, may have begun an empty one beside it: both places are looked at, in this order.
        """
        for directory in self._directories:
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(directory):
                    path = os.path.join(directory, name)
                    if path in self._shard_of or path in self._partial or path in self._indexes:
                        yield path
                    if path in self._partial:
                        yield self._partial[path]

    @property
    def used(self) -> int:
        """Bytes of the copies and their indexes. Under the lock: else what goes and what comes meanwhile
        would both count."""
        with self._locked():
            return self._scan()[0]

    def make(self, size: int, reserve: Callable[[], None]) -> None:
        """Removes shards, those that were not used for longest first, until ``size`` bytes more are within
        the limit; then reserves."""
        if self._limit is None:
            return reserve()
        deadline = time.monotonic() + self._first.patience
        while True:
            with self._locked():
                if self._fits(size):
                    return reserve()
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"no {size} bytes became free below the cache limit of {self._limit}: raise `cache_limit`"
                )
            time.sleep(_LOOK_AGAIN_SECONDS)

    def _fits(self, size: int) -> bool:
        assert self._limit is not None
        used, shards = self._scan()
        for _, whole, number in sorted(shards):
            if used + size <= self._limit:
                break
            self._shards[number].evict()
            used -= whole
        return used + size <= self._limit

    def evict_coldest(self) -> bool:
        """Removes the shard that was not used for longest. False when there is none."""
        with self._locked():
            shards = self._scan()[1]
            if shards:
                self._shards[min(shards)[2]].evict()
            return bool(shards)


def touch(path: str) -> None:
    """Notes that a file is used now; not by the kernel, which may be told to leave access times alone."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        os.utime(path, ns=(time.time_ns(), os.stat(path).st_mtime_ns))


def _look(path: str) -> tuple[int, int, int]:
    """Size, last use and inode of a file; zeros where there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0, 0
    return found.st_size, found.st_atime_ns, found.st_ino


def _reserve(sizes: Sequence[tuple[int | None, int]]) -> None:
    for fd, size in sizes:
        if fd is not None:
            os.ftruncate(fd, size)


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def _write(fd: int, data: bytes) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.ftruncate(fd, len(data))


def _digest(fd: int, function: Callable[[Any], str]) -> str:
    size = os.fstat(fd).st_size
    if not size:
        return function(b"")
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as view:
        return function(view)
