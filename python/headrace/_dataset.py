"""Datasets as they lie in a store: schema, shards, random access."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from headrace import _live, _native
from headrace._progress import progress_bar
from headrace._store import StoreOptions, open_native
from headrace._units import parse_bytes
from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["Block", "Column", "Dataset", "Shard"]

INDEX_KEY = "index.hri"


class Column(NamedTuple):
    """One column of every sample."""

    name: str
    encoding: str
    """What the bytes mean: an MDS encoding such as ``"int"`` or ``"ndarray:uint16:1025"``; ``"bytes"`` for tar members."""
    dtype: str
    """numpy dtype of a column whose values are all arrays (or scalars) of one type and shape, else ``""``."""
    shape: tuple[int, ...]
    size: int
    """Bytes of each value; 0: varies."""


class Shard(NamedTuple):
    """One object (or run of raw files) of the dataset."""

    key: str
    etag: str
    size: int
    first_sample: int
    sample_count: int
    compression: str


class Block(NamedTuple):
    """A run of samples of one shard: the unit of reading and of the order."""

    shard: int
    first_sample: int
    sample_count: int
    stored_bytes: int
    raw_bytes: int


class _Table(Sequence[Any]):
    """A read-only sequence over rows that the engine holds."""

    def __init__(self, count: int, row: Any) -> None:
        self._count, self._row = count, row

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._row(i) for i in range(*index.indices(self._count))]
        return self._row(_wrap_index(index, self._count, "row"))


def _wrap_index(index: int, count: int, what: str) -> int:
    position = operator.index(index)
    if not -count <= position < count:
        raise IndexError(f"{what} {position} is out of range: there are {count}")
    return position % count


def default_index_cache() -> str:
    """``$HEADRACE_INDEX_CACHE``, else ``headrace/index`` in the user's cache directory."""
    given = os.environ.get("HEADRACE_INDEX_CACHE")
    if given is not None:
        return given
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(root) / "headrace" / "index")


def parse_block_bytes(value: int | str | None) -> int:
    """The engine's option; 0 lets it choose."""
    return 0 if value is None else parse_bytes(value, "block_bytes")


def open_native_dataset(
    store: _native.Store, format: str, block_bytes: int | str | None, index_cache: str | os.PathLike[str] | None, use_stored_index: bool
) -> _native.Dataset:
    cache = default_index_cache() if index_cache is None else os.fspath(index_cache)
    with progress_bar("indexing", "shards") as report:
        return _native.Dataset(
            store,
            format=format,
            block_bytes=parse_block_bytes(block_bytes),
            index_cache_dir=cache,
            use_stored_index=use_stored_index,
            progress=report,
        )


def _write_index(store: _native.Store, format: str, block_bytes: int | str | None, path: str | os.PathLike[str] | None) -> int:
    with progress_bar("indexing", "shards") as report:
        index = _native.build_index(store, format=format, block_bytes=parse_block_bytes(block_bytes), progress=report)
    if path is None:
        store.put(INDEX_KEY, index, False)
    else:
        partial = Path(f"{os.fspath(path)}.partial")
        partial.write_bytes(index)
        partial.replace(path)
    return len(index)


def write_index(
    url: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    format: str = "auto",
    memory: int | str = "256MiB",
    block_bytes: int | str | None = None,
    **options: Unpack[StoreOptions],
) -> int:
    """``Dataset(url).write_index(path)`` with one scan: nothing is opened before. Returns the size of the index in bytes."""
    store = open_native(url, memory, **options)
    try:
        return _write_index(store, format, block_bytes, path)
    finally:
        store.close()


class Dataset:
    """A dataset at a URL or path: MDS, WebDataset tars, or a tree of raw files.

    Opening uses the index ``index.hri`` beside the dataset, else the one in ``index_cache``, else builds one (MDS: from
    ``index.json``; WebDataset: one scan of the tars).

    :param format: ``"auto"``, ``"mds"``, ``"webdataset"`` or ``"raw"``.
    :param memory: limit of the bytes under way while reading.
    :param block_bytes: encoded size of a block, about; a loader reads and shuffles by blocks. Default: 8 MiB, less for
        datasets below 8 GiB (a 1024th of them, at least 1 MiB).
    :param index_cache: directory for indexes built on first use; ``""`` keeps none. Default: ``$HEADRACE_INDEX_CACHE``, else
        ``~/.cache/headrace/index``.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        format: str = "auto",
        memory: int | str = "256MiB",
        block_bytes: int | str | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        use_stored_index: bool = True,
        **options: Unpack[StoreOptions],
    ) -> None:
        self._url, self._options = url, options
        self._format, self._block_bytes = format, block_bytes
        self._store = open_native(url, memory, **options)
        try:
            self._native = open_native_dataset(self._store, format, block_bytes, index_cache, use_stored_index)
        except BaseException:
            self._store.close()
            raise
        self._columns = [Column(*row) for row in self._native.columns()]
        self._column_index = {column.name: i for i, column in enumerate(self._columns)}
        _live.register(self)

    def open_store(self, memory: int | str) -> _native.Store:
        """Another engine store over the same objects, with a memory limit of its own."""
        return open_native(self._url, memory, **self._options)

    @property
    def url(self) -> str:
        return self._native.url

    @property
    def format(self) -> str:
        """``"mds"``, ``"webdataset"`` or ``"raw"``."""
        return self._native.format

    @property
    def fingerprint(self) -> str:
        """32 hex digits that change when any sample may have changed, wherever the dataset lies."""
        return self._native.fingerprint

    @property
    def schema(self) -> dict[str, Column]:
        """Columns by name."""
        return {column.name: column for column in self._columns}

    @property
    def nbytes(self) -> int:
        """Bytes of all shards as stored."""
        return self._native.stored_bytes

    @property
    def shards(self) -> Sequence[Shard]:
        return _Table(self._native.shard_count, lambda i: Shard(*self._native.shard(i)))

    @property
    def blocks(self) -> Sequence[Block]:
        return _Table(self._native.block_count, lambda i: Block(*self._native.block(i)))

    @property
    def closed(self) -> bool:
        return self._native.closed

    def __len__(self) -> int:
        return self._native.sample_count

    def read(self, positions: Sequence[int], *, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The samples at these positions, in this order, read in parallel. Values are copies."""
        count = len(self)
        return self._native.read([_wrap_index(p, count, "sample") for p in positions], self._select(columns))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return self.read(range(*index.indices(len(self))))
        return self.read([index])[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        chunk = 256
        for start in range(0, len(self), chunk):
            yield from self.read(range(start, min(start + chunk, len(self))))

    def _select(self, columns: Sequence[str] | None) -> list[int]:
        if columns is None:
            return list(range(len(self._columns)))
        unknown = [name for name in columns if name not in self._column_index]
        if unknown:
            known = ", ".join(self._column_index)
            raise InvalidArgumentError(f"{self.url} has no column {unknown[0]!r}; its columns are {known}")
        return [self._column_index[name] for name in columns]

    def write_index(self, path: str | os.PathLike[str] | None = None) -> int:
        """Builds the index and writes it beside the dataset (``index.hri``), or to ``path``. Returns its size in bytes."""
        return _write_index(self._store, self._format, self._block_bytes, path)

    def close(self) -> None:
        """Ends the threads. May be repeated."""
        self._native.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "Dataset(closed)"
        return f"Dataset({self.url!r}, format={self.format!r}, samples={len(self)})"
