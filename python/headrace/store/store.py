"""Objects of a store: reading, writing, listing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from headrace import _native
from headrace._native import ObjectInfo
from headrace.base import live
from headrace.base.log import listen
from headrace.base.metrics import Metric, by_name, snapshot
from headrace.base.option_names import OptionNames
from headrace.base.ranks import recorded_rank
from headrace.base.recipe import Recipe, lasting, lasting_options
from headrace.base.units import parse_bytes
from headrace.errors import CorruptError, InvalidArgumentError, NotFoundError
from headrace.store.peer_names import STORE_PEERS
from headrace.store.putting import put_file
from headrace.store.settings import ObjectSettings, given_settings
from headrace.store.tiers import CacheChoice, key_environment, parse_tiers, profile_environment
from headrace.store.urls import local_path, without_secrets

if TYPE_CHECKING:
    from typing_extensions import Buffer, Unpack

__all__ = ["STORE_OPTIONS", "RangeResult", "Store", "StoreOptions", "profile_environment"]


class RangeResult(NamedTuple):
    """One finished read of :meth:`Store.get_ranges`."""

    key: str
    offset: int
    data: memoryview
    """The bytes. Their memory returns to the store's budget when this view and all views of it are
    dropped."""


def list_pages(
    store: _native.Store, prefix: str, delimiter: str
) -> Iterator[tuple[list[ObjectInfo], list[str]]]:
    """Objects and common prefixes, page by page. A store that comes back to a page is a CorruptError, not an
    endless listing."""
    continuation = ""
    seen: set[str] = set()
    while True:
        objects, prefixes, continuation = store.list_page(prefix, delimiter, continuation)
        if continuation in seen:
            raise CorruptError(f"LIST {store.url}/{prefix}: the store continues twice at the same place")
        seen.add(continuation)
        yield objects, prefixes
        if not continuation:
            return


class StoreOptions(TypedDict, total=False):
    """How to reach a store; keyword arguments of Store, Dataset and Loader. Times are in seconds; None means
    the default."""

    endpoint: str | None
    """http(s)://host[:port]; default: from the environment or the vendor's configuration, else the vendor's
    own."""
    region: str | None
    anonymous: bool
    """Send requests unsigned, for public buckets."""
    access_key: str | None
    secret_key: str | None
    session_token: str | None
    profile: str | None
    """Of the AWS configuration files, instead of AWS_PROFILE and of keys in the environment."""
    path_style: bool | None
    """The bucket in the path instead of the host name; default: for custom endpoints."""
    requester_pays: bool
    """S3, GCS: this account pays for the requests."""
    settings: ObjectSettings | None
    """Type, metadata, storage class and the like of all that is written through it; those of a single call go
    before them."""
    poller: str
    """"auto", "uring" or "epoll"."""
    reactors: int
    """Network threads; 0: one."""
    max_in_flight: int
    """Most requests on the wire at once, and most connections."""
    adaptive: bool
    """Find by itself how many of max_in_flight the store takes best (default); False: always all."""
    hedge_fraction: float
    """Second requests for late ones, as a fraction of all; 0: never. Default 0.02."""
    control_directory: str
    """Where the processes of a node share what they know about an endpoint's limit; default: the user's
    cache; "": not shared."""
    timeout: float
    """One request, all attempts and pauses together. Default 60."""
    connect_timeout: float
    first_byte_timeout: float
    progress_timeout: float
    max_attempts: int
    verify_checksums: bool
    """Check what is read against the checksums that the store sends."""
    upload_checksum: str
    """"crc32c" (default), "crc64nvme" or "none": sent with what is written."""
    tls_verify: bool
    """Check the server's certificate. False is for tests against throw-away servers."""
    ca_bundle: str | None
    """PEM file or directory of certificate authorities; default: AWS_CA_BUNDLE, SSL_CERT_FILE, SSL_CERT_DIR,
    the system's."""
    proxy: str | None
    """http://[user:password@]host:port, or "none"; default: HTTPS_PROXY, HTTP_PROXY and NO_PROXY."""
    trusted_hosts: str
    """Hosts to which a redirect may take credentials, besides the vendor's and the endpoint's own, as in
    NO_PROXY (AIStore's nodes); default: HEADRACE_TRUSTED_HOSTS."""
    access_log: str | os.PathLike[str] | None
    """File to which every finished request to the store is appended as a line of JSON (docs/stores.md);
    default: HEADRACE_ACCESS_LOG; "": none. When it cannot be written, requests raise ExhaustedError."""
    cache: CacheChoice
    """Where what was read of a known version is kept (docs/cache.md): a directory of a fast disk, for all
    processes and jobs that name it, or what nodes share, or a list of both, nearest first:
    ``["/nvme:2TB", "memcached://h1,h2"]``. Default: none."""
    cache_limit: int | str | None
    """Bytes that the files of the directory may take, such as "2TB"; default: all but a twentieth of the
    disk, at most 16 GiB, that stays free."""
    cache_key: str | None
    """Encrypts what the directory holds (AES-256-GCM): where the key is, as ``file:PATH``, ``env:NAME`` or
    ``command:PROGRAM ARGUMENTS`` (docs/cache.md). Default: not encrypted."""
    cache_share: str | None
    """"group": where the directory is new, it is made for its group, too. Default: for its maker alone."""


