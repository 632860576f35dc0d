"""StreamingDataset: Mosaic's data set, order and state over Headrace."""

from __future__ import annotations

import bisect
import itertools
import math
import os
import warnings
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import IterableDataset, get_worker_info

from headrace import _native
from headrace.compat.streaming._ahead import ShardsAhead
from headrace.compat.streaming._array import Array
from headrace.compat.streaming._local_shards import LocalShards
from headrace.compat.streaming._progress import Progress
from headrace.compat.streaming._reader import StreamReader
from headrace.compat.streaming._registry import construct_from_registry
from headrace.compat.streaming._shards import Reader
from headrace.compat.streaming._stream import Stream, streams_registry
from headrace.compat.streaming._units import bytes_to_int, number_abbrev_to_int
from headrace.compat.streaming._world import World
from headrace.errors import HeadraceError
from headrace.sources.order_cache import order_cache

# Samples read ahead of the training loop at a time: enough for many requests in flight, little memory. The
# next lot is read while this one is served.
_LEAST_AHEAD, _MOST_AHEAD = 64, 1024
# Of large ones fewer; not much less, since shards that are compressed are unpacked anew for each lot.
_MOST_AHEAD_BYTES = 256 << 20
# Batches whose ids are looked up at a time.
_BATCHES_AT_ONCE = 1024
# Where the data sets of this process have their files.
_directories: weakref.WeakKeyDictionary[StreamingDataset, set[str]] = weakref.WeakKeyDictionary()


