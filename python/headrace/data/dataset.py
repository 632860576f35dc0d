"""Datasets as they lie in a store: schema, shards, random access."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from headrace import _native
from headrace.base import live
from headrace.base.option_names import named_options
from headrace.base.recipe import Recipe, lasting, lasting_options
from headrace.data.index import build_index, check_place, store_index
from headrace.data.rows import Block, BrokenShard, Column, CutEnd, Shard, Table, runs, wrap_index
from headrace.errors import ChangedError, InvalidArgumentError
from headrace.sources.concat import open_source
from headrace.sources.filling import check_cache_mode, copy_to_cache, without_cache
from headrace.sources.opening import default_index_cache
from headrace.sources.options import column_names, dataset_names, given_columns
from headrace.sources.source import Source
from headrace.sources.url import UrlSource

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Dataset", "reopen"]


class Dataset(live.Closing):
    """A dataset at a URL or path: MDS, LitData, WebDataset tars, TFRecord, Parquet, Lance, Arrow, JSON lines,
    CSV, tokens, NumPy arrays, or a tree of raw files; a folder of objects, or one object.

    Opening uses the index ``index.hri`` beside the dataset, else the one in ``index_cache``, else builds one
    (from a manifest or footers where the format has them, else by one scan).

    :param url: a list or tuple stands for its datasets one after the other: positions, ids and the
        fingerprint follow from their order. They may lie in different stores and be of different formats, but
        have equal columns, or equal ones of those that ``columns`` names.
    :param format: ``"auto"`` (found from the content), or ``"mds"``, ``"webdataset"``, ``"raw"``,
        ``"litdata"``, ``"tfrecord"``, ``"text"``, ``"tokens"``, ``"numpy"``, ``"table"`` (also
        ``"parquet"``, ``"arrow"``, ``"lance"``, which it must then be), ``"arrayrecord"``,
        ``"csv"``.
    :param memory: limit of the bytes under way while reading.
    :param block_bytes: encoded size of a block, about; a loader reads and shuffles by blocks. Default: 8 MiB,
        less for datasets below 8 GiB (a 1024th of them, at least 1 MiB).
    :param index_cache: directory for indexes built on first use; ``""`` keeps none. Default:
        ``$HEADRACE_INDEX_CACHE``, else ``~/.cache/headrace/index``.
    :param columns: tables, CSV, JSON lines, TFRecord, numpy: names of the columns to read, default all; of
        Parquet, Lance and Arrow the bytes of others are not fetched. For formats whose samples are read whole
        it is an error: ``read(columns=)`` and the Loader choose there. A list of datasets: those that must be
        equal in all; others are left out where they differ.
    :param cache_mode: ``"copy"`` fetches the whole dataset into ``cache=`` first, ``"none"`` keeps nothing
        there.
    :param options: ``keys``, ``labels``, ``manifest``, ``split``, ``allow_unsafe``, ``tokens_per_sample``,
        ``token_dtype``, ``password``, ``password_salt``, ``lenient``, ``on_broken_shard``, ``index_workers``;
        and how to reach the store, see :class:`headrace.StoreOptions`.
    :param where: Parquet: ``[(column, op, value), ...]``; row groups that cannot match by their statistics
        are left out.
    """

    _recipe: Recipe | None

    def __init__(
        self,
        url: str | os.PathLike[str] | Sequence[str | os.PathLike[str] | Dataset],
        *,
        memory: int | str = "256MiB",
        cache_mode: str = "cache",
        **options: Any,
    ) -> None:
        _NAMES.check(options)
        if not isinstance(url, str | os.PathLike | list | tuple):
            raise InvalidArgumentError(f"{url!r:.200}: expected a URL, a path, or a list of them")
        if "columns" in options:
            options["columns"] = given_columns(options["columns"])
        self._recipe = Recipe(
            type(self),
            (lasting(url),),
            {"memory": memory, "cache_mode": cache_mode, **lasting_options(options)},
        )
        check_cache_mode(cache_mode, options)
        if cache_mode == "lazy":
            raise InvalidArgumentError('cache_mode="lazy" follows the order of a Loader: give it to that')
        if cache_mode == "none":
            options = without_cache(options)
        source = open_source(url, memory=memory, **options)
        self._attach(source)
        try:
            self._check_chosen(column_names(options.get("columns")))
            if cache_mode == "copy":
                copy_to_cache(source, memory)
        except BaseException:
            self.close()
            raise

    @classmethod
    def _over(cls, source: Source, recipe: Recipe | None = None) -> Self:
        """The dataset of a source, which belongs to it from now on.

        :param recipe: how to make it anew; None: it is not pickled alone.
        """
        dataset = cls.__new__(cls)
        dataset._recipe = recipe
        dataset._attach(source)
        return dataset

    def _attach(self, source: Source) -> None:
        self._source, self._native, self._store = source, source.native, source.store
        self._columns = [Column(*row) for row in source.native.columns()]
        self._column_index = {column.name: i for i, column in enumerate(self._columns)}
        live.register(self)

    def open_store(self, memory: int | str) -> _native.Store:
        """Another engine store over the same objects, with a memory limit of its own."""
        return self._source.open_store(memory)

    @property
    def url(self) -> str:
        """Of the folder that its objects lie in, also where one object or a pattern was opened."""
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
        """Its objects, in the order of their samples. A row is made when it is asked for."""
        return Table(self._native.shard_count, lambda i: Shard(*self._native.shard(i)))

    @property
    def broken_shards(self) -> list[BrokenShard]:
        """What the dataset does without, because ``on_broken_shard="leave_out"`` was asked for and no index
        can be made of these objects. Their number and versions are part of the fingerprint."""
        return [BrokenShard(*row) for row in self._native.broken_shards()]

    @property
    def cut_ends(self) -> list[CutEnd]:
        """What ``lenient=True`` passed over at the ends of objects."""
        return [CutEnd(*row) for row in self._native.cut_ends()]

    @property
    def blocks(self) -> Sequence[Block]:
        """What is read and shuffled as one: parts of shards, in order. A row is made when it is asked for."""
        return Table(self._native.block_count, lambda i: Block(*self._native.block(i)))

    @property
    def closed(self) -> bool:
        return self._native.closed

    def __len__(self) -> int:
        return self._native.sample_count

    def read(self, positions: Sequence[int], *, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The samples at these positions, in this order, read in parallel. Values are copies."""
        count = len(self)
        return self._native.read([wrap_index(p, count, "sample") for p in positions], self._select(columns))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return self.read(range(*index.indices(len(self))))
        return self.read([index])[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for run in runs(self.blocks, 256):
            yield from self.read(run)

    def _check_chosen(self, columns: Sequence[str]) -> None:
        """What only tables leave out while reading is not asked of the others in vain."""
        # Of a list they are those that must agree.
        if (
            columns
            and self.format not in ("table", "samples")
            and len(set(self._select(columns))) != len(self._columns)
        ):
            raise InvalidArgumentError(
                f"{self.url}: columns= of a Dataset chooses what is read of tables, and samples of "
                f"{self.format} are read whole: give columns= to read() or to the Loader"
            )

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
        source = self._source
        if not isinstance(source, UrlSource):
            raise InvalidArgumentError("this dataset is made of others: write their indexes")
        if path is None:
            check_place(source.given_url, source.given, source.chosen)
        index = build_index(
            source.store, source.format, source.block_bytes, default_index_cache(), source.chosen
        )
        return store_index(source.store, index, path)

    def close(self) -> None:
        """Ends the threads. May be repeated."""
        self._source.close()

    def __reduce__(self) -> Any:
        """How it was opened, and the fingerprint: loading a pickle opens the same data, or raises
        ChangedError."""
        if self.closed:
            raise InvalidArgumentError("a closed Dataset is not pickled: it is no more to be opened")
        if self._recipe is None:
            raise InvalidArgumentError(
                f"{self.url}: the dataset of a Mixture is pickled with it: pickle the Mixture"
            )
        return reopen, (self._recipe.checked(f"the Dataset {self.url}"), self.fingerprint)

    def __repr__(self) -> str:
        if self.closed:
            return "Dataset(closed)"
        return live.describe(
            self, lambda: f"Dataset({self.url!r}, format={self.format!r}, samples={len(self)})"
        )


def reopen(recipe: Recipe, fingerprint: str) -> Any:
    """What a pickle held, a Dataset or a Mixture, open. Raises ChangedError where other data lies there."""
    opened = recipe.run()
    dataset = opened if isinstance(opened, Dataset) else opened.dataset
    if dataset.fingerprint != fingerprint:
        found, url = dataset.fingerprint, dataset.url
        opened.close()
        raise ChangedError(
            f"{url}: the fingerprint is {found}, and was {fingerprint} when this was pickled: other data "
            "lies there"
        )
    return opened


_NAMES = dataset_names("Dataset", named_options(Dataset.__init__))
