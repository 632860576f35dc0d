"""From the local disk to the store: checkpoints that were saved there first are brought to their URL in the
background.

Each rank copies the files that lie on its node. What cannot be brought over stays on the disk, and is tried
again behind the next save, and by the next job that is started with the same directory.
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace import _native
from headrace.checkpoint.data_file import SaveOptions
from headrace.checkpoint.group import Group
from headrace.checkpoint.keys import SaveId, save_of, step_key, step_of
from headrace.checkpoint.manifest import DataFile, EarlierFile, Manifest
from headrace.checkpoint.place import GRACE_SECONDS, Place
from headrace.checkpoint.reuse import Base, Reuse
from headrace.checkpoint.told import raise_first
from headrace.errors import (
    ChangedError,
    CorruptError,
    DeniedError,
    HeadraceError,
    NotFoundError,
    UnsupportedError,
)

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
        self._refused: set[str] = set()  # Saves whose step is another's, which they were not to replace.
        self._broken: set[int] = set()  # Steps whose manifests here cannot be read; the log has told.
        self._there: dict[int, tuple[str, str]] = {}  # See _is_there(); by step: a save, and a version there.
        self._sweep_at = math.inf  # By time.monotonic(); inf also when it was done.
        self._settled = 0  # Jobs below it have ended long ago; 0 also when what they have left was deleted.

    def flush(self, manifest: Manifest, fence: int, *, overwrite: bool) -> bool:
        """False: it was not brought over, since a later save has taken its place on the disk. Raises what
        went wrong, on all ranks. What resume() has brought over gives way, as it would have if this had been
        saved a moment sooner."""
        overwrite = overwrite or manifest.step in self._resumed
        try:
            if not self._copy(manifest, manifest, fence, overwrite, manifest.save):
                return False
        except Exception:
            if manifest.save not in self._refused:
                self._behind.append((manifest, overwrite))
            raise
        # What rank 0 has not seen arrive: another may have heard less of it.
        self._behind = [each for each in self._behind if self._group.rank == 0 and self._is_here(each[0])]
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
        return True

    def resume(self, fence: int) -> None:
        """Brings over what an earlier job has left; under a save id of this job, for what others have begun
        and not committed may be swept."""
        self._sweep_at = time.monotonic() + GRACE_SECONDS
        left = [
            (text, replaces, str(SaveId.new(fence, 0)).rpartition("-")[2]) for text, replaces in self._left()
        ]
        told = {"left": left, "settled": self._settled_fence(fence)} if self._group.rank == 0 else {}
        first = self._group.gather("left", told, str(fence))[0]
        self._settled = first["settled"]
        for text, replaces, token in first["left"]:
            manifest = Manifest.decode(text.encode(), f"{self._near.url}, of an earlier job")
            target = manifest.renamed(str(SaveId(fence, manifest.step, token)))
            try:
                if not self._copy(
                    manifest, target, fence, replaces, f"{fence}/{manifest.save}", is_late=True
                ):
                    continue
                self._resumed.add(manifest.step)
                _log.info(
                    "brought the checkpoint of step %d over, which an earlier job had left", manifest.step
                )
            except HeadraceError as error:
                _log.warning("checkpoint of step %d stays on the local disk only: %s", manifest.step, error)

    def _settled_fence(self, fence: int) -> int:
        try:
            return self._far.settled_fence(fence)
        except HeadraceError as error:
            self._warn_of_left(error)
            return 0

    def look(self) -> None:
        """Notes what is here, which is for resume(). Before this job saves anything: what it saves flush()
        brings over."""
        if self._group.rank != 0:
            return
        try:
            self._found = self._here()
        except HeadraceError as error:
            self._warn_of_left(error)

    def _here(self) -> list[Manifest]:
        """What can be read of the manifests on the disk."""
        found = []
        for step in self._near.steps():
            try:
                found.append(self._near.manifest(step))
            except NotFoundError:
                continue  # It went meanwhile.
            except HeadraceError as error:
                if step not in self._broken:
                    _log.warning("what the local disk has of step %d is passed over: %s", step, error)
                self._broken.add(step)
        return found

    def _is_here(self, manifest: Manifest) -> bool:
        """Whether a checkpoint is on the disk still, and neither replaced nor deleted."""
        try:
            return self._near.manifest(manifest.step).save == manifest.save
        except NotFoundError:
            return False
        except HeadraceError:
            return True  # Its files may be.

    def _is_replaced_here(self, manifest: Manifest) -> bool:
        """Whether another save has taken its step on the disk, and so its files have gone or go."""
        try:
            return self._near.manifest(manifest.step).save != manifest.save
        except HeadraceError:  # It was lost, or deleted.
            return False

    def _left(self) -> list[tuple[str, bool]]:
        """Manifests of what was here and is to be brought over, oldest first; each with whether it replaces
        another there. One that was not to replace what is there goes."""
        left: list[tuple[str, bool]] = []
        try:
            versions = self._versions() if self._found else {}
        except HeadraceError as error:
            self._warn_of_left(error)
            return left
        for each in sorted(self._found, key=lambda each: each.order):
            try:
                if self._is_there(each, versions):
                    continue
                if each.step in versions and not each.overwrites:
                    _log.warning(
                        "%s: step %d, which an earlier job has left, is not brought over: the URL has "
                        "another save of it, which it was not to replace (overwrite=True)",
                        self._near.url,
                        each.step,
                    )
                    self._refuse(each)
                    continue
                left.append((each.encode().decode(), each.step in versions))
            except HeadraceError as error:
                self._warn_of_left(error)
        return left

    def _versions(self) -> dict[int, str]:
        """Of the manifests at the URL, by step."""
        found = ((step_of(info.key), info.etag) for info in self._far.objects("steps/"))
        return {step: version for step, version in found if step is not None}

    def _is_there(self, manifest: Manifest, versions: Mapping[int, str]) -> bool:
        """Whether the URL has a checkpoint of the disk, or one that was saved later under its step. The step
        alone does not tell: it may have been saved anew, and not been brought over yet. Raises CorruptError
        where nobody can tell, since what is there cannot be read."""
        version = versions.get(manifest.step)
        if version is None:
            return False
        if self._there.get(manifest.step) != (manifest.save, version):  # Else it was read before.
            try:
                there = self._far.manifest(manifest.step)
            except NotFoundError:
                return False
            if manifest.replaces(there):
                return False
            self._there[manifest.step] = manifest.save, version
        return True

    def _warn_of_left(self, error: HeadraceError) -> None:
        _log.warning("what an earlier job has left in %s cannot be brought over: %s", self._near.url, error)

    def retire(self, step: int) -> None:
        """On rank 0: a checkpoint need not stay here, although it may not be at the URL either."""
        try:
            self._retired.append(self._near.manifest(step))
        except NotFoundError:
            return
        except CorruptError:
            pass  # A later job sweeps its files.
        self._near.store.delete(step_key(step))

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
    ) -> bool:
        """False: it could not be brought over, since another has taken its place on the disk. ``target``: as
        it is called there. ``attempt``: a name that no other has. ``is_late``: later ones may have been
        brought over before."""
        # What replaces another refers to nothing: if that went meanwhile, both would be lost.
        arrived = None if is_late or overwrite else self._arrived
        has = [self._near.store.exists(file.key) for file in manifest.files]
        known = "" if arrived is None else arrived.base.save
        said = self._group.gather("has", {"files": has, "arrived": known, "old": self._old(fence)}, attempt)
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
        outcome: dict[str, Any] = {"error": "", "surplus": [], "is_replaced": False}
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
                if version:
                    self._there[manifest.step] = manifest.save, version
                outcome["surplus"] = self._surplus() + _needed_by_none([each["old"] for each in said])
        except Exception as raised:
            outcome["error"] = str(raised)
            outcome["is_replaced"] = self._group.rank == 0 and self._is_replaced_here(manifest)
            if self._group.world_size == 1 and not outcome["is_replaced"]:
                raise
        outcomes = self._group.gather("flush outcome", outcome, attempt)
        if outcomes[0]["is_replaced"]:
            return False
        raise_first("the checkpoint was not brought over", outcomes)
        if not is_late and (version or self._group.rank != 0):
            base = Base(target.step, target.save, version, {})
            self._arrived = _Arrived(base, frozenset(target.data_keys))
        if all(each["old"] is not None for each in said):
            self._settled = 0
            if all(each["old"]["below"] == fence for each in said):
                self._sweep_at = math.inf
        try:
            for save, keep in outcomes[0]["surplus"]:
                self._near.delete_save(save, set(keep))
        except HeadraceError as error:
            self._warn_of_surplus(error)
        return True

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
            try:
                version = self._far.commit(manifest, overwrite=overwrite)
            except ChangedError:
                self._refuse(manifest)
                raise
            if not is_late or self._far.is_behind(manifest):
                self._far.set_latest(manifest)
                self._far.check_committed(manifest, self._options.check, fence, base, old)
            else:
                self._far.check_manifest(manifest, self._options.check, old)
        return version

    def _surplus(self) -> list[tuple[str, list[str]]]:
        """What need not stay on the disk: saves, each with the files that do."""
        try:
            self._let_go()
            retired, self._retired = self._retired, []
            return [row for each in retired for row in self._near.surplus(each)]
        except HeadraceError as error:
            self._warn_of_surplus(error)
            return []

    def _warn_of_surplus(self, error: HeadraceError) -> None:
        _log.warning("not all that need not stay in %s could be deleted: %s", self._near.url, error)

    def _let_go(self) -> None:
        """Deletes the manifests of what need not stay on the disk."""
        versions, here = self._versions(), self._here()
        self._there = {each.step: self._there[each.step] for each in here if each.step in self._there}
        arrived = []
        for each in sorted(here, key=lambda each: each.order):
            with contextlib.suppress(CorruptError, DeniedError, UnsupportedError):
                if self._is_there(each, versions):
                    arrived.append(each)
        for each in arrived[: max(0, len(arrived) - self._keep_local)]:
            self._delete_manifest(each)
        for each in here:
            if each.save in self._refused:
                self._delete_manifest(each)

    def _delete_manifest(self, manifest: Manifest) -> None:
        """Unless saves under way build upon it, or another is in its place by now."""
        held = set() if self._reuse is None else self._reuse.held()
        if manifest.step not in held and self._is_here(manifest):
            self._retired.append(manifest)
            self._near.store.delete(step_key(manifest.step))

    def _refuse(self, manifest: Manifest) -> None:
        """Its step is another's at the URL, which it was not to replace: a later job would take it for one
        that is still to be brought over, and replace the other by it."""
        self._refused.add(manifest.save)
        if self._reuse is not None:
            self._reuse.forget(manifest.step)
        self._delete_manifest(manifest)

    def _old(self, fence: int) -> dict[str, Any] | None:
        """Saves of earlier jobs on this rank's disk, once none of those can be alive, and which of all saves
        the manifests on it need; None: nothing is known yet. A manifest is on one node's disk alone, files of
        its save are on all of them."""
        below = fence if time.monotonic() >= self._sweep_at else self._settled
        if below == 0:
            return None
        try:
            needs = self._near.needs()
            saves = {save_of(info.key) for info in self._near.objects("saves/")}
        except HeadraceError as error:
            self._warn_of_surplus(error)
            return None
        if needs.broken:
            return None  # It may need any of them.
        parsed = {save: SaveId.parse(save) for save in saves}
        old = sorted(save for save, each in parsed.items() if each is not None and each.fence < below)
        return {"below": below, "saves": old, "needed": sorted(needs.saves | set(map(save_of, needs.keys)))}


def _needed_by_none(said: list[dict[str, Any] | None]) -> list[tuple[str, list[str]]]:
    """Of what each rank has said of old saves (see _old()): those that go, in the form of _surplus()."""
    told = [each for each in said if each is not None]
    if len(told) < len(said):
        return []
    needed = {save for each in told for save in each["needed"]}
    return [(save, []) for save in sorted({save for each in told for save in each["saves"]} - needed)]
