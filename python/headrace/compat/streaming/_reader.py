"""Samples of a stream as Mosaic's readers give them: images are decoded, lazily where Pillow does so."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

from headrace.compat.streaming._decodings import open_image, open_images
from headrace.compat.streaming._hashes import ShardHashes
from headrace.data.dataset import Dataset
from headrace.data.rows import samples_at_once

_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "jpeg": open_image,
    "png": open_image,
    "list[jpeg]": open_images,
    "list[png]": open_images,
    "jpeg_array": open_images,
    "jpegarray": open_images,
}


class StreamReader:
    """One process's view of a stream's data set."""

    def __init__(self, url: str, allow_unsafe_types: bool, validate_hash: str | None = None) -> None:
        self._dataset = Dataset(url, format="mds", allow_unsafe=allow_unsafe_types)
        columns = self._dataset.schema.values()
        self._conversions = [
            (c.name, _CONVERSIONS[c.encoding]) for c in columns if c.encoding in _CONVERSIONS
        ]
        self._unsafe = [c.name for c in columns if c.encoding == "pkl"]
        if self._unsafe and not allow_unsafe_types:
            raise ValueError(
                f"Column {self._unsafe[0]} contains an unsafe type: `pkl`. To proceed anyway, set "
                "`allow_unsafe_types=True`."
            )

        self._hashes = ShardHashes(url, validate_hash) if validate_hash else None
        self._first_samples = [shard.first_sample for shard in self._dataset.shards] if validate_hash else []

    def shard_samples(self) -> list[int]:
        return [shard.sample_count for shard in self._dataset.shards]

    def samples_at_once(self, most: int, most_bytes: int) -> int:
        """How many of them are not too much to be in memory."""
        return samples_at_once(self._dataset.blocks, most, most_bytes)

    def read(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        if self._hashes is not None:
            for shard in sorted(
                {bisect.bisect_right(self._first_samples, position) - 1 for position in positions}
            ):
                self._hashes.check(self._dataset.shards[shard].key)
        samples = self._dataset.read(positions)
        for name, convert in self._conversions:
            for sample in samples:
                sample[name] = convert(sample[name])
        return samples
