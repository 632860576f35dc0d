"""Training data from object storage: in a fixed order, within a memory limit, resumable anywhere.

>>> import headrace as hr
>>> for batch in hr.Loader("s3://bucket/tokens", batch_size=64, seed=17):  # doctest: +SKIP
...     step(batch["tokens"])
"""

from typing import TYPE_CHECKING, Any

from headrace._native import ObjectInfo, __version__
from headrace.base.metrics import Metric
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
    UserCodeError,
)
from headrace.store.settings import ObjectSettings
from headrace.store.store import RangeResult, Store, StoreOptions

if TYPE_CHECKING:
    from headrace import checkpoint, collate, decode, errors, prepare, sim, transforms
    from headrace.caching.cache import Cache
    from headrace.data.batch import Batch
    from headrace.data.dataset import Dataset
    from headrace.data.mixture import Mixture, MixtureSource
    from headrace.data.packed import pack_tokens
    from headrace.data.rows import Block, BrokenShard, Column, CutEnd, Shard
    from headrace.fsspec.vendors import fs
    from headrace.loader.loader import Loader
    from headrace.loader.mapping.mapped import MappedLoader
    from headrace.loader.options import LoaderOptions
    from headrace.sources.options import DatasetOptions
    from headrace.verification.checks import check_manifest, create_manifest, diff, verify

__all__ = [
    "Batch",
    "Block",
    "BrokenShard",
    "Cache",
    "CancelledError",
    "ChangedError",
    "Column",
    "CorruptError",
    "CutEnd",
    "Dataset",
    "DatasetOptions",
    "DeadlineError",
    "DeniedError",
    "ExhaustedError",
    "HeadraceError",
    "InternalError",
    "InvalidArgumentError",
    "Loader",
    "LoaderOptions",
    "MappedLoader",
    "Metric",
    "Mixture",
    "MixtureSource",
    "NotFoundError",
    "ObjectInfo",
    "ObjectSettings",
    "RangeResult",
    "Shard",
    "Store",
    "StoreOptions",
    "ThrottledError",
    "UnavailableError",
    "UnsupportedError",
    "UserCodeError",
    "__version__",
    "check_manifest",
    "checkpoint",
    "collate",
    "create_manifest",
    "decode",
    "diff",
    "errors",
    "fs",
    "pack_tokens",
    "prepare",
    "sim",
    "transforms",
    "verify",
]

# What needs numpy comes when it is first used: copies and listings are over before numpy is imported.
_LAZY = {
    "pack_tokens": "data.packed",
    "Batch": "data.batch",
    "Block": "data.rows",
    "Cache": "caching.cache",
    "BrokenShard": "data.rows",
    "Column": "data.rows",
    "CutEnd": "data.rows",
    "Dataset": "data.dataset",
    "DatasetOptions": "sources.options",
    "Loader": "loader.loader",
    "LoaderOptions": "loader.options",
    "MappedLoader": "loader.mapping.mapped",
    "Mixture": "data.mixture",
    "MixtureSource": "data.mixture",
    "Shard": "data.rows",
    "check_manifest": "verification.checks",
    "create_manifest": "verification.checks",
    "diff": "verification.checks",
    "fs": "fsspec.vendors",
    "verify": "verification.checks",
}


_LAZY_MODULES = ("checkpoint", "collate", "decode", "prepare", "sim", "transforms")
_IMPORTED_BY_NAME = ("compat", "fsspec", "jax", "torch")
"""Modules that want packages of others, or replace some: public once they were imported."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY_MODULES:
        return import_module(f"headrace.{name}")
    if name in _IMPORTED_BY_NAME:
        raise AttributeError(f"headrace.{name} comes with `import headrace.{name}`")
    if name not in _LAZY:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"headrace.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in _IMPORTED_BY_NAME if name in globals())])
