"""Saving and loading the state of a training run."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsFloat

from headrace import _native
from headrace.base import live
from headrace.base.option_names import OptionNames, named_options
from headrace.base.units import parse_bytes, whole_number
from headrace.checkpoint.agreeing import Attempt, Failure, failure_of
from headrace.checkpoint.archived import explaining_archives
from headrace.checkpoint.cold import Cold, check_rules
from headrace.checkpoint.cooling import Cooling
from headrace.checkpoint.data_file import SaveOptions, check_compression
from headrace.checkpoint.flushing import Flusher
from headrace.checkpoint.group import Group, find_group
from headrace.checkpoint.handle import Level, SaveHandle, check_level
from headrace.checkpoint.leftovers import Sweeper, sweep
from headrace.checkpoint.loading import Reads, read_all, read_into, verify
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.place import Nearest, Place, check_step, read_key
from headrace.checkpoint.reference import compare
from headrace.checkpoint.retention import Keep, Kept, keep_of
from headrace.checkpoint.reuse import Reuse
from headrace.checkpoint.saving import Planner, Saving, bytes_to_write
from headrace.checkpoint.sharing import SharedReads, check_share_reads, is_shared
from headrace.checkpoint.told import raise_told, told
from headrace.checkpoint.values import ValueWatch, check_mode
from headrace.errors import (
    ChangedError,
    CorruptError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from headrace.store.peer_names import STORE_PEERS
from headrace.store.store import Store, StoreOptions
from headrace.store.urls import absolute_url, local_path

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Checkpointer", "Rejected"]

_log = logging.getLogger("headrace.checkpoint")

_READINGS = 3
"""So often a step is read that is replaced each time before all ranks have read it, or another where each is
deleted before."""


class Rejected(NamedTuple):
    """A checkpoint that :meth:`Checkpointer.load` passed over."""

    step: int
    why: str


class Checkpointer(live.Closing):
    """Checkpoints of one run, at a URL: whole and proved, or not there.

    >>> ckpt = headrace.checkpoint.Checkpointer("s3://bucket/run-17", keep=3)  # doctest: +SKIP
    >>> state = {"model": model, "optimizer": optimizer, "loader": loader, "step": 0}  # doctest: +SKIP
    >>> if ckpt.latest() is not None:
    ...     state = ckpt.load(into=state)
    >>> ckpt.save(state["step"], state)  # doctest: +SKIP

    A state is a tree of dicts, lists and tuples with arrays (torch, DTensor, numpy, JAX), numbers, text and
    bytes; what has ``state_dict()`` may stand in the outermost dict as itself. Named tuples and pytrees that
    are registered with JAX are saved by the names of their fields. With torch.distributed or jax.distributed
    initialised all ranks save and load together: each writes what it alone has, and its share of what several
    have.

    :param url: any writable store or directory; one run's checkpoints and nothing else. A relative path is
        that of the moment, wherever the process works later.
    :param local: a directory of a disk of this machine, of this run alone: checkpoints are saved there first,
        brought to the URL in the background, also by the next job if this one ends before, and loaded from
        there where they still are. Each node has its own.
    :param keep_local: so many checkpoints that were brought over stay there as well.
    :param differential: arrays, or a rank's parts of them, that have not changed since the checkpoint that
        this job committed last are not written again: the new one refers to the earlier file, which stays as
        long as a checkpoint needs it. For frozen weights, LoRA, slow averages.
    :param memory: bytes for what is on its way to the store. With as much as a rank writes, ``save()`` takes
        as long as a copy of it.
    :param keep: so many of those saved last, 1 or more, or a :class:`Keep`; None: all stay.
    :param cold: older checkpoints of an object store move to another storage class: a :class:`Cold`, or
        several, the warmest first. Default: all stay where they are.
    :param rank_timeout: seconds that a rank may be later than the others.
    :param check: ``"auto"``: what was written is compared with the sum that the store tells, or read back
        where it tells none; but of a directory the disk is believed: what it drops or changes, and calls
        written, is found when it is loaded. ``"read"``: always read back, before the save says that it is
        there; ``"none"``.
    :param values: ``"warn"``: NaN, infinities, and arrays that are all zero and were not in the save before
        are told in the log (logger ``headrace.checkpoint``); ``"error"``: such a save fails; ``"ignore"``:
        nobody looks.
    :param differing: what becomes of an array that ranks have whole under one name and with different values:
        ``"error"``, or ``"first"``: that of the first rank is saved, as for running statistics of BatchNorm
        under DDP.
    :param allow_pickle: values that are none of the above are pickled; loading them runs what they say.
    :param encryption_key: where the key is under which all that is saved is encrypted (AES-256-GCM), as
        ``file:PATH``, ``env:NAME`` or ``command:PROGRAM ARGUMENTS``; the same on all ranks. Checkpoints that
        are encrypted under another key, or not, are a DeniedError.
    :param compression: ``"zstd"``: data files are compressed, bytes of equal significance of an array's
        numbers together. What an earlier job has saved here otherwise is loaded all the same.
    :param part_bytes: of the uploads' parts.
    :param copy_threads: that copy the state; as many compress it.
    :param share_reads: ``"auto"``: what several ranks of torch.distributed load is read from an object store
        by one of them, which hands it to the others (over gloo), where it is more than 8 MiB; each byte is
        then read once. ``"always"``: however little, and from directories too; ``"never"``: each rank reads
        what it needs.
    :param group: the ranks that save together; default: those of torch.distributed or jax.distributed.
    :param options: of the store, as :class:`headrace.Store` takes them.

    Threads: one at a time, the same on all ranks.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        local: str | os.PathLike[str] | None = None,
        keep_local: int = 1,
        differential: bool = False,
        memory: int | str = "2GiB",
        keep: int | Keep | None = None,
        cold: Cold | Sequence[Cold] | None = None,
        rank_timeout: float = 600.0,
        check: str = "auto",
        values: Literal["warn", "error", "ignore"] = "warn",
        differing: Literal["error", "first"] = "error",
        allow_pickle: bool = False,
        encryption_key: str | None = None,
        compression: Literal["zstd"] | None = None,
        part_bytes: int = 16 << 20,
        copy_threads: int = 2,
        share_reads: Literal["auto", "always", "never"] = "auto",
        group: Group | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        _NAMES.check(options)
        self._keep, keep_local = keep_of(keep), whole_number("keep_local", keep_local, 63)
        if check not in ("auto", "read", "none"):
            raise InvalidArgumentError(f"check={check!r}: expected 'auto', 'read' or 'none'")
        self._group = group or find_group(rank_timeout)
        self._share_reads, self._memory = share_reads, parse_bytes(memory)
        self._check_share_reads()
        self._options = SaveOptions(
            allow_pickle,
            False,
            part_bytes,
            whole_number("copy_threads", copy_threads, 32),
            check,
            check_mode(values),
            compression=check_compression(compression),
        )
        url = absolute_url(url)
        if local is not None:
            local = absolute_url(os.path.expanduser(local))
            _check_local(local, url)
        key = read_key(encryption_key)
        self._far = self._place = Place(Store(url, memory=memory, **options), key)
        rules = check_rules(cold)
        self._cooling = Cooling(self._far, rules) if rules else None
        self._cooler = ThreadPoolExecutor(1, "headrace-checkpoint-cooler")
        self._near: Place | None = None
        self._reuse = Reuse() if differential else None
        if local is not None:
            self._near = Place(Store(local, memory=memory), key)
            self._place = Nearest(self._near, self._far)
            self._flusher = Flusher(
                self._near, self._far, self._group, self._options, keep_local, self._reuse
            )
            self._flush_worker = ThreadPoolExecutor(1, "headrace-checkpoint-flush")
        if differing not in ("error", "first"):
            raise InvalidArgumentError(f"differing={differing!r}: expected 'error' or 'first'")
        self._planner = Planner(self._group, takes_first=differing == "first")
        self._watch = ValueWatch()
        self._fence: int | None = None
        self._number = 0  # Of the last save that this job has begun.
        self._saves: list[SaveHandle] = []
        self._saved: dict[int, Kept] = {}  # By step.
        self._last: Manifest | None = None  # That this job has committed.
        self._alike = 0  # Saves before it, one after the other, of the same arrays.
        self._worker = ThreadPoolExecutor(1, "headrace-checkpoint")
        self._sweeper: Sweeper | None = None
        self.rejected: list[Rejected] = []
        """What the last load() passed over."""
        self._broken: set[int] = set()  # Steps that load() has passed over, until they are saved anew.
        self._unreadable: set[int] = set()  # Steps that retire() has told of.
        self._has_told_unranked = False
        self._loaded: tuple[int, Mapping[str, Any]] | None = None  # Step and metadata.
        live.register(self, has_begun=True)

    @property
    def url(self) -> str:
        return self._far.url

    # --- Saving ---

    def save(
        self,
        step: int,
        state: Any,
        *,
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = False,
        wait: Level | None = "staged",
    ) -> SaveHandle:
        """Saves the state as the checkpoint of a step.

        Returns when the state may change again, and goes on in the background: ``handle.result()`` waits
        until there is a checkpoint. An error of an earlier save that nobody has looked at is raised here.

        :param metadata: JSON of your own (loss, version), as it is now: shown by ``headrace ckpt``, and used
            by ``Keep``, whose ``metric`` has to be among it.
        :param overwrite: replaces the checkpoint of the same step, at once; else that is a ChangedError. One
            that load() has passed over, since it cannot be proved, is replaced anyway.
        :param wait: for which level; None: returns at once, and nothing of the state may change before
            ``handle.wait("staged")``.
        """
        self._check_open()
        step = check_step(step)
        if wait is not None:
            check_level(wait, "wait")
        fence = self._take_fence()
        self._number += 1
        overwrite = overwrite or step in self._broken
        saving = Saving(
            self._near or self._far,
            self._group,
            fence,
            self._planner,
            step,
            lambda: self._state_to_save(state, metadata),
            metadata,
            self._options._replace(overwrite=overwrite, is_fenced=self._near is None, number=self._number),
            self._watch,
            self._reuse,
        )
        handle = SaveHandle(step, saving.save)
        self._saves = [each for each in self._saves if not each._is_over() or each._unseen_error()]
        self._saves.append(handle)
        if wait is not None:
            error = self._stage(saving, handle, overwrite, self._worker.submit)
            if error is not None:
                handle.done("staged")  # Raises it.
            handle.wait(wait)
        else:
            # The rest at once: a worker that is being shut down takes nothing more.
            self._worker.submit(self._stage, saving, handle, overwrite, lambda call, *args: call(*args))
        return handle

    def prepare(self, state: Any) -> None:
        """Gets memory ready for saves of such a state, at most ``memory``, so that the first save blocks no
        longer than the others. Returns at once; a thread asks the system for the memory while the job goes
        on. Nobody must call it: without, the first save does it. Of one rank; no other need call it."""
        self._check_open()
        size = bytes_to_write(_values_of(state), self._options.allow_pickle, self._group.world_size)
        near = self._near or self._far
        _native.prepare_checkpoint_memory(near.native, size, self._options.part_bytes)

    def _stage(
        self, saving: Saving, handle: SaveHandle, overwrite: bool, then: Callable[..., Any]
    ) -> BaseException | None:
        """Copies the state and lets the rest follow, by ``then(call, *arguments)``."""
        try:
            saving.stage()
        except BaseException as error:
            shown = error if isinstance(error, Exception) else HeadraceError(f"interrupted by {error!r}")
            handle._fail(shown)
            then(saving.fail, shown)
            if not isinstance(error, Exception):
                raise
            return error
        handle._reach("staged")
        then(self._finish, saving, handle, overwrite)
        return None

    def _finish(self, saving: Saving, handle: SaveHandle, overwrite: bool) -> None:
        try:
            manifest = saving.finish()
        except Exception as error:
            _log.error("checkpoint of step %d: the save failed: %s", saving.step, error)
            handle._fail(error)
            return
        if self._near is None:
            self._end(manifest, handle)
            return
        handle._reach("local", manifest)
        self._flush_worker.submit(self._flush, manifest, handle, overwrite)

    def _flush(self, manifest: Manifest, handle: SaveHandle, overwrite: bool) -> None:
        assert self._fence is not None
        try:
            if not self._flusher.flush(manifest, self._fence, overwrite=overwrite):
                handle._supersede()
                return
        except Exception as error:
            _log.error("checkpoint of step %d is on the local disk only: %s", manifest.step, error)
            handle._fail(error)
            return
        self._end(manifest, handle)

    def _end(self, manifest: Manifest, handle: SaveHandle) -> None:
        if self._group.rank == 0:
            self._compare_with_last(manifest)  # Before the handle: who waits for it has then been told.
        handle._reach("remote", manifest)
        self._broken.discard(manifest.step)
        if self._group.rank == 0:
            self._saved[manifest.step] = self._keep.about(manifest)
            self.retire()

    def _compare_with_last(self, manifest: Manifest) -> None:
        """Says it where nothing has changed since the checkpoint before: then an old copy was saved, or
        nothing was trained."""
        last, self._last = self._last, manifest
        if last is None or last.step == manifest.step:
            return
        self._alike = self._alike + 1 if last.has_same_arrays(manifest) else 0
        if self._alike == 1 or (self._alike and self._alike % 10 == 0):
            again = f" (for the {self._alike}th time)" if self._alike > 1 else ""
            _log.warning(
                "%s: the arrays of step %d are, bit for bit, those of step %d%s; was the state that training "
                "changes what was saved?",
                self.url,
                manifest.step,
                last.step,
                again,
            )

    def retire(self) -> None:
        """Deletes checkpoints that ``keep=`` does not want, and lets what is old move (``cold=``). After its
        saves it does so itself: this is for those of :class:`headrace.checkpoint.dcp.Writer`. On one rank,
        without a save under way. What fails is a warning of the log, and is tried again the next time."""
        if self._keep.latest == 0 and self._cooling is None:
            return
        try:
            there = set(self._far.steps())
            self._saved = {step: row for step, row in self._saved.items() if step in there}
            for step in sorted(there - self._saved.keys()):
                self._look_at(step)
            stay = self._far.pins() | {self._far.latest()}
            stay |= self._held()
            self._tell_unranked(self._keep.unranked(self._saved, self._broken))
            for step in self._keep.surplus(self._saved, self._broken):
                if step not in stay:
                    self._retire_step(step)
            if self._cooling is not None:
                self._cooler.submit(self._cool, self._cooling, dict(self._saved), stay)
        except Exception as error:
            _tell_undeleted(error)

    def _look_at(self, step: int) -> None:
        """Notes of a checkpoint what says whether it stays. One that cannot be read does."""
        try:
            self._saved[step] = self._keep.about(self._far.manifest(step))
        except NotFoundError:
            return  # It went meanwhile.
        except (CorruptError, UnsupportedError) as error:
            if step not in self._unreadable:
                _log.warning("keep= passes over step %d; delete(%d) deletes it: %s", step, step, error)
            self._unreadable.add(step)

    def _tell_unranked(self, steps: set[int]) -> None:
        """Once."""
        if not steps or self._has_told_unranked:
            return
        self._has_told_unranked = True
        rest = f" and {len(steps) - 10} more" if len(steps) > 10 else ""
        _log.warning(
            "%s: steps %s%s stay, since their metadata have no number %r that Keep(best=) could go by; "
            "delete(step) deletes one",
            self.url,
            ", ".join(map(str, sorted(steps)[:10])),
            rest,
            self._keep.metric,
        )

    def _retire_step(self, step: int) -> None:
        if self._near is not None:  # First: what is only there would be brought over again.
            self._flusher.retire(step)
        try:
            self._far.delete(self._far.manifest(step))
        except (NotFoundError, CorruptError, UnsupportedError) as error:
            _tell_undeleted(error)
        del self._saved[step]

    def _cool(self, cooling: Cooling, saved: Mapping[int, Kept], stay: set[int | None]) -> None:
        try:
            count = cooling.run(saved, stay)
        except HeadraceError as error:
            _log.warning("older checkpoints could not be moved to a colder storage class: %s", error)
            return
        if count > 0:
            _log.info("%s: moved %d data files of older checkpoints to a colder class", self.url, count)

    def _held(self) -> set[int]:
        """Steps that the next checkpoint may refer to."""
        held = set() if self._reuse is None else self._reuse.held()
        return held if self._near is None else held | self._flusher.held()

    def _take_fence(self) -> int:
        if self._fence is None:
            said = self._group.gather("fence", self._fence_or_error())
            raise_told(said[0])
            self._fence = int(said[0])
            if self._group.rank == 0:
                self._sweeper = Sweeper(self._sweep, self._far.settled_fence, self._fence)
            if self._near is not None:
                self._flusher.look()
                self._flush_worker.submit(self._flusher.resume, self._fence)
        return self._fence

    def _fence_or_error(self) -> Any:
        return self._told_by_rank_0(self._begin_saving) if self._group.rank == 0 else None

    def _begin_saving(self) -> int:
        self._far.check_key()
        return self._far.take_fence()

    def _told_by_rank_0(self, ask: Callable[[], Any]) -> Any:
        """What rank 0 sends to all: what it was told, or the error. An only rank just raises."""
        if self._group.world_size == 1:
            return ask()
        try:
            return ask()
        except Exception as error:
            return told(error, names_kind=False)

    def _sweep(self, fence: int) -> None:
        """What jobs below that number have left."""
        sweep(self._far, fence)
        # Of several disks each may have the manifest that needs what lies on the others: the flusher asks
        # all.
        if self._near is not None and self._group.world_size == 1:
            sweep(self._near, fence)

    def _raise_unseen(self) -> None:
        for handle in self._saves:
            error = handle._unseen_error()
            if error is not None:
                handle._is_seen = True
                raise error

    def _state_to_save(self, state: Any, metadata: Mapping[str, Any] | None) -> Any:
        """What is saved of it, where no earlier save has failed unseen and ``keep=`` finds what it goes
        by."""
        self._raise_unseen()
        if self._group.rank == 0:  # Whose metadata are saved.
            self._keep.check_metadata(metadata)
        return _values_of(state)

    def wait(self) -> None:
        """Until all saves are checkpoints, or were replaced before. Raises what went wrong with the first
        that is neither."""
        for handle in self._saves:
            try:
                handle.wait("remote")
            except ChangedError:
                if not handle._is_superseded:
                    raise

    # --- Loading ---

    def load(self, step: int | None = None, into: Any = None, *, partial: bool = False) -> Any:
        """The state that was saved; every byte is compared with its sum.

        Without ``step`` the checkpoint that was committed last; where it cannot be proved, the last one
        before that can, on all ranks the same, with a warning; :attr:`rejected` says why. A step that is
        replaced meanwhile is read again, and for one that is deleted meanwhile that which is the last one
        then: all ranks have the same save.

        :param into: a state of the same structure whose arrays are filled in place, whatever part of each
            this rank has: the mesh may be another than that of the save. What has ``load_state_dict()`` in
            the outermost dict is given its part; if it is no module, the saved one alone, whatever it holds
            now (an optimizer that has stepped since). After an error it may have some of one checkpoint and
            some of another. Named tuples and registered pytrees are made anew. Default: arrays are made,
            whole, and dicts of what was saved by its fields.
        :param partial: load only what is both in the checkpoint and in ``into``; an array at least. What has
            ``load_state_dict()`` and is no module is given all that was saved of it.
        :returns: the state, with ``into``'s arrays and objects in it.

        Raises NotFoundError (no checkpoint), CorruptError (none that can be proved), InvalidArgumentError
        (``into`` has another structure, dtype or shape), DeniedError (encrypted under another key, or in that
        it is).
        """
        self._check_open()
        self.rejected = []
        given, deleted = None if step is None else check_step(step), 0
        while (each := given if given is not None else self._newest(self.rejected)) is not None:
            read = self._read_by_all(each, into, partial)
            if isinstance(read, Attempt):
                if self.rejected:
                    warnings.warn(
                        f"{self.url}: loaded step {each}, since step {self.rejected[0].step} cannot be "
                        f"proved: {self.rejected[0].why}",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                assert read.manifest is not None
                self._loaded = each, read.manifest.metadata
                return _deliver(into, read.state)
            if given is not None or not read.falls_back:
                raise read.why
            if read.was_deleted and deleted < _READINGS:
                deleted += 1
                _log.info("%s: step %d was deleted while it was read: %s", self.url, each, read.why)
                continue
            self.rejected.append(Rejected(each, str(read.why)))
            self._broken.add(each)
            self._trust_nothing_earlier()
        if not self.rejected:
            raise NotFoundError(f"{self.url}: has no checkpoint")
        reasons = "; ".join(f"step {each.step}: {each.why}" for each in self.rejected)
        raise CorruptError(f"{self.url}: no checkpoint can be proved: {reasons}")

    def check_reference(
        self,
        measured: Mapping[str, SupportsFloat],
        *,
        step: int | None = None,
        rtol: float = 1e-3,
        on_difference: Literal["error", "warn"] = "error",
    ) -> None:
        """Compares what the loaded state gives on a batch that never changes with what it gave when it was
        saved: ``metadata={"reference": {"loss": ..., "grad_norm": ...}}``. All ranks call it together.

        :param measured: a number for each name of the reference, on this rank.
        :param step: default: the one that was loaded last.
        :param rtol: relative difference that is none.
        :param on_difference: ``"warn"``: a RuntimeWarning instead of an error.

        Raises ChangedError, on all ranks, where a number differs on one; NotFoundError (no reference).
        """
        if on_difference not in ("error", "warn"):
            raise InvalidArgumentError(f"on_difference={on_difference!r}: expected 'error' or 'warn'")
        if step is not None:
            chosen, metadata = check_step(step), self.info(step).metadata
        elif self._loaded is not None:
            chosen, metadata = self._loaded
        else:
            raise InvalidArgumentError("nothing was loaded yet: check_reference(..., step=...) names a step")
        odd = compare(self._group, metadata, measured, rtol, f"{self.url}: step {chosen}")
        if odd and on_difference == "error":
            raise ChangedError(odd)
        if odd:
            warnings.warn(odd, RuntimeWarning, stacklevel=2)

    def _newest(self, rejected: Sequence[Rejected] = ()) -> int | None:
        """The step that was committed last, but for those that were rejected; on all ranks the same."""

        def ask() -> Any:
            return self._place.candidates({each.step for each in rejected})[:1]

        said = self._group.broadcast("newest", self._told_by_rank_0(ask) if self._group.rank == 0 else None)
        raise_told(said)
        return said[0] if said else None

    def _read_by_all(self, step: int, into: Any, partial: bool) -> Attempt | Failure:
        """By all ranks the same save of a step: one that is replaced meanwhile is read again."""
        left = _READINGS
        while True:
            attempt = self._try(step, into, partial)
            failure = failure_of(self._group, self._place, step, attempt)
            if failure is None:
                return attempt
            del attempt  # A state in memory is enough.
            left -= 1
            if not failure.was_replaced or (left == 0 and not failure.falls_back):
                return failure
            if left == 0:
                text = (
                    f"{self.url}: step {step} is replaced again and again, it was read {_READINGS} times: "
                    f"{failure.why}"
                )
                return failure._replace(why=CorruptError(text))
            _log.info("%s: step %d was replaced while it was read: %s", self.url, step, failure.why)

    def _sharing(self) -> SharedReads | None:
        """Of one load; None: each rank reads for itself."""
        exchange = self._group.exchange
        if exchange is None or not is_shared(self._share_reads, self.url):
            return None
        return SharedReads(self._group, exchange, self._share_reads, self._memory)

    def _check_share_reads(self) -> None:
        check_share_reads(self._share_reads)
        if self._share_reads == "always" and self._group.world_size > 1 and self._group.exchange is None:
            raise InvalidArgumentError(
                "share_reads='always' needs the process group of torch.distributed, or a Group(exchange=...)"
            )

    def _try(self, step: int, into: Any, partial: bool) -> Attempt:
        sharing, manifest = self._sharing(), None
        try:
            manifest = self._place.manifest(step)
            return Attempt(None, manifest, self._read(manifest, into, partial, sharing))
        except Exception as error:
            if sharing is not None:
                sharing.give_up(error)
            return Attempt(error, manifest)

    def _read(self, manifest: Manifest, into: Any, partial: bool, reads: Reads | None) -> Any:
        with explaining_archives(self._place, manifest):
            if into is None:
                return read_all(self._place, manifest, self._options.allow_pickle, reads)[0]
            state, _ = read_into(
                self._place,
                manifest,
                _values_of(into),
                partial=partial,
                allow_pickle=self._options.allow_pickle,
                growing=_stateful(into),
                replaced=frozenset(key for key in _stateful(into) if not _is_module(into[key])),
                reads=reads,
            )
            return state

    # --- Looking ---

    def steps(self) -> list[int]:
        """Of all checkpoints, rising."""
        return self._place.steps()

    def latest(self) -> int | None:
        """The step that ``load()`` tries first; None: there is no checkpoint. The same on all ranks.
        NotFoundError: there is not even a bucket."""
        return self._newest()

    def info(self, step: int) -> Manifest:
        """What a checkpoint consists of."""
        return self._place.manifest(check_step(step))

    def verify(self, step: int, progress: Callable[[int, int], None] | None = None) -> None:
        """Reads all of a checkpoint and compares it with its sums. Raises CorruptError.

        :param progress: called with (bytes so far, bytes in all)."""
        manifest = self._place.manifest(check_step(step))
        try:
            with explaining_archives(self._place, manifest):
                verify(self._place, manifest, progress)
        except CorruptError:
            self._trust_nothing_earlier()
            raise

    def _trust_nothing_earlier(self) -> None:
        """Something is damaged: the next save writes everything."""
        if self._reuse is not None:
            self._reuse.renew(None)

    def delete(self, step: int) -> None:
        """Deletes a checkpoint, also one whose manifest cannot be read; with ``differential=True`` when the
        saves under way, which may build upon it, have ended. Raises InvalidArgumentError where it is
        pinned, and NotFoundError where there is none; of several ranks that delete it one does, and no other
        has an error."""
        self._check_open()
        self._far.check_not_pinned(check_step(step))
        if self._reuse is None:
            self._delete(step)
            return
        last = self._worker if self._near is None else self._flush_worker
        # A save hands itself on to the last of them before the next call of the first.
        self._worker.submit(lambda: None).result()
        last.submit(self._delete, step).result()

    def _delete(self, step: int) -> None:
        if self._reuse is not None:
            self._reuse.forget(step)
        # What is on the disk only is brought over again.
        places = [place for place in (self._near, self._far) if place is not None and step in place.steps()]
        if not places and self._group.world_size == 1:  # Else another rank may have been faster.
            raise self._place.missing(step)
        for place in places:
            try:
                manifest = place.manifest(step)
            except CorruptError:
                place.delete_broken(step)
            else:
                place.delete(manifest)

    def pin(self, step: int) -> None:
        """Keeps a checkpoint of the URL for ever: nothing deletes or replaces it before unpin(). Raises
        NotFoundError."""
        self._far.pin(check_step(step))

    def unpin(self, step: int) -> None:
        """Takes a pin away; one that is not there is no error."""
        self._far.unpin(check_step(step))

    def pinned(self) -> list[int]:
        """Steps that are pinned, rising."""
        return sorted(self._far.pins())

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidArgumentError(f"{self.url}: the checkpointer was closed")

    @property
    def closed(self) -> bool:
        return self._far.store.closed

    def close(self) -> None:
        """Waits for saves under way. May be repeated. Raises what went wrong with one that nobody looked
        at."""
        if self.closed:
            return
        self._worker.shutdown(wait=True)
        if self._sweeper is not None:
            self._sweeper.close()
        if self._near is not None:
            self._flush_worker.shutdown(wait=True)
            self._near.close()
        self._cooler.shutdown(wait=True)
        if self._group.exchange is not None:
            self._group.exchange.close()
        self._far.close()
        self._raise_unseen()

    def __exit__(self, *raised: object) -> None:
        """What went wrong with a save does not take the place of the error that leaves the block: the log has
        it."""
        try:
            self.close()
        except Exception as error:
            if all(each is None for each in raised):
                raise
            _log.error("%s: closed, and a save had failed that nobody has looked at: %s", self.url, error)

    def __repr__(self) -> str:
        return f"Checkpointer({self.url!r}, rank {self._group.rank} of {self._group.world_size})"


_DIRECTORY = "the URL of the run's checkpoints is the first argument; local= is a disk that they go to first"
_DIFFERENTIAL = "use differential=True: what has not changed is not written again"
_KEEP = "use keep=, a number of checkpoints or a headrace.checkpoint.Keep"
_OF_CALLS = {
    "overwrite": "it is of save(): save(step, state, overwrite=True)",
    "metadata": "it is of save(): save(step, state, metadata={...})",
    "wait": "it is of save(): save(step, state, wait=None)",
    "into": "it is of load(): load(into=state)",
    "partial": "it is of load(): load(into=state, partial=True)",
    "step": "it is of save(step, state), load(step) and check_reference(..., step=step)",
    "state": "it is of save(): save(step, state)",
    "rtol": "it is of check_reference()",
    "on_difference": "it is of check_reference()",
}

_NAMES = OptionNames(
    "Checkpointer",
    {"": named_options(Checkpointer.__init__), "the store": list(StoreOptions.__annotations__)},
    {
        **STORE_PEERS,
        **_OF_CALLS,
        "directory": _DIRECTORY,
        "dirpath": _DIRECTORY,
        "checkpoint_dir": _DIRECTORY,
        "path": _DIRECTORY,
        "max_to_keep": _KEEP,
        "save_top_k": _KEEP,
        "save_total_limit": _KEEP,
        "process_group": "use group=",
        "timeout_secs": "use rank_timeout= for ranks, timeout= for a request",
        "thread_count": "use copy_threads=",
        "incremental": _DIFFERENTIAL,
        "delta": _DIFFERENTIAL,
        "compress": "use compression='zstd'",
        "async_save": "leave it out: save() goes on in the background, and handle.result() waits for it",
    },
)


def _check_local(local: str, url: str) -> None:
    near, far = local_path(local), local_path(url)
    if near is None:
        raise InvalidArgumentError(f"local={local!r}: expected a directory of this machine")
    if far is None:
        return
    near, far = os.path.realpath(near), os.path.realpath(far)
    # What is at the URL is deleted from the disk.
    if os.path.commonpath([near, far]) in (near, far):
        raise InvalidArgumentError(
            f"local={local!r} and {url!r} are one directory, or one lies in the other: local= is the quick "
            "disk from which checkpoints go to the URL; without it they are saved at the URL"
        )


def _tell_undeleted(error: Exception) -> None:
    _log.warning("checkpoints that need not stay could not be deleted: %s", error)


def _stateful(state: Any) -> frozenset[str]:
    """Keys of what has a state_dict()."""
    if not isinstance(state, dict):
        return frozenset()
    return frozenset(
        key
        for key, value in state.items()
        if isinstance(key, str) and callable(getattr(value, "state_dict", None))
    )


def _is_module(value: Any) -> bool:
    """Whether its state is what it consists of, and no more or less (torch.nn.Module)."""
    return callable(getattr(value, "named_parameters", None))


def _values_of(state: Any) -> Any:
    keys = _stateful(state)
    return (
        {key: value.state_dict() if key in keys else value for key, value in state.items()} if keys else state
    )


def _deliver(into: Any, state: Any) -> Any:
    """Gives what has load_state_dict() its part, and stands for that part in what is returned."""
    keys = _stateful(into)
    for key in keys:
        into[key].load_state_dict(state[key])
    return {key: into[key] if key in keys else value for key, value in state.items()} if keys else state
