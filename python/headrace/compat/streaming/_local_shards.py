"""The shards of a data set's streams, and those of them that are kept as copies."""

from __future__ import annotations

import bisect
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.compat.streaming._copies import Room, touch
from headrace.compat.streaming._shards import Reader
from headrace.compat.streaming._stream import Stream

_TOUCH_SECONDS = 1.0
# What is copied ahead takes at most this part of the limit, all workers of a rank together.
_AHEAD_PART = 0.25


class LocalShards:
    """Shards by number, through all streams. Methods from any thread and process."""

    def __init__(
        self, streams: Sequence[Stream], shards: Sequence[Sequence[Reader]], cache_limit: int | None
    ) -> None:
        self.shards = [shard for of_stream in shards for shard in of_stream]
        self.stream_per_shard = np.repeat(np.arange(len(streams)), [len(of_stream) for of_stream in shards])
        self.first_samples = np.cumsum([0, *(shard.samples for shard in self.shards)])[:-1].tolist()
        self._streams, self._limit = streams, cache_limit
        copies = [
            (stream.copies, of_stream)
            for stream, of_stream in zip(streams, shards, strict=True)
            if stream.keeps_copies
        ]
        self.room = Room(copies, cache_limit) if copies else None
        for place, of_stream in copies:
            place.clear_abandoned(of_stream)
            if self.room is not None and cache_limit:
                place.make_room = self.room.make
        self._touched: tuple[int, float] = -1, 0.0
        if cache_limit and copies:
            self._check_limit(cache_limit)

    def _check_limit(self, limit: int) -> None:
        index_bytes = sum(stream.get_index_size() for stream in self._streams if stream.keeps_copies)
        if limit <= index_bytes:
            raise ValueError(
                f"Minimum cache usage ({index_bytes} bytes) is larger than the cache limit ({limit} bytes). "
                "Please raise `cache_limit`. Recommendation is to provide a `cache_limit` as high as "
                "possible to avoid thrashing."
            )
        largest = self.largest_bytes
        if limit < 4 * largest:
            raise ValueError(
                f"Cache limit ({limit} bytes) is too low. Increase the `cache_limit` to at-least four times "
                f"the largest shard size ({largest} bytes) which includes raw (decompressed) and zip "
                "(compressed) file size. Recommendation is to provide a `cache_limit` as high as possible to "
                "avoid thrashing."
            )

    @property
    def largest_bytes(self) -> int:
        """Of a shard, with its compressed files."""
        return max(shard.get_max_size() for shard in self.shards)

    def most_ahead(self, workers: int) -> int:
        """Shards that one of so many workers may copy ahead."""
        if not self._limit:
            return len(self.shards)
        return max(int(self._limit * _AHEAD_PART / workers / max(self.largest_bytes, 1)), 1)

    def stream_of(self, shard_id: int) -> Stream:
        return self._streams[int(self.stream_per_shard[shard_id])]

    def prepare(self, shard_id: int) -> None:
        """Makes sure that a shard is there; nothing to do where samples are read in their place."""
        stream = self.stream_of(shard_id)
        if stream.keeps_copies or stream.remote is None:
            stream.prepare_shard(self.shards[shard_id])

    def copy(self, shard_id: int) -> None:
        """Makes sure that a shard is there if its stream keeps copies."""
        if self.stream_of(shard_id).keeps_copies:
            self.prepare(shard_id)

    def evict(self, shard_id: int) -> None:
        """Removes the copy of a shard. Raises ValueError for what is no copy."""
        stream = self.stream_of(shard_id)
        if not stream.keeps_copies or stream.copies.remote is None:
            raise ValueError(f"shard {shard_id} is no copy: {stream.url} is the data set itself")
        self.shards[shard_id].evict()

    def read(self, sample_id: int, retry: int) -> dict[str, Any]:
        """A sample of a stream that keeps copies; its shard is copied when it is not there."""
        shard_id = bisect.bisect_right(self.first_samples, sample_id) - 1
        shard, index = self.shards[shard_id], sample_id - self.first_samples[shard_id]
        missing = ""
        for _ in range(1 + retry):
            try:
                sample = shard.get_item(index)
            except FileNotFoundError as error:
                missing = str(error)  # not the error: its frames would keep the data set alive
                self.prepare(shard_id)
            else:
                self._touch(shard_id)
                return sample
        if self._limit:
            why = "This may be due to thrashing caused by `cache_limit` being set too low."
            raise RuntimeError(f"{missing}. StreamingDataset repeatedly failed to download a shard. {why}")
        raise RuntimeError(
            f"{missing}. Check if the shard file exists in your remote location or have you deleted the "
            "shard file from the local directory?"
        )

    def _touch(self, shard_id: int) -> None:
        """Notes the use of a shard, for eviction; once a second is enough while it is the same."""
        now = time.monotonic()
        if not self._limit or (self._touched[0] == shard_id and now < self._touched[1] + _TOUCH_SECONDS):
            return
        self._touched = shard_id, now
        for raw, _ in self.shards[shard_id].file_pairs:
            touch(self.shards[shard_id].path(raw))
