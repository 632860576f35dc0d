"""What ``cache_mode=`` of a loader does beside loading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import _native
from headrace.base.units import parse_bytes
from headrace.errors import InvalidArgumentError
from headrace.sources.filling import copy_to_cache, find_cache, node_share

if TYPE_CHECKING:
    from headrace.loader.engine import Engine
    from headrace.loader.options import Options
    from headrace.sources.source import Source

__all__ = ["Filling", "check_source"]

# Of memory=, beside it: for what is under way.
_SHARE, _LEAST_BYTES, _MOST_BYTES = 16, 4 << 20, 32 << 20


def check_source(source: Source, options: Options) -> None:
    """Does what comes before the first batch. Raises InvalidArgumentError where the mode does not fit the
    source."""
    if options.cache_mode == "none" and source.store_options.get("cache"):
        raise InvalidArgumentError(
            'cache_mode="none": the dataset that was passed in is open with cache=; open it without'
        )
    if options.cache_mode == "lazy":
        find_cache(source, "lazy")
    if options.cache_mode == "copy":
        copy_to_cache(source, options.memory)


class Filling:
    """Fills the cache beside a loader, where that is wanted, from the first epoch on."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._native: _native.Fill | None = None

    def begin(self, engine: Engine) -> None:
        """At the beginning of an epoch; the first time counts."""
        if self._native is not None or self._options.cache_mode != "lazy":
            return
        share, count = node_share()
        rank, world_size = engine.rank
        # Ranks of a node are neighbours; where they are not, each sees to itself.
        first = rank - share
        if first < 0 or first + count > world_size:
            first, count = rank, 1
        epochs = self._options.epochs
        self._native = engine.native.fill_beside(
            find_cache(engine.source, "lazy"),
            rank=rank,
            node_first=first,
            node_ranks=count,
            epochs_left=max(epochs - engine.native.epoch, 1) if epochs else 0,
            memory_bytes=min(max(parse_bytes(self._options.memory) // _SHARE, _LEAST_BYTES), _MOST_BYTES),
        )

    def end(self) -> None:
        if self._native is not None:
            self._native.close()
            self._native = None
