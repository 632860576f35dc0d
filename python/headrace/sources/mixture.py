"""Several datasets as one: in a row, mixed by weights, or as packed tokens."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import _native
from headrace.base import live
from headrace.base.units import parse_bytes
from headrace.data.batch import Batch
from headrace.data.dataset import Column, Dataset
from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    from headrace.loader.loader import Loader

    DatasetLike: TypeAlias = "str | os.PathLike[str] | Dataset"

__all__ = ["Concat", "Mixture", "MixtureSource", "PackedTokens", "pack_tokens"]

# Stores of parts serve reads of the one over them, which has the memory.
_PART_MEMORY = "64MiB"


def open_dataset(dataset: DatasetLike, **options: Any) -> Dataset:
    """The dataset itself, or the one at a URL or path."""
    if isinstance(dataset, Dataset):
        if options:
            raise InvalidArgumentError(f"{sorted(options)[0]}= belongs to the Dataset that was passed in")
        return dataset
    return Dataset(dataset, **options)


class _View(Dataset):
    """A dataset made of others."""

    def _attach(self, store: _native.Store, native: _native.Dataset) -> None:
        self._store, self._native = store, native
        self._columns = [Column(*row) for row in native.columns()]
        self._column_index = {column.name: i for i, column in enumerate(self._columns)}
        live.register(self)

    def write_index(self, path: str | os.PathLike[str] | None = None) -> int:
        """Not for views: write the indexes of the datasets that they are made of."""
        raise InvalidArgumentError("this dataset is made of others: write their indexes")


class Concat(_View):
    """Several datasets one after the other, as one.

    :param datasets: URLs, paths or open Datasets.
    :param columns: ``"equal"`` (default) wants the same columns in all, ``"common"`` takes those that all
        have, ``"union"`` those that any has; values are None where a dataset lacks them.
    :param options: of :class:`Dataset`, for those given as URLs; ``part_options`` the same, for names that
        this class has too.
    """

    def __init__(
        self,
        datasets: Sequence[DatasetLike],
        *,
        columns: str = "equal",
        memory: int | str = "256MiB",
        growing: bool = False,
        part_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(datasets, str | os.PathLike) or not datasets:
            raise InvalidArgumentError("expected a list of datasets, URLs or paths")
        self._owned: list[Dataset] = []
        self.parts: list[Dataset] = []
        try:
            for dataset in datasets:
                self.parts.append(
                    open_dataset(
                        dataset,
                        **({} if isinstance(dataset, Dataset) else {**options, **(part_options or {})}),
                    )
                )
                if not isinstance(dataset, Dataset):
                    self._owned.append(self.parts[-1])
            store = self.open_store(memory)
        except BaseException:
            self._close_owned()
            raise
        try:
            self._attach(
                store, _native.concat_datasets(store, [part._native for part in self.parts], columns, growing)
            )
        except BaseException:
            store.close()
            self._close_owned()
            raise

    def first_blocks(self) -> list[int]:
        """Of each part, among the blocks of all."""
        return list(itertools.accumulate((part._native.block_count for part in self.parts[:-1]), initial=0))

    def first_samples(self) -> list[int]:
        """Of each part, among the samples of all."""
        return list(itertools.accumulate(map(len, self.parts[:-1]), initial=0))

    def open_store(self, memory: int | str) -> _native.Store:
        stores: list[_native.Store] = []
        try:
            for part in self.parts:
                stores.append(part.open_store(_PART_MEMORY))
            return _native.route_stores(stores, parse_bytes(memory))
        finally:
            for store in stores:  # The routing store has handles of its own.
                store.close()

    def _close_owned(self) -> None:
        for dataset in self._owned:
            dataset.close()

    def close(self) -> None:
        super().close()
        self._close_owned()


class Sources(Concat):
    """What ``Dataset([...])`` makes: :class:`Concat` with the arguments of :class:`Dataset`, which are those
    of each part."""

    def __init__(self, url: Sequence[DatasetLike], *, memory: int | str = "256MiB", **options: Any) -> None:
        super().__init__(url, memory=memory, part_options=options)


class PackedTokens(_View):
    """Documents packed into sequences of equal length: what :func:`pack_tokens` returns."""

    def __init__(self, documents: Dataset, *, memory: int | str, owned: bool, **options: Any) -> None:
        self._documents, self._is_owner = documents, owned
        store = documents.open_store(memory)
        try:
            self._attach(store, _native.pack_tokens(store, documents._native, **options))
        except BaseException:
            store.close()
            raise

    def open_store(self, memory: int | str) -> _native.Store:
        return self._documents.open_store(memory)

    @property
    def report(self) -> dict[str, float]:
        """What packing did: counts of documents, sequences and tokens, and ``waste``, the share of padding."""
        report: dict[str, float] = dict(_native.pack_report(self._native))
        slots = report["sequences"] * self._columns[0].shape[0]
        report["waste"] = report["padding_tokens"] / slots
        return report

    def close(self) -> None:
        super().close()
        if self._is_owner:
            self._documents.close()


def pack_tokens(
    dataset: DatasetLike,
    *,
    length: int = 2048,
    column: str = "tokens",
    method: str = "best_fit",
    pad_token: int = 0,
    min_piece: int = 1,
    drop_partial: bool = False,
    dtype: str = "",
    memory: int | str = "256MiB",
    **options: Any,
) -> PackedTokens:
    """A dataset whose samples are sequences of ``length`` tokens, made of the documents of another.

    Columns: ``tokens``, ``segment_ids`` (1, 2, ... by document, 0 is padding) and ``positions`` (from 0 in
    each piece of a document). Documents of one block are packed together, so order, states and mixtures work
    as for any dataset. Their lengths come from the index: opening reads no data.

    :param column: one-dimensional token arrays: MDS ``ndarray`` columns, LitData tensors and arrays, Megatron
        documents, or ``bytes`` with ``dtype=``. No other column may vary in size.
    :param method: ``"best_fit"`` cuts only documents longer than a sequence; ``"concatenate"`` puts them end
        to end and cuts at every ``length``.
    :param min_piece: pieces of cut documents shorter than this are left out (see ``report``).
    :param drop_partial: with ``"concatenate"``: leave out the last sequence of a block when it is not full.
    :param options: of :class:`Dataset`, when ``dataset`` is a URL or path.
    """
    documents = open_dataset(dataset, **options)
    try:
        return PackedTokens(
            documents,
            memory=memory,
            owned=documents is not dataset,
            length=length,
            column=column,
            method=method,
            pad_token=pad_token,
            min_piece=min_piece,
            drop_partial=drop_partial,
            dtype=dtype,
        )
    except BaseException:
        if documents is not dataset:
            documents.close()
        raise


class MixtureSource(NamedTuple):
    """One source of a :class:`Mixture`. At most one of the three numbers."""

    dataset: DatasetLike
    weight: float | None = None
    """Share of the samples, relative to the other weights."""
    repeat: float | None = None
    """Epochs of it in each epoch of the mixture."""
    choose: int | None = None
    """Samples of it in each epoch of the mixture."""


class Mixture:
    """Several datasets mixed by weights; a source of :class:`headrace.Loader`.

    >>> mix = hr.Mixture({"web": ("s3://b/web", 0.7), "code": ("s3://b/code", 0.3)})  # doctest: +SKIP
    >>> loader = hr.Loader(mix, batch_size=64)  # doctest: +SKIP

    Values are ``(dataset, weight)``, a dataset alone (its size is its weight), or :class:`MixtureSource` for
    ``repeat=`` and ``choose=``, which count samples of each epoch exactly; then all sources have one of them.

    :param temperature: weights are ``size ** (1 / temperature)``: 1 keeps the sizes, larger ones come closer
        to equal shares.
    :param batching: ``"proportional"``: sources alternate as evenly as weights allow; ``"stratified"``: each
        batch has the same whole number of samples of each; ``"per_source"``: each global batch is of one
        source.
    :param schedule: ``[(global batch, {name: weight}), ...]``: weights from those batches of the run on.
        Names left out have 0.
    :param samples_per_epoch: default: the sum of the sizes, rounded down to whole global batches.
    :param columns: ``"equal"``, ``"common"`` or ``"union"``, as for :class:`Concat`.
    :param groups: parts of a global batch that read different data: a power of two up to 16; 0: chosen.
    :param options: of :class:`Dataset`, for sources given as URLs.
    """

    def __init__(
        self,
        sources: Mapping[str, DatasetLike | MixtureSource | tuple[DatasetLike, float]],
        *,
        temperature: float | None = None,
        batching: str = "proportional",
        schedule: Sequence[tuple[int, Mapping[str, float]]] = (),
        samples_per_epoch: int | None = None,
        columns: str = "equal",
        groups: int = 0,
        **options: Any,
    ) -> None:
        if not sources:
            raise InvalidArgumentError("a mixture needs at least one source")
        self._given = {name: _as_source(name, value) for name, value in sources.items()}
        self._arguments: dict[str, Any] = {
            "temperature": temperature,
            "batching": batching,
            "schedule": list(schedule),
            "samples_per_epoch": samples_per_epoch,
            "columns": columns,
            "groups": groups,
        }
        self._options = options
        self._dataset = Concat(
            [source.dataset for source in self._given.values()], columns=columns, growing=True, **options
        )
        try:
            self._sizes = [len(part) for part in self._dataset.parts]
            self._shares = _epoch_shares(self._given, self._sizes, self._arguments)
            self._schedule = [] if self._shares else self._make_schedule()
        except BaseException:
            self.close()
            raise

    def _make_schedule(self) -> list[tuple[int, list[float]]]:
        temperature = self._arguments["temperature"]
        first = [source.weight for source in self._given.values()]
        if temperature is not None:
            if not (isinstance(temperature, int | float) and temperature > 0 and math.isfinite(temperature)):
                raise InvalidArgumentError(f"temperature={temperature!r}: expected a number above 0")
            if any(weight is not None for weight in first):
                raise InvalidArgumentError("temperature= makes weights of the sizes: give no other weights")
            first = [size ** (1 / temperature) for size in self._sizes]
        elif all(weight is None for weight in first):
            first = [float(size) for size in self._sizes]
        elif any(weight is None for weight in first):
            raise InvalidArgumentError("give a weight to all sources, or to none")
        schedule = [(0, [float(weight or 0) for weight in first])]
        for step, weights in self._arguments["schedule"]:
            if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 1 << 40:
                raise InvalidArgumentError(f"schedule: {step!r} is no number of a global batch")
            if step == 0:
                schedule = []
            schedule.append((step, self.weights_list(weights)))
        return schedule

    def weights_list(self, weights: Mapping[str, float]) -> list[float]:
        """Weights in the order of the sources; names left out have 0."""
        unknown = sorted(set(weights) - set(self._given))
        if unknown:
            raise InvalidArgumentError(
                f"there is no source {unknown[0]!r}; there are {', '.join(self._given)}"
            )
        return [float(weights.get(name, 0)) for name in self._given]

    @property
    def names(self) -> list[str]:
        return list(self._given)

    @property
    def sizes(self) -> dict[str, int]:
        """Samples of each source."""
        return dict(zip(self._given, self._sizes, strict=True))

    @property
    def dataset(self) -> Concat:
        """All sources one after the other: what ``batch.ids`` are positions of."""
        return self._dataset

    def sources_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Index in ``names`` of the source of each id of a batch."""
        import numpy as np

        return np.searchsorted(np.cumsum(self._sizes), ids, side="right")

    def locate(self, ids: npt.NDArray[np.int64]) -> list[tuple[str, int]]:
        """(source, position in that source) of each id of a batch."""
        firsts = [0]
        for size in self._sizes:
            firsts.append(firsts[-1] + size)
        return [
            (self.names[s], int(i) - firsts[s])
            for s, i in zip(self.sources_of(ids).tolist(), ids, strict=True)
        ]

    def order_source(
        self, *, global_batch: int, seed: int, shuffle: bool, memory: int, window: int
    ) -> _native.OrderSource:
        """The order of a first run."""
        return _native.plan_mixture(
            [(name, part._native) for name, part in zip(self._given, self._dataset.parts, strict=True)],
            schedule=self._schedule,
            epoch_shares=self._shares,
            epoch_samples=self._arguments["samples_per_epoch"] or 0,
            batching=self._arguments["batching"],
            seed=seed,
            shuffle=shuffle,
            global_batch=global_batch,
            memory_bytes=memory,
            window_blocks=window,
            groups=self._arguments["groups"],
        )

    def describe(self, *, global_batch: int = 256, memory: int | str = "4GiB") -> dict[str, Any]:
        """What the mixture gives: shares of a batch and epochs of each source in an epoch of the mixture."""
        source = self.order_source(
            global_batch=global_batch, seed=0, shuffle=True, memory=parse_bytes(memory), window=0
        )
        return describe(self, source)

    def with_source(
        self,
        name: str,
        source: DatasetLike | MixtureSource,
        schedule: Sequence[tuple[int, Sequence[float]]] | None = None,
    ) -> Mixture:
        """The same with one more source, of weight 0, and the weights of a run (default: the mixture's own).

        A source given as URL belongs to the new mixture: close() that.
        """
        if name in self._given:
            raise InvalidArgumentError(f"there is a source {name!r} already")
        if self._shares:
            raise InvalidArgumentError("sources can be added where there are weights, not repeat= or choose=")
        (_, first), *later = self._schedule if schedule is None else schedule
        given: dict[str, Any] = {
            n: (part, weight) for n, part, weight in zip(self._given, self._dataset.parts, first, strict=True)
        }
        given[name] = (_as_source(name, source).dataset, 0.0)
        arguments = {
            **self._arguments,
            "temperature": None,
            "schedule": [(step, dict(zip(self._given, weights, strict=True))) for step, weights in later],
        }
        return Mixture(given, **arguments, **self._options)

    def close(self) -> None:
        """Ends the threads of sources that were given as URLs. May be repeated."""
        self._dataset.close()

    def __repr__(self) -> str:
        return live.describe(
            self, lambda: f"Mixture({', '.join(f'{name}: {size}' for name, size in self.sizes.items())})"
        )


