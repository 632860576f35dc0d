"""Storage for Meta's torch_checkpointing: its CheckpointManager saves to any store and loads from it.

>>> from torch_checkpointing import CheckpointManager  # doctest: +SKIP
>>> from headrace.checkpoint.torch_checkpointing import StorageConfig  # doctest: +SKIP
>>> config = CheckpointManager.Config(storage_config=StorageConfig("s3://bucket/run-17"))  # doctest: +SKIP
>>> CheckpointManager(config).save("step-1000", {"model": model.state_dict()})  # doctest: +SKIP

What is written are the files of torch_checkpointing: it decides what a checkpoint is, and which of them it
reads.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import io
import os
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from torch_checkpointing.storage import base_storage

from headrace.errors import HeadraceError, InvalidArgumentError, NotFoundError
from headrace.fsspec import fs
from headrace.fsspec.threads import THREADS, for_each
from headrace.store.store import Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Storage", "StorageConfig"]

_MARK = ".headrace-rename"
"""In a directory that a rename has begun to fill: it is not there yet."""
_STRAIGHT_BYTES = 8 << 20
"""Of a read: then several connections share it, and there is nothing to gain from reading ahead."""


@dataclass
class StorageConfig(base_storage.StorageConfig):  # type: ignore[misc, unused-ignore]
    """Where torch_checkpointing keeps its files.

    :param url: of a store or directory. The paths of checkpoints lie below it, with or without a slash in
        front: ``"step-1000"``.
    :param options: of the store, as :func:`headrace.fs` takes them (``memory``, ``endpoint``, ...). They are
        pickled, as all of this is, for the process that writes.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict)

    def create_storage(self) -> Storage:
        return Storage(self)


