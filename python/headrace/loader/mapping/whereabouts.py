"""Where a sample lies, for messages."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from headrace.data.rows import Shard

if TYPE_CHECKING:
    from headrace.loader.loader import Loader

__all__ = ["whereabouts"]


def _shard_key(loader: Loader, position: int) -> str:
    """Key of the object that has a position."""
    dataset = loader._dataset
    index = bisect_right(
        range(dataset.shard_count), position, key=lambda i: Shard(*dataset.shard(i)).first_sample
    )
    return Shard(*dataset.shard(index - 1)).key


def whereabouts(loader: Loader, position: int) -> str:
    """``"of s3://bucket/data, in shard.00003.mds"``; of a mixture also the source. Never raises: it is told
    beside another error."""
    url = f"of {loader._dataset.url}"
    try:
        if loader.mixture is not None:
            ((name, place),) = loader.mixture.locate(np.array([position]))
            return f"{url}, {place} of source {name!r}"
        return f"{url}, in {_shard_key(loader, position)}"
    except Exception:
        return url