def _as_source(name: str, value: Any) -> MixtureSource:
    if isinstance(value, MixtureSource):
        source = value
    elif isinstance(value, tuple):
        if len(value) != 2:
            raise InvalidArgumentError(f"source {name!r}: expected (dataset, weight)")
        source = MixtureSource(value[0], value[1])
    else:
        source = MixtureSource(value)
    if sum(number is not None for number in source[1:]) > 1:
        raise InvalidArgumentError(f"source {name!r}: give one of weight, repeat and choose")
    return source


def _epoch_shares(
    given: Mapping[str, MixtureSource], sizes: Sequence[int], arguments: Mapping[str, Any]
) -> list[int]:
    """Samples of each source in an epoch, where they are given; else nothing."""
    if all(source.repeat is None and source.choose is None for source in given.values()):
        return []
    for name in ("temperature", "samples_per_epoch"):
        if arguments[name] is not None:
            raise InvalidArgumentError(
                f"{name}= does not go with repeat= and choose=, which say how long an epoch is"
            )
    if arguments["schedule"]:
        raise InvalidArgumentError("schedule= does not go with repeat= and choose=: it changes weights")
    shares = []
    for (name, source), size in zip(given.items(), sizes, strict=True):
        if source.repeat is None and source.choose is None:
            raise InvalidArgumentError(f"source {name!r}: give repeat= or choose= to all sources, or to none")
        share = source.choose if source.choose is not None else round((source.repeat or 0) * size)
        if not 0 <= share < 1 << 48:
            raise InvalidArgumentError(f"source {name!r}: {share} samples of an epoch")
        shares.append(share)
    if not sum(shares):
        raise InvalidArgumentError("an epoch of no samples")
    return shares


