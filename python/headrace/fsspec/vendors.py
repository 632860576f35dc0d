"""A file system for each kind of store, and how fsspec finds them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import urlsplit

import fsspec
from fsspec.registry import registry
from fsspec.utils import stringify_path

from headrace import _native
from headrace.base.secrets import without_secrets
from headrace.errors import InvalidArgumentError
from headrace.fsspec import directories, listing, moving
from headrace.fsspec.filesystem import HeadraceFileSystem
from headrace.fsspec.listing import Entry
from headrace.fsspec.locations import Location, in_buckets, in_files, in_repositories, on_web
from headrace.fsspec.moving import Copied
from headrace.fsspec.options import plain
from headrace.store.store import Store
from headrace.store.urls import local_path


class _BucketFileSystem(HeadraceFileSystem):
    """Paths that begin with a bucket."""

    depth: ClassVar[int] = 1
    """Parts of a path that name the bucket."""

    @classmethod
    def _place(cls, path: str) -> Location:
        return in_buckets(cls.scheme, path, cls.depth)


class S3FileSystem(_BucketFileSystem):
    """``bucket/key``."""

    scheme = "s3"
    protocol = ("hr+s3", "s3", "s3a")


class GcsFileSystem(_BucketFileSystem):
    """``bucket/key``."""

    scheme = "gs"
    protocol = ("hr+gs", "gs", "gcs")


class AzureFileSystem(_BucketFileSystem):
    """``account/container/key``."""

    scheme = "az"
    protocol = ("hr+az", "az", "azure")
    depth = 2


class AbfsFileSystem(_BucketFileSystem):
    """``container@account.dfs.core.windows.net/key``."""

    scheme = "abfss"
    protocol = ("hr+abfss", "abfss", "abfs")


class HubFileSystem(HeadraceFileSystem):
    """``datasets/ORG/NAME[@REVISION]/path`` of the Hugging Face hub, to read from."""

    scheme = "hf"
    protocol = ("hr+hf", "hf")

    @classmethod
    def _place(cls, path: str) -> Location:
        return in_repositories(path)


class HttpFileSystem(HeadraceFileSystem):
    """Whole URLs, to read from."""

    scheme = "https"
    protocol = ("hr+https", "hr+http", "https", "http")
    can_list = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return str(stringify_path(path)).removeprefix("hr+")

    def unstrip_protocol(self, name: str) -> str:
        name = self._strip_protocol(name)
        scheme = urlsplit(name).scheme
        return name if registry.get(scheme) is type(self) else f"hr+{name}"

    @classmethod
    def _parent(cls, path: str) -> str:
        return str(cls._strip_protocol(path)).rstrip("/").rpartition("/")[0]

    @classmethod
    def _place(cls, path: str) -> Location:
        return on_web(path)

    def has_wildcard(self, path: str) -> bool:
        """A question mark is none: it begins the query."""
        return any(mark in path.partition("?")[0] for mark in "*[")

    def _local_name(self, path: str) -> str:
        return path.partition("#")[0].partition("?")[0]  # a query may be secret

    async def _expand_path(
        self, path: Any, recursive: bool = False, maxdepth: int | None = None, assume_literal: bool = False
    ) -> list[str]:
        """The paths themselves, as nothing can be listed."""
        found = [self._strip_protocol(one) for one in ([path] if isinstance(path, str) else path)]
        for one in found:
            if recursive or self.has_wildcard(one):
                self._check_listing(self._place(one))
        return found

    async def _glob(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
        (name,) = await self._expand_path(path)
        found = {name: await self._info(name)} if await self._exists(name) else {}
        return found if options.get("detail") else list(found)


class LocalFileSystem(HeadraceFileSystem):
    """Absolute paths of this machine: the same calls as for a store, with the real directories."""

    scheme = "file"
    protocol = ("hr+file", "file")
    root_marker = "/"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = str(stringify_path(path))
        _native.check_store_url(path)
        if path.startswith(("file://", "hr+file://")):
            path = local_path(path.removeprefix("hr+")) or "/"
        elif local_path(path) is None and not path.startswith("/"):
            raise InvalidArgumentError(f"{without_secrets(path)}: a path of this machine is meant")
        return os.path.abspath(path)

    @classmethod
    def _place(cls, path: str) -> Location:
        return in_files(path)

    def _is_there(self, path: str) -> bool:
        return os.path.lexists(path)

    def _real(self, path: Any) -> str:
        return os.path.realpath(super()._real(path))

    def _is_same(self, path1: str, path2: str) -> bool:
        try:
            return os.path.samefile(self._real(path1), self._real(path2))  # hard links as well
        except OSError:
            return super()._is_same(path1, path2)

    def info(self, path: str, **options: Any) -> Entry:
        path = self._strip_protocol(path)
        return listing.directory_entry(path) if os.path.isdir(path) else super().info(path, **options)

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        os.makedirs(path) if create_parents else os.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        os.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        os.rmdir(self._strip_protocol(path))

    def _identity(self, folder: str) -> Any:
        with suppress(OSError):
            found = os.stat(folder)
            return found.st_dev, found.st_ino
        return None

    def _entries(self, path: str) -> list[Entry]:
        found = {entry["name"]: entry for entry in super()._entries(path)}
        for folder in directories.inside(path):
            found.setdefault(folder, listing.directory_entry(folder))
        return [found[name] for name in sorted(found)]

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **options: Any,
    ) -> Any:
        found = super().find(path, maxdepth, withdirs, detail=True, prefix=prefix, **options)
        path = self._strip_protocol(path)
        if withdirs and os.path.isdir(path):
            begin = os.path.join(path, prefix)
            folders = [one for one in directories.below(path, maxdepth) if one.startswith(begin)]
            for one in folders if prefix else [path, *folders]:
                found.setdefault(one, listing.directory_entry(one))
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def locate_to_write(self, path: str) -> tuple[Store, str]:
        """As programs do: through a link, to the file that it names."""
        return self.locate(os.path.realpath(self._strip_protocol(path)))

    def forget(self, path: str) -> None:
        super().forget(path)
        super().forget(os.path.realpath(self._strip_protocol(path)))

    def forget_below(self, path: str) -> None:
        super().forget_below(path)
        super().forget_below(os.path.realpath(self._strip_protocol(path)))

    def cp_file(self, path1: str, path2: str, copied: list[Copied] | None = None, **options: Any) -> None:
        super().cp_file(path1, path2, copied, **options)
        if os.path.isdir(self._strip_protocol(path1)):
            self.makedirs(path2, exist_ok=True)

    def mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any
    ) -> None:
        """One path is renamed, whatever is in it; only from one file system of the machine to another is it
        copied. Lists and patterns as in a store."""
        source = self._strip_protocol(path1)
        is_one = isinstance(source, str) and not isinstance(path2, list) and maxdepth is None
        if not is_one or not os.path.lexists(source):
            super().mv(path1, path2, recursive, maxdepth, **options)
            return
        if os.path.isdir(source) and not os.path.islink(source):
            if not recursive:
                raise InvalidArgumentError(f"{path1}: a directory; recursive=True moves it")
            moving.refuse_inside(self, source, path2)
        target = self._strip_protocol(path2)
        into = os.path.isdir(target) or str(path2).endswith("/")
        if into and not str(path1).endswith("/"):
            target = os.path.join(target, os.path.basename(source))
        if self._is_same(source, target):
            raise InvalidArgumentError(f"{path1} and {target} are the same")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        directories.move(source, target)
        self.forget_below(source)
        self.forget_below(target)

    def _drop_empty(self, path: str) -> None:
        directories.drop_empty(self._strip_protocol(path))

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Deletes files and, with ``recursive``, directories; of a link the link. InvalidArgumentError: a
        directory, and not ``recursive``."""
        paths = self._strip_protocol(path if isinstance(path, list) else [path])
        if not recursive:
            for one in paths:
                if os.path.isdir(one) and not os.path.islink(one):
                    raise InvalidArgumentError(f"{one}: a directory; recursive=True deletes it")
        elif maxdepth is None:
            named = [
                found for one in paths for found in (self._matches(one) if self.is_pattern(one) else [one])
            ]
            paths = []
            for one in directories.outermost(named):
                if os.path.islink(one):
                    super().rm([one])
                elif os.path.isdir(one):
                    shutil.rmtree(one)
                    self.forget_below(one)
                else:
                    paths.append(one)
        if paths:
            super().rm(paths, recursive=recursive, maxdepth=maxdepth, **options)


