"""The engine's loader, and what it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace import _native
from headrace.base.machine import available_cores, warn_of_memory
from headrace.base.ranks import local_world_size
from headrace.base.units import parse_bytes
from headrace.data.batch import Batch
from headrace.decode.auto import decodings_of
from headrace.errors import InvalidArgumentError
from headrace.sources.filling import open_value_cache
from headrace.sources.source import first_blocks

if TYPE_CHECKING:
    from headrace.base.ranks import Rank
    from headrace.loader.options import Options
    from headrace.sources.source import Source

__all__ = ["Engine"]


def _workers(options: Options) -> int:
    """Threads of the engine; 0: it chooses. Ranks that share a node share its cores, when they decode."""
    ranks = local_world_size()
    if options.workers or options.decode is None or ranks < 2:
        return options.workers
    return max(1, available_cores() // ranks - 1)


def _value_cache(options: Options, source: Source) -> _native.ValueCache | None:
    """Where decoded values may be kept."""
    if options.decode is None or options.cache_decoded == "never":
        return None
    cache = open_value_cache(source)
    if cache is None and options.cache_decoded == "always":
        raise InvalidArgumentError(
            'cache_decoded="always" keeps what decode= makes in a directory: name one with cache='
        )
    return cache


class Engine:
    """Delivers the batches of one rank from a source, which must outlive it. Fails with nothing left open.

    :param quarantine: half-open ranges of positions.
    """

    def __init__(
        self, source: Source, options: Options, rank: Rank, quarantine: Sequence[tuple[int, int]]
    ) -> None:
        self.source, self.options, self.rank, self._quarantine = source, options, rank, quarantine
        self.order = source.order_source(options.order_request(rank))
        """Of a first run; None: the engine's own."""
        warn_of_memory(parse_bytes(options.memory))
        self.native = _native.Loader(
            source.native,
            source.store,
            Batch,
            rank=rank.rank,
            world_size=rank.world_size,
            order_source=self.order,
            source_blocks=first_blocks(source),
            quarantine=quarantine,
            value_cache=_value_cache(options, source),
            decode=decodings_of(options.decode, source, options.column_names()),
            **{**options.for_engine(), "workers": _workers(options)},
        )

    def for_rank(self, rank: Rank) -> Engine:
        """The same for another rank, at the beginning."""
        return Engine(self.source, self.options, rank, self._quarantine)

    def over(self, source: Source) -> Engine:
        """The same from another source, at the beginning."""
        return Engine(source, self.options, self.rank, self._quarantine)

    def close(self) -> None:
        """Stops reading. The source stays open."""
        self.native.close()