def describe(mixture: Mixture, source: _native.OrderSource) -> dict[str, Any]:
    """``source.describe()`` with what it means for each source."""
    out: dict[str, Any] = source.describe()
    counts = source.counts(0, out["samples_per_epoch"])
    for part, count, size in zip(out["sources"], counts, mixture.sizes.values(), strict=True):
        part.update(
            samples=size,
            samples_per_epoch=count,
            epochs_per_epoch=count / size,
            samples_per_batch=count * out["global_batch"] / out["samples_per_epoch"],
        )
    out["schedule"] = [
        (step, dict(zip(mixture.names, weights, strict=True))) for step, weights in out["schedule"]
    ]
    return out


class _Standing(NamedTuple):
    """Where the run of a loader stands."""

    state: str
    source: _native.OrderSource
    """The loader's order as its state has it."""
    sample: int
    """The run's sample that comes next."""
    facts: dict[str, Any]


def _standing(loader: Loader) -> _Standing:
    state = loader.state_dict()
    text = json.dumps(state)
    source = loader._source.restored(text)
    facts = source.describe()
    return _Standing(text, source, state["epoch"] * facts["samples_per_epoch"] + state["t"], facts)


def _change_at(now: _Standing, at_step: int | None) -> int:
    """The run's sample from which a change holds that is asked for `now`: the start of a global batch."""
    batch: int = now.facts["global_batch"]
    if at_step is None:
        return now.source.boundary(now.sample)
    if isinstance(at_step, bool) or not isinstance(at_step, int) or not 0 <= at_step < 1 << 40:
        raise InvalidArgumentError(f"at_step={at_step!r} is no number of a global batch")
    if at_step * batch < now.sample:
        raise InvalidArgumentError(
            f"at_step={at_step} is past: the run has received {now.sample / batch:g} global batches of {batch}"
        )
    return at_step * batch


