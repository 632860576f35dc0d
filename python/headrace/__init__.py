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
    "NotFoundError",
    "ObjectInfo",
    "RangeResult",
    "Shard",
    "Store",
    "ThrottledError",
    "UnavailableError",
    "UnsupportedError",
    "__version__",
]

# What needs numpy comes when it is first used: copies and listings are over before numpy is imported.
_LAZY = {"Batch": "_batch", "Block": "_dataset", "Column": "_dataset", "Dataset": "_dataset", "Loader": "_loader", "Shard": "_dataset"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"headrace.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