CLASSES = (
    S3FileSystem,
    GcsFileSystem,
    AzureFileSystem,
    AbfsFileSystem,
    HubFileSystem,
    HttpFileSystem,
    LocalFileSystem,
)
BY_PROTOCOL = {protocol: cls for cls in CLASSES for protocol in cls.protocol}


def fs(url: str | os.PathLike[str], **options: Any) -> HeadraceFileSystem:
    """The fsspec file system for a URL or local path, over the engine and its cache.

    >>> fs = hr.fs("s3://bucket", cache="/nvme/headrace")  # doctest: +SKIP
    >>> fs.ls("s3://bucket/data"), fs.cat_file("bucket/data/a.bin", 0, 100)  # doctest: +SKIP

    The URL says which kind of store; paths have the bucket in front, with or without ``s3://``. Calls with
    the same options give the same object.

    :param options: ``cache``, ``cache_limit``, ``memory``, ``asynchronous`` and those of ``Store``.
    """
    text = os.fspath(url)
    _native.check_store_url(text)
    scheme, mark, _ = text.partition("://")
    protocol = scheme if mark else "file"
    if protocol not in BY_PROTOCOL:
        known = ", ".join(cls.scheme + "://" for cls in CLASSES)
        raise InvalidArgumentError(
            f"{text}: no file system for {protocol}://; there are {known} and local paths"
        )
    made = BY_PROTOCOL[protocol](**plain(options))
    assert isinstance(made, HeadraceFileSystem)
    return made


def register(
    protocols: str | Iterable[str] = ("s3", "gs", "gcs", "az", "abfss"), *, clobber: bool = True
) -> None:
    """From now on, in this process, fsspec opens these URLs with Headrace: of all that read through it.

    :param protocols: such as ``"s3"``, ``"http"``; default: the object stores.
    :param clobber: False: a protocol that another package's class has already is a ValueError.
    """
    for protocol in [protocols] if isinstance(protocols, str) else protocols:
        if protocol not in BY_PROTOCOL:
            raise InvalidArgumentError(f"{protocol!r}: expected one of {', '.join(sorted(BY_PROTOCOL))}")
        fsspec.register_implementation(protocol, BY_PROTOCOL[protocol], clobber=clobber)