class StreamingDataset(Array, IterableDataset[Any]):
    """A drop-in for mosaicml-streaming's StreamingDataset: the same arguments, samples, order and state.

    With ``remote`` and ``local``, shards are copied to ``local``, ``predownload`` samples ahead, and those
    that were not used for longest go when the copies would take more than ``cache_limit``. Several ranks,
    workers and jobs may share ``local``. With one of the two, samples are read where they lie, in pieces:
    ``cache_limit`` and the download settings have nothing to bound, and with ``validate_hash`` each process
    reads a shard whole once, before its first sample, and compares: ValueError "Checksum failure".
    """

    def __init__(
        self,
        *,
        streams: Sequence[Stream] | None = None,
        remote: str | None = None,
        local: str | None = None,
        split: str | None = None,
        download_retry: int = 2,
        download_timeout: float = 60,
        validate_hash: str | None = None,
        keep_zip: bool = False,
        epoch_size: int | str | None = None,
        predownload: int | None = None,
        cache_limit: int | str | None = None,
        sampling_method: str = "balanced",
        sampling_granularity: int = 1,
        partition_algo: str = "relaxed",
        num_canonical_nodes: int | None = None,
        batch_size: int | None = None,
        shuffle: bool = False,
        shuffle_algo: str = "py1e",
        shuffle_seed: int = 9176,
        shuffle_block_size: int | None = None,
        batching_method: str = "random",
        allow_unsafe_types: bool = False,
        replication: int | None = None,
        stream_name: str = "stream",
        stream_config: dict[str, Any] | None = None,
    ) -> None:
        self.predownload = predownload
        self.cache_limit = bytes_to_int(cache_limit) if cache_limit else None
        self.sampling_method, self.sampling_granularity = sampling_method, sampling_granularity
        self.partition_algo, self.num_canonical_nodes = partition_algo, num_canonical_nodes
        self.batch_size = batch_size
        self.shuffle, self.shuffle_algo, self.shuffle_seed = shuffle, shuffle_algo, shuffle_seed
        self.shuffle_block_size, self.batching_method = shuffle_block_size, batching_method
        self.allow_unsafe_types, self.replication = allow_unsafe_types, replication
        self.initial_physical_nodes: int | None = None
        self._check_arguments()

        self._unique_rank_world = World.detect()
        self._parallel_rank_world = (
            self._unique_rank_world if replication is None else self._unique_rank_world.replicate(replication)
        )

        defaults = {
            "split": split,
            "download_retry": download_retry,
            "download_timeout": download_timeout,
            "validate_hash": validate_hash,
            "keep_zip": keep_zip,
        }
        if bool(streams) == (bool(remote) or bool(local)):
            raise ValueError("You must provide either `streams` or `remote`/`local`, but not both.")
        if not streams:
            config = {**(stream_config or {}), "remote": remote, "local": local, **defaults}
            streams = [
                construct_from_registry(stream_name, streams_registry, partial_function=False, kwargs=config)
            ]
        for stream in streams:
            stream.apply_default(defaults)
        self.streams = list(streams)
        self.num_streams = len(self.streams)

        self._claim_directories()

        self._readers: list[StreamReader | None] | None = None
        self._readers_pid = 0
        self._local: LocalShards | None = None
        self._count_samples()
        # The weights are drawn with the seed of the arguments, also after a resume brings another.
        self._weight_seed = shuffle_seed
        self._epoch_size_argument = number_abbrev_to_int(epoch_size) if epoch_size else 0
        if self._epoch_size_argument < 0:
            raise ValueError(f"Epoch size cannot be negative. Received {self._epoch_size_argument}.")
        self._apply_weights()
        self.length = math.ceil(self.epoch_size / self._parallel_rank_world.num_ranks)

        self._progress = Progress()
        self._ahead: dict[int, list[dict[str, Any]]] = {}
        self._pass = 0  # counts __iter__ calls: an older iterator ends when a newer one begins

    def _check_arguments(self) -> None:
        if self.sampling_method not in ("balanced", "fixed"):
            raise ValueError(
                f"Invalid sampling method: {self.sampling_method}. Must be one of `balanced` or `fixed`."
            )
        if self.sampling_granularity <= 0:
            raise ValueError(
                f"`sampling_granularity` must be a positive integer, but got: {self.sampling_granularity}."
            )
        if self.batching_method not in ("random", "stratified", "per_stream", "device_per_stream"):
            raise ValueError(
                f"Invalid batching method: {self.batching_method}. Must be one of `random`, `stratified`, "
                "`per_stream`, or `device_per_stream`."
            )
        if self.shuffle_seed < 0:
            raise ValueError(f"`shuffle_seed` must be a non-negative integer, but got: {self.shuffle_seed}.")
        if (
            self.predownload is not None
            and self.batch_size is not None
            and self.predownload < self.batch_size
        ):
            warnings.warn(
                f"predownload < batch_size ({self.predownload} < {self.batch_size}).This may result in "
                "slower batch time. Recommendation is to set predownload to at-least batch_size.",
                stacklevel=3,
            )
        if self.predownload is None:
            self.predownload = 8 * self.batch_size if self.batch_size is not None else 64

    def _claim_directories(self) -> None:
        """Raises ValueError where copies of two streams, or of two data sets of this process, would share a
        directory."""
        mine = [os.path.abspath(stream.directory) for stream in self.streams]
        twice = sorted({path for path in mine if mine.count(path) > 1})
        if twice:
            raise ValueError(f"Reused local directory: {twice}. Provide a different one.")
        kept = {path for path, stream in zip(mine, self.streams, strict=True) if stream.keeps_copies}
        for theirs in list(_directories.values()):
            if kept & theirs:
                raise ValueError(
                    f"Reused local directory: {mine} vs {sorted(theirs)}. Provide a different one."
                )
        _directories[self] = set(mine)

    def _count_samples(self) -> None:
        per_stream = [
            reader.shard_samples() if reader else [shard.samples for shard in self._shards_of(stream)]
            for stream, reader in zip(self.streams, self._open_readers(), strict=True)
        ]
        for stream, shards in zip(self.streams, per_stream, strict=True):
            if not sum(shards):
                raise RuntimeError(f"Stream contains no samples: {stream.url}.")
        self._shards = [np.asarray(shards, np.int64) for shards in per_stream]
        self.samples_per_shard = np.concatenate(self._shards)
        self.sample_offset_per_shard = self.samples_per_shard.cumsum() - self.samples_per_shard
        self.num_shards = len(self.samples_per_shard)
        self.shards_per_stream = np.array([len(shards) for shards in self._shards], np.int64)
        self.shard_offset_per_stream = self.shards_per_stream.cumsum() - self.shards_per_stream
        self.samples_per_stream = np.array([shards.sum() for shards in self._shards], np.int64)
        self.sample_offset_per_stream = self.samples_per_stream.cumsum() - self.samples_per_stream
        self.num_samples = int(self.samples_per_stream.sum())
        if any(stream.keeps_copies for stream in self.streams):
            self._local_shards()

    def _shards_of(self, stream: Stream) -> list[Reader]:
        return stream.get_shards(self._unique_rank_world, self.allow_unsafe_types)

    def _local_shards(self) -> LocalShards:
        if self._local is None:
            self._local = LocalShards(
                self.streams, [self._shards_of(stream) for stream in self.streams], self.cache_limit
            )
        return self._local

    def _stream_rows(self) -> list[Any]:
        return [
            (shards.tolist(), *weights) for shards, weights in zip(self._shards, self._weights, strict=True)
        ]

    def _apply_weights(self) -> None:
        self._weights = [stream.given_weights() for stream in self.streams]
        choose, proportion, self.epoch_size = _native.apply_mosaic_weights(
            self._stream_rows(), self._epoch_size_argument, self._weight_seed
        )
        for stream, c, p, samples in zip(
            self.streams, choose, proportion, self.samples_per_stream, strict=True
        ):
            stream.derive_weights(p, c / samples, c)

    # Reading.

    def _open_readers(self) -> list[StreamReader | None]:
        """This process's readers: a forked worker opens its own. None for a stream that keeps copies."""
        if self._readers is None or self._readers_pid != os.getpid():
            self._readers = [
                None if stream.keeps_copies else self._open_reader(stream) for stream in self.streams
            ]
            self._readers_pid = os.getpid()
        return self._readers

    def _open_reader(self, stream: Stream) -> StreamReader:
        try:
            return StreamReader(stream.url, self.allow_unsafe_types, stream.validate_hash)
        except HeadraceError:
            self._shards_of(stream)  # an index that Mosaic refuses too: with its error
            raise

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_readers": None, "_ahead": {}}

    def _read(self, ids: Sequence[int]) -> list[dict[str, Any] | None]:
        """The samples of these ids, in this order; ids count through the streams. None where a copy is
        read."""
        offsets = self.sample_offset_per_stream.tolist()
        by_stream: dict[int, list[int]] = {}
        for place, sample_id in enumerate(ids):
            by_stream.setdefault(bisect.bisect_right(offsets, sample_id) - 1, []).append(place)
        samples: list[dict[str, Any] | None] = [None] * len(ids)
        for stream, places in by_stream.items():
            positions = [ids[place] - offsets[stream] for place in places]
            reader = self._open_readers()[stream]
            if reader is None:
                continue
            for place, sample in zip(places, reader.read(positions), strict=True):
                samples[place] = sample
        return samples

    @property
    def size(self) -> int:
        """Samples of all streams, before they are weighed."""
        return self.num_samples

    def __len__(self) -> int:
        """Samples of an epoch on each device."""
        return self.length

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        """The sample at a global index."""
        waiting = self._ahead.get(sample_id)
        if waiting:
            return waiting.pop()
        if not 0 <= sample_id < self.num_samples:
            raise IndexError(f"sample {sample_id} is out of range: there are {self.num_samples}")
        sample = self._read([sample_id])[0]
        return self._local_shards().read(sample_id, retry) if sample is None else sample

    # Shards.

    @property
    def shards(self) -> list[Reader]:
        """Of all streams. Their samples can be read where their files are in ``local``: see
        :meth:`prepare_shard`."""
        return self._local_shards().shards

    @property
    def stream_per_shard(self) -> npt.NDArray[np.int64]:
        """The number of each shard's stream."""
        return self._local_shards().stream_per_shard

    @property
    def cache_usage(self) -> int:
        """Bytes of the copies in ``local``, of this process and all others, with their indexes."""
        room = self._local_shards().room
        return room.used if room else 0

    def prepare_shard(self, shard_id: int, blocking: bool = True) -> None:
        """Makes sure that a shard is copied. Nothing to do where samples are read in their place."""
        self._local_shards().prepare(shard_id)

    def evict_shard(self, shard_id: int) -> None:
        """Removes the copy of a shard."""
        self._local_shards().evict(shard_id)

    def evict_coldest_shard(self) -> None:
        """Removes the copy that was not used for longest."""
        room = self._local_shards().room
        if room is None or not room.evict_coldest():
            raise ValueError("there is no copy of a shard")

    # State.

    @property
    def next_epoch(self) -> int:
        return self._progress.next_epoch

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        self._progress.next_epoch = epoch

    def _resume(self, world: World, epoch: int) -> tuple[int, int]:
        """The epoch, and the place in it, that a pass which would begin ``epoch`` begins with."""
        state = self._progress.state
        sample_in_epoch = 0
        if state is not None and state["epoch"] >= epoch:
            epoch, sample_in_epoch = state["epoch"], state["sample_in_epoch"]
            self.num_canonical_nodes, self.shuffle_seed = state["num_canonical_nodes"], state["shuffle_seed"]
            self.initial_physical_nodes = state.get("initial_physical_nodes")
        elif not self.num_canonical_nodes:
            self.num_canonical_nodes = world.num_nodes * (64 if self.shuffle_algo in ("py1s", "py2s") else 1)
        if self.shuffle_block_size is None:
            self.shuffle_block_size = (
                max(4_000_000 // self.num_canonical_nodes, 1 << 18) if self.num_canonical_nodes else 1 << 18
            )
        return epoch, sample_in_epoch

    def state_dict(self, num_samples: int, from_beginning: bool) -> dict[str, Any]:
        """Mosaic's state: ``num_samples`` over all ranks, since the epoch or since this pass over it
        began."""
        world = self._parallel_rank_world
        epoch, offset = self._resume(world, self.next_epoch - 1)
        return {
            "epoch": epoch,
            "sample_in_epoch": num_samples if from_beginning else offset + num_samples,
            "num_canonical_nodes": self.num_canonical_nodes,
            "shuffle_seed": self.shuffle_seed,
            "initial_physical_nodes": world.num_nodes
            if self.initial_physical_nodes is None
            else self.initial_physical_nodes,
        }

    def load_state_dict(self, obj: dict[str, Any]) -> None:
        """Goes on from a state, of this class or of Mosaic's, with the next pass."""
        for name in ("epoch", "sample_in_epoch", "num_canonical_nodes", "shuffle_seed"):
            if name not in obj:
                raise ValueError(f"The StreamingDataset state dict has no {name!r}; it holds {sorted(obj)}")
        self._progress.state = obj

    # Order.

    def _plan(
        self, world: World, epoch: int, sample_in_epoch: int, batching_method: str | None = None
    ) -> _native.MosaicEpoch:
        if not isinstance(self.batch_size, int):
            raise ValueError(
                "Please pass `batch_size` to StreamingDataset. It should be set the same as the DataLoader, "
                "and is the number of samples per batch, for each device. It is necessary for deterministic "
                "resumption and optimal performance."
            )
        spec = {
            "shuffle": self.shuffle,
            "shuffle_algo": self.shuffle_algo,
            "shuffle_seed": self._weight_seed,
            "shuffle_block_size": self.shuffle_block_size,
            "sampling_method": self.sampling_method,
            "sampling_granularity": self.sampling_granularity,
            "partition_algo": self.partition_algo,
            "batching_method": batching_method or self.batching_method,
            "epoch_size": self._epoch_size_argument,
        }
        state = {
            "epoch": epoch,
            "sample_in_epoch": sample_in_epoch,
            "num_canonical_nodes": self.num_canonical_nodes,
            "shuffle_seed": self.shuffle_seed,
            "initial_physical_nodes": self.initial_physical_nodes,
        }
        grid = (world.num_nodes, world.ranks_per_node, world.workers_per_rank, self.batch_size)
        return _native.MosaicEpoch(spec, self._stream_rows(), grid, state)

    def _ids(self, world: World, epoch: int, sample_in_epoch: int) -> Iterator[npt.NDArray[np.int64]]:
        """Ids of this worker, some batches at a time, without the empty slots."""
        plan = self._plan(world, epoch, sample_in_epoch)
        batch_size = self.batch_size
        assert isinstance(batch_size, int)
        global_batch = batch_size * world.num_ranks
        slots = plan.open(order_cache())
        for first in range(0, slots.size // global_batch, _BATCHES_AT_ONCE * world.workers_per_rank):
            ids = slots.read_rank(
                world.rank, batch_size, global_batch, (first, _BATCHES_AT_ONCE * world.workers_per_rank)
            )
            mine = ids.reshape(-1, batch_size)[world.worker_of_rank :: world.workers_per_rank].reshape(-1)
            yield mine[mine >= 0]

    def generate_work(
        self, batching_method: str, world: World, epoch: int, sample_in_epoch: int
    ) -> npt.NDArray[np.int64]:
        """Ids of an epoch by node, rank of the node, worker of the rank, batch of the worker and place in it;
        -1: none."""
        slots = self._plan(world, epoch, sample_in_epoch, batching_method).open(order_cache())
        ids = slots.read(0, slots.size).reshape(
            -1, world.workers_per_rank, world.num_nodes, world.ranks_per_node, self.batch_size or 1
        )
        return np.ascontiguousarray(ids.transpose(2, 3, 1, 0, 4))

    def resample_streams(
        self, epoch: int, stream_id: int | None = None
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The sizes of an epoch's shuffle units (a shard, once for each time that it is repeated, and what is
        left), and their ids in order."""
        streams = range(self.num_streams) if stream_id is None else [stream_id]
        rows = [(self._shards[i].tolist(), None, None, int(self.streams[i].choose)) for i in streams]
        spec = {
            name: getattr(self, name)
            for name in ("shuffle", "shuffle_seed", "sampling_method", "sampling_granularity")
        }
        state = {
            "epoch": epoch,
            "sample_in_epoch": 0,
            "num_canonical_nodes": 1,
            "shuffle_seed": self.shuffle_seed,
            "initial_physical_nodes": 1,
        }
        drawn = _native.MosaicEpoch({**spec, "shuffle_algo": "naive"}, rows, (1, 1, 1, 1), state).open()
        ids = drawn.read(0, drawn.size)
        times = np.bincount(ids[ids >= 0], minlength=sum(int(self.samples_per_stream[i]) for i in streams))
        units, in_order, at = [], [], 0
        first = 0 if stream_id is None else int(self.sample_offset_per_stream[stream_id])
        for size in itertools.chain.from_iterable(self._shards[i].tolist() for i in streams):
            of_shard = times[at : at + size]
            whole, rest = divmod(int(of_shard.sum()), size)
            units += [size] * whole + [rest] * (rest > 0)
            in_order += [first + at + np.arange(size)] * whole + [
                first + at + np.flatnonzero(of_shard > whole)
            ] * (rest > 0)
            at += size
        return np.array(units, np.int64), np.concatenate(in_order or [np.empty(0, np.int64)]).astype(np.int64)

    def sample_ids(self) -> npt.NDArray[np.int64]:
        """Ids of the coming epoch (or what is left of the one to resume) on this rank, in order, without
        reading data."""
        kept = (
            self.num_canonical_nodes,
            self.shuffle_seed,
            self.initial_physical_nodes,
            self.shuffle_block_size,
        )
        try:
            world = self._parallel_rank_world
            world = world._replace(workers_per_rank=1, worker=world.rank)
            parts = list(self._ids(world, *self._resume(world, self.next_epoch)))
        finally:
            (
                self.num_canonical_nodes,
                self.shuffle_seed,
                self.initial_physical_nodes,
                self.shuffle_block_size,
            ) = kept
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def __iter__(self) -> Iterator[Any]:
        self._pass += 1
        info = get_worker_info()
        world = self._parallel_rank_world.in_worker()
        # Workers of one DataLoader iterator share its seed; a persistent worker comes again with the same.
        key = None if info is None else (info.seed - info.id) & (2**63 - 1)
        self._warn_of_small_blocks()
        presumed = self._progress.begin_pass(key, world.worker_of_rank, world.workers_per_rank)
        epoch, sample_in_epoch = self._resume(world, presumed)
        self.next_epoch = epoch + 1
        yield from self._serve(self._ids(world, epoch, sample_in_epoch))

    def _warn_of_small_blocks(self) -> None:
        block = self.shuffle_block_size
        if (
            self.shuffle
            and self.shuffle_algo == "py1e"
            and block is not None
            and block < self.samples_per_shard.max()
        ):
            warnings.warn(
                "Shuffle block size was smaller than shard size for some shards. This will result in these "
                "shards not being shuffled with other shards. Set shuffle_block_size to a larger value for a "
                "higher quality shuffle.",
                stacklevel=3,
            )

    def _copy_ahead(self) -> ShardsAhead | None:
        if not any(stream.keeps_copies for stream in self.streams):
            return None
        local, world = self._local_shards(), self._parallel_rank_world.in_worker()
        return ShardsAhead(
            local.copy, local.first_samples, local.most_ahead(world.ranks_per_node * world.workers_per_rank)
        )

    def _serve(self, ids: Iterator[npt.NDArray[np.int64]]) -> Iterator[Any]:
        readers = [reader for reader in self._open_readers() if reader]
        copies = self._copy_ahead()
        predownload = max(self.predownload or 0, 1)
        size = predownload if copies else max(predownload, _LEAST_AHEAD)
        for reader in readers:
            size = min(size, reader.samples_at_once(_MOST_AHEAD, _MOST_AHEAD_BYTES))
        try:
            yield from self._serve_lots(
                (part[i : i + size].tolist() for part in ids for i in range(0, len(part), size)), copies
            )
        finally:
            if copies:
                copies.close()

    def _serve_lots(self, lots: Iterator[list[int]], copies: ShardsAhead | None) -> Iterator[Any]:
        this_pass = self._pass
        with ThreadPoolExecutor(1) as reader:
            waiting: Future[list[dict[str, Any] | None]] | None = None
            lot: list[int] = []
            for following in itertools.chain(lots, [[]]):
                if copies:
                    copies.want(following)
                future = reader.submit(self._read, following) if following else None
                if waiting is not None:
                    self._ahead = {}
                    for sample_id, sample in zip(reversed(lot), reversed(waiting.result()), strict=True):
                        if sample is not None:
                            self._ahead.setdefault(sample_id, []).append(sample)
                    for sample_id in lot:
                        if copies:
                            copies.reached(sample_id)
                        yield self[sample_id]
                        if self._pass != this_pass:
                            return
                waiting, lot = future, following
        self._ahead = {}
