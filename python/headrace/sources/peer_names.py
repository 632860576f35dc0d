"""What other libraries call the options of a dataset."""

from __future__ import annotations

from headrace.store.peer_names import STORE_PEERS

__all__ = ["DATASET_PEERS"]

_FIRST = "the URL or path of the dataset is the first argument"
_SPLIT = (
    "the URL names the objects: a folder, one object, a brace pattern (data-{0000..0099}.tar), or keys=[...] "
    "below it"
)
_LOADER = "it belongs to a loader: headrace.Loader(dataset, batch_size=...)"

DATASET_PEERS: dict[str, str] = {
    **STORE_PEERS,
    **dict.fromkeys(
        (
            "batch_size",
            "shuffle",
            "seed",
            "order",
            "rank",
            "world_size",
            "epochs",
            "decode",
            "prefetch",
            "workers",
        ),
        _LOADER,
    ),
    "remote": f"{_FIRST}; cache=DIRECTORY keeps what was read on a disk",
    "local": (
        "cache=DIRECTORY keeps what was read on a disk, up to cache_limit=; a dataset of this machine is "
        "read at its path"
    ),
    "url": _FIRST,
    "urls": f"{_FIRST}, also a list of them",
    "path": _FIRST,
    "root": _FIRST,
    "uri": _FIRST,
    "data_dir": _FIRST,
    "input_dir": _FIRST,
    "dataset_url": _FIRST,
    "data_files": _SPLIT,
    "shards": _SPLIT,
    "streaming": "data are always streamed; cache=DIRECTORY keeps what was read",
    "trust_remote_code": (
        "no code of a dataset is ever run; allow_unsafe=True reads columns that were pickled"
    ),
    "allow_unsafe_types": "use allow_unsafe=True",
    "encryption": "use password= and password_salt=",
    "schema_fields": "use columns=",
    "fields": "use columns=",
    "features": (
        "use columns=; for features of a tf.train.Example decode={'record': "
        "headrace.decode.tf_example({...})}"
    ),
    "filters": "use where=[(column, op, value), ...]",
    "filter": "use where= for row groups of Parquet; loader.filter(fn) for functions of your own",
    "predicate": "use where= for row groups of Parquet; loader.filter(fn) for functions of your own",
    "validate_hash": (
        "`headrace verify URL` checks a dataset against its hashes; sums that a store sends are always "
        "checked"
    ),
    "keep_zip": (
        "leave it out: compressed shards are inflated as they are read, and cache=DIRECTORY keeps them as "
        "they are stored"
    ),
    "download_retry": "use max_attempts=",
    "download_timeout": "use timeout= for one request",
}
"""What to write instead, by their names."""
