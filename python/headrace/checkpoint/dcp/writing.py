"""DCP's storage writer.

The steps of a save are DCP's: plans of all ranks at the coordinator, which says what the save is called and
which numbers its pieces have; data files; results of all ranks at the coordinator, which writes the manifest.
DCP does not tell a rank that another has failed: then there is no manifest, and what was written is swept by
the next job.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from headrace.base.units import whole_number
from headrace.checkpoint.arrays import Chunk, describe
from headrace.checkpoint.data_file import DataFileWriter, NewPiece, SaveOptions, check_compression
from headrace.checkpoint.dcp.chosen_place import ChosenPlace
from headrace.checkpoint.dcp.metadata import Written, arrays_of, key_of, numbers_of, tree_of
from headrace.checkpoint.keys import SaveId
from headrace.checkpoint.leftovers import Sweeper, sweep
from headrace.checkpoint.manifest import DataFile, Manifest
from headrace.checkpoint.place import Place, check_step
from headrace.checkpoint.row_major import RowMajor
from headrace.checkpoint.tree import copied_metadata
from headrace.checkpoint.values import ValueWatch, check_mode
from headrace.errors import DeadlineError, InvalidArgumentError, UnavailableError, UnsupportedError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from headrace.store.store import StoreOptions

__all__ = ["Writer"]

_log = logging.getLogger("headrace.checkpoint")
_POLL_SECONDS = 0.05


class _Told(NamedTuple):
    """By the coordinator, to a rank."""

    save: str
    file: int
    """Number of its data file."""
    numbers: Sequence[tuple[int, int]]
    """(array, chunk) of each item."""


class _Said(NamedTuple):
    """By a rank, to the coordinator, with the first item of its data file."""

    written: Written
    file: DataFile | None


class _Jobs:
    """The number under which this process saves at each place, and how often it has. Threads: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, tuple[int, int]] = {}

    def next(self, place: Place) -> tuple[int, int]:
        """The job's number, and that of its next save."""
        with self._lock:
            job, number = self._last.get(place.url, (0, 0))
            if job == 0 or place.highest_fence() < job:  # All was deleted there meanwhile.
                job = place.take_fence()
            self._last[place.url] = job, number + 1
            return self._last[place.url]


_jobs = _Jobs()


def _sweep(place: ChosenPlace, job: int) -> None:
    """What jobs before this have left there."""
    with contextlib.closing(place):
        sweep(place.open(), job)


def _settled(place: ChosenPlace, job: int) -> int:
    with contextlib.closing(place):
        return place.open().settled_fence(job)


