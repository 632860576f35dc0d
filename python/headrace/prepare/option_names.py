"""Options of what writes datasets, and what other libraries call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.base.option_names import OptionNames
from headrace.store.peer_names import STORE_PEERS
from headrace.store.store import StoreOptions

__all__ = ["writing_names"]

_TARGET = "the URL or path to write to is the argument behind the samples, or the first one of a writer"
_SIZE = "use shard_bytes=, the size of a shard before compression"

_PEERS: dict[str, str] = {
    **STORE_PEERS,
    "fmt": "use format=",
    **dict.fromkeys(("out", "output_dir", "cache_dir", "path", "target"), _TARGET),
    **dict.fromkeys(("size_limit", "chunk_bytes", "chunk_size", "maxsize", "maxcount"), _SIZE),
    "hashes": "use hash=, which takes one",
    "dtypes": "use columns=, a dict of encodings by name",
}


def writing_names(owner: str, own: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> OptionNames:
    """Of what writes datasets: its own options, and those of the target's store."""
    return OptionNames(
        owner,
        {"": own, "the store": list(StoreOptions.__annotations__)},
        {**_PEERS, **(elsewhere or {})},
    )
