"""The directory that ``cache=`` names, and what fills it before a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from os import PathLike, fspath
from typing import Any, NamedTuple

from headrace.base.units import whole_number
from headrace.caching.simulation import simulate
from headrace.data.dataset import Dataset
from headrace.errors import InvalidArgumentError
from headrace.loader.loader import Loader
from headrace.store import cache as store_cache
from headrace.store.tiers import CACHE_OPTIONS
from headrace.store.urls import is_pattern, kept_url

__all__ = ["Cache", "WarmReport"]

# Of a read under way while nothing else is.
_WARM_BYTES = 256 << 20


class WarmReport(NamedTuple):
    """What :meth:`Cache.warm` did. Bytes of objects."""

    total_bytes: int
    """That the run needs."""
    held_bytes: int
    """Were there."""
    fetched_bytes: int
    missing_bytes: int
    """Are not there: the cache has no room for them."""
    file_bytes: int
    """That all of it takes in the cache."""


class Cache(store_cache.Cache):
    """What ``cache=`` of a store, dataset or loader keeps in a directory, of all processes that use it.

    Jobs may run meanwhile: what is deleted under them is fetched again.

    :param directory: as given to ``cache=``. A directory without a cache is a NotFoundError.
    :param create: make one there instead.
    :param limit: as ``cache_limit=``, for what is added through this object.
    :param key: as ``cache_key=``. Of an encrypted directory it is needed to :meth:`warm`, and to find in
        :meth:`verify` what was changed on purpose; for the rest it is not.
    :param share: as ``cache_share=``.
    """

    def warm(
        self,
        dataset: Any,
        *,
        batch_size: int | None = None,
        world_size: int = 1,
        epochs: int = 1,
        pin: bool = False,
        progress: Callable[[int, int, int], None] | None = None,
        **options: Any,
    ) -> WarmReport:
        """Fetches what is missing of a dataset, before the run that needs it. What is there is not read; so
        one that was interrupted goes on where it was.

        Where all of it has no room, it ends when the cache is full: then say how the run will read
        (``batch_size`` and the other options of the :class:`headrace.Loader`), and what is needed first is
        there.

        :param dataset: URL, or whatever a Loader takes.
        :param batch_size: None: the whole dataset, in its own order.
        :param world_size: ranks of the run; what any of them needs is fetched.
        :param epochs: with ``batch_size``: what the first epochs of the run need, for runs that do not read
            everything in each.
        :param pin: and pins it, before anything is fetched; ``dataset`` is a URL then.
        :param progress: called now and then with the bytes that were there, that were fetched, and of all.
        :param options: of the Loader, or without ``batch_size`` of the Dataset.
        """
        for name in (*CACHE_OPTIONS, "cache_mode"):
            if name in options:
                raise InvalidArgumentError(f"{name}= is what warm() is about: leave it out")
        epochs = whole_number("epochs", epochs, 32)
        if pin and not isinstance(dataset, str | PathLike):
            raise InvalidArgumentError("pin=True takes the URL of a dataset: pin() takes others one by one")
        with ExitStack() as opened:
            needs: list[int] = []
            options.update(cache=self.directory, cache_key=self._key or None)
            if batch_size is None:
                for name in ("seed", "order", "shuffle"):
                    if name in options:
                        raise InvalidArgumentError(
                            f"{name}= says in which order a run reads: give its batch_size too"
                        )
                source = opened.enter_context(Dataset(dataset, **options))._source
            else:
                loader = opened.enter_context(
                    Loader(dataset, batch_size=batch_size, rank=0, world_size=world_size, **options)
                )
                source = loader._engine.source
                needs = loader._native.block_needs(epochs=epochs, first_rank=0, ranks=world_size)
            if pin:
                self.pin(_beginning_of(fspath(dataset), source.native.url))
            report = self._native.fill(
                source.native, source.store, needs=needs, memory_bytes=_WARM_BYTES, progress=progress
            )
        return WarmReport(**report)

    simulate = staticmethod(simulate)


def _beginning_of(given: str, root: str) -> str:
    """Of all objects of a dataset, and of none beside them: its one object's URL, or its folder's with the
    slash."""
    is_object = not is_pattern(given) and kept_url(given).rstrip("/") != root
    return kept_url(given) if is_object else root.rstrip("/") + "/"