class Writer(StorageWriter):
    """Writes checkpoints of DCP: ``dcp.save(state, storage_writer=Writer(url, step=100))``.

    A checkpoint is whole and proved or not there, as :class:`headrace.checkpoint.Checkpointer` says. Each
    item of each rank must have been written and proved before the checkpoint exists; saving over one replaces
    it at once.

    With ``dcp.async_save`` it stages as well: the call returns when the state is copied, within ``memory``.

    :param url: any writable store or directory; one run's checkpoints and nothing else. ``checkpoint_id`` of
        ``dcp.save()`` names another.
    :param step: under which it is found; default 0, for a URL of its own for each checkpoint.
    :param overwrite: replaces the checkpoint of that step; else one that is there is a ChangedError.
    :param metadata: JSON of your own, shown by ``headrace ckpt``.
    :param memory: bytes for what is on its way to the store.
    :param check: as Checkpointer takes it, and ``values``.
    :param part_bytes: of the uploads' parts.
    :param copy_threads: that copy the state.
    :param stage_timeout: seconds that ``dcp.async_save`` waits for the copy.
    :param encryption_key: as of :class:`headrace.checkpoint.Checkpointer`, and ``compression``.
    :param options: of the store, as :class:`headrace.Store` takes them.

    Planners that keep plans (``enable_plan_caching``) and saves without collectives are refused:
    UnsupportedError.

    Threads: one save at a time.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        step: int = 0,
        overwrite: bool = True,
        metadata: Mapping[str, Any] | None = None,
        memory: int | str = "2GiB",
        check: str = "auto",
        values: Literal["warn", "error", "ignore"] = "warn",
        part_bytes: int = 16 << 20,
        copy_threads: int = 2,
        stage_timeout: float = 600.0,
        encryption_key: str | None = None,
        compression: Literal["zstd"] | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        if check not in ("auto", "read", "none"):
            raise InvalidArgumentError(f"check={check!r}: expected 'auto', 'read' or 'none'")
        self.step = check_step(step)
        self._options = SaveOptions(
            False,
            overwrite,
            part_bytes,
            whole_number("copy_threads", copy_threads, 32),
            check,
            check_mode(values),
            compression=check_compression(compression),
        )
        self._watch = ValueWatch()
        self._metadata = copied_metadata(metadata)
        missing = (
            "nothing says where to save: Writer(url), or dcp.save(..., checkpoint_id=url, "
            "storage_writer=Writer())"
        )
        self._place = ChosenPlace(url, missing, {"memory": memory, **options}, encryption_key)
        self._stage_timeout = stage_timeout
        self._synchronize_after_execute = True
        self._job = self._number = 0
        self._save = ""
        self._is_writing = False
        self._staging: _Staging | None = None

    # --- DCP's calls, in their order ---

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A save begins; ``checkpoint_id``: its URL from here on."""
        self._begin()
        self._place.choose(checkpoint_id)

    def storage_meta(self) -> StorageMeta | None:
        self._begin()  # Without a checkpoint_id there was no reset().
        return StorageMeta(checkpoint_id=self._place.url)

    def _begin(self) -> None:
        if self._is_writing:
            raise InvalidArgumentError(self._under_way())
        if self._staging is not None:
            self._staging.thread = threading.current_thread()

    def _under_way(self) -> str:
        return (
            f"{self._place.url}: a save by this writer is under way; wait for what dcp.async_save() has "
            "returned, or make a writer for each save"
        )

    @property
    def checkpoint_id(self) -> str | None:
        """The URL."""
        return self._place.url

    @property
    def save_id(self) -> str | None:
        """Of the save by this writer that was planned last; what its checkpoint is called below
        ``saves/``."""
        return self._save or None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if not kwargs.get("use_collectives", True):
            raise UnsupportedError(
                "dcp.save(use_collectives=False) has ranks save on their own: no checkpoint is whole then; "
                "leave it out"
            )

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the coordinator: names the save, and numbers pieces and files."""
        place = self._place.open()
        place.check_free(self.step, overwrite=self._options.overwrite)
        self._job, self._number = _jobs.next(place)
        if self._number == 1 < self._job:  # Its first save there, where others have saved before.
            own = copy.copy(self._place)  # The writer's may be closed meanwhile.
            Sweeper(lambda fence: _sweep(own, fence), lambda fence: _settled(own, fence), self._job)
        self._save = str(SaveId.new(self._job, self.step))
        numbers = numbers_of(item.index for plan in plans for item in plan.items)
        files = 0
        told = []
        for plan in plans:
            mine = [numbers[key_of(item.index)] for item in plan.items]
            told.append(replace(plan, storage_data=_Told(self._save, files, mine)))
            files += bool(mine)
        return told

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        self._is_writing = True
        try:
            results = self._write(plan, planner)
        finally:
            self._is_writing = False
            if self._staging is not None:
                self._staging.is_done.set()
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator: makes a checkpoint of it. Raises UnavailableError where anything of it was not
        written."""
        place = self._place.open()
        place.check_fence(self._job)
        place.publish(
            self._manifest(metadata, results),
            overwrite=self._options.overwrite,
            check=self._options.check,
            fence=self._job,
        )

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Any URL of a store, and any path."""
        return True

    # --- Writing ---

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        if getattr(planner, "_enable_plan_caching", False):
            raise UnsupportedError(
                "a planner that keeps plans keeps what the last save was called, and would write over it: "
                "DefaultSavePlanner(enable_plan_caching=False)"
            )
        told = plan.storage_data
        if not isinstance(told, _Told) or len(told.numbers) != len(plan.items):
            raise UnsupportedError(
                f"the planner {type(planner).__name__} has changed the plan after the ranks had agreed on "
                "it; nothing was saved"
            )
        self._save = told.save
        if not plan.items:
            return []
        chosen = [
            _Chosen.of(item, numbers, planner) for item, numbers in zip(plan.items, told.numbers, strict=True)
        ]
        writer = DataFileWriter(
            self._place.open(), told.save, told.file, [each.piece for each in chosen], self._options
        )
        try:
            writer.stage([each.part for each in chosen])
            if self._staging is not None:
                self._staging.is_done.set()
            file = writer.finish()
            self._look_at(writer.values())
        except BaseException:
            writer.discard()
            raise
        sizes = [each.size_bytes for each in chosen]
        return [
            WriteResult(item.index, size, _Said(Written(told.file, size), None if i else file))
            for i, (item, size) in enumerate(zip(plan.items, sizes, strict=True))
        ]

    def _look_at(self, values: list[tuple[str, int, bool]]) -> None:
        odd = self._watch.look(values)
        if odd and self._options.values == "error":
            raise InvalidArgumentError(f"{odd}; values='warn' saves it all the same")
        if odd:
            _log.warning("%s, step %d: %s", self._place.url, self.step, odd)

    def _manifest(self, metadata: Metadata, results: list[list[WriteResult]]) -> Manifest:
        written: dict[MetadataIndex, Written] = {}
        files: list[DataFile] = []
        for result in (each for rank in results for each in rank):
            said: _Said = result.storage_data
            written[result.index] = said.written
            if said.file is not None:
                files.append(said.file)
        arrays = arrays_of(metadata, written)
        planned = sum(len(array.chunks) for array in arrays)
        if planned != sum(file.pieces for file in files):
            raise UnavailableError(
                f"the ranks have written {sum(file.pieces for file in files)} pieces, and the plan of the "
                f"checkpoint has {planned}"
            )
        created = datetime.fromtimestamp(time.time(), timezone.utc).isoformat(timespec="seconds")
        tree = tree_of(metadata)
        return Manifest(
            self.step,
            self._save,
            len(results),
            created,
            self._metadata,
            tree,
            arrays,
            files,
            self._job,
            self._options.compression,
            self._number,
        )

    # --- dcp.async_save: the writer is its stager ---

    @property
    def should_synchronize_after_execute(self) -> bool:
        return self._synchronize_after_execute

    def stage(self, state_dict: Any) -> Any:
        """Nothing is copied yet: write_data() copies into the memory of the upload itself."""
        if self._staging is not None and not self._staging.is_over():
            raise InvalidArgumentError(self._under_way())
        self._staging = _Staging()
        return state_dict

    def synchronize_staging(self) -> None:
        """Returns when the state may change: it is copied, or the save has failed, which what
        dcp.async_save() returned says. Raises DeadlineError after ``stage_timeout``, when the state must not
        change yet."""
        assert self._staging is not None
        self._staging.wait(self._stage_timeout)

    def __getstate__(self) -> dict[str, Any]:
        if self._staging is not None and not self._staging.is_over():
            self._staging.is_done.set()
            raise InvalidArgumentError(
                "AsyncCheckpointerType.PROCESS saves in another process, which needs a copy of the state: "
                "async_stager=DefaultStager()"
            )
        return self.__dict__ | {"_staging": None, "_is_writing": False}

    def close(self) -> None:
        """Lets go of the store. The writer may be used again."""
        self._place.close()

    def __repr__(self) -> str:
        return f"Writer({self._place.url!r}, step={self.step})"


class _Staging:
    """Of one asynchronous save: whether its state may change."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.thread: threading.Thread | None = None
        """That saves. DCP tells nobody when a save fails before anything is written; but its thread ends."""

    def is_over(self) -> bool:
        return self.is_done.is_set() or (self.thread is not None and not self.thread.is_alive())

    def wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self.is_done.wait(_POLL_SECONDS) and not self.is_over():
            if time.monotonic() > deadline:
                raise DeadlineError(
                    f"the state was not copied within {timeout:g} s (stage_timeout); nothing of it may "
                    "change before the save has ended"
                )


