"""Batches of one rank, in the order fixed by (dataset, seed, epoch)."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace import _native
from headrace.base import live
from headrace.base.ranks import Rank, find_rank, group_rank
from headrace.base.units import parse_bytes
from headrace.data.batch import BadSample, Batch
from headrace.data.dataset import Dataset, open_native_dataset, open_root, split_options
from headrace.errors import InvalidArgumentError, UnsupportedError
from headrace.loader.quarantine import find_quarantined
from headrace.sources import orders
from headrace.sources.mixture import Concat, Mixture, MixtureSource, add_source, set_weights
from headrace.store.store import StoreOptions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Self, Unpack

    from headrace.loader.quarantine import Quarantine

__all__ = ["Loader"]

# Arguments that open a dataset, and what they are when they are left out.
_OPENING = {
    "format": "auto",
    "block_bytes": None,
    "index_cache": None,
    "use_stored_index": True,
    "split": None,
}
_U32 = 1 << 32
_U64 = 1 << 64


def _given_rank(rank: int | None, world_size: int | None) -> Rank | None:
    if rank is None and world_size is None:
        return None
    if rank is None or world_size is None:
        raise InvalidArgumentError("rank and world_size go together: give both or neither")
    if not 0 <= rank < world_size < _U32:
        raise InvalidArgumentError(f"rank={rank}, world_size={world_size}: expected 0 <= rank < world_size")
    return Rank(rank, world_size)


def _rank_so_far() -> Rank:
    """The rank as far as it is known. One that is set by halves is no error yet where a process group is
    about to be made, as in the processes that Lightning starts: the first use of the loader wants to know."""
    try:
        return find_rank()
    except InvalidArgumentError:
        if "MASTER_ADDR" not in os.environ:
            raise
    return Rank(0, 1)


def _check_range(name: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < high:
        raise InvalidArgumentError(f"{name}={value!r}: expected an integer from {low} to {high - 1}")
    return value


def _resolve_order(order: str | None, shuffle: bool) -> str:
    if order is None:
        return "headrace" if shuffle else "sequential"
    if orders.is_foreign(order):
        return order
    if order == "headrace" and not shuffle:
        raise InvalidArgumentError(
            'order="headrace" shuffles: leave out shuffle=False, or use order="sequential"'
        )
    return order


def _find_to_arrow(ragged: str) -> Callable[[_native.ArrowColumn], object] | None:
    if ragged not in ("list", "arrow"):
        raise InvalidArgumentError(f"ragged={ragged!r} is unknown; there are list, arrow")
    if ragged == "list":
        return None
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
    except ImportError:
        raise UnsupportedError('ragged="arrow" needs pyarrow: pip install pyarrow') from None
    return cast("Callable[[_native.ArrowColumn], object]", pa.array)


def _refuse_later_features(later: Mapping[str, object]) -> None:
    for name, value in later.items():
        if value is not None:
            raise UnsupportedError(f"{name}= is not in this version of headrace; leave it out")


def _refuse_opening_options(dataset: Dataset | Mixture, options: Mapping[str, object]) -> None:
    for name, value in sorted(options.items()):
        if name not in _OPENING or value != _OPENING[name]:
            raise InvalidArgumentError(
                f"{name}= belongs to the {'Mixture' if isinstance(dataset, Mixture) else 'Dataset'} that was passed in"
            )


class _Epoch:
    """Iterator of one epoch. Not ``iter(next, None)``: that breaks in Python 3.11.2 when several threads
    share it."""

    __slots__ = ("_next",)

    def __init__(self, next_batch: Callable[[], Any]) -> None:
        self._next = next_batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        batch: Batch | None = self._next()
        if batch is None:
            raise StopIteration
        return batch


class Loader:
    """Batches of one rank; each epoch a fixed order, each sample exactly once over all ranks.

    ``for batch in loader`` runs from the loader's position to the end of the epoch; the next loop is the next
    epoch. Leaving a loop early keeps the position. One thread at a time moves the position; other methods may
    be called from any.

    :param dataset: URL or path of a dataset, an open :class:`Dataset`, a list of them (one after the other),
        or a :class:`Mixture`.
    :param batch_size: samples a rank; the global batch is ``batch_size * world_size``.
    :param shuffle: False is short for ``order="sequential"``.
    :param seed: chooses the order, 0 to 2**64 - 1. Default: 0, or what the loader takes whose order it is
        (Mosaic 9176, LitData 42).
    :param order: ``"headrace"`` or ``"sequential"``; or the sequence of another loader: ``"mosaic:py1e"``
        (py1s, py1br, py2s, naive), ``"litdata"``.
    :param order_options: of Mosaic's and LitData's orders, by the names of their arguments:
        ``num_canonical_nodes``, ``shuffle_block_size``, ``partition_algo``, ``batching_method``,
        ``sampling_method``, ``sampling_granularity``, ``epoch_size``, ``streams``; ``shuffle``,
        ``drop_last``, ``item_shuffle_window``, ``window``; of both ``num_workers`` and ``ranks_per_node`` of
        the run to be repeated (default: 1, and ``LOCAL_WORLD_SIZE`` or all ranks).
    :param rank, world_size: default: from torch.distributed when it is initialised, else ``RANK`` and
        ``WORLD_SIZE``, else Open MPI's, PMI's or Slurm's variables, else one rank. Final at the first loop: a
        loader may be made before the process group.
    :param epoch_end: what happens with the last, incomplete global batch: ``"pad"`` repeats samples
        (``batch.mask`` tells), ``"drop"`` leaves it out, ``"uneven"`` shares it out.
    :param split: one of several splits of the dataset at ``dataset``, see :class:`headrace.DatasetOptions`.
    :param columns: names of the columns to deliver; default: all.
    :param ragged: columns whose values differ in size: ``"list"`` of Python values, or ``"arrow"``: pyarrow
        arrays over the engine's memory (large_binary, large_string, large_list; numbers with nulls), at a
        fraction of the CPU. What Arrow has no type for stays a list.
    :param memory: hard limit of the engine's memory for data, batches that are still in use included.
    :param prefetch: batches assembled ahead, at most.
    :param window: blocks that are shuffled together in one lane of the order; 0: the default of the order.
    :param lanes: lanes of the order; 0: chosen from the batch size and the memory.
    :param read_timeout: seconds for one block, all attempts together.
    :param on_bad_sample: ``"replace"``: a sample whose bytes turn out bad (a checksum, a broken record, a
        block that does not inflate) is replaced by another of its source, the same on all ranks and in all
        runs; ``batch.replaced`` says where. ``"raise"``: CorruptError. What the store or the network does is
        never a reason to replace.
    :param quarantine: samples that are never delivered, others in their place, whatever ``on_bad_sample``
        says: a file or URL that ``headrace verify --quarantine`` wrote, or dataset positions. Of a mixture
        also a dict of them by source, of a list of datasets by index. The same on all ranks; part of the
        state.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Dataset | Mixture | Sequence[str | os.PathLike[str] | Dataset],
        *,
        batch_size: int,
        shuffle: bool = True,
        seed: int | None = None,
        order: str | None = None,
        order_options: Mapping[str, Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        epoch_end: str = "pad",
        columns: Sequence[str] | None = None,
        split: str | None = None,
        ragged: str = "list",
        memory: int | str = "4GiB",
        prefetch: int = 16,
        workers: int = 0,
        window: int = 0,
        lanes: int = 0,
        format: str = "auto",
        block_bytes: int | str | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        use_stored_index: bool = True,
        read_timeout: float = 120.0,
        on_bad_sample: str = "raise",
        quarantine: Quarantine | Mapping[str, Quarantine] | Mapping[int, Quarantine] | None = None,
        decode: Mapping[str, object] | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        _refuse_later_features({"decode": decode, "cache": cache, "cache_limit": cache_limit})
        given_rank = _given_rank(rank, world_size)
        if not 0 < read_timeout <= 365 * 86400:
            raise InvalidArgumentError(
                f"read_timeout={read_timeout!r}: expected seconds above 0, at most a year"
            )
        seed = orders.default_seed(order) if seed is None else seed
        if order_options and not orders.is_foreign(order):
            raise InvalidArgumentError("order_options= belongs to the orders mosaic:* and litdata")
        if orders.is_foreign(order) and (window or lanes):
            raise InvalidArgumentError(
                f"window= and lanes= belong to order headrace; order {order} has neither"
            )
        arguments: dict[str, Any] = {
            "batch_size": _check_range("batch_size", batch_size, 1, _U32),
            "order": _resolve_order(order, shuffle),
            "seed": _check_range("seed", seed, 0, _U64),
            "epoch_end": epoch_end,
            "window_blocks": _check_range("window", window, 0, _U32),
            "lane_count": _check_range("lanes", lanes, 0, _U32),
            "prefetch": _check_range("prefetch", prefetch, 1, 1025),
            "workers": _check_range("workers", workers, 0, 1025),
            "columns": [columns] if isinstance(columns, str) else list(columns or ()),
            "read_timeout": read_timeout,
            "on_bad_sample": on_bad_sample,
            "to_arrow": _find_to_arrow(ragged),
        }
        if isinstance(dataset, Dataset | Mixture):
            opening = {
                "format": format,
                "block_bytes": block_bytes,
                "index_cache": index_cache,
                "use_stored_index": use_stored_index,
                "split": split,
            }
            _refuse_opening_options(dataset, {**opening, **options})
        given_options = dict(
            dataset._options if type(dataset) is Dataset else split_options(dict(options))[1]
        )
        self._mixture = dataset if isinstance(dataset, Mixture) else None
        self._concat: Concat | None = None
        self._grown: list[Mixture] = []  # Made by add_source(), and ours to close.
        if isinstance(dataset, Mixture):
            if order is not None or lanes:
                raise InvalidArgumentError(
                    "a mixture has its own order and chooses lanes for each source: leave out order= and lanes="
                )
            dataset = dataset.dataset
        elif not isinstance(dataset, str | os.PathLike | Dataset):
            dataset = self._concat = Concat(
                dataset,
                format=format,
                block_bytes=block_bytes,
                index_cache=index_cache,
                use_stored_index=use_stored_index,
                split=split,
                **options,
            )
        self._arguments, self._memory = arguments, memory
        if isinstance(dataset, Dataset):
            self._store, self._dataset = dataset.open_store(memory), dataset._native
        else:
            dataset_options, store_options = split_options({"columns": columns, "split": split, **options})
            self._store, self._dataset = open_root(
                dataset,
                memory,
                dataset_options,
                store_options,
                lambda store, chosen: open_native_dataset(
                    store, format, block_bytes, index_cache, use_stored_index, chosen
                ),
            )
        self._is_listed = orders.is_foreign(order)
        self._shuffle, self._order_options = shuffle, dict(order_options or {})
        try:
            several = self._concat if self._mixture is None else self._mixture.dataset
            if several is not None:
                arguments["source_blocks"] = several.first_blocks()
            if quarantine is not None:
                names = (
                    range(len(several.parts))
                    if several is not None and self._mixture is None
                    else (self._mixture.names if self._mixture else ())
                )
                arguments["quarantine"] = find_quarantined(
                    self._dataset, quarantine, given_options, several, names
                )
            self._native = self._open_engine(given_rank or _rank_so_far())
        except BaseException:
            self._store.close()
            raise
        self._has_warned = self._has_told_empty = self._has_checked_memory = False
        self._sample_count = self._dataset.sample_count
        self._drops, self._is_uneven = epoch_end == "drop", epoch_end == "uneven"
        self.batch_size = batch_size
        self._is_given_rank = self._is_final_rank = given_rank is not None
        self._loaded: str | None = None  # State to go on from, while the rank may change.
        self._is_placed = False  # load_state_dict() chose the position, and no batch was taken since.
        self._tell_shared_lanes()
        live.register(self)

    def _tell_shared_lanes(self) -> None:
        """Says, on one of the ranks, that they read the same blocks: lanes of the order do not follow their
        number."""
        rank, world_size = self._rank
        readers = 1.0 if rank or world_size == 1 or self._is_listed else self._native.lane_readers
        if readers <= 1.1:
            return
        warnings.warn(
            f"{self._dataset.url}: {world_size} ranks read each block {readers:.3g} times on average, in global batches of "
            f"{self._global_batch}: the order has too few lanes ({self._native.order_spec()['lane_count']}) for each to have its own. "
            "A larger batch, more memory= or a multiple of the ranks as lanes= change that (and the order of a new run).",
            RuntimeWarning,
            stacklevel=3,
        )

    @property
    def _global_batch(self) -> int:
        return self.batch_size * self._rank.world_size

    def _open_engine(self, rank: Rank) -> _native.Loader:
        """An engine that delivers the batches of a rank; takes note of it."""
        arguments: dict[str, Any] = {**self._arguments, **rank._asdict()}
        seed, order = arguments["seed"], arguments["order"]
        if self._mixture is not None:
            self._source = self._mixture.order_source(
                global_batch=self._arguments["batch_size"] * rank.world_size,
                seed=seed,
                shuffle=self._shuffle,
                memory=parse_bytes(self._memory),
                window=arguments["window_blocks"],
            )
            arguments["order_source"] = self._source
        elif self._is_listed:
            world = orders.World(rank.world_size, arguments["batch_size"])
            arguments["order_source"] = orders.open_source(
                order, self._dataset, self._order_options, seed=seed, shuffle=self._shuffle, world=world
            )
        engine = _native.Loader(self._dataset, self._store, Batch, **arguments)
        self._arguments, self._rank = arguments, rank
        return engine

    def _follow_rank(self) -> None:
        """Until the first loop: becomes the rank that the process turns out to be, at the position where it
        stands."""
        if self._is_final_rank:
            return
        rank = find_rank()
        if rank == self._rank:
            return
        previous = self._native
        engine = self._open_engine(rank)
        if self._loaded is not None:
            engine.load_state(self._loaded)
        elif previous.epoch:
            engine.seek(previous.epoch, 0)
        self._native = engine
        previous.close()
        self._tell_shared_lanes()

    def _settle_rank(self) -> None:
        """The rank is final from now on; a process group that says otherwise later is an error."""
        if not self._is_final_rank:
            self._follow_rank()
            self._is_final_rank, self._loaded = True, None
        group = None if self._is_given_rank else group_rank()
        if group is not None and group != self._rank:
            raise InvalidArgumentError(
                f"the loader began as rank {self._rank.rank} of {self._rank.world_size}, and torch.distributed now says rank {group.rank} of "
                f"{group.world_size}: make the process group before the first batch, or give rank= and world_size="
            )

    @property
    def rank(self) -> int:
        self._follow_rank()
        return self._rank.rank

    @property
    def world_size(self) -> int:
        self._follow_rank()
        return self._rank.world_size

    def __iter__(self) -> Iterator[Batch]:
        self._settle_rank()
        self._native.start_epoch()
        if self._drops and not self._has_told_empty and not self._native.epoch_batches:
            self._has_told_empty = True
            warnings.warn(
                f"{self._dataset.url}: epoch_end='drop' delivers nothing: an epoch fills no global batch of {self._global_batch} samples. "
                "Lower batch_size, or take epoch_end='pad' or 'uneven'.",
                RuntimeWarning,
                stacklevel=2,
            )
        return _Epoch(self._next)

    def _next(self) -> Batch | None:
        self._is_placed = False
        batch = self._native.next()  # add_source() may change it within a loop.
        if batch is not None and batch.replaced and not self._has_warned:
            self._warn()
        if batch is not None and not self._has_checked_memory:
            self._check_memory()
        return batch

    def _check_memory(self) -> None:
        """Says once when the limit makes whole blocks ready for single samples."""
        self._has_checked_memory = True
        wanted = int(self._native.stats()["loader.memory_wanted_bytes"])
        if wanted == 0:
            return
        warnings.warn(
            f"{self._dataset.url}: memory={self._memory!r} is not enough to keep the blocks of this order: many are read and decompressed again "
            f'for every sample, which can be a thousand times slower. memory="{-(-wanted >> 20)}MiB" would do. This is said once.',
            RuntimeWarning,
            stacklevel=4,
        )

    def _warn(self) -> None:
        """Says once that samples are replaced which no list named."""
        found = self.bad_samples
        if not found:
            return
        self._has_warned = True
        warnings.warn(
            f"{self._dataset.url}: {found[0].message}. Bad samples are replaced by others; batch.replaced, loader.bad_samples and "
            'stats()["loader.replaced_samples"] count them, `headrace verify --quarantine` finds them all. This is said once.',
            RuntimeWarning,
            stacklevel=4,
        )

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank. Mosaic's and LitData's orders may leave some of the last
        ones empty: those are counted here, and not delivered."""
        self._follow_rank()
        if self._mixture is not None or self._is_listed:
            return self._native.epoch_batches
        rank, world_size = self._rank
        full, rest = divmod(self._sample_count, self.batch_size * world_size)
        if self._is_uneven:
            rest = (rank + 1) * rest // world_size - rank * rest // world_size
        return full + (1 if rest and not self._drops else 0)

    @property
    def batches_left(self) -> int:
        """Batches from the position to the end of the epoch."""
        self._follow_rank()
        return self._native.batches_left

    @property
    def epoch(self) -> int:
        """Epoch of the position, from 0."""
        return self._native.epoch

    @property
    def order_spec(self) -> dict[str, Any]:
        """Identity of the order: id, version, seed, lanes, window."""
        self._follow_rank()
        return self._native.order_spec()

    @property
    def closed(self) -> bool:
        return self._native.closed

    def state_dict(self) -> dict[str, Any]:
        """The position, small and JSON: counts what the loop has received. The same on all ranks at the same
        step."""
        self._follow_rank()
        state: dict[str, Any] = json.loads(self._native.state())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to a position, saved by any rank of a run of any world size.

        A state without quarantine goes on under any list; one with a list wants the same, or
        ``state["quarantine"] = None`` first. With an order ``mosaic:*`` also a state dict of Mosaic's
        ``StreamingDataset``, with ``litdata`` one of LitData's ``StreamingDataLoader`` or
        ``StreamingDataset``. Raises InvalidArgumentError, and changes nothing, when the state belongs to
        another dataset, order or seed.
        """
        self._follow_rank()
        text = json.dumps(dict(state))
        self._native.load_state(text)
        self._loaded, self._is_placed = None if self._is_final_rank else text, True

    def set_epoch(self, epoch: int) -> None:
        """Goes to the beginning of an epoch, as training loops do before each of them.

        Where :meth:`load_state_dict` has just put the loader into that epoch, it stays there. Raises
        InvalidArgumentError where it has put it into another: one of the two is wrong then.
        """
        epoch = _check_range("epoch", epoch, 0, _U64)
        if self._is_placed:
            if epoch == self.epoch:
                return
            raise InvalidArgumentError(
                f"set_epoch({epoch}): load_state_dict() has put the loader into epoch {self.epoch}, and no batch was taken since. Begin the loop "
                "over epochs at loader.epoch, or leave set_epoch() out: each loop over the loader is the next epoch"
            )
        self._seek(epoch, 0)

    def _seek(self, epoch: int, batch: int) -> None:
        """Goes to the beginning of a global batch of an epoch; where it stands there already, what was read
        ahead is kept."""
        state = self.state_dict()
        if (state["epoch"], state["batches"]) != (epoch, batch):
            self._native.seek(epoch, batch)

    def _stands_at(self, batch: int) -> bool:
        """Whether a run of this global batch stands here after so many batches of the epoch.

        After a part with another global batch, another number of them is left.
        """
        return bool(self.state_dict()["batches"] == batch and self.batches_left == len(self) - batch)

    def _start_at(self, batch: int) -> None:
        """Begins a loop at a batch of the epoch, counted from its start. Where load_state_dict() chose the
        position, this must be it."""
        self._settle_rank()
        if not self._is_placed:
            self._seek(self.epoch, batch)
        elif not self._stands_at(batch):
            raise InvalidArgumentError(
                f"the first {batch} batches of the epoch are to be skipped, and load_state_dict() has put the loader"
                f" before batch {self.state_dict()['batches']}, with {self.batches_left} of {len(self)} to go: skip"
                " none, the loader goes on where it stands"
            )
        self._native.start_epoch()

    @property
    def mixture(self) -> Mixture | None:
        """The mixture that the loader reads, if it does."""
        return self._mixture

    def set_weights(self, weights: Mapping[str, float], at_step: int | None = None) -> int:
        """Changes the weights of the mixture from a global batch of the run on (default: the next one);
        returns that batch.

        Part of the state from then on. Every rank calls it at the same step with the same weights. Names left
        out have 0; later changes of a schedule are dropped.
        """
        self._settle_rank()
        return set_weights(self, weights, at_step)

    def add_source(
        self,
        name: str,
        source: str | os.PathLike[str] | Dataset | MixtureSource,
        weights: Mapping[str, float],
        at_step: int | None = None,
    ) -> int:
        """Adds a source to the mixture and changes the weights of all, as :meth:`set_weights` does."""
        self._settle_rank()
        return add_source(self, name, source, weights, at_step)

    def sample_ids(self, epoch: int = 0) -> Iterator[npt.NDArray[np.int64]]:
        """Dataset positions planned for each batch of this rank in an epoch, repeats of padding and bad
        samples included, without reading data."""
        self._follow_rank()
        index = 0
        while (ids := self._native.sample_ids(epoch, index)) is not None:
            if len(ids):
                yield ids
            index += 1

    @property
    def bad_samples(self) -> list[BadSample]:
        """What turned out bad while reading and was replaced, in the order in which this rank found it; the
        first 1,000."""
        return [BadSample(*row) for row in self._native.bad_samples()]

    def stats(self) -> dict[str, Any]:
        """Counters of loader, store and memory (docs/metrics.md), and ``stall_seconds`` by cause."""
        stats: dict[str, Any] = self._native.stats()
        stats["stall_seconds"] = {
            cause: stats.get(f"stall.{cause}_us", 0.0) / 1e6 for cause in _native.STALL_CAUSES
        }
        return stats

    def close(self) -> None:
        """Stops reading and ends the threads. Batches in use stay valid. May be repeated."""
        self._native.close()
        self._store.close()
        if self._concat is not None:
            self._concat.close()
        for mixture in self._grown:
            mixture.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return "Loader(closed)"
        return live.describe(
            self,
            lambda: (
                f"Loader({self._dataset.url!r}, batch_size={self.batch_size}, rank={self._rank.rank}, world_size={self._rank.world_size})"
            ),
        )
