"""Batches of one rank, in the order fixed by (dataset, seed, epoch)."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.base import live
from headrace.base.metrics import Metric, by_name, snapshot, stats_of
from headrace.base.option_names import names_before
from headrace.base.ranks import Rank, find_rank, given_rank, group_rank, rank_so_far
from headrace.base.recipe import Recipe, lasting, lasting_options
from headrace.base.secrets import without_secrets
from headrace.base.units import whole_number
from headrace.data.batch import BadSample, Batch
from headrace.data.dataset import Dataset
from headrace.data.mixture import Mixture, MixtureSource
from headrace.decode.dtypes import bfloat16_columns
from headrace.errors import InvalidArgumentError
from headrace.loader import changes
from headrace.loader.engine import Engine
from headrace.loader.epoch import Epoch, Epochs
from headrace.loader.filling import Filling, check_source
from headrace.loader.history import History
from headrace.loader.mapping.mappable import Mappable, Where
from headrace.loader.mapping.mapped import MappedLoader
from headrace.loader.options import LOADER_NAMES, split_options
from headrace.loader.pickling import check_receiver, reopen_loader
from headrace.loader.progress import EpochProgress
from headrace.loader.quarantine import find_quarantined, refuse_unlisted
from headrace.loader.relay.relay import Relay
from headrace.loader.report import write_report
from headrace.sources import orders
from headrace.sources.concat import is_open, open_source
from headrace.sources.options import OPENING, column_names
from headrace.sources.source import DatasetSource, Source

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Unpack

    from headrace._native import TakenBatch
    from headrace.loader.mapping.steps import Step
    from headrace.loader.options import LoaderOptions, Options
    from headrace.loader.reader import Reader

__all__ = ["Loader"]


def _open(dataset: Any, columns: Any, memory: int | str, opening: dict[str, Any]) -> Source:
    """The source of a loader, with the loader's memory."""
    if not isinstance(dataset, Dataset | Mixture):
        if isinstance(dataset, str | os.PathLike):
            opening = {"columns": columns, **opening}
        return open_source(dataset, memory=memory, wanted=column_names(columns), **opening)
    defaults = {**OPENING, "split": None}
    for name, value in sorted(opening.items()):
        if name not in defaults or value != defaults[name]:
            raise InvalidArgumentError(
                f"{name}= belongs to the {'Mixture' if isinstance(dataset, Mixture) else 'Dataset'} that was "
                "passed in"
            )
    return DatasetSource(dataset._mixed if isinstance(dataset, Mixture) else dataset._source, memory)


def _leave_out_broken(dataset: Any, options: Options, opening: dict[str, Any]) -> bool:
    """Adds to `opening` that broken shards may be missing, where bad samples are replaced. True: only those
    that a list names may be, which refuse_unlisted() looks at once they are known."""
    if isinstance(dataset, Mixture) or is_open(dataset) or "on_broken_shard" in opening:
        return False
    by_list = options.on_bad_sample != "replace"
    if by_list and (options.quarantine is None or not isinstance(dataset, str | os.PathLike)):
        return False
    opening["on_broken_shard"] = "leave_out"
    return by_list


