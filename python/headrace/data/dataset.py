"""Datasets as they lie in a store: schema, shards, random access."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, overload

from headrace import _native
from headrace.base import live
from headrace.base.progress import progress_bar
from headrace.base.units import parse_bytes
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.store.store import Store, StoreOptions, open_native
from headrace.store.urls import named_objects

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["Block", "Column", "Dataset", "Shard"]

INDEX_KEY = "index.hri"
INDEX_JSON_KEY = "index.json"


class Column(NamedTuple):
    """One column of every sample."""

    name: str
    encoding: str
    """What the bytes mean: an MDS encoding such as ``"int"`` or ``"ndarray:uint16:1025"``; ``"bytes"`` for
    tar members."""
    dtype: str
    """numpy dtype of a column whose values are all arrays (or scalars) of one type and shape, else ``""``."""
    shape: tuple[int, ...]
    size: int
    """Bytes of each value; 0: varies."""
    classes: tuple[str, ...] = ()
    """Names of the values 0, 1, ... of a column of labels."""


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


class DatasetOptions(TypedDict, total=False):
    """What to read of a dataset, where its format leaves a choice."""

    columns: Sequence[str] | str | None
    """Tables: the columns to read; the bytes of others are not fetched."""
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
    split: str
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
    index_workers: int
    """Objects read at once while an index is built; 0: chosen."""


def _native_options(options: DatasetOptions) -> dict[str, Any]:
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    columns, where, keys = given.pop("columns", None), given.pop("where", None), given.pop("keys", None)
    if columns is not None:
        given["columns"] = [columns] if isinstance(columns, str) else list(columns)
    if where is not None:
        given["row_groups_where"] = json.dumps([list(term) for term in where], default=str)
    if keys is not None:
        given["keys"] = list(keys)
        if not given["keys"]:
            raise InvalidArgumentError("keys=[]: a dataset has at least one object")
    return given


_DATASET_OPTIONS = frozenset(DatasetOptions.__annotations__)


def split_options(options: dict[str, Any]) -> tuple[DatasetOptions, dict[str, Any]]:
    """Keyword arguments of a dataset and of its store, apart."""
    dataset = {name: value for name, value in options.items() if name in _DATASET_OPTIONS}
    store = {name: value for name, value in options.items() if name not in _DATASET_OPTIONS}
    return dataset, store  # type: ignore[return-value]


def parent_and_key(url: str | os.PathLike[str]) -> tuple[str, str] | None:
    """The URL as a folder and the object in it; None when it cannot be that."""
    text = os.fspath(url)
    scheme, mark, path = text.rpartition("://")
    parent, slash, key = path.rpartition("/")
    if not key or (mark and not slash):
        return None
    return scheme + mark + (parent or ("/" if slash else ".")), key


def open_native_dataset(
    store: _native.Store,
    format: str,
    block_bytes: int | str | None,
    index_cache: str | os.PathLike[str] | None,
    use_stored_index: bool,
    options: DatasetOptions | None = None,
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
            **_native_options(options or {}),
        )


T = TypeVar("T")


# Names of one split, as Hugging Face takes them.
_SPLIT_NAMES = (
    ("train", "training"),
    ("validation", "valid", "val", "dev"),
    ("test", "testing", "eval", "evaluation"),
)


def _with_split(
    url: str | os.PathLike[str], memory: int | str, options: DatasetOptions, store_options: Mapping[str, Any]
) -> tuple[str | os.PathLike[str], DatasetOptions]:
    """The URL and the options with the keys or the folder of a split instead of its name, where the dataset
    itself says which these are."""
    from headrace.data.energon import split_keys

    split = options["split"]
    if split == "all" or options.get("keys") is not None:
        return url, options
    rest: DatasetOptions = options.copy()
    del rest["split"]
    store = open_native(url, memory, **store_options)
    try:
        keys = split_keys(store.url, split, store.get)
        if keys is not None:
            return url, {**rest, "keys": keys}
        same = next((names for names in _SPLIT_NAMES if split in names), ())
        for folder in dict.fromkeys((split, *same)):
            if any(_exists(store, f"{folder}/{name}") for name in (INDEX_JSON_KEY, INDEX_KEY)):
                return _below(store.url, folder), rest
    finally:
        store.close()
    return url, options


def _exists(store: _native.Store, key: str) -> bool:
    try:
        store.head(key)
    except NotFoundError:
        return False
    return True


def _below(url: str, folder: str) -> str:
    is_web = url.startswith(("http://", "https://"))
    path, mark, query = url.partition("?") if is_web else (url, "", "")
    return f"{path.rstrip('/')}/{folder}{mark}{query}"


def _list_keys(
    root: str, prefix: str, is_deep: bool, memory: int | str, store_options: Mapping[str, Any]
) -> list[str]:
    with Store(root, memory=memory, **store_options) as store:
        try:
            return [info.key for info in store.list(prefix, recursive=is_deep)]
        except NotFoundError:
            return []


def _read_object(root: str, key: str, memory: int | str, store_options: Mapping[str, Any]) -> bytes:
    store = open_native(root, memory, **store_options)
    try:
        return store.get(key)
    finally:
        store.close()


def open_root(
    url: str | os.PathLike[str],
    memory: int | str,
    options: DatasetOptions,
    store_options: Mapping[str, Any],
    use: Callable[[_native.Store, DatasetOptions], T],
) -> tuple[_native.Store, T]:
    """Calls ``use(store, options)`` for the store at a URL; where nothing is below the URL but the URL is an
    object, for its folder and that one key; for a URL that names many objects, for their folder and keys."""
    named = named_objects(
        url,
        lambda root, key: _read_object(root, key, memory, store_options),
        lambda root, prefix, is_deep: _list_keys(root, prefix, is_deep, memory, store_options),
    )
    if named is not None and options.get("keys") is None:
        url, options = named[0], {**options, "keys": named[1]}
    if options.get("split"):
        url, options = _with_split(url, memory, options, store_options)
    store = open_native(url, memory, **store_options)
    try:
        return store, use(store, options)
    except NotFoundError as missing:
        store.close()
        place = parent_and_key(url)
        if place is None or options.get("keys") is not None:
            raise
        store = open_native(place[0], memory, **store_options)
        try:
            store.head(place[1])
            return store, use(store, {**options, "keys": [place[1]]})
        except NotFoundError:
            store.close()
            raise missing from None
        except BaseException:
            store.close()
            raise
    except BaseException:
        store.close()
        raise


def _build_index(
    store: _native.Store,
    format: str,
    block_bytes: int | str | None,
    index_cache: str,
    options: DatasetOptions,
) -> bytes:
    with progress_bar("indexing", "shards") as report:
        return _native.build_index(
            store,
            format=format,
            block_bytes=parse_block_bytes(block_bytes),
            index_cache_dir=index_cache,
            progress=report,
            **_native_options(options),
        )


def _check_place(url: str | os.PathLike[str], given: DatasetOptions, chosen: DatasetOptions) -> None:
    """Refuses an index beside a dataset of some objects of a folder: whoever opened the folder would see no
    others."""
    keys = chosen.get("keys")
    if keys is None or given.get("keys") is not None or given.get("split") is not None:
        return
    raise InvalidArgumentError(
        f"{os.fspath(url)} names {len(keys):,} object{'s' if len(keys) > 1 else ''} of a folder, and an index beside them would stand for the whole folder: "
        "give a file for it (--output, path=), or index the folder"
    )


def _store_index(store: _native.Store, index: bytes, path: str | os.PathLike[str] | None) -> int:
    _store_file(store, INDEX_KEY, index, path)
    return len(index)


def _store_file(store: _native.Store, key: str, content: bytes, path: str | os.PathLike[str] | None) -> None:
    """Writes an object, or the local file ``path`` instead."""
    if path is None:
        store.put(key, content, False)
    else:
        partial = Path(f"{os.fspath(path)}.partial")
        partial.write_bytes(content)
        partial.replace(path)


def write_index(
    url: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    format: str = "auto",
    memory: int | str = "256MiB",
    block_bytes: int | str | None = None,
    index_cache: str | os.PathLike[str] | None = None,
    **options: Any,
) -> int:
    """``Dataset(url).write_index(path)`` with one scan: nothing is opened before. Returns the size of the
    index in bytes.

    Without ``path`` it is written beside the dataset, which must then be a folder: one object, a pattern or a
    list needs a path.

    What a killed call had found is kept in ``index_cache`` and used by the next. ``options``: of the dataset
    (:class:`DatasetOptions`) and of its store.
    """
    cache = default_index_cache() if index_cache is None else os.fspath(index_cache)
    dataset_options, store_options = split_options(options)

    def build(store: _native.Store, chosen: DatasetOptions) -> bytes:
        if path is None:
            _check_place(url, dataset_options, chosen)
        return _build_index(store, format, block_bytes, cache, chosen)

    store, index = open_root(url, memory, dataset_options, store_options, build)
    try:
        return _store_index(store, index, path)
    finally:
        store.close()


def rebuild_index_json(
    url: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    keys: Sequence[str] | None = None,
    memory: int | str = "256MiB",
    **options: Unpack[StoreOptions],
) -> tuple[int, int]:
    """Writes the ``index.json`` of the MDS shards at a URL, from what they say of themselves, or to ``path``.
    Returns (shards, samples).

    It is what mosaicml-streaming's writer would have written of these shards, hashes included. A sound
    ``index.json`` is never replaced.
    ``keys``: exactly these shards; default: all right there, which must be numbered without a gap.
    """
    store = open_native(url, memory, **options)
    try:
        with progress_bar("reading", "shards") as report:
            index = json.loads(
                _native.rebuild_index_json(store, progress=report, **_native_options({"keys": keys}))
            )
        _store_file(store, INDEX_JSON_KEY, json.dumps(index, sort_keys=True).encode(), path)
    finally:
        store.close()
    return len(index["shards"]), sum(shard["samples"] for shard in index["shards"])


class Dataset:
    """A dataset at a URL or path: MDS, LitData, WebDataset tars, TFRecord, Parquet, Lance, Arrow, JSON lines,
    CSV, tokens, NumPy arrays, or a tree of raw files; a folder of objects, or one object.

    Opening uses the index ``index.hri`` beside the dataset, else the one in ``index_cache``, else builds one
    (from a manifest or footers where the format has them, else by one scan).

    :param url: a list or tuple stands for its datasets one after the other: positions, ids and the
        fingerprint follow from their order. They may lie in different stores and be of different formats, but
        have equal columns.
    :param format: ``"auto"`` (found from the content), or ``"mds"``, ``"webdataset"``, ``"raw"``,
        ``"litdata"``, ``"tfrecord"``, ``"text"``, ``"tokens"``, ``"numpy"``, ``"table"``, ``"arrayrecord"``,
        ``"csv"``.
    :param memory: limit of the bytes under way while reading.
    :param block_bytes: encoded size of a block, about; a loader reads and shuffles by blocks. Default: 8 MiB,
        less for datasets below 8 GiB (a 1024th of them, at least 1 MiB).
    :param index_cache: directory for indexes built on first use; ``""`` keeps none. Default:
        ``$HEADRACE_INDEX_CACHE``, else ``~/.cache/headrace/index``.
    :param columns: tables: names of the columns to read, default all; the bytes of others are not fetched.
    :param options: ``keys``, ``labels``, ``manifest``, ``split``, ``allow_unsafe``, ``tokens_per_sample``,
        ``token_dtype``, ``password``, ``password_salt``, ``lenient``, ``index_workers``; and how to reach the
        store, see :class:`headrace.StoreOptions`.
    :param where: Parquet: ``[(column, op, value), ...]``; row groups that cannot match by their statistics
        are left out.
    """

    def __new__(cls, url: Any = None, *arguments: Any, **options: Any) -> Self:
        if cls is Dataset and isinstance(url, list | tuple):
            from headrace.sources.mixture import Sources

            cls = Sources  # type: ignore[assignment]
        return super().__new__(cls)

    def __init__(
        self,
        url: str | os.PathLike[str] | Sequence[str | os.PathLike[str] | Dataset],
        *,
        format: str = "auto",
        memory: int | str = "256MiB",
        block_bytes: int | str | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        use_stored_index: bool = True,
        columns: Sequence[str] | str | None = None,
        where: Sequence[tuple[str, str, Any]] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(url, str | os.PathLike):
            raise InvalidArgumentError(f"{url!r:.200}: expected a URL, a path, or a list of them")
        dataset_options, store_options = split_options({"columns": columns, "where": where, **options})
        self._root: str | os.PathLike[str] = url
        self._options = store_options
        self._format, self._block_bytes = format, block_bytes
        self._given_url, self._given_options, self._dataset_options = url, dataset_options, dataset_options

        def use(store: _native.Store, chosen: DatasetOptions) -> _native.Dataset:
            if chosen is not dataset_options:
                self._root = store.url
            self._dataset_options = chosen
            return open_native_dataset(store, format, block_bytes, index_cache, use_stored_index, chosen)

        self._store, self._native = open_root(url, memory, dataset_options, store_options, use)
        self._columns = [Column(*row) for row in self._native.columns()]
        self._column_index = {column.name: i for i, column in enumerate(self._columns)}
        live.register(self)

    def open_store(self, memory: int | str) -> _native.Store:
        """Another engine store over the same objects, with a memory limit of its own."""
        return open_native(self._root, memory, **self._options)

    @property
    def url(self) -> str:
        return self._native.url

    @property
    def format(self) -> str:
        """What ``format=`` would ask for."""
        return self._native.format

    @property
    def fingerprint(self) -> str:
        """32 hex digits over format, columns, and the shards' names, sizes, sample counts and digests: the
        same for a copy of the dataset."""
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
        """Builds the index and writes it beside the dataset (``index.hri``), or to ``path``. Returns its size
        in bytes."""
        if path is None:
            _check_place(self._given_url, self._given_options, self._dataset_options)
        index = _build_index(
            self._store, self._format, self._block_bytes, default_index_cache(), self._dataset_options
        )
        return _store_index(self._store, index, path)

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
        return live.describe(
            self, lambda: f"Dataset({self.url!r}, format={self.format!r}, samples={len(self)})"
        )
