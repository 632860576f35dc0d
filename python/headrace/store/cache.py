"""The directory that ``cache=`` names, as people look at it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace import _native
from headrace.base.units import parse_bytes
from headrace.errors import NotFoundError
from headrace.store.tiers import parse_tiers
from headrace.store.urls import check_beginning, kept_url, lasting_path


class CachedExtent(NamedTuple):
    """One file of a cache: a range of one version of an object."""

    path: str
    """Relative to the directory."""
    url: str
    """Of the object; the end of a very long one is missing. ``""``: the file is broken."""
    etag: str
    offset: int
    length: int
    object_size: int
    """0: unknown."""


class CacheUsage(NamedTuple):
    extents: int
    data_bytes: int
    """Of objects."""
    file_bytes: int
    """With 4 KiB a file for its header: what ``cache_limit=`` bounds."""
    key_id: str
    """Of the key that it is encrypted under; ``""``: it is not."""


class CacheCheck(NamedTuple):
    extents: int
    data_bytes: int
    broken: int
    """Files that did not match their sums, were not encrypted under the key, or could not be read, and are
    deleted."""


class Cache:
    """What a :class:`headrace.Cache` can do without a dataset, and so without numpy."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        create: bool = False,
        limit: int | str | None = None,
        key: str | None = None,
        share: str | None = None,
    ) -> None:
        self.directory = lasting_path(directory)
        # Not "v1" alone: others have folders of that name, which opening would make a cache of.
        if not create and not os.path.isfile(os.path.join(self.directory, "v1", "ledger")):
            raise NotFoundError(f"{self.directory}: no cache there; cache= of a Loader or Store makes one")
        tiers = parse_tiers({"directory": self.directory, "limit": limit}, cache_key=key, cache_share=share)
        self._key = tiers.key
        self._native = _native.Cache(self.directory, tiers.limit_bytes, tiers.key, tiers.is_group_shared)

    def usage(self) -> CacheUsage:
        """How much there is. Reads names alone: about 1 µs a file."""
        return CacheUsage(**self._native.usage())

    def extents(self) -> Iterator[CachedExtent]:
        """Every file, with its header read."""
        return (CachedExtent(*row) for row in self._native.extents())

    def verify(self, progress: Callable[[int], None] | None = None) -> CacheCheck:
        """Reads every file and deletes those that do not match their sums, or with ``key`` their tags, or
        cannot be read. Jobs do the same for what they read. One that cannot be deleted or opened is an error,
        when all the others were read.

        :param progress: called now and then with the bytes read so far.
        """
        relay = None if progress is None else lambda done, _total, _extra: progress(done)
        return CacheCheck(*self._native.verify(relay))

    def remove(self, url: str = "") -> int:
        """Deletes what is cached of objects whose URL begins with ``url``; ``""``: everything. Returns the
        bytes of the files that went."""
        kept = kept_url(url)
        # As it was given: below a key that begins with a slash.
        return self._native.remove(kept) + (self._native.remove(url) if url != kept else 0)

    def shrink(self, limit: int | str) -> int:
        """Deletes what is least likely to be read again until files take ``limit`` at most. Returns the bytes
        that went."""
        return self._native.shrink(0 if limit == 0 else parse_bytes(limit, "limit"))

    def pin(self, url: str) -> None:
        """Keeps what is cached of objects whose URL begins with ``url``, now and later, from ever being
        evicted, by any process, until :meth:`unpin`. Where pins leave no room, new extents are left out, and
        ``cache.pin_refusals`` counts. :meth:`remove` deletes them all the same. ``s3://bucket/train`` is also
        the beginning of ``s3://bucket/train-old``: a folder's URL ends in a slash. InvalidArgumentError: no
        URL begins so, and no path that is there."""
        check_beginning(url)
        self._native.pin(kept_url(url))

    def unpin(self, url: str) -> bool:
        """False: exactly this was not pinned."""
        # As it was given: what earlier versions pinned, and what lies below a key that begins with a slash.
        return self._native.unpin(kept_url(url)) or self._native.unpin(url)

    def pins(self) -> list[str]:
        """In order."""
        return self._native.pins()