@names_before("batch_size", LOADER_NAMES, "dataset")
class Loader(Mappable[MappedLoader], Epochs, live.Closing):
    """Batches of one rank; each epoch a fixed order, each sample exactly once over all ranks.

    ``for batch in loader`` runs from the loader's position to the end of the epoch; the next loop is the next
    epoch. Leaving a loop early keeps the position: the next one delivers the rest of the epoch, unless
    :meth:`reset` comes between. One thread at a time moves the position; other methods may
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
    :param columns: names of the columns to deliver; default: all. Of a list of datasets the others need not
        agree.
    :param ragged: columns whose values differ in size: ``"list"`` of Python values, or ``"arrow"``: pyarrow
        arrays over the engine's memory (large_binary, large_string, large_list; numbers with nulls), at a
        fraction of the CPU. What Arrow has no type for stays a list.
    :param memory: hard limit of the engine's memory for data, batches that are still in use included.
    :param keep_in_memory: blocks that the next epoch needs stay in memory until something else needs it: of a
        dataset that fits into ``memory`` all, where ``epochs`` says that another follows, else as much as
        reading ahead has room for anyway. Above a cache in a directory nothing is kept twice. What is read
        sample by sample is not kept: a folder of files in the orders headrace and sequential.
    :param epochs: how many epochs the training takes in all, those before a state included: while the end of
        one is delivered, the next is read already (of the orders headrace and sequential). 0: not known, and
        nothing is read that may never be asked for.
    :param prefetch: batches assembled ahead, at most.
    :param window: blocks that are shuffled together in one lane of the order; 0: the default of the order.
    :param lanes: lanes of the order; 0: chosen from the batch size and the memory.
    :param read_timeout: seconds for one block, all attempts together.
    :param decode: what is made of columns, on the engine's threads:
        ``{"image": headrace.decode.image(...)}``, or ``"auto"`` for what encodings, names and declared
        features say (:mod:`headrace.decode`).
    :param on_bad_sample: ``"replace"``: a sample whose bytes turn out bad (a checksum, a broken record, a
        block that does not inflate, a value that cannot be decoded) is replaced by another of its source, the
        same on all ranks and in all runs; ``batch.replaced`` says where. ``"raise"``: CorruptError. What the
        store or the network does is never a reason to replace. A dataset given by its URL is then also opened
        without its broken shards (``on_broken_shard="leave_out"``).
    :param progress: rank 0 shows how it goes on stderr: place in the epoch, batches, samples and bytes a
        second, and what the loop waited for. One line on a terminal; elsewhere one every 30 s, by the logger
        ``headrace.progress`` where it is set up to be heard.
    :param cache_mode: what ``cache=`` is for. ``"cache"``: what is read is kept. ``"copy"``: the whole
        dataset is fetched before the first batch, which takes a ``cache_limit=`` that it fits into; the
        processes of a node share the work. ``"lazy"``: training begins at once, and whenever batches enough
        are ready the rest is fetched in the order in which it will be needed, as far as there is room.
        ``"none"``: nothing is kept.
    :param cache_decoded: what ``decode=`` makes may be kept in the directory of ``cache=``, so that the next
        epoch decodes nothing: ``"auto"``, of columns where it was measured that reading takes less than half
        as long as decoding, if the cache has room for everything; ``"always"``, as far as there is room;
        ``"never"``. Only values of one size that nothing random decides (docs/cache.md).
    :param quarantine: samples that are never delivered, others in their place, whatever ``on_bad_sample``
        says: a file or URL that ``headrace verify --quarantine`` wrote, or dataset positions. Of a mixture
        also a dict of them by source, of a list of datasets by index. The same on all ranks; part of the
        state.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | Dataset | Mixture | Iterable[str | os.PathLike[str] | Dataset],
        *,
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        chosen_rank = given_rank(rank, world_size)
        if isinstance(dataset, Iterator):
            dataset = list(dataset)
        self._options, opening = split_options(batch_size, options)
        if "columns" in options:
            options["columns"] = self._options.columns  # What was given may be an iterator.
        self._given = Recipe(
            type(self),
            (lasting(dataset),),
            {"batch_size": batch_size, "rank": rank, "world_size": world_size, **lasting_options(options)},
        )
        self.batch_size = self._options.batch_size
        self._mixture = dataset if isinstance(dataset, Mixture) else None
        self._grown: list[Mixture] = []  # Made by add_source(), and ours to close.
        by_list = _leave_out_broken(dataset, self._options, opening)
        source = _open(dataset, self._options.columns, self._options.memory, opening)
        with ExitStack() as opened:
            opened.callback(source.close)
            check_source(source, self._options)
            given = self._options.quarantine
            quarantined = [] if given is None else find_quarantined(source, given)
            if by_list:
                refuse_unlisted(source, given)
            self._engine = Engine(source, self._options, chosen_rank or rank_so_far(), quarantined)
            opened.callback(self._engine.close)
            self._tell_shared_lanes()  # A warning may be made an error.
            opened.pop_all()
        self._has_warned = self._has_told_empty = self._has_told_memory = self._has_told_pins = False
        self._batches = 0
        # State and _was_placed before the batch that was taken last; None: the position was moved since.
        self._before: tuple[_native.LoaderState, bool] | None = None
        self._sharing: tuple[_native.Loader, int, int] | None = None  # Engine, wanted, granted.
        self._is_given_rank = self._is_final_rank = chosen_rank is not None
        self._loaded: str | None = None  # State to go on from, while the rank may change.
        self._was_placed = False  # load_state_dict() chose the position, and no batch was taken since.
        self._is_changed = False  # Its order may be another than that of a first run.
        self._history = History()
        self._history.stores = source.part_stores
        self._about = self._dataset.url, self._native.order_spec()["id"]  # Of what may be closed by then.
        self._progress = EpochProgress() if self._options.progress else None
        self._reader: Reader | None = None  # That may have taken batches ahead.
        self._relay: Relay | None = None
        self._filling = Filling(self._options)
        live.register(self)

    _may_skip = False
    """See :attr:`MappedLoader._may_skip`."""

    def _mapped(self, step: Step, place: Where) -> MappedLoader:
        return MappedLoader(self, (step,), place)

    def _recall(self) -> None:
        """Takes back what a reader has taken ahead. Whatever moves the position begins with this."""
        self._before = None
        if self._relay is not None:
            self._relay.note_moved()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader._rewind()

    def _for_workers(self) -> Relay:
        """What reads for the workers of DataLoaders."""
        if self._relay is None:
            self._relay = Relay(self)
        return self._relay

    @property
    def _reader_ahead(self) -> Reader | None:
        """The reader that knows the position, where it has taken batches ahead."""
        reader = self._reader
        return reader if reader is not None and reader._is_ahead else None

    @property
    def _dataset(self) -> _native.Dataset:
        return self._engine.source.native

    @property
    def _native(self) -> _native.Loader:
        return self._engine.native

    @property
    def _bfloat16_columns(self) -> frozenset[str]:
        """Those that arrays have the bits of, as uint16."""
        dtypes = self._native.column_dtypes()
        stored = {name for name, dtype in dtypes.items() if dtype == "bfloat16"}
        return frozenset(stored | bfloat16_columns(self._options.decode))

    @property
    def _rank(self) -> Rank:
        return self._engine.rank

    def _tell_shared_lanes(self) -> None:
        """Says, on one of the ranks, that they read the same blocks: lanes of the order do not follow their
        number."""
        rank, world_size = self._rank
        readers = (
            1.0
            if rank or world_size == 1 or orders.is_foreign(self._options.order)
            else self._native.lane_readers
        )
        if readers <= 1.1:
            return
        blocks = self._dataset.block_count
        what_helps = "A larger batch, more memory= or a multiple of the ranks as lanes= change that"
        if blocks < world_size:
            what_helps = f"Blocks there are {blocks:,}: smaller ones (block_bytes=) change that"
        warnings.warn(
            f"{self._dataset.url}: {world_size} ranks read each block {readers:.3g} times on average, in "
            f"global batches of {self._global_batch}: the order has too few lanes "
            f"({self._native.order_spec()['lane_count']}) for each to have its own. {what_helps} "
            "(and the order of a new run).",
            RuntimeWarning,
            stacklevel=3,
        )

    @property
    def _global_batch(self) -> int:
        return self.batch_size * self._rank.world_size

    def _follow_rank(self) -> None:
        """Until the first loop: becomes the rank that the process turns out to be, at the position where it
        stands."""
        if self._is_final_rank:
            return
        rank = find_rank()
        if rank == self._rank:
            return
        previous, engine = self._engine, self._engine.for_rank(rank)
        try:
            if self._loaded is not None:
                engine.native.load_state(self._loaded)
            elif previous.native.epoch:
                engine.native.seek(previous.native.epoch, 0)
        except BaseException:
            engine.close()
            raise
        self._engine = engine
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
                f"the loader began as rank {self._rank.rank} of {self._rank.world_size}, and "
                f"the process group now says rank {group.rank} of {group.world_size}: make the process group "
                "before the first batch, or give rank= and world_size="
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
        """From the position to the end of the epoch.

        After a loop that was left early (``break``, an error) that is the rest of its epoch, beginning behind
        the last batch that was delivered; after one that came to its end, the next epoch.
        :meth:`reset` goes back to the epoch's first batch, and :meth:`epoch_from_start` begins there.
        """
        self._recall()
        self._settle_rank()
        self._native.start_epoch()
        self._filling.begin(self._engine)
        self._history.begin(self._native, self._native.epoch)
        if self._progress is not None:
            self._progress.begin(self._native)
        if self._options.epoch_end == "drop" and not self._has_told_empty and not self._native.epoch_batches:
            self._has_told_empty = True
            warnings.warn(
                f"{self._dataset.url}: epoch_end='drop' delivers nothing: an epoch fills no global batch of "
                f"{self._global_batch} samples. Lower batch_size, or take epoch_end='pad' or 'uneven'.",
                RuntimeWarning,
                stacklevel=2,
            )
        return Epoch(self._next)

    def _next(self, convert: Callable[[Any], Any] | None = None) -> Any:
        """The next batch, or what ``convert`` makes of it; None at the end of the epoch. Where anything is
        raised, it was not received, and comes again.

        What another loop has taken ahead comes first: it was given to nobody.
        """
        if self._reader is not None or self._relay is not None:
            self._recall()
        return self._read(convert)

    def _read(self, convert: Callable[[Any], Any] | None = None) -> Any:
        """:meth:`_next` for a reader, which hands the batches on."""
        if self._sharing is not None:
            self._end_sharing()
        return self._taken_by(self._native.next, convert)  # add_source() may change it within a loop.

    def _take(self) -> TakenBatch | None:
        """The next batch, for whoever hands it to other processes (:meth:`_share`)."""
        taken: TakenBatch | None = self._taken_by(self._native.take, None)
        return taken

    def _taken_by(self, take: Callable[[], Any], convert: Callable[[Any], Any] | None) -> Any:
        # Python runs signal handlers behind calls of C, so behind take() too: none may be behind the `try`.
        self._before = self._native.state_later(), self._was_placed
        try:
            batch = take()
            self._note(batch)
            return batch if batch is None or convert is None else convert(batch)
        except BaseException:
            self._unread()
            raise

    def _unread(self) -> None:
        """Goes back before the batch that was taken last, where one was: the loop could not have it, so it
        comes again."""
        before, self._before = self._before, None
        if before is None or self.closed:
            return
        state, self._was_placed = before
        if self._native.state() != state.text():
            self._native.load_state(state.text())

    def _note(self, batch: Batch | TakenBatch | None) -> None:
        self._was_placed = False
        if batch is not None and batch.replaced and not self._has_warned:
            self._warn()
        self._history.after_batch(self._native, is_last=batch is None)
        if self._progress is not None and batch is not None and not self._rank.rank:
            self._progress.after_batch(self._native, batch.epoch)
        self._batches += 1
        if batch is not None and self._batches & (self._batches - 1) == 0:
            if not self._has_told_memory:
                self._check_memory()
            if not self._has_told_pins:
                self._check_pins()

    def _share(self, wanted: int) -> int:
        """From now on batches lie where other processes can map them, until a plain one is asked for. Returns
        how many may be held at a time, at most ``wanted``."""
        native, sharing = self._native, self._sharing
        if sharing is None or sharing[0] is not native or sharing[1] != wanted:
            sharing = self._sharing = native, wanted, native.share_batches(wanted)
        return sharing[2]

    def _end_sharing(self) -> None:
        """A process that the training loop forks must have copies of its batches, as of all its memory."""
        native, self._sharing = self._native, None
        native.share_batches(0)
        if not native.has_ended:
            native.load_state(native.state())  # What is ready lies where it was made.

    def _check_pins(self) -> None:
        """Says once that pins have filled the cache."""
        if not by_name(self._native.metrics()).get("cache.pin_refusals", 0):
            return
        self._has_told_pins = True
        warnings.warn(
            f"{self._dataset.url}: what is pinned in the cache fills its limit, and what is read now cannot "
            "be kept. `headrace cache pin DIR` lists the pins, --remove takes one away; or raise "
            "cache_limit=. This is said once.",
            RuntimeWarning,
            stacklevel=7,
        )

    def _check_memory(self) -> None:
        """Says once what the memory limit costs, and how much would do. Asked after 1, 2, 4, 8, ... batches:
        what reading ahead brings is found while it runs."""
        metrics = by_name(self._native.metrics())
        wanted, fill = (int(metrics[f"loader.memory_{name}_bytes"]) for name in ("wanted", "fill"))
        if wanted:
            what = (
                "is not enough to keep the blocks of this order: samples are read one by one, and compressed "
                "blocks again for each, "
                f'which can be a thousand times slower. memory="{-(-wanted >> 20)}MiB" would do'
            )
        elif fill:
            what = (
                "keeps reading ahead from filling the pipe to the store, while the training loop waits. "
                f'memory="{-(-fill >> 20)}MiB" would allow twice as much'
            )
        else:
            return
        self._has_told_memory = True
        warnings.warn(
            f"{self._dataset.url}: memory={self._options.memory!r} {what}. This is said once.",
            RuntimeWarning,
            stacklevel=7,
        )

    def _warn(self) -> None:
        """Says once that samples are replaced which no list named."""
        found = self.bad_samples
        if not found:
            return
        self._has_warned = True
        warnings.warn(
            f"{self._dataset.url}: {found[0].message}. Bad samples are replaced by others; batch.replaced, "
            "loader.bad_samples and "
            'stats()["loader.replaced_samples"] count them, `headrace verify --quarantine` finds them all. '
            "This is said once.",
            RuntimeWarning,
            stacklevel=7,
        )

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank. Mosaic's and LitData's orders may leave some of the last
        ones empty: those are counted here, and not delivered."""
        self._follow_rank()
        return self._native.epoch_batches

    @property
    def batches_left(self) -> int:
        """Batches from the position to the end of the epoch."""
        if (reader := self._reader_ahead) is not None:
            return reader.batches_left
        self._follow_rank()
        return self._native.batches_left

    @property
    def epoch(self) -> int:
        """Epoch of the position, from 0."""
        reader = self._reader_ahead
        return self._native.epoch if reader is None else reader.epoch

    @property
    def _is_placed(self) -> bool:
        """Whether load_state_dict() chose the position, and no batch was delivered since."""
        reader = self._reader_ahead
        return self._was_placed if reader is None else reader._is_placed

    @property
    def _has_ended(self) -> bool:
        """From this rank's last batch of an epoch on."""
        return self._native.has_taken_all

    @property
    def _epoch_to_begin(self) -> int:
        """What a loop from a first batch delivers: that of the position, and from this rank's last batch of
        it on the next, as the next loop does. A rank without a share of the last global batch is still before
        that then, where all ranks stand at that step."""
        is_within = self._native.has_taken_all and self.state_dict()["t"] > 0
        return self.epoch + 1 if is_within else self.epoch

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
        if (reader := self._reader_ahead) is not None:
            return reader.state_dict()
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
        if not isinstance(state, Mapping):
            how = " (json.loads() makes one of its text)" if isinstance(state, str | bytes) else ""
            raise InvalidArgumentError(
                f"load_state_dict() takes the dict of state_dict(), not a {type(state).__name__}{how}"
            )
        self._recall()
        self._follow_rank()
        text = json.dumps(dict(state))
        self._native.load_state(text)
        self._loaded, self._was_placed = None if self._is_final_rank else text, True
        self._is_changed = True

    def set_epoch(self, epoch: int) -> None:
        """Goes to the beginning of an epoch, as training loops do before each of them.

        Where :meth:`load_state_dict` has just put the loader into that epoch, it stays there. Raises
        InvalidArgumentError where it has put it into another: one of the two is wrong then.
        """
        epoch = whole_number("epoch", epoch, 64)
        if self._is_placed:
            if epoch == self.epoch:
                return
            raise InvalidArgumentError(
                f"set_epoch({epoch}): load_state_dict() has put the loader into epoch {self.epoch}, and no "
                "batch was taken since. Begin the loop over epochs at loader.epoch, or leave set_epoch() "
                "out: each loop over the loader is the next epoch"
            )
        self._seek(epoch, 0)

    def reset(self, epoch: int | None = None) -> None:
        """See :meth:`Epochs.reset`."""
        self._recall()
        self._seek(self._epoch_to_begin if epoch is None else whole_number("epoch", epoch, 64), 0)
        self._was_placed = False

    def _seek(self, epoch: int, batch: int) -> None:
        """Goes to the beginning of a global batch of an epoch; where it stands there already, what was read
        ahead is kept."""
        self._recall()
        state = self.state_dict()
        # Both numbers: after a part with another global batch, or of Mosaic's, as many batches are other
        # samples.
        there = epoch, batch, batch * self._global_batch
        # A loop that was left at the last batch of an epoch stands there and is still in the epoch before.
        is_behind = self._native.has_taken_all and not self._native.batches_left
        if is_behind or (state["epoch"], state["batches"], state["t"]) != there:
            self._native.seek(epoch, batch)
        if self._loaded is not None:
            self._loaded = self._native.state()  # Its order stays; the position is this one.

    def _stands_at(self, batch: int) -> bool:
        """Whether a run of this global batch stands here after so many batches of the epoch.

        After a part with another global batch, another number of them is left.
        """
        return bool(self.state_dict()["batches"] == batch and self.batches_left == len(self) - batch)

    def _start_at(self, batch: int) -> None:
        """Begins a loop at a batch of the epoch, counted from its start. Where load_state_dict() chose the
        position, this must be it."""
        self._recall()
        self._settle_rank()
        if not self._is_placed:
            self._seek(self._epoch_to_begin, batch)
        elif not self._stands_at(batch):
            raise InvalidArgumentError(
                f"the first {batch} batches of the epoch are to be skipped, and load_state_dict() has put "
                f"the loader before batch {self.state_dict()['batches']}, with {self.batches_left} of "
                f"{len(self)} to go: skip none, the loader goes on where it stands"
            )
        self._native.start_epoch()
        self._history.begin(self._native, self._native.epoch)
        self._filling.begin(self._engine)

    @property
    def mixture(self) -> Mixture | None:
        """The mixture that the loader reads, if it does."""
        return self._mixture

    def _mixing(self, at_step: int | None) -> tuple[Mixture, changes.Standing]:
        """The mixture, and where the run stands, for a change of its order."""
        self._recall()
        self._settle_rank()
        if self._mixture is None:
            raise InvalidArgumentError("this loader does not read a Mixture")
        return self._mixture, changes.standing(self._engine, at_step)

    def set_weights(self, weights: Mapping[str, float], at_step: int | None = None) -> int:
        """Changes the weights of the mixture from a global batch of the run on (default: the next one);
        returns that batch.

        Part of the state from then on. Every rank calls it at the same step with the same weights. Names left
        out have 0; later changes of a schedule are dropped.
        """
        _, now = self._mixing(at_step)
        changes.set_weights(self._engine, now, weights)
        self._is_changed = True
        return now.step

    def add_source(
        self,
        name: str,
        source: str | os.PathLike[str] | Dataset | MixtureSource,
        weights: Mapping[str, float],
        at_step: int | None = None,
    ) -> int:
        """Adds a source to the mixture and changes the weights of all, as :meth:`set_weights` does: they
        alone say how much of it comes."""
        running, now = self._mixing(at_step)
        mixture = running.with_source(name, source, now.schedule)
        with ExitStack() as opened:
            opened.callback(mixture.close)
            grown = DatasetSource(mixture._mixed, self._options.memory)
            opened.callback(grown.close)
            engine = changes.moved(self._engine, grown, now, weights)
            opened.pop_all()
        self._filling.end()
        previous, self._engine, self._mixture = self._engine, engine, mixture
        self._is_changed = True
        self._grown.append(mixture)
        self._history.stores = grown.part_stores
        previous.close()
        previous.source.close()
        return now.step

    def sample_ids(self, epoch: int = 0) -> Iterator[npt.NDArray[np.int64]]:
        """Dataset positions planned for each batch of this rank in an epoch, repeats of padding and bad
        samples included, without reading data. Of a whole epoch with this global batch: one that began with
        another is delivered as its state says."""
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
        return stats_of(self._native.metrics())

    def metrics(self) -> Sequence[Metric]:
        """The counters of :meth:`stats` with kind, unit and labels: what exporters need."""
        return snapshot(self._native.metrics())

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes the run until now as a page that needs no other file (``.html``), or as a picture (``.png``,
        ``.svg``, ``.pdf``): throughput, what was waited for, latencies of the store and where bytes came
        from, over time. Needs matplotlib; docs/stalls.md says how to read it. May be called at any time,
        after :meth:`close` too, from any thread.
        """
        write_report(
            path,
            self._history.record(None if self.closed else self._native),
            f"headrace: {without_secrets(self._about[0])}",
            {
                "batch size": self.batch_size,
                "rank": f"{self._rank.rank} of {self._rank.world_size}",
                "order": self._about[1],
                "memory": self._options.memory,
            },
        )

    def close(self) -> None:
        """Stops reading and ends the threads. Batches in use stay valid. May be repeated."""
        if self._progress is not None:
            self._progress.end()
        if self._reader is not None:
            self._reader._stop()
        if self._relay is not None:
            self._relay._stop()
        self._filling.end()
        self._engine.close()
        self._engine.source.close()
        for mixture in self._grown:
            mixture.close()

    def __reduce__(self) -> Any:
        """How it was opened, and the position where it has one: loading a pickle opens another loader, which
        goes on there, as the rank that was given or that its process turns out to be."""
        if self.closed:
            raise InvalidArgumentError("a closed Loader is not pickled: it is no more to be opened")
        check_receiver()
        recipe, state = self._given, self.state_dict()
        if self._mixture is not None:
            recipe = recipe._replace(arguments=(self._mixture,))
        is_first_run = not self._is_changed and state["epoch"] == state["batches"] == 0
        recipe = recipe.checked(f"the Loader of {self._dataset.url}")
        return reopen_loader, (
            recipe,
            None if is_first_run else state,
            self._is_placed,
            self._dataset.fingerprint,
        )

    def __repr__(self) -> str:
        if self.closed:
            return "Loader(closed)"
        return live.describe(
            self,
            lambda: (
                f"Loader({self._dataset.url!r}, batch_size={self.batch_size}, rank={self._rank.rank}, "
                f"world_size={self._rank.world_size})"
            ),
        )
