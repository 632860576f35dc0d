"""Files that are open for reading, and files whose methods are coroutines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractBufferedFile

from headrace.errors import ChangedError, NotFoundError
from headrace.fsspec.reading import ReadAhead

if TYPE_CHECKING:
    from headrace.fsspec.filesystem import HeadraceFileSystem


class ReadFile(AbstractBufferedFile):  # type: ignore[misc]
    """One version of an object: when it changes, reading on is a ChangedError."""

    def __init__(self, fs: HeadraceFileSystem, path: str, mode: str, **options: Any) -> None:
        found = fs.info(path)
        if found["type"] != "file":
            raise NotFoundError(f"{path}: is a directory")
        self._details = found
        super().__init__(fs, path, mode, size=found["size"], **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        if start >= end:
            return b""
        # Asked for each time: after a fork() it is another one.
        store, key = self.fs.locate(self.path)
        data: bytes = store.get_range(key, start, end - start, etag=self._details.get("ETag", ""))
        return data

    def close(self) -> None:
        cache = getattr(self, "cache", None)
        if isinstance(cache, ReadAhead):
            cache.close()
        super().close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def version(self) -> tuple[Any, ...]:
        """Of the object: the ETag; where a store has none, what else changes with it."""
        found = self._details
        return (found["ETag"],) if "ETag" in found else (found["size"], found.get("mtime"))

    def __reduce__(self) -> Any:
        kind = self.cache.name if self.cache else "none"
        return _open_again, (self.fs, self.path, self.blocksize, kind, self.loc, self.version())


def _open_again(
    fs: HeadraceFileSystem, path: str, block_size: int, cache_type: str, place: int, version: tuple[Any, ...]
) -> ReadFile:
    """A file as it was when it was pickled. ChangedError: the object is another version by now."""
    file: ReadFile = fs.open(path, "rb", block_size, cache_type=cache_type)
    if file.version() != version:
        file.close()
        raise ChangedError(f"{path}: was written again since the file was opened that is unpickled")
    file.seek(place)
    return file


class AwaitedFile:
    """An open file for one task at a time: ``read``, ``write`` and ``close`` run on another thread."""

    def __init__(self, fs: HeadraceFileSystem, file: Any) -> None:
        self._fs = fs
        self._file = file

    async def read(self, length: int = -1) -> bytes:
        return bytes(await self._call(lambda: self._file.read(length)))

    async def write(self, data: Any) -> int:
        return int(await self._call(lambda: self._file.write(data)))

    async def close(self) -> None:
        await self._call(self._file.close)

    def seek(self, loc: int, whence: int = 0) -> int:
        return int(self._file.seek(loc, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    async def _call(self, call: Callable[[], Any]) -> Any:
        return await self._fs.in_thread(call)

    async def __aenter__(self) -> AwaitedFile:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._call(lambda: self._file.__exit__(*error))
