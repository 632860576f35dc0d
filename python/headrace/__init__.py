"""Training data from object storage: in a fixed order, within a memory limit, resumable anywhere.

>>> import headrace as hr
>>> for batch in hr.Loader("s3://bucket/tokens", batch_size=64, seed=17):  # doctest: +SKIP
...     step(batch["tokens"])
"""

from headrace._batch import Batch
from headrace._dataset import Block, Column, Dataset, Shard
from headrace._loader import Loader
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