class Storage(base_storage.Storage):  # type: ignore[misc, unused-ignore]
    """Files of torch_checkpointing in a store.

    A file is there when it is whole; a directory, when a rename to it is complete, however the process that
    renames may end. A store renames by copying, without the bytes passing through here, and a directory of
    files as an operating system does. Objects have no empty directories.

    Threads: any.
    """

    def __init__(self, config: StorageConfig) -> None:
        self._url = os.fspath(config.url)
        self._fs = fs(self._url, **config.options)
        self._root = str(self._fs._strip_protocol(self._url)).rstrip("/")
        self._has_directories = self._fs.scheme == "file"

    def _at(self, path: os.PathLike[str] | str) -> str:
        relative = self._relative(path)
        return f"{self._root}/{relative}" if relative else self._root or "/"

    def _relative(self, path: os.PathLike[str] | str) -> str:
        parts = [part for part in PurePosixPath(path).parts if part != "/"]
        if ".." in parts or (parts and parts[0].endswith(":")):
            raise InvalidArgumentError(
                f"{path}: expected a path below {self._url}, such as 'step-1000', without '..' and no URL"
            )
        return "/".join(parts)

    def remap_path(self, path: Path) -> str:
        """Its URL."""
        relative = self._relative(path)
        return f"{self._url.rstrip('/')}/{relative}" if relative else self._url

    # --- Files ---

    def stream_read(self, path: Path, read_args: Any = None) -> io.RawIOBase:
        """Its bytes; what is read in pieces is of one version. Raises NotFoundError, and OSError where it has
        not the size that ``read_args`` says."""
        at, said = self._at(path), read_args or base_storage.ReadArgs()
        expected = getattr(said, "known_size_bytes", None)
        if said.pre_read_full_file:
            data = self._fs.cat_file(at)
            _check_size(at, len(data), expected)
            return io.BytesIO(data)  # type: ignore[return-value]  # As the base class's own storage does.
        file = self._fs.open(at, "rb")
        try:
            _check_size(at, file.size, expected)
        except OSError:
            file.close()
            raise
        return _Stream(file, *self._fs.locate(at))

    def stream_write(self, path: Path) -> io.IOBase:
        """Is there when it is closed; not when the ``with`` around it ends in an error."""
        at = self._at(path)
        self._check_directory(at)
        opened: io.IOBase = self._fs.open(at, "wb")
        return opened

    def write(self, path: Path, data: Buffer) -> None:
        with self.stream_write(path) as out:
            out.write(data)  # type: ignore[attr-defined, unused-ignore]

    def _check_directory(self, at: str) -> None:
        if self._has_directories and not os.path.isdir(os.path.dirname(at)):
            # torch_checkpointing expects this class.
            raise RuntimeError(f"{os.path.dirname(at)}: no such directory; mkdir() makes it")

    def delete(self, path: Path) -> None:
        """Raises NotFoundError."""
        at = self._at(path)
        if not self._fs.isfile(at):
            raise NotFoundError(f"{self.remap_path(path)}: no such file")
        self._fs.rm_file(at)

    def getsize(self, path: Path) -> int:
        return int(self._fs.size(self._at(path)))

    # --- Directories ---

    def mkdir(self, path: Path, recursive: bool = True) -> None:
        """Nothing, for objects."""
        at = self._at(path)
        if recursive:
            self._fs.makedirs(at, exist_ok=True)
        else:
            self._fs.mkdir(at, create_parents=False)

    def rmdir(self, path: Path) -> None:
        """With all that is in it."""
        at = self._at(path)
        if self._has_directories:
            self._fs.rm(at, recursive=True)
        else:
            self._remove(at, self._names(at))

    def ls(self, path: Path) -> list[str]:
        """Names. Raises NotFoundError."""
        at = self._at(path)
        if self._is_half(at):
            raise NotFoundError(f"{self.remap_path(path)}: a rename to it was not completed")
        found = self._fs.ls(at)
        half = for_each(
            lambda entry: entry["type"] == "directory" and self._is_half(entry["name"].rstrip("/")), found
        )
        return [
            posixpath.basename(entry["name"].rstrip("/"))
            for entry, is_half in zip(found, half, strict=True)
            if not is_half
        ]

    def exists(self, path: Path) -> bool:
        at = self._at(path)
        kind = self._fs._type(at)
        return kind is not None and not (kind == "directory" and self._is_half(at))

    def isdir(self, path: Path) -> bool:
        at = self._at(path)
        return bool(self._fs.isdir(at)) and not self._is_half(at)

    def glob(self, pattern: str) -> list[str]:
        """Of one directory. An error is none where the directory is there: nobody shall begin anew because a
        store did not answer."""
        directory, wanted = os.path.split(pattern)
        try:
            names = self.ls(Path(directory))
        except NotFoundError:
            return []
        return [os.path.join(directory, name) for name in fnmatch.filter(names, wanted)]

    def _is_half(self, at: str) -> bool:
        return not self._has_directories and self._fs.exists(f"{at}/{_MARK}")

    # --- Renaming ---

    def rename(
        self,
        src_path: Path,
        dst_path: Path,
        is_directory: bool = False,
        background_cleanup: bool = False,
        is_cross_link: bool = False,  # Not in every version.
    ) -> None:
        """As the table of torch_checkpointing's base class says: a file may take the place of a file, and
        nothing else of anything. FileExistsError, and NotFoundError."""
        source, target = self._at(src_path), self._at(dst_path)
        if self._has_directories:
            os.replace(source, target)
            for at in (source, target):
                self._fs.forget(at)
        elif self._fs.isfile(source):
            self._rename_file(source, target)
        else:
            self._rename_directory(source, target, background_cleanup)

    def _rename_file(self, source: str, target: str) -> None:
        if self._fs.isdir(target):
            raise FileExistsError(errno.EISDIR, f"{target}: is a directory; {source} was not renamed to it")
        if source != target:
            self._fs.cp_file(source, target)
            self._fs.rm_file(source)

    def _rename_directory(self, source: str, target: str, background_cleanup: bool) -> None:
        sizes = self._names(source)
        if not sizes or _MARK in sizes:
            raise NotFoundError(f"{source}: no such file or directory")
        if self._fs.exists(target):
            if not self._is_half(target):
                raise FileExistsError(
                    errno.ENOTEMPTY, f"{target}: is there; {source} was not renamed to it: delete it before"
                )
            self._remove(target, self._names(target).keys() - {_MARK})
        self._fs.pipe_file(f"{target}/{_MARK}", source.encode())
        for_each(lambda name: self._fs.cp_file(f"{source}/{name}", f"{target}/{name}"), sizes)
        copied = self._names(target)
        copied.pop(_MARK, None)
        if copied != sizes:
            wrong = sorted({name for name, _ in copied.items() ^ sizes.items()})
            raise OSError(f"{target}: copies of {', '.join(wrong[:3])} are not as in {source}; it is kept")
        self._fs.rm_file(f"{target}/{_MARK}")  # Now it is there.
        if background_cleanup:
            THREADS.submit(lambda: self._clean_up(source, sizes))
        else:
            self._remove(source, sizes)

    def _names(self, at: str) -> dict[str, int]:
        """Of all objects below, with their sizes."""
        store, key = self._fs.locate(at)
        return {info.key[len(key) + 1 :]: info.size for info in store.list(f"{key}/")}

    def _remove(self, at: str, names: Iterable[str]) -> None:
        store, key = self._fs.locate(at)
        failures = store.delete_many(f"{key}/{name}" for name in names)
        for name in names:
            self._fs.forget(f"{at}/{name}")
        if failures:
            raise failures[0][1]

    def _clean_up(self, at: str, names: Iterable[str]) -> None:
        with contextlib.suppress(HeadraceError, OSError):  # Nobody waits for it; what stays is a copy.
            self._remove(at, names)


def _check_size(at: str, size: int, expected: int | None) -> None:
    if expected is not None and size != expected:
        raise OSError(f"{at}: has {size} bytes, and {expected} were expected: it was written anew meanwhile")


class _Stream(io.RawIOBase):
    """A file that is read in pieces, as torch_checkpointing wants it: large ones, by several threads with a
    stream each, go straight to where they are wanted, small ones are read ahead."""

    def __init__(self, file: Any, store: Store, key: str) -> None:
        self._file, self._store, self._key = file, store, key

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        with memoryview(buffer).cast("B") as out:
            if len(out) < _STRAIGHT_BYTES:
                return int(self._file.readinto(out))
            at = int(self._file.tell())
            size = max(0, min(len(out), int(self._file.size) - at))
            with out[:size] as wanted:
                self._store.get_range_into(self._key, at, wanted, etag=self._file.details.get("ETag", ""))
        self._file.seek(at + size)
        return size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
