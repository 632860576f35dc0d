"""Training data from object storage: in a fixed order, within a memory limit, resumable anywhere.

>>> import headrace as hr
>>> for batch in hr.Loader("s3://bucket/tokens", batch_size=64, seed=17):  # doctest: +SKIP
...     step(batch["tokens"])
"""

from typing import TYPE_CHECKING, Any

from headrace._native import ObjectInfo, __version__
from headrace._store import RangeResult, Store
from headrace.errors import (
    CancelledError,
    ChangedError,
    CorruptError,
    DeadlineError,
    DeniedError,
    ExhaustedError,
    HeadraceError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from headrace._batch import Batch
    from headrace._dataset import Block, Column, Dataset, Shard
    from headrace._loader import Loader
    from headrace._mixture import Mixture, MixtureSource, pack_tokens
    from headrace._verify import check_manifest, create_manifest, diff, verify

__all__ = [
    "Batch",
    "Block",
    "CancelledError",
    "ChangedError",
    "Column",
    "CorruptError",
    "Dataset",
    "DeadlineError",
    "DeniedError",
    "ExhaustedError",
    "HeadraceError",
    "InternalError",
    "InvalidArgumentError",
    "Loader",
    "Mixture",
    "MixtureSource",
    "NotFoundError",
    "ObjectInfo",
    "RangeResult",
    "Shard",
    "Store",
    "ThrottledError",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
    "check_manifest",
    "create_manifest",
    "diff",
    "pack_tokens",
    "verify",
]

# What needs numpy comes when it is first used: copies and listings are over before numpy is imported.
_LAZY = {
    "pack_tokens": "_mixture",
    "Batch": "_batch",
    "Block": "_dataset",
    "Column": "_dataset",
    "Dataset": "_dataset",
    "Loader": "_loader",
    "Mixture": "_mixture",
    "MixtureSource": "_mixture",
    "Shard": "_dataset",
    "check_manifest": "_verify",
    "create_manifest": "_verify",
    "diff": "_verify",
    "verify": "_verify",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"headrace.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
