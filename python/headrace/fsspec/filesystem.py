"""The file system: what blocks is written out, and runs in the caller's thread; coroutines run that on
threads of ours (docs/design/0046-fsspec.md)."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import fsspec.asyn
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.compression import compr
from fsspec.core import get_compression
from fsspec.implementations.local import trailing_sep
from fsspec.registry import registry
from fsspec.utils import other_paths, stringify_path

from headrace import _native
from headrace.base.new_file import new_file
from headrace.base.units import parse_bytes
from headrace.errors import (
    ChangedError,
    DeniedError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    error_of,
)
from headrace.fsspec import getting, listing, moving, transactions
from headrace.fsspec.files import AwaitedFile, ReadFile
from headrace.fsspec.listing import Entry
from headrace.fsspec.locations import Location
from headrace.fsspec.moving import Copied
from headrace.fsspec.opened import Opened, Stores
from headrace.fsspec.options import shown, store_options
from headrace.fsspec.ranges import Range, read_ranges
from headrace.fsspec.reading import BLOCK_BYTES, Room
from headrace.fsspec.threads import THREADS, for_each
from headrace.fsspec.transactions import Transaction
from headrace.fsspec.writing import CompressedFile, TextFile, WrittenFile
from headrace.store.store import Store
from headrace.store.tiers import CacheChoice


def _plain(path: Any) -> Any:
    """Paths as text, of one or a list."""
    return [stringify_path(one) for one in path] if isinstance(path, list | tuple) else stringify_path(path)


def _check_writing(mode: str) -> None:
    if mode not in ("overwrite", "create"):
        raise InvalidArgumentError(f'mode={mode!r}: expected "overwrite" or "create"')


def _coroutine(name: str) -> Any:
    async def call(self: HeadraceFileSystem, *arguments: Any, **options: Any) -> Any:
        return await self.in_thread(lambda: getattr(self, name)(*arguments, **options))

    call.__name__ = call.__qualname__ = f"_{name}"
    return call


class _Visit(NamedTuple):
    """A directory that is to be listed."""

    folder: str
    depth: int
    above: tuple[Any, ...]
    """The identities of those that it was found through."""


class HeadraceFileSystem(fsspec.asyn.AsyncFileSystem):  # type: ignore[misc]
    """Objects of the stores of one kind, for fsspec and what reads through it.

    Any thread, below a running event loop too, and in children of ``fork()``. Methods with an underscore are
    coroutines for ``asynchronous=True``; those without block, and take Ctrl-C. Errors are those of Headrace.
    Directories are what the names of objects imply: making one does nothing, an empty one is not there.

    :param cache: directory in which what is read is kept (docs/cache.md), with ``cache_limit``; or what nodes
        share, or a list of both.
    :param memory: limit of the bytes under way in each bucket; and, as much again, of what all open files
        together have read ahead.
    :param options: those of ``Store`` (:class:`headrace.StoreOptions`); ``key``, ``secret``, ``token``,
        ``anon``, ``endpoint_url`` and ``client_kwargs`` of s3fs are understood.
    """

    _pid: int
    scheme: ClassVar[str]
    """Of its URLs for ``Store``."""
    can_list: ClassVar[bool] = True
    transaction_type = Transaction
    blocksize = BLOCK_BYTES

    def __init__(
        self,
        *,
        memory: int | str = "256MiB",
        cache: CacheChoice = None,
        cache_limit: int | str | None = None,
        asynchronous: bool = False,
        loop: Any = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(asynchronous=asynchronous, loop=loop, batch_size=batch_size)
        known = store_options(options)
        if cache is not None:
            known["cache"] = cache
        if cache_limit is not None:
            known["cache_limit"] = cache_limit
        self._is_cached = bool(cache)
        self._stores = Stores(memory, known)
        self._room = Room(parse_bytes(memory))

    # --- where things are ---

    @property
    def loop(self) -> Any:
        # fsspec's own refuses to work after a fork(); its loop for the child is another one.
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else fsspec.asyn.get_loop()
        return self._loop

    @classmethod
    def _place(cls, path: str) -> Location:
        """Of a path without protocol."""
        raise NotImplementedError

    def _open_at(self, path: str) -> tuple[Opened, Location]:
        place = self._place(path)
        return self._stores.get(place.root), place

    def locate(self, path: str) -> tuple[Store, str]:
        """The store that holds a path, and the key in it."""
        opened, place = self._open_at(self._strip_protocol(path))
        if not place.key:
            raise InvalidArgumentError(f"{path}: names no object")
        return opened.store, place.key

    def locate_to_write(self, path: str) -> tuple[Store, str]:
        """As :meth:`locate`, of what a write to a path replaces."""
        return self.locate(path)

    def stores(self) -> dict[str, Store]:
        """Those that are open now, by URL: for ``stats()``."""
        return self._stores.all()

    def close(self) -> None:
        """Ends what is under way and the threads of the stores. They are opened again when they are used."""
        self._stores.close()

    def forget(self, path: str) -> None:
        """Of an object that was written: what was known of its version."""
        opened, place = self._open_at(self._strip_protocol(path))
        opened.versions.forget(place.key)

    def forget_below(self, path: str) -> None:
        """As :meth:`forget`, of all below a directory, too."""
        opened, place = self._open_at(self._strip_protocol(path))
        opened.versions.forget_below(place.key)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forgets which version objects had a moment ago, those at and below a path or all: the next read
        asks for it."""
        if path is None:
            self._stores.forget()
        else:
            self.forget_below(path)

    def unstrip_protocol(self, name: str) -> str:
        """A URL that fsspec opens with this class again: with ``s3://`` only where that was registered."""
        name = str(self._strip_protocol(name))
        registered = registry.get(self.scheme)
        scheme = self.scheme if registered is type(self) else f"hr+{self.scheme}"
        return f"{scheme}://{name}"

    def to_dict(self, *, include_password: bool = True) -> dict[str, Any]:
        found: dict[str, Any] = super().to_dict(include_password=include_password)
        return found if include_password else shown(found)

    async def in_thread(self, call: Callable[[], Any]) -> Any:
        """The result of what blocks, without blocking the loop."""
        return await asyncio.wrap_future(THREADS.submit(call))

    # --- what is there ---

    def info(self, path: str, **_: Any) -> Entry:
        path = self._strip_protocol(path)
        opened, place = self._open_at(path)
        return listing.describe(opened.store, place, path, can_list=self.can_list)

    def exists(self, path: str, **_: Any) -> bool:
        return self._type(path) is not None

    def isfile(self, path: str) -> bool:
        return bool(self._type(path) == "file")

    def isdir(self, path: str) -> bool:
        return bool(self._type(path) == "directory")

    def _type(self, path: str) -> Any:
        # Only what is not there is nothing: a store that does not answer is an error.
        try:
            return self.info(path)["type"]
        except NotFoundError:
            return None

    def size(self, path: str) -> int:
        return int(self.info(path)["size"])

    def modified(self, path: str) -> datetime:
        """When the object was written, UTC."""
        found = self.info(path).get("LastModified")
        if not isinstance(found, datetime):
            raise UnsupportedError(f"{path}: the store does not tell when it was written")
        return found

    def created(self, path: str) -> datetime:
        """As :meth:`modified`: an object is written once, another version is another object."""
        return self.modified(path)

    def ukey(self, path: str) -> str:
        """Changes with the version (ETag) of the object."""
        found = self.info(path)
        version = found.get("ETag") or f"{found['size']} {found.get('mtime')}"
        return hashlib.sha256(f"{found['name']} {version}".encode()).hexdigest()

    def checksum(self, path: str) -> int:
        return int(self.ukey(path)[:32], 16)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        entries = self._entries(self._strip_protocol(path))
        return entries if detail else [entry["name"] for entry in entries]

    def _entries(self, path: str) -> list[Entry]:
        """What lies in a directory, or the file itself; as :func:`listing.list_directory`."""
        opened, place = self._open_at(path)
        self._check_listing(place)
        try:
            entries = listing.list_directory(opened.store, place, path)
        except NotFoundError:
            if not place.key:
                raise
            entries = []
        if not entries and place.key:
            found = self.info(path)
            entries = [found] if found["type"] == "file" else []
        return entries

    def _check_listing(self, place: Location) -> None:
        if not self.can_list:
            raise UnsupportedError(f"{place.root}: cannot be listed; name the objects")

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **_: Any,
    ) -> Any:
        """All files below ``path``, those whose name below it begins with ``prefix``."""
        if maxdepth is not None and maxdepth < 1:
            raise InvalidArgumentError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        opened, place = self._open_at(path)
        self._check_listing(place)
        try:
            if maxdepth is None:
                files, folders = listing.list_tree(opened.store, place, prefix)
            else:
                files, folders = self._find_levels(path, maxdepth, prefix)
        except NotFoundError:
            if not place.key:
                raise
            files, folders = {}, {}
        found = {**folders, **files} if withdirs else files
        if not found and not prefix:
            found = self._alone(path)
        elif withdirs and path and found:
            found.setdefault(path, listing.directory_entry(path))
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def _alone(self, path: str) -> dict[str, Entry]:
        try:
            entry = self.info(path)
        except NotFoundError:
            return {}
        return {path: entry} if entry["type"] == "file" else {}

    def _find_levels(
        self, path: str, maxdepth: int, prefix: str
    ) -> tuple[dict[str, Entry], dict[str, Entry]]:
        """One listing a directory, those of a level beside each other."""
        files: dict[str, Entry] = {}
        folders: dict[str, Entry] = {}
        level = [_Visit(path, 1, ())]
        while level:

            def entries(visit: _Visit) -> tuple[list[Entry], list[_Visit]]:
                folder, depth, above = visit
                here = self._identity(folder)
                if here is not None and here in above:
                    return [], []
                opened, place = self._open_at(folder)
                found = listing.list_directory(opened.store, place, folder, prefix if depth == 1 else "")
                inside = [e["name"] for e in found if e["type"] == "directory" and depth < maxdepth]
                return found, [_Visit(one, depth + 1, (*above, here)) for one in inside]

            listed = for_each(entries, level)
            for entry in (entry for found, _ in listed for entry in found):
                (files if entry["type"] == "file" else folders)[entry["name"]] = entry
            level = [visit for _, deeper in listed for visit in deeper]
        return files, folders

    def du(self, path: str, total: bool = True, maxdepth: int | None = None, **_: Any) -> Any:
        sizes = {name: e["size"] for name, e in self.find(path, maxdepth=maxdepth, detail=True).items()}
        return sum(sizes.values()) if total else sizes

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = "omit",
        **options: Any,
    ) -> Iterator[Any]:
        """As fsspec's, but ``on_error="omit"`` leaves out what is not there, and nothing else: other errors
        are raised. Directories without a name, as of ``a//b``, are not passed over.

        :param topdown: False: a directory comes after what lies in it.
        :param on_error: ``"raise"``, or what is called with each OSError.
        """
        if maxdepth is not None and maxdepth < 1:
            raise InvalidArgumentError("maxdepth must be at least 1")
        detail = options.get("detail", False)
        todo: list[_Visit | tuple[str, Any, Any]] = [_Visit(self._strip_protocol(path), 1, ())]
        while todo:
            visit = todo.pop()
            if not isinstance(visit, _Visit):
                yield visit
                continue
            folder, depth, above = visit
            here = self._identity(folder)
            if here is not None and here in above:
                continue
            folders, files = self._folders_and_files(folder, on_error)
            shown: Any = folders if detail else list(folders)
            found = (folder, shown, files if detail else list(files))
            if topdown:
                yield found
            else:
                todo.append(found)
            if maxdepth is None or depth < maxdepth:
                # As they are shown: the caller may have taken some out.
                todo += [
                    _Visit(folders[name]["name"], depth + 1, (*above, here))
                    for name in reversed(list(shown))
                    if name in folders
                ]

    def _folders_and_files(self, folder: str, on_error: Any) -> tuple[dict[str, Entry], dict[str, Entry]]:
        """Of one directory, by their names in it."""
        try:
            entries = self._entries(folder)
        except OSError as error:
            if callable(on_error):
                on_error(error)
            elif on_error == "raise" or not isinstance(error, FileNotFoundError):
                raise
            entries = []
        files: dict[str, Entry] = {}
        folders: dict[str, Entry] = {}
        for entry in entries:
            name = "" if entry["name"] == folder else entry["name"].rpartition("/")[2]
            (folders if entry["type"] == "directory" else files)[name] = entry
        return folders, files

    def _identity(self, folder: str) -> Any:
        """The same for all names of a directory, where it can have several; else None."""

    async def _walk(
        self, path: str, maxdepth: int | None = None, on_error: Any = "omit", **options: Any
    ) -> AsyncIterator[Any]:
        """As :meth:`walk`."""
        found = self.walk(path, maxdepth, on_error=on_error, **options)
        while (one := await self.in_thread(partial(next, found, None))) is not None:
            yield one

    # --- reading ---

    async def _cat(
        self,
        path: Any,
        recursive: bool = False,
        on_error: str = "raise",
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """As fsspec's; with ``recursive`` the files alone, which that takes together with their
        directories."""
        paths = await self._expand_path(path, recursive=recursive)
        if recursive:
            are_files = await self.in_thread(lambda: for_each(self.isfile, paths))
            paths = [one for one, is_file in zip(paths, are_files, strict=True) if is_file]
        found = await fsspec.asyn._run_coros_in_chunks(
            [self._cat_file(one, **options) for one in paths],
            batch_size=batch_size or self.batch_size,
            nofiles=True,
            return_exceptions=True,
        )
        errors = [one for one in found if isinstance(one, BaseException)]
        if errors and on_error == "raise":
            raise errors[0]
        if not isinstance(path, list) and paths == [self._strip_protocol(path)]:
            return found[0]
        return {
            one: result
            for one, result in zip(paths, found, strict=True)
            if on_error != "omit" or not isinstance(result, BaseException)
        }

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        opened, place = self._open_at(self._strip_protocol(path))
        if not place.key:
            raise InvalidArgumentError(f"{path}: names no object")
        if start is None and end is None:
            return opened.store.get(place.key)
        (found,) = self._read(opened, [Range(place.key, start, end)], stops_at_error=True)
        assert isinstance(found, bytes)
        return found

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Reads ranges ``[start, end)`` of objects, many in flight; one result each, in order.

        What lies past the end of an object is cut off. ``starts`` and ``ends`` may be one number for all.

        :param on_error: ``"return"`` puts errors in the place of results, ``"raise"`` raises the first.
        """
        if max_gap is not None:
            raise UnsupportedError("max_gap: ranges are not merged; fsspec.utils.merge_offset_ranges does it")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise InvalidArgumentError(f"{len(paths)} paths, {len(starts)} starts, {len(ends)} ends")
        results: list[Any] = [b""] * len(paths)
        by_root: dict[str, list[tuple[int, Range]]] = {}
        for index, path in enumerate(paths):
            place = self._place(self._strip_protocol(path))
            if not place.key:
                raise InvalidArgumentError(f"{path}: names no object")
            wanted = Range(place.key, starts[index], ends[index])
            by_root.setdefault(place.root, []).append((index, wanted))
        for root, asked in by_root.items():
            ranges = [one for _, one in asked]
            read = self._read(self._stores.get(root), ranges, stops_at_error=on_error == "raise")
            for (index, _one), result in zip(asked, read, strict=True):
                results[index] = result
        return results

    def _read(self, opened: Opened, ranges: list[Range], *, stops_at_error: bool) -> list[bytes | Exception]:
        return read_ranges(
            opened.store,
            ranges,
            head=opened.versions.get if self._is_cached else opened.versions.ask,
            ask=opened.versions.ask,
            names_versions=self._is_cached,
            stops_at_error=stops_at_error,
        )

    async def _get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Any = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **options: Any,
    ) -> Any:
        """As fsspec's, but an object whose name leads out of ``lpath`` is an InvalidArgumentError, before
        anything is written."""
        if not (isinstance(rpath, list) and isinstance(lpath, list)):
            rpath, lpath = await getting.pairs(self, rpath, lpath, recursive=recursive, maxdepth=maxdepth)
        return await super()._get(rpath, lpath, callback=callback, **options)

    def has_wildcard(self, path: str) -> bool:
        """Whether it can be a pattern for ``glob()``."""
        return bool(fsspec.asyn.has_magic(path))

    def is_pattern(self, path: str) -> bool:
        """Whether it stands for other names: it can, and nothing has it as its own name."""
        return self.has_wildcard(path) and not self._is_there(self._strip_protocol(path))

    def _is_there(self, path: str) -> bool:
        return self.exists(path)

    async def _expand_path(
        self, path: Any, recursive: bool = False, maxdepth: int | None = None, assume_literal: bool = False
    ) -> list[str]:
        """As fsspec's, but a path that is there is meant, whatever characters are in it. NotFoundError:
        nothing was found."""
        if maxdepth is not None and maxdepth < 1:
            raise InvalidArgumentError("maxdepth must be at least 1")
        given = [self._strip_protocol(one) for one in ([path] if isinstance(path, str) else path)]
        found: set[str] = set()
        for one in given:
            if not assume_literal and await self.in_thread(partial(self.is_pattern, one)):
                matches = await self._glob(one, maxdepth=maxdepth)
                found.update(matches)
                if matches and recursive and maxdepth != 1:
                    deeper = None if maxdepth is None else maxdepth - 1
                    found.update(await self._expand_path(list(matches), True, deeper, assume_literal=True))
                continue
            if recursive:
                found.update(await self._find(one, maxdepth=maxdepth, withdirs=True))
            if one not in found and (not recursive or await self._exists(one)):
                found.add(one)
        if not found:
            raise NotFoundError(f"{path}: nothing is there")
        return sorted(found)

    def _local_name(self, path: str) -> str:
        """A path as local files are named after it."""
        return path

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **_: Any
    ) -> None:
        """Copies an object to a local file, which gets its name when all of it is there; makes the directory
        that it lies in."""
        is_open = outfile is not None or hasattr(lpath, "write")
        if not is_open and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        with self.open(rpath, "rb") as source:
            if is_open:
                self._get_into(source, outfile if outfile is not None else lpath, callback)
                return
            os.makedirs(os.path.dirname(lpath) or ".", exist_ok=True)
            with new_file(lpath) as file:
                self._get_into(source, file, callback)

    def _get_into(self, source: Any, file: Any, callback: Any) -> None:
        callback.set_size(source.size)
        while data := source.read(BLOCK_BYTES):
            file.write(data)
            callback.relative_update(len(data))

    # --- writing ---

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        """Writes an object. ``mode="create"``: FileExistsError when there is one."""
        _check_writing(mode)
        if self._intrans:
            with self.open(path, "xb" if mode == "create" else "wb") as file:
                file.write(value)
            return
        self._write(path, value, mode)

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **_: Any
    ) -> None:
        """Copies a local file to an object; large ones as a multipart upload. ``mode`` as of
        :meth:`pipe_file`."""
        _check_writing(mode)
        if os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        size = os.path.getsize(lpath)
        callback.set_size(size)
        if self._intrans:
            with open(lpath, "rb") as source, self.open(rpath, "xb" if mode == "create" else "wb") as file:
                while data := source.read(BLOCK_BYTES):
                    file.write(data)
        else:
            self._write(rpath, Path(lpath), mode)
        callback.relative_update(size)

    def _write(self, path: str, value: Any, mode: str) -> None:
        store, key = self.locate_to_write(path)
        try:
            store.put(key, value, if_absent=mode == "create")
        except ChangedError as error:
            if mode == "create":
                raise FileExistsError(f"{path}: exists") from error
            raise
        finally:
            self.forget(path)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        """Makes an empty object. With ``truncate=False`` one that exists is an UnsupportedError: its time
        cannot be set."""
        try:
            self.pipe_file(path, b"", mode="overwrite" if truncate else "create")
        except FileExistsError as error:
            raise UnsupportedError(
                f"{path}: the time of an object cannot be set; touch(truncate=False)"
            ) from error

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Nothing: directories are there as soon as something is in them. Buckets are not made here."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """As :meth:`mkdir`."""

    def rmdir(self, path: str) -> None:
        """Deletes the object that stands for an empty directory, if there is one."""
        if self.ls(path, detail=False):
            raise OSError(f"{path}: not empty")
        store, key = self.locate(path)
        store.delete(key + "/")

    def mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **_: Any
    ) -> None:
        """As fsspec's, which deletes what it has copied; but exactly that, and the empty objects that stand
        for the directories. What was written again meanwhile stays, and is a ChangedError."""
        path1, path2 = _plain(path1), _plain(path2)
        if path1 == path2:
            return
        moving.move(self, path1, path2, recursive=recursive, maxdepth=maxdepth)

    def _drop_empty(self, path: str) -> None:
        """Deletes what stands for the empty directories at and below a path."""
        opened, place = self._open_at(self._strip_protocol(path))
        inside = opened.store.list(listing.as_prefix(place.key))
        failures = opened.store.delete_many([o.key for o in inside if o.key.endswith("/") and not o.size])
        if failures:
            raise failures[0][1]

    def _real(self, path: Any) -> str:
        """The same for each spelling of a path."""
        return str(self._strip_protocol(stringify_path(path)))

    def _is_same(self, path1: str, path2: str) -> bool:
        return self._real(path1) == self._real(path2)

    async def _copy(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        on_error: str | None = None,
        maxdepth: int | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> None:
        """As fsspec's, which ignores by default what is not there when it copies a tree: that may be the
        target's bucket. And what has the characters of a pattern in its name is no pattern."""
        is_odd = isinstance(path1, str) and isinstance(path2, str) and self.has_wildcard(path1)
        if is_odd and not await self.in_thread(partial(self.is_pattern, path1)):
            path1, path2 = await self._copies_of(path1, path2, recursive=recursive, maxdepth=maxdepth)
        await super()._copy(path1, path2, recursive, on_error or "raise", maxdepth, batch_size, **options)

    async def _copies_of(
        self, path: str, target: str, *, recursive: bool, maxdepth: int | None
    ) -> tuple[list[str], list[str]]:
        """What is copied of one path that is there, and where to, as fsspec names that."""
        found = await self._expand_path(path, recursive=recursive, maxdepth=maxdepth)
        if not recursive or maxdepth is not None:
            found = [one for one in found if not await self._isdir(one)]
        is_inside = not trailing_sep(path) and (trailing_sep(target) or await self._isdir(target))
        return found, other_paths(found, target, exists=is_inside)

    def cp_file(self, path1: str, path2: str, copied: list[Copied] | None = None, **_: Any) -> None:
        """Copies inside of a store without the bytes passing through here, between two of them with. Nothing
        for a directory, which is there with what lies in it.

        :param copied: gets what was copied, in the version that it had before.
        """
        # Callers that move delete path1 next.
        if self._is_same(path1, path2):
            raise InvalidArgumentError(f"{path1} and {path2} are the same")
        path = self._strip_protocol(path1)
        opened, place = self._open_at(path)
        if place.key:
            try:
                version = opened.store.head(place.key).etag if copied is not None else ""
            except NotFoundError:
                version = None
            if version is not None and self._copy_object(opened.store, place.key, path2):
                if copied is not None:
                    copied.append(Copied(path, self._real(path2), version))
                return
        if not self.isdir(path1):
            raise NotFoundError(f"{path1}: no such object")

    def _copy_object(self, source: Store, key: str, path2: str) -> bool:
        """False: there is no such object."""
        target, to = self.locate_to_write(path2)
        try:
            if source is target:
                source.copy(key, to)
                return True
        except NotFoundError:
            return False
        except UnsupportedError:
            pass  # too large for one request, or a store that cannot
        finally:
            self.forget(path2)
        if not source.exists(key):
            return False
        job = _native.CopyJob(source._native, target._native, [(key, to, False, 0, "")], {})
        try:
            job.run()
        finally:
            self.forget(path2)
        for failed, code, message in job.failures():
            raise error_of(code, f"{failed}: {message}")
        return True

    def rm_file(self, path: str, **_: Any) -> None:
        """Deletes one object; a missing one is no error, as with every store."""
        store, key = self.locate(path)
        try:
            store.delete(key)
        finally:
            self.forget(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None, **_: Any) -> None:
        """Deletes objects, many in one request. With ``recursive`` nothing to delete is a NotFoundError. One
        path of a directory, and not ``recursive``, is an InvalidArgumentError; each of a list is taken for an
        object, as asking would be a request for each."""
        given = [path] if isinstance(path, str | os.PathLike) else path
        if given is not path and not recursive and self._is_directory(stringify_path(path)):
            raise InvalidArgumentError(f"{path}: a directory; recursive=True deletes it")
        self._delete(
            found
            for one in given
            for found in self._to_delete(self._strip_protocol(one), recursive, maxdepth)
        )

    def _is_directory(self, path: str) -> bool:
        """False also where nobody may ask: who may only delete deletes."""
        with suppress(DeniedError):
            return not self.is_pattern(path) and self.isdir(path)
        return False

    def _delete(self, paths: Iterable[str]) -> None:
        keys: dict[str, dict[str, None]] = {}
        for path in paths:
            place = self._place(path)
            keys.setdefault(place.root, {})[place.key] = None
        for root, of_root in keys.items():
            opened = self._stores.get(root)
            try:
                failures = opened.store.delete_many(of_root)
            finally:
                for key in of_root:
                    opened.versions.forget(key)
            if failures:
                raise failures[0][1]

    def _to_delete(self, path: str, recursive: bool, maxdepth: int | None) -> Iterable[str]:
        if maxdepth is not None:
            found = self.expand_path(path, recursive=recursive, maxdepth=maxdepth)
            return [p for p in found if self.isfile(p)]
        if not self.is_pattern(path):
            return self._tree(path) if recursive else [path]
        matches = self._matches(path)
        if not recursive:
            return [name for name, entry in matches.items() if entry["type"] == "file"]
        return [one for tree in for_each(self._tree, matches) for one in tree]

    def _matches(self, pattern: str) -> dict[str, Entry]:
        """What a pattern names. NotFoundError: nothing."""
        found: dict[str, Entry] = self.glob(pattern, detail=True)
        if not found:
            raise NotFoundError(f"{pattern}: nothing matches")
        return found

    def _tree(self, path: str) -> list[str]:
        """Objects of that name and below it, with those that stand for directories, which find() leaves
        out."""
        opened, place = self._open_at(path)
        keys = [place.front + info.key for info in opened.store.list(listing.as_prefix(place.key))]
        if place.key and opened.store.exists(place.key):
            keys.append(path)
        if not keys:
            raise NotFoundError(f"{path}: no such object, and none below it")
        return keys

    async def _rm(
        self, path: Any, recursive: bool = False, batch_size: int | None = None, **options: Any
    ) -> None:
        await self.in_thread(lambda: self.rm(path, recursive=recursive, **options))

    def sign(self, path: str, expiration: float = 100, method: str = "GET", **_: Any) -> str:
        """A URL that lets its bearer read (``method="PUT"``: write) the object for so many seconds. Stores
        that cannot raise UnsupportedError."""
        store, key = self.locate(path)
        return store.presign(key, method=method, lifetime=expiration)

    # --- open files ---

    def start_transaction(self) -> Any:
        if self._intrans:
            raise InvalidArgumentError(transactions.NESTED)
        return super().start_transaction()

    def open(
        self,
        path: Any,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Mapping[str, Any] | None = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """A file. ``mode``: ``rb``, ``wb``, ``xb`` (must not exist), or text without ``b``.

        :param block_size: reading: pieces that are read ahead (default 4 MiB); writing: parts (8 MiB).
        :param str cache_type: ``"headrace"`` or a name of fsspec's caches.
        :param cache_options: of that cache; ``{"ranges": [(begin, end), ...]}``: what will be read, in order.
        """
        if "b" in mode and "t" in mode:
            raise InvalidArgumentError(f"{path}: mode {mode!r} is of bytes and of text")
        if "b" in mode:  # "br" is "rb"
            mode = mode.replace("b", "") + "b"
        if "r" in mode:
            return super().open(path, mode, block_size, cache_options, compression, **options)
        path = self._strip_protocol(stringify_path(path))
        text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
        written = super().open(path, mode.replace("t", "").rstrip("b") + "b", block_size, **options)
        file: Any = written
        kind = get_compression(path, compression)
        if kind is not None:
            file = CompressedFile(compr[kind](written, mode="w"), written)
        if "b" not in mode:
            file = TextFile(file, written, **text)
        if file is not written:
            written.wrapped_by(file)
        return file

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_type: str = "headrace",
        cache_options: Mapping[str, Any] | None = None,
        size: int | None = None,
        **_: Any,
    ) -> Any:
        if mode in ("wb", "xb"):
            return WrittenFile(self, path, mode, part_bytes=block_size or 0, autocommit=autocommit)
        if mode != "rb":
            raise UnsupportedError(f"{path}: mode {mode!r}; objects are read (rb) or written anew (wb, xb)")
        options = dict(cache_options or {})
        if cache_type == "headrace":
            options["room"] = self._room
        return ReadFile(
            self,
            path,
            mode,
            block_size=block_size or BLOCK_BYTES,
            cache_type=cache_type,
            cache_options=options,
        )

    async def open_async(self, path: str, mode: str = "rb", **options: Any) -> Any:
        """A file whose methods are coroutines: ``read``, ``write``, ``close``."""
        if "b" not in mode or options.get("compression"):
            raise UnsupportedError("open_async: binary files without compression")
        file = await self.in_thread(lambda: self.open(path, mode, **options))
        return AwaitedFile(self, file)

    _info = _coroutine("info")
    _exists = _coroutine("exists")
    _isfile = _coroutine("isfile")
    _isdir = _coroutine("isdir")
    _size = _coroutine("size")
    _ls = _coroutine("ls")
    _find = _coroutine("find")
    _du = _coroutine("du")
    _cat_file = _coroutine("cat_file")
    _cat_ranges = _coroutine("cat_ranges")
    _get_file = _coroutine("get_file")
    _put_file = _coroutine("put_file")
    _pipe_file = _coroutine("pipe_file")
    _cp_file = _coroutine("cp_file")
    _rm_file = _coroutine("rm_file")
    _touch = _coroutine("touch")
    _mkdir = _coroutine("mkdir")
    _makedirs = _coroutine("makedirs")
    _rmdir = _coroutine("rmdir")
    _sign = _coroutine("sign")
    _modified = _coroutine("modified")
    _created = _coroutine("created")
    _ukey = _coroutine("ukey")
    _checksum = _coroutine("checksum")
