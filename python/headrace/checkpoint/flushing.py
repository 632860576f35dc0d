"""From the local disk to the store: checkpoints that were saved there first are brought to their URL in the
background.

Each rank copies the files that lie on its node. What cannot be brought over stays on the disk, and is tried
again behind the next save, and by the next job that is started with the same directory.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from headrace import _native
from headrace.checkpoint.data_file import SaveOptions
from headrace.checkpoint.group import Group
from headrace.checkpoint.keys import SaveId, step_key
from headrace.checkpoint.manifest import DataFile, EarlierFile, Manifest
from headrace.checkpoint.place import Place
from headrace.checkpoint.reuse import Base, Reuse
from headrace.checkpoint.saving import raise_first
from headrace.errors import CorruptError, HeadraceError, NotFoundError

__all__ = ["Flusher"]

_log = logging.getLogger("headrace.checkpoint")


class _Arrived(NamedTuple):
    """The checkpoint that was brought over last, and that the next may refer to."""

    base: Base
    keys: frozenset[str]
    """Data files that it needs: as long as it is there, they are."""


class Flusher:
    """Brings checkpoints over. One thread at a time, on all ranks in the same order.

    :param keep_local: so many of those that were brought over stay on the disk as well, to be loaded from
        there.
    :param reuse: what saves build upon; None: each has all of its data.
    """

    def __init__(
        self,
        near: Place,
        far: Place,
        group: Group,
        options: SaveOptions,
        keep_local: int,
        reuse: Reuse | None = None,
    ) -> None:
        self._near, self._far, self._group, self._options = near, far, group, options
        self._keep_local, self._reuse = keep_local, reuse
        self._arrived: _Arrived | None = None
        self._behind: list[tuple[Manifest, bool]] = []  # With whether it replaces what is there.
        self._retired: list[Manifest] = []  # Whose files may lie on any node.
        self._found: list[Manifest] = []  # By look().
        self._resumed: set[int] = set()  # Steps that resume() brought over.

    def flush(self, manifest: Manifest, fence: int, *, overwrite: bool) -> None:
        """Raises what went wrong, on all ranks. What resume() has brought over gives way, as it would have if
        this had been saved a moment sooner."""
        overwrite = overwrite or manifest.step in self._resumed
        try:
            self._copy(manifest, manifest, fence, overwrite, manifest.save)
        except Exception:
            self._behind.append((manifest, overwrite))
            raise
        # What rank 0 has not seen arrive: another may have heard less of it.
        mine = [(each.encode().decode(), replaces) for each, replaces in self._behind]
        again = self._group.gather("behind", mine if self._group.rank == 0 else [], manifest.save)[0]
        self._behind = []
        for text, replaces in again:
            each = Manifest.decode(text.encode(), f"{self._near.url}, saved before")
            try:
                self._copy(each, each, fence, replaces, f"{manifest.save}/{each.save}", is_late=True)
            except HeadraceError as error:
                _log.warning("checkpoint of step %d is still on the local disk only: %s", each.step, error)
                self._behind.append((each, replaces))

    def resume(self, fence: int) -> None:
        """Brings over what an earlier job has left; under a save id of this job, for what others have begun and
        not committed may be swept."""
        left = [(text, str(SaveId.new(fence, 0)).rpartition("-")[2]) for text in self._left()]
        for text, token in self._group.gather("left", left, str(fence))[0]:
            manifest = Manifest.decode(text.encode(), f"{self._near.url}, of an earlier job")
            target = manifest.renamed(str(SaveId(fence, manifest.step, token)))
            try:
                self._copy(manifest, target, fence, False, f"{fence}/{manifest.save}", is_late=True)
                self._resumed.add(manifest.step)
                _log.info(
                    "brought the checkpoint of step %d over, which an earlier job had left", manifest.step
                )
            except HeadraceError as error:
                _log.warning("checkpoint of step %d stays on the local disk only: %s", manifest.step, error)

    def look(self) -> None:
        """Notes what is here, which is for resume(). Before this job saves anything: what it saves flush() brings
        over."""
        if self._group.rank != 0:
            return
        try:
            self._found = [self._near.manifest(step) for step in self._near.steps()]
        except HeadraceError as error:
            self._warn_of_left(error)

    def _left(self) -> list[str]:
        """Manifests of what was here and is not at the URL, oldest first."""
        try:
            there = set(self._far.steps()) if self._found else set()
        except HeadraceError as error:
            self._warn_of_left(error)
            return []
        return [each.encode().decode() for each in self._found if each.step not in there]

    def _warn_of_left(self, error: HeadraceError) -> None:
        _log.warning("what an earlier job has left in %s cannot be brought over: %s", self._near.url, error)

    def retire(self, step: int) -> None:
        """On rank 0: a checkpoint need not stay here, although it may not be at the URL either."""
        try:
            self._retired.append(self._near.manifest(step))
            self._near.store.delete(step_key(step))
        except NotFoundError:
            return

    def held(self) -> set[int]:
        """Steps at the URL that the next one may refer to."""
        return set() if self._arrived is None else {self._arrived.base.step}

    def _copy(
        self,
        manifest: Manifest,
        target: Manifest,
        fence: int,
        overwrite: bool,
        attempt: str,
        *,
        is_late: bool = False,
    ) -> None:
        """``target``: as it is called there. ``attempt``: a name that no other has. ``is_late``: later ones may
        have been brought over before."""
        # What replaces another refers to nothing: if that went meanwhile, both would be lost.
        arrived = None if is_late or overwrite else self._arrived
        has = [self._near.store.exists(file.key) for file in manifest.files]
        known = "" if arrived is None else arrived.base.save
        said = self._group.gather("has", {"files": has, "arrived": known}, attempt)
        if any(each["arrived"] != known for each in said):
            arrived = None
        there = frozenset() if arrived is None else arrived.keys
        error = ""
        try:
            for number, (file, copy) in enumerate(zip(manifest.files, target.files, strict=True)):
                owner = next((rank for rank, each in enumerate(said) if each["files"][number]), None)
                if owner is None:
                    raise NotFoundError(f"{self._near.url}/{file.key} is on no node any more")
                if owner == self._group.rank:
                    self._copy_file(file, copy, there)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        reports = self._group.gather("flush report", {"error": error}, attempt)
        outcome: dict[str, Any] = {"error": "", "surplus": []}
        version = ""
        if not is_late:
            self._arrived = None
        try:
            raise_first("it could not bring its part over", reports)
            if self._group.rank == 0:
                base = (
                    arrived.base if arrived is not None and not there.isdisjoint(target.data_keys) else None
                )
                version = self._commit(target, fence, overwrite, is_late, base)
                outcome["surplus"] = self._surplus()
        except Exception as raised:
            outcome["error"] = str(raised)
            if self._group.world_size == 1:
                raise
        outcomes = self._group.gather("flush outcome", outcome, attempt)
        raise_first("the checkpoint was not brought over", outcomes)
        if not is_late and (version or self._group.rank != 0):
            base = Base(target.step, target.save, version, {})
            self._arrived = _Arrived(base, frozenset(target.data_keys))
        for save, keep in outcomes[0]["surplus"]:
            self._near.delete_save(save, set(keep))

    def _copy_file(self, file: DataFile, there: DataFile, known: frozenset[str]) -> None:
        """``known``: keys of files that are there."""
        self._copy_data(file, there.key)
        for each, copy in zip(file.earlier, there.earlier, strict=True):
            if copy.key not in known:
                self._copy_data(each, copy.key)
        index = self._near.index_bytes(file)
        self._far.write_index(there.index_key, index, self._options.check)

    def _copy_data(self, file: DataFile | EarlierFile, key: str) -> None:
        near, far, options = self._near.native, self._far.native, self._options
        _native.checkpoint_copy_file(
            near, file.key, far, key, file.size, file.crc32c, options.part_bytes, options.check
        )

    def _commit(
        self, manifest: Manifest, fence: int, overwrite: bool, is_late: bool, base: Base | None
    ) -> str:
        """Returns the version of the manifest."""
        self._far.check_fence(fence)
        with self._far.replacing(manifest, overwrite) as old:
            version = self._far.commit(manifest, overwrite=overwrite)
            if not is_late or self._far.is_behind(manifest):
                self._far.set_latest(manifest)
                self._far.check_committed(manifest, self._options.check, fence, base, old)
            else:
                self._far.check_manifest(manifest, self._options.check, old)
        return version

    def _surplus(self) -> list[tuple[str, list[str]]]:
        """What need not stay on the disk: saves, each with the files that do."""
        there = set(self._far.steps())
        held = set() if self._reuse is None else self._reuse.held()
        arrived = [self._near.manifest(step) for step in self._near.steps() if step in there]
        arrived.sort(key=lambda each: (each.job, each.step))
        for each in arrived[: max(0, len(arrived) - self._keep_local)]:
            if each.step not in held:
                self._retired.append(each)
                self._near.store.delete(step_key(each.step))
        retired, self._retired = self._retired, []
        try:
            return [row for each in retired for row in self._near.surplus(each)]
        except CorruptError as error:
            _log.warning("%s", error)
            return []