def set_weights(loader: Loader, weights: Mapping[str, float], at_step: int | None) -> int:
    """Lets the loader go on with its order, changed; returns the batch from which the weights hold."""
    if loader._mixture is None:
        raise InvalidArgumentError("this loader does not read a Mixture")
    now = _standing(loader)
    sample = _change_at(now, at_step)
    loader._native.set_order_source(now.source.changed(sample, loader._mixture.weights_list(weights)))
    return sample // int(now.facts["global_batch"])


def add_source(
    loader: Loader,
    name: str,
    source: DatasetLike | MixtureSource,
    weights: Mapping[str, float],
    at_step: int | None,
) -> int:
    """Opens the mixture with one more source beside the running one, and moves the loader over to it when all
    is well."""
    if loader._mixture is None:
        raise InvalidArgumentError("this loader does not read a Mixture")
    now = _standing(loader)
    sample = _change_at(now, at_step)
    mixture = loader._mixture.with_source(name, source, now.facts["schedule"])
    try:
        _move(loader, mixture, now, sample, mixture.weights_list(weights))
    except BaseException:
        mixture.close()
        raise
    loader._mixture = mixture
    loader._grown.append(mixture)
    return sample // int(now.facts["global_batch"])


def _move(loader: Loader, mixture: Mixture, now: _Standing, sample: int, weights: list[float]) -> None:
    """Puts an engine that reads `mixture`, with `weights` from `sample` on, in the place of the loader's."""
    arguments = loader._arguments
    order = mixture.order_source(
        global_batch=arguments["batch_size"] * arguments["world_size"],
        seed=arguments["seed"],
        shuffle=arguments["order"] != "sequential",
        memory=parse_bytes(loader._memory),
        window=arguments["window_blocks"],
    )
    changed = order.restored(now.state).changed(sample, weights)
    store = mixture.dataset.open_store(loader._memory)
    try:
        native = _native.Loader(
            mixture.dataset._native,
            store,
            Batch,
            **{**arguments, "order_source": order, "source_blocks": mixture.dataset.first_blocks()},
        )
        try:
            native.load_state(now.state)
            native.set_order_source(changed)
            if loader._native.has_ended:
                native.end_epoch()
        except BaseException:
            native.close()
            raise
    except BaseException:
        store.close()
        raise
    previous, previous_store = loader._native, loader._store
    loader._source, loader._native, loader._store = order, native, store
    loader._dataset = mixture.dataset._native
    previous.close()
    previous_store.close()