class _Chosen(NamedTuple):
    """An item, with its bytes."""

    piece: NewPiece
    part: RowMajor
    size_bytes: int

    @classmethod
    def of(cls, item: WriteItem, numbers: tuple[int, int], planner: SavePlanner) -> _Chosen:
        data: Any = planner.resolve_data(item)
        name, about = item.index.fqn, item.tensor_data
        if item.type == WriteItemType.BYTE_IO:
            tensor = torch.from_numpy(np.frombuffer(data.getvalue(), np.uint8).copy())
            box, is_whole = Chunk((0,), (len(tensor),)), True
        else:
            assert about is not None
            tensor = data.detach()
            box = Chunk(tuple(about.chunk.offsets), tuple(about.chunk.sizes))
            is_whole = box.sizes == tuple(about.size)
            if tuple(tensor.shape) != box.sizes or tensor.dtype != about.properties.dtype:
                raise InvalidArgumentError(
                    f"{name}: is {tensor.dtype}{list(tensor.shape)}, and was planned as "
                    f"{about.properties.dtype}{list(box.sizes)}"
                )
        array = describe(name, tensor)
        return cls(
            NewPiece(*numbers, name, array.dtype, box, is_whole),
            array.row_major(0),
            tensor.numel() * tensor.element_size(),
        )
