"""Bringing datasets into the cache on purpose: all of one before training, or beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.base.progress import StatusLine
from headrace.base.ranks import count_of, local_world_size
from headrace.base.units import format_bytes, parse_bytes
from headrace.errors import InvalidArgumentError
from headrace.store.tiers import CACHE_OPTIONS, parse_tiers

if TYPE_CHECKING:
    from headrace.sources.source import Source

__all__ = [
    "CACHE_MODES",
    "FillProgress",
    "check_cache_mode",
    "copy_to_cache",
    "find_cache",
    "node_share",
    "open_value_cache",
    "without_cache",
]

CACHE_MODES = ("none", "cache", "copy", "lazy")
# Of what a loader may take for its data, while nothing is loaded yet.
_COPY_SHARE, _MOST_COPY_BYTES = 8, 64 << 20


def check_cache_mode(mode: str, options: Mapping[str, Any]) -> None:
    """Raises InvalidArgumentError for a mode that does not exist."""
    if mode not in CACHE_MODES:
        raise InvalidArgumentError(f"cache_mode={mode!r} is unknown; there are {', '.join(CACHE_MODES)}")
    if mode == "none":
        parse_tiers(*(options.get(name) for name in CACHE_OPTIONS))


def without_cache(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a store that is to stream."""
    return {name: value for name, value in options.items() if name not in CACHE_OPTIONS}


def _leaves(source: Source) -> Iterator[Source]:
    parts = list(source.parts.values())
    if not parts:
        yield source
    for part in parts:
        yield from _leaves(part)


def open_value_cache(source: Source) -> _native.ValueCache | None:
    """Where what is decoded of a source may be kept: the directory that its store is read through. None: it
    has none."""
    parts = [open_value_cache(part) for part in source.parts.values()]
    if parts:
        return _native.route_value_caches(parts) if any(parts) else None
    options = source.store_options
    directory = parse_tiers(options.get("cache")).directory
    if not directory:
        return None
    return _native.ValueCache(_native.Cache(directory, key=options.get("cache_key") or ""), source.store)


def find_cache(source: Source, mode: str) -> _native.Cache:
    """The cache that all of a source is read through. Raises InvalidArgumentError where there is none, or are
    several."""

    def chosen(option: str) -> list[Any]:
        return [
            leaf.store_options.get(option) or source.store_options.get(option) for leaf in _leaves(source)
        ]

    found = {parse_tiers(choice).directory for choice in chosen("cache")}
    directories = {path for path in found if path}
    if len(directories) != 1 or len(found) != 1:
        what = (
            f"its parts have several caches ({', '.join(sorted(directories))})"
            if len(directories) > 1
            else "name a directory with cache="
        )
        raise InvalidArgumentError(f'cache_mode="{mode}" fills one cache with the whole dataset: {what}')
    # A directory has one key: the stores that are open have found out.
    key = next((key for key in chosen("cache_key") if key), "")
    return _native.Cache(directories.pop(), key=key)


def node_share() -> tuple[int, int]:
    """(number, count) of this process among those of the node, as far as the launcher says."""
    count = local_world_size()
    number = count_of("LOCAL_RANK", count_of("OMPI_COMM_WORLD_LOCAL_RANK", count_of("SLURM_LOCALID", 0)))
    return (number, count) if number < count else (0, 1)


class FillProgress:
    """A line about how far a cache is filled."""

    def __init__(self, what: str) -> None:
        self._line, self._what = StatusLine(), what
        self._began = time.monotonic()

    def __call__(self, held: int, fetched: int, total: int) -> None:
        if not self._line.is_due():
            return
        done, seconds = held + fetched, time.monotonic() - self._began
        rate = fetched / seconds if seconds else 0.0
        left = f", {(total - done) / rate / 60:.0f} min left" if rate and total > done else ""
        share = 100 * done / total if total else 100.0
        self._line.show(
            f"{self._what}: {format_bytes(done)} of {format_bytes(total)} ({share:.0f}%), "
            f"{format_bytes(rate)}/s{left}"
        )

    def end(self) -> None:
        self._line.end()


def copy_to_cache(source: Source, memory: int | str, needs: Sequence[int] = ()) -> dict[str, int]:
    """Fetches what is missing of a source into its cache; the processes of a node share the work. Returns the
    report. Raises ExhaustedError where the cache cannot hold it all.

    :param needs: by block, batches until it is needed; empty: all, in the order of the dataset.
    """
    share, count = node_share()
    progress = FillProgress(f"copying {source.native.url}")
    try:
        return find_cache(source, "copy").fill(
            source.native,
            source.store,
            needs=list(needs),
            share=share,
            share_count=count,
            is_all_required=True,
            memory_bytes=min(parse_bytes(memory) // _COPY_SHARE, _MOST_COPY_BYTES),
            progress=progress,
        )
    finally:
        progress.end()