STORE_OPTIONS = OptionNames("Store", {"": ("memory", *StoreOptions.__annotations__)}, STORE_PEERS)


def default_control_directory() -> str:
    """Where the processes of this user share what they know about endpoints; "" when there is no such
    place."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = os.path.join(cache, "headrace", "control")
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    except OSError:
        return ""
    return directory


def open_native(
    url: str | os.PathLike[str],
    memory: int | str,
    *,
    access_log: str | os.PathLike[str] | None = None,
    cache: CacheChoice = None,
    cache_limit: int | str | None = None,
    cache_key: str | None = None,
    cache_share: str | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    profile: str | None = None,
    **options: Any,
) -> _native.Store:
    """Opens the engine's store for a URL or path. Raises InvalidArgumentError for an option that does not
    exist."""
    listen()
    environment = profile_environment(profile) | key_environment(access_key, secret_key, session_token)
    options["settings"] = given_settings(options.get("settings"))
    options.setdefault("control_directory", default_control_directory())
    options.setdefault("trusted_hosts", os.environ.get("HEADRACE_TRUSTED_HOSTS", ""))
    tiers = parse_tiers(cache, cache_limit, cache_key, cache_share)
    log = os.environ.get("HEADRACE_ACCESS_LOG", "") if access_log is None else os.fspath(access_log)
    log_path = local_path(log)
    if log_path is None:
        raise InvalidArgumentError(f"access_log={without_secrets(log)!r}: a local file is meant")
    return _native.Store(
        os.fspath(url),
        parse_bytes(memory),
        options,
        environment,
        access_log=log_path,
        rank=recorded_rank(),
        cache=tiers.directory,
        cache_limit_bytes=tiers.limit_bytes,
        cache_key=tiers.key,
        cache_group=tiers.is_group_shared,
        cluster=list(tiers.cluster),
    )


class Store(live.Closing):
    """A place that holds objects.

    ``s3://bucket[/prefix]``, ``gs://bucket[/prefix]``, ``az://account/container[/prefix]``,
    ``http(s)://host/path`` and ``hf://datasets/ORG/NAME[@REVISION]`` (reading), ``file:///dir``, a plain
    path (a relative one is that of the moment), or ``memory://name``. Keys are relative to the URL.
    Credentials, region and endpoint are found as the vendor's own tools find them unless given;
    ``headrace store whoami URL`` shows which. Every method may be called from any thread; all take Ctrl-C at
    once and leave the other Python threads running.

    :param memory: limit of the bytes under way, all calls together. What :meth:`get` returns is the caller's
        and not counted.
    :param options: see :class:`StoreOptions`.
    """

    def __init__(
        self, url: str | os.PathLike[str], *, memory: int | str = "256MiB", **options: Unpack[StoreOptions]
    ) -> None:
        STORE_OPTIONS.check(options)
        self._native = open_native(url, memory, **options)
        self._memory_bytes = parse_bytes(memory)
        self._recipe = Recipe(type(self), (lasting(url),), {"memory": memory, **lasting_options(options)})
        self._max_in_flight = options.get("max_in_flight") or _native.DEFAULT_MAX_IN_FLIGHT
        live.register(self)

    @property
    def url(self) -> str:
        """The root, without trailing slash."""
        return self._native.url

    @property
    def max_in_flight(self) -> int:
        """Most requests on the wire at once; how many are used is found by measuring."""
        return self._max_in_flight

    @property
    def closed(self) -> bool:
        return self._native.closed

    def get(self, key: str, *, version_id: str | None = None) -> bytes:
        """The whole object; a large one is read in parallel parts of one version: the newest, or
        ``version_id`` (as :meth:`head` tells it)."""
        return self._native.get(key, version_id or "")

    def get_range(
        self, key: str, offset: int, length: int, *, etag: str = "", version_id: str | None = None
    ) -> bytes:
        """``length`` bytes from ``offset`` on, all of one version; an object that ends earlier is a
        CorruptError, one of another version than ``etag``, or that is replaced meanwhile, a ChangedError."""
        if offset < 0 or length < 0:
            raise InvalidArgumentError(f"{key}: offset and length must not be negative")
        return self._native.get_range(key, offset, length, etag, version_id or "")

    def get_range_into(
        self, key: str, offset: int, out: Buffer, *, etag: str = "", version_id: str | None = None
    ) -> None:
        """Fills ``out``, any contiguous buffer that can be written, with the bytes from ``offset`` on, in
        parallel parts of one version; otherwise as :meth:`get_range`. After an error ``out`` has some of
        them."""
        if offset < 0:
            raise InvalidArgumentError(f"{key}: offset must not be negative")
        self._native.get_range_into(key, offset, out, etag, version_id or "")

    def get_ranges(
        self,
        ranges: Iterable[tuple[str, int, int] | tuple[str, int, int, str]],
        *,
        in_flight: int | None = None,
    ) -> Iterator[RangeResult]:
        """Reads many ``(key, offset, length)``; yields results in order of completion. With a fourth item, an
        ETag, another version is a ChangedError.

        At most ``in_flight`` (default: twice the connections) are under way, fewer while more bring nothing
        or memory is short.
        ``ranges`` may be endless; it is pulled from as results are taken. A range that fails raises its
        error, with the key object that was given as its ``key``; the iteration may go on after it. Results
        keep their memory: holding so many that nothing is left for the next read raises ExhaustedError.
        """
        return _native.RangeReader(self._native, ranges, RangeResult, in_flight or 2 * self._max_in_flight)

    def put(
        self,
        key: str,
        data: Buffer | os.PathLike[str],
        *,
        if_absent: bool = False,
        **settings: Unpack[ObjectSettings],
    ) -> ObjectInfo:
        """Writes an object from bytes, any buffer, or the file at a path; large ones as multipart uploads.

        Nothing is visible before all is written. With ``if_absent`` an existing object raises ChangedError.
        So does a file that is written while it is read. A pipe or device is read to its end.

        :param settings: see :class:`ObjectSettings`: ``content_type="text/csv", metadata={"run": "17"}``.
        """
        given = given_settings(settings)
        if isinstance(data, str):
            raise TypeError(
                f"{key}: data is a str; a file is named by a pathlib.Path, and text is written as "
                "text.encode()"
            )
        if not isinstance(data, os.PathLike):
            return self._native.put(key, data, if_absent, given)
        return put_file(
            self._native,
            key,
            os.fspath(data),
            if_absent=if_absent,
            settings=given,
            memory_bytes=self._memory_bytes,
        )

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix``, in byte order, page by page.

        With ``recursive=False`` deeper keys are rolled up: each "directory" comes once, with a key that ends
        in ``/``.
        """
        for objects, prefixes in list_pages(self._native, prefix, "" if recursive else "/"):
            if prefixes:
                rolled = [ObjectInfo(key=p, size=0) for p in prefixes]
                yield from sorted([*objects, *rolled], key=lambda info: os.fsencode(info.key))
            else:
                yield from objects

    def head(self, key: str, *, version_id: str | None = None) -> ObjectInfo:
        """Size, version and settings of one object: the newest, or ``version_id``."""
        return self._native.head(key, version_id or "")

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        try:
            self.head(key)
        except NotFoundError:
            return False
        return True

    def delete(self, key: str, *, version_id: str | None = None) -> None:
        """Deletes one object; a missing one is no error. A version that is named goes for good."""
        self._native.remove(key, version_id or "")

    def delete_many(self, keys: Iterable[str]) -> Sequence[tuple[str, Exception]]:
        """Deletes objects in as few requests as the store allows; returns (key, error) of those that could
        not be deleted."""
        return self._native.remove_many(list(keys))

    def presign(
        self, key: str, *, method: str = "GET", lifetime: float = 3600, version_id: str | None = None
    ) -> str:
        """A URL that lets its bearer read (or with ``method="PUT"`` write) the object, or that version of
        it, for ``lifetime`` seconds. Contacts nobody but who gives credentials."""
        if method not in ("GET", "PUT"):
            raise InvalidArgumentError(f"{key}: method must be GET or PUT, not {method}")
        return self._native.presign(key, method == "PUT", int(lifetime), version_id or "")

    def copy(
        self,
        from_key: str,
        to_key: str,
        *,
        version_id: str | None = None,
        **settings: Unpack[ObjectSettings],
    ) -> ObjectInfo:
        """Copies inside this store, without the bytes passing through here: the newest version, or
        ``version_id``. Type, encoding and metadata stay as they are where ``settings`` (see
        :class:`ObjectSettings`) do not replace them."""
        given = given_settings(settings)
        return self._native.copy(from_key, to_key, version_id or "", given)

    def set_storage_class(self, key: str, storage_class: str) -> ObjectInfo:
        """Moves an object to another storage class, in the vendor's word: by a copy onto itself inside the
        store, or as Azure's access tier. Bytes, type and metadata stay; its version may become another. One
        that is in that class already is left alone. Raises UnsupportedError where a store has no classes, and
        for an object that must be restored before it can be read."""
        return self._native.set_storage_class(key, storage_class)

    def stats(self) -> dict[str, float]:
        """Counters since opening, see docs/metrics.md."""
        return by_name(self._native.metrics())

    def metrics(self) -> Sequence[Metric]:
        """The counters of :meth:`stats` with kind, unit and labels: what exporters need."""
        return snapshot(self._native.metrics())

    def close(self) -> None:
        """Cancels what is under way and ends the threads. Views from :meth:`get_ranges` stay valid. May be
        repeated."""
        self._native.close()

    def __reduce__(self) -> Any:
        return self._recipe.checked(f"the Store of {self.url}").run, ()

    def __repr__(self) -> str:
        return "Store(closed)" if self.closed else live.describe(self, lambda: f"Store({self.url!r})")
