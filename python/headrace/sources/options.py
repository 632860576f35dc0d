"""What to read of a dataset: the keyword arguments of Dataset and Loader that are not of its store."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any, TypedDict

import numpy as np

from headrace.base.option_names import OptionNames
from headrace.errors import InvalidArgumentError
from headrace.sources.peer_names import DATASET_PEERS
from headrace.store.store import StoreOptions

__all__ = [
    "OPENING",
    "DatasetOptions",
    "column_names",
    "dataset_names",
    "given_columns",
    "native_options",
    "split_options",
]

OPENING: dict[str, Any] = {
    "format": "auto",
    "block_bytes": None,
    "index_cache": None,
    "use_stored_index": True,
}
"""How a dataset is opened, and what is meant where it is left out."""


class DatasetOptions(TypedDict, total=False):
    """What to read of a dataset, where its format leaves a choice."""

    columns: Sequence[str] | str | None
    """Tables, CSV, JSON lines, TFRecord, numpy: the columns to read; of Parquet, Lance and Arrow the bytes of
    others are not fetched. Other formats read samples whole: ``read(columns=)`` and the Loader choose. A list
    of datasets: those that must be equal in all; others are left out where they differ."""
    where: Sequence[tuple[str, str, Any]] | None
    """Parquet: ``[(column, op, value), ...]``, all of which hold (op: == != < <= > >= in). Row groups whose
    statistics rule that out are left out; rows of the others are not looked at."""
    keys: Sequence[str] | None
    """Exactly these objects below the URL, in this order."""
    labels: str
    """Raw files: ``"folder"`` adds the column ``label``: an int64 for the folder that a file is in, right
    below the URL. Folders count from 0 in the order of their names (torchvision's ImageFolder); their names
    are ``schema["label"].classes``."""
    manifest: str
    """Raw files: a file below the URL, of JSON lines or CSV, whose records name a file each in ``file_name``,
    ``file`` or ``path`` (relative to the manifest). They are the samples, in this order, and their other
    fields are columns."""
    split: str | None
    """One of several splits: the part of ``.nv-meta/split.yaml`` (Megatron Energon), else the folder of this
    name with an index of its own (``train/index.json``), else the files whose names or folders say so, as
    Hugging Face reads them: "train", "validation", "test", or NAME of ``data/NAME-00000-of-00005.parquet``.
    ``"all"``: all of them as one dataset."""
    allow_unsafe: bool
    """Open datasets with pickled columns. Unpickling runs what the writer of the data wants."""
    tokens_per_sample: int
    """Flat tokens: tokens of one sample; 0: whole documents, where the format knows them."""
    token_dtype: str
    """Flat tokens without an index: "uint16" (default), "uint32", ..."""
    password: str
    """LitData: of an encrypted dataset."""
    password_salt: str
    """LitData: its salt, as litdata stores it."""
    lenient: bool
    """Take what the reference readers pass over in silence (a tar that is cut off) as the end of a shard."""
    on_broken_shard: str
    """Shards that no index can be made of (cut off, damaged): ``"raise"`` (default) names all of them in an
    error; ``"leave_out"`` goes on without them, as another dataset with another fingerprint
    (``Dataset.broken_shards``). A Loader with ``on_bad_sample="replace"`` leaves them out."""
    index_workers: int
    """Objects read at once while an index is built; 0: chosen."""


def dataset_names(
    owner: str, own: Iterable[str], elsewhere: Mapping[str, str] = DATASET_PEERS
) -> OptionNames:
    """Of what opens datasets: its own options, and those that it hands on."""
    own = {*own, *OPENING, "memory"}
    groups = {
        "": own,
        "the dataset": [name for name in DatasetOptions.__annotations__ if name not in own],
        "the store": list(StoreOptions.__annotations__),
    }
    return OptionNames(owner, groups, elsewhere)


def column_names(columns: Sequence[str] | str | None) -> list[str]:
    """Of ``columns=``, which may name one; empty: all."""
    return [columns] if isinstance(columns, str) else list(columns or ())


def given_columns(columns: Iterable[str] | str | None) -> tuple[str, ...] | str | None:
    """``columns=`` that can be looked at more than once. Raises InvalidArgumentError where it names none."""
    if columns is None or isinstance(columns, str):
        return columns
    names = tuple(columns)
    if not names:
        raise InvalidArgumentError("columns=[] names none: leave it out for all columns")
    return names


def native_options(options: DatasetOptions) -> dict[str, Any]:
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    columns, where, keys = given.pop("columns", None), given.pop("where", None), given.pop("keys", None)
    if columns is not None:
        given["columns"] = column_names(columns)
    if where is not None:
        given["row_groups_where"] = json.dumps([list(term) for term in where], default=_compared)
    if keys is not None:
        given["keys"] = list(keys)
        if not given["keys"]:
            raise InvalidArgumentError("keys=[]: a dataset has at least one object")
    return given


def _compared(value: Any) -> Any:
    """A value of ``where`` that JSON lacks, as headrace.data.tables.pruning reads it."""
    if isinstance(value, uuid.UUID):
        value = value.bytes
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, date | time | Decimal):
        return str(value)
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        return value.item()
    raise InvalidArgumentError(
        f"where: {value!r} is a {type(value).__qualname__}; expected numbers, text, bytes, dates and times"
    )


_DATASET_OPTIONS = frozenset(DatasetOptions.__annotations__)


def split_options(options: Mapping[str, Any]) -> tuple[DatasetOptions, dict[str, Any]]:
    """Keyword arguments of a dataset and of its store, apart."""
    dataset = {name: value for name, value in options.items() if name in _DATASET_OPTIONS}
    store = {name: value for name, value in options.items() if name not in _DATASET_OPTIONS}
    return dataset, store  # type: ignore[return-value]
