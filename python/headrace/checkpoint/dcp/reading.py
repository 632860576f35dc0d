"""DCP's storage reader."""

from __future__ import annotations

import io
import logging
import os
import secrets
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from headrace.base.units import parse_bytes
from headrace.checkpoint.arrays import Array, Chunk, describe, torch_dtype
from headrace.checkpoint.dcp.chosen_place import ChosenPlace
from headrace.checkpoint.dcp.metadata import Leaves, metadata_of
from headrace.checkpoint.exchange import Exchange
from headrace.checkpoint.group import find_group
from headrace.checkpoint.loading import Boxes, Filling, Reads, read_bytes
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.overlap import Extent, find_common
from headrace.checkpoint.place import Place, check_step
from headrace.checkpoint.sharing import Mode, OtherRankError, SharedReads, check_share_reads, is_shared
from headrace.checkpoint.tree import TORCH_SAVE, Node, paths_of, rebuild, values_in
from headrace.errors import (
    ChangedError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from headrace.store.store import StoreOptions

__all__ = ["Reader", "SafeLoadPlanner"]

_log = logging.getLogger("headrace.checkpoint")


class _Found(NamedTuple):
    """Which save a rank has found, or is to read; in the order in which they were made."""

    order: tuple[int, int, int]
    step: int
    save: str

    @classmethod
    def of(cls, manifest: Manifest) -> _Found:
        return cls(manifest.order, manifest.step, manifest.save)


_DROPPED = (
    "the planner has dropped a plan's storage_data, by which ranks agree on the checkpoint that they read: "
    "create_global_plan() and finish_plan() have to keep it"
)
_RANK_TIMEOUT = 600.0
"""Seconds that a rank may be late which others wait for."""


class _Told(NamedTuple):
    """By the coordinator, to each rank."""

    found: _Found
    """That all are to read."""
    ranks: int
    """How many load together."""


class Reader(StorageReader):
    """Reads checkpoints for DCP: ``dcp.load(state, storage_reader=Reader(url))``.

    Those that :class:`Writer` has written, and those of :class:`headrace.checkpoint.Checkpointer`. Of each
    tensor the bytes that this rank wants are read, and compared with their sums: CorruptError. Values that
    are no tensors are unpickled by DCP's own planner, which runs what they say; with
    ``planner=SafeLoadPlanner()`` they are not.

    All ranks read one and the same save: where they found different ones, since another was committed or
    replaced meanwhile, the one that was saved last. ChangedError where that has another structure, or is gone
    again.

    :param url: as for Writer. ``checkpoint_id`` of ``dcp.load()`` names another.
    :param step: default: the one that was saved last.
    :param memory: bytes for what is on its way from the store.
    :param allow_pickle: values that Checkpointer has pickled are loaded, which runs what they say.
    :param encryption_key: as of :class:`headrace.checkpoint.Checkpointer`, and ``share_reads``, where all
        ranks of the job load together.
    :param options: of the store, as :class:`headrace.Store` takes them.

    Threads: one load at a time.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        step: int | None = None,
        memory: int | str = "2GiB",
        allow_pickle: bool = False,
        encryption_key: str | None = None,
        share_reads: Mode = "auto",
        **options: Unpack[StoreOptions],
    ) -> None:
        check_share_reads(share_reads)
        self._allow_pickle = allow_pickle
        self._share_reads = share_reads
        self._memory = parse_bytes(memory, "memory")
        self._exchange: Exchange | None = None
        self.step = None if step is None else check_step(step)
        missing = (
            "nothing says what to load: Reader(url), or dcp.load(..., checkpoint_id=url, "
            "storage_reader=Reader())"
        )
        self._place = ChosenPlace(url, missing, {"memory": memory, **options}, encryption_key)
        self._manifest: Manifest | None = None
        self._leaves: Leaves | None = None
        self._load_id = ""

    # --- DCP's calls, in their order ---

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A load begins; ``checkpoint_id``: its URL from here on."""
        self._place.choose(checkpoint_id)

    @property
    def checkpoint_id(self) -> str | None:
        """The URL."""
        return self._place.url

    @property
    def load_id(self) -> str | None:
        """Of the load that was begun last, in this process."""
        return self._load_id or None

    def read_metadata(self) -> Metadata:  # With **kwargs it would be asked for a rank's own.
        """Of the step. Raises NotFoundError, CorruptError."""
        self._leave()
        try:
            place = self._place.open()
            self._open(place, self._chosen_step(place))
        except HeadraceError as error:  # Which DCP may hide.
            _log.error("%s", error)
            raise
        assert self._manifest is not None
        assert self._leaves is not None
        self._load_id = secrets.token_hex(8)
        return replace(
            self._leaves.metadata,
            storage_meta=StorageMeta(self._place.url, self._manifest.save, self._load_id),
        )

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Nothing to do: read_metadata() was called on each rank."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """With the save that this rank has found."""
        assert self._manifest is not None
        return replace(plan, storage_data=_Found.of(self._manifest))

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """With the save that all are to read."""
        chosen = max(_found_in(plan) for plan in plans)
        return [replace(plan, storage_data=_Told(chosen, len(plans))) for plan in plans]

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Raises ChangedError where the save that was chosen is not there, or not what the plan was made
        for."""
        told = _told_in(plan)
        sharing = self._sharing(told.ranks)
        try:
            self._turn_to(told.found)
            self._read(plan, planner, sharing or Reads())
        except OtherRankError:
            raise UnavailableError(f"{self._place.url}: another rank cannot load, and says why") from None
        except Exception as error:
            if sharing is not None:
                sharing.give_up(error)
            raise
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Any URL of a store, and any path."""
        return True

    def _read(self, plan: LoadPlan, planner: LoadPlanner, reads: Reads) -> None:
        assert self._manifest is not None
        assert self._leaves is not None
        place = self._place.open()
        reading = _Reading(place, self._manifest, self._leaves, planner, self._allow_pickle, reads)
        for item in plan.items:
            reading.add(item)
        reading.run()

    def _sharing(self, ranks: int) -> SharedReads | None:
        """For so many that load together; None: each reads for itself."""
        if ranks == 1 or not is_shared(self._share_reads, self._place.open().url):
            return None
        group = find_group(_RANK_TIMEOUT)
        if group.world_size != ranks or group.exchange is None:
            return None  # Some of the job's ranks: the others know nothing of it.
        self._exchange = group.exchange
        return SharedReads(group, group.exchange, self._share_reads, self._memory)

    def _leave(self) -> None:
        """What the ranks of the last load have shared: they have all ended it when one closes it, or begins
        another."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.close()

    # --- The place ---

    def _open(self, place: Place, step: int) -> None:
        self._manifest = place.manifest(step)
        self._leaves = metadata_of(self._manifest, place.url)

    def _turn_to(self, chosen: _Found) -> None:
        """To the save that was chosen, with the plan that was made for another one like it."""
        assert self._manifest is not None
        assert self._leaves is not None
        if self._manifest.save == chosen.save:
            return
        place, planned = self._place.open(), _structure(self._leaves)
        what = (
            f"{place.url}: ranks found different saves, {self._manifest.save} on this one, and {chosen.save}"
        )
        self._open(place, chosen.step)
        if self._manifest.save != chosen.save:
            raise ChangedError(f"{what}, which was replaced meanwhile: load again")
        if _structure(self._leaves) != planned:
            raise ChangedError(f"{what}, which has another structure: load again")

    def _chosen_step(self, place: Place) -> int:
        if self.step is not None:
            return self.step
        candidates = place.candidates()
        if not candidates:
            raise NotFoundError(f"{place.url}: has no checkpoint")
        return candidates[0]

    def close(self) -> None:
        """Lets go of the store. The reader may be used again."""
        self._leave()
        self._place.close()

    def __repr__(self) -> str:
        return f"Reader({self._place.url!r}, step={self.step})"


def _found_in(plan: LoadPlan) -> _Found:
    if not isinstance(plan.storage_data, _Found):
        raise UnsupportedError(_DROPPED)
    return plan.storage_data


def _told_in(plan: LoadPlan) -> _Told:
    if not isinstance(plan.storage_data, _Told):
        raise UnsupportedError(_DROPPED)
    return plan.storage_data


def _structure(leaves: Leaves) -> Any:
    """What plans are made of, but for who has written which part."""
    return leaves.metadata.planner_data, {
        name: (about.properties.dtype, about.size) if isinstance(about, TensorStorageMetadata) else None
        for name, about in leaves.metadata.state_dict_metadata.items()
    }


class SafeLoadPlanner(DefaultLoadPlanner):
    """DCP's own, but for values that are no tensors: loading them runs nothing that they say.

    Raises ``pickle.UnpicklingError`` for those of which the types are not known to be harmless: see
    ``torch.load(weights_only=True)``.
    """

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        name = read_item.dest_index.fqn
        loaded = torch.load(value, weights_only=True)
        if self.flatten_state_dict:
            set_element(self.original_state_dict, self.mappings[name], loaded)
        else:
            self.state_dict[name] = loaded


class _Target(NamedTuple):
    """Of an item that is filled where it is."""

    name: str
    own: Array
    number: int
    """Of the array in the manifest."""
    box: Chunk

    @property
    def memory(self) -> tuple[str, Extent]:
        return self.own.dtype, self.own.extents[0]


class _Reading:
    """One load: all that is wanted is read at once, then given to the planner."""

    def __init__(
        self,
        place: Place,
        manifest: Manifest,
        leaves: Leaves,
        planner: LoadPlanner,
        allow_pickle: bool,
        reads: Reads,
    ) -> None:
        self._allow_pickle, self._reads = allow_pickle, reads
        self._manifest, self._leaves, self._planner = manifest, leaves, planner
        self._boxes = Boxes(place, manifest)
        self._filling = Filling(self._boxes, reads)
        self._numbers = {array.name: number for number, array in enumerate(manifest.arrays)}
        self._wanted: dict[int, list[Callable[[], None]]] = defaultdict(list)  # By number of the array.
        self._staged_bytes = 0
        self._place = place
        self._targets: dict[tuple[str, Extent], _Target] = {}  # By their memory.
        self._twins: list[_Target] = []  # Of memory that another fills.
        self._made: dict[str, Any] = {}  # Arrays that belong to values.
        self._then: list[Callable[[], None]] = []

    def add(self, item: ReadItem) -> None:
        self._add_value(item) if item.type == LoadItemType.BYTE_IO else self._add_tensor(item)

    def run(self) -> None:
        for numbers in self._reads.plan_rounds(self._manifest, self._staged_bytes):
            for number in [each for each in self._wanted if each in numbers]:
                for want in self._wanted.pop(number):
                    want()
            self._filling.run()
        self._filling.close()
        self._check_kept()
        for each in self._then:
            each()

    def _add_tensor(self, item: ReadItem) -> None:
        number = self._leaves.arrays[item.storage_index.fqn]
        array = self._manifest.arrays[number]
        target = self._planner.resolve_tensor(item).detach()
        dtype = torch_dtype(array.dtype)
        # As DCP does it: another dtype is converted to.
        given = target if target.dtype == dtype else torch.empty(target.shape, dtype=dtype, device="cpu")
        chunk = item.storage_index.offset or (0,) * len(array.shape)
        box = Chunk(
            tuple(a + b for a, b in zip(chunk, item.storage_offsets, strict=True)), tuple(item.lengths)
        )
        if tuple(given.shape) != box.sizes:
            raise InvalidArgumentError(
                f"{item.storage_index.fqn}: the planner gave {list(given.shape)} for {list(box.sizes)} of it"
            )
        own = describe(array.name, given)
        own.check_writable()
        if given is not target or self._is_first(_Target(item.dest_index.fqn, own, number, box)):
            self._staged_bytes += own.staged_bytes
            self._wanted[number].append(lambda: self._filling.add(number, own, 0, box))

        def end() -> None:
            if given is not target:
                target.copy_(given)
            self._planner.commit_tensor(item, target)

        self._then.append(end)

    def _is_first(self, target: _Target) -> bool:
        """Whether no other is the same memory."""
        if not target.own.nbytes:
            return True
        first = self._targets.setdefault(target.memory, target)
        if first is target:
            return True
        if (first.number, first.box) != (target.number, target.box):
            self._twins.append(target)
        return False

    def _check_kept(self) -> None:
        """That each tensor which has memory in common with another has what was saved of it. Raises
        InvalidArgumentError."""
        some = _entangled(list(self._targets.values()))
        common = find_common([target.own.extents[0] for target in some])
        pairs = [(twin, self._targets[twin.memory]) for twin in self._twins]
        for target, other in (*pairs, *((some[at], some[other]) for at, other in common.items())):
            saved = read_bytes(self._place, self._manifest, target.number, target.box)
            if target.own.bytes_of(0) != saved.tobytes():
                raise InvalidArgumentError(
                    f"{self._place.url}, step {self._manifest.step}: {other.name} and {target.name} have "
                    "memory in common here, and differ in the checkpoint: one of the two would be lost"
                )

    def _add_value(self, item: ReadItem) -> None:
        node = self._leaves.values[item.storage_index.fqn]
        for name in {*paths_of(node).values(), *values_in(node)}:
            self._wanted[self._numbers[name]].append(partial(self._make, name))
        self._then.append(lambda: self._planner.load_bytes(item, self._bytes(node)))

    def _make(self, name: str) -> None:
        if name not in self._made:
            self._made[name] = self._boxes.make(self._numbers[name])

    def _bytes(self, node: Node) -> io.BytesIO:
        """As torch.save() has written it, or would."""
        if isinstance(node, dict) and TORCH_SAVE in node:
            return io.BytesIO(self._made[node[TORCH_SAVE]].numpy())
        out = io.BytesIO()
        torch.save(rebuild(node, self._made.__getitem__, self._allow_pickle), out)
        out.seek(0)
        return out


def _entangled(targets: list[_Target]) -> list[_Target]:
    """Those of tensors that begin before another ends: parts of one have nothing in common."""
    spans: dict[str, tuple[str, int, int]] = {}
    for target in targets:
        extent = target.own.extents[0]
        _, begin, end = spans.get(target.name, ("", extent.begin, extent.end))
        spans[target.name] = extent.device, min(begin, extent.begin), max(end, extent.end)
    names: set[str] = set()
    last, reach = "", ("", 0, 0)
    for name, span in sorted(spans.items(), key=lambda item: item[1]):
        if span[0] == reach[0] and span[1] < reach[2]:
            names |= {last, name}
        if span[0] != reach[0] or span[2] > reach[2]:
            last, reach = name, span
    return [target for target in targets if target.name in names]
