"""Objects of a store: reading, writing, listing."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from headrace import _live, _native
from headrace._native import ObjectInfo
from headrace._units import parse_bytes
from headrace.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

__all__ = ["RangeResult", "Store", "StoreOptions"]


class RangeResult(NamedTuple):
    """One finished read of :meth:`Store.get_ranges`."""

    key: str
    offset: int
    data: memoryview
    """The bytes. Their memory returns to the store's budget when this view and all views of it are dropped."""


class StoreOptions(TypedDict, total=False):
    """How to reach a store; keyword arguments of Store, Dataset and Loader."""

    endpoint: str | None
    region: str | None
    anonymous: bool
    access_key: str | None
    secret_key: str | None
    session_token: str | None
    path_style: bool | None
    poller: str
    reactors: int
    max_in_flight: int
    timeout: float
    connect_timeout: float
    first_byte_timeout: float
    progress_timeout: float
    max_attempts: int


def open_native(
    url: str | os.PathLike[str],
    memory: int | str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    **options: Any,
) -> _native.Store:
    """Opens the engine's store for a URL or path."""
    environment: dict[str, str] = {}
    if (access_key is None) != (secret_key is None):
        raise InvalidArgumentError("access_key and secret_key go together: give both or neither")
    if access_key is not None and secret_key is not None:
        environment = {
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": secret_key,
            "AWS_SESSION_TOKEN": session_token or "",
        }
    return _native.Store(
        os.fspath(url),
        memory_bytes=parse_bytes(memory),
        endpoint=endpoint or "",
        region=region or "",
        environment=environment,
        **options,
    )


class Store:
    """A place that holds objects: ``s3://bucket[/prefix]``, ``file:///dir``, a plain path, or ``memory://name``.

    Keys are relative to the URL. Credentials, region and endpoint are found as the AWS command line finds them
    (environment, shared config and credentials files) unless given. Every method may be called from any thread; all take
    Ctrl-C at once and leave the other Python threads running.

    :param memory: limit of the bytes under way, all calls together. What :meth:`get` returns is the caller's and not counted.
    :param timeout: seconds for one request, all attempts and pauses together.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        endpoint: str | None = None,
        region: str | None = None,
        anonymous: bool = False,
        access_key: str | None = None,
        secret_key: str | None = None,
        session_token: str | None = None,
        memory: int | str = "256MiB",
        path_style: bool | None = None,
        poller: str = "auto",
        reactors: int = 0,
        max_in_flight: int = 64,
        timeout: float = 60.0,
        connect_timeout: float = 3.0,
        first_byte_timeout: float = 10.0,
        progress_timeout: float = 10.0,
        max_attempts: int = 10,
    ) -> None:
        self._native = open_native(
            url,
            memory,
            endpoint=endpoint,
            region=region,
            access_key=access_key,
            secret_key=secret_key,
            session_token=session_token,
            anonymous=anonymous,
            path_style=path_style,
            poller=poller,
            reactors=reactors,
            max_in_flight=max_in_flight,
            timeout=timeout,
            connect_timeout=connect_timeout,
            first_byte_timeout=first_byte_timeout,
            progress_timeout=progress_timeout,
            max_attempts=max_attempts,
        )
        self._max_in_flight = max_in_flight
        _live.register(self)

    @property
    def url(self) -> str:
        """The root, without trailing slash."""
        return self._native.url

    @property
    def closed(self) -> bool:
        return self._native.closed

    def get(self, key: str) -> bytes:
        """The whole object; a large one is read in parallel parts of one version."""
        return self._native.get(key)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset`` on; an object that ends earlier is a CorruptError."""
        if offset < 0 or length < 0:
            raise InvalidArgumentError(f"{key}: offset and length must not be negative")
        return self._native.get_range(key, offset, length)

    def get_ranges(self, ranges: Iterable[tuple[str, int, int]], *, in_flight: int | None = None) -> Iterator[RangeResult]:
        """Reads many ``(key, offset, length)``; yields results in order of completion.

        At most ``in_flight`` (default: twice the connections) are under way, fewer when memory is short. ``ranges`` may be
        endless; it is pulled from as results are taken. A range that fails raises its error; the iteration may go on after
        it. Results keep their memory: holding so many that nothing is left for the next read raises ExhaustedError.
        """
        return _native.RangeReader(self._native, ranges, RangeResult, in_flight or 2 * self._max_in_flight)

    def put(self, key: str, data: Buffer | os.PathLike[str], *, if_absent: bool = False) -> ObjectInfo:
        """Writes an object from bytes, any buffer, or the file at a path; large ones as multipart uploads.

        Nothing is visible before all is written. With ``if_absent`` an existing object raises ChangedError.
        """
        if not isinstance(data, os.PathLike):
            return self._native.put(key, data, if_absent)
        with open(data, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                return self._native.put(key, b"", if_absent)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                return self._native.put(key, mapped, if_absent)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix``, in byte order, page by page.

        With ``recursive=False`` deeper keys are rolled up: each "directory" comes once, with a key that ends in ``/``.
        """
        continuation = ""
        while True:
            objects, prefixes, continuation = self._native.list_page(prefix, "" if recursive else "/", continuation)
            if prefixes:
                rolled = [ObjectInfo(key=p, size=0) for p in prefixes]
                yield from sorted([*objects, *rolled], key=lambda info: info.key.encode())
            else:
                yield from objects
            if not continuation:
                return

    def head(self, key: str) -> ObjectInfo:
        """Size and version of one object."""
        return self._native.head(key)

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        try:
            self.head(key)
        except NotFoundError:
            return False
        return True

    def delete(self, key: str) -> None:
        """Deletes one object; a missing one is no error."""
        self._native.remove(key)

    def copy(self, from_key: str, to_key: str) -> ObjectInfo:
        """Copies inside this store, without the bytes passing through here."""
        return self._native.copy(from_key, to_key)

    def stats(self) -> dict[str, float]:
        """Counters since opening, see docs/metrics.md."""
        return self._native.stats()

    def close(self) -> None:
        """Cancels what is under way and ends the threads. Views from :meth:`get_ranges` stay valid. May be repeated."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "Store(closed)" if self.closed else f"Store({self.url!r})"
