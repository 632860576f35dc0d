"""Where the checkpoints of a run lie: a store, and what is asked of it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from headrace import _native
from headrace._native import ObjectInfo
from headrace.base.call import Call
from headrace.checkpoint.keys import (
    LATEST,
    SaveId,
    fence_key,
    fence_of,
    pin_key,
    pin_of,
    save_of,
    step_key,
    step_of,
)
from headrace.checkpoint.manifest import DataFile, Index, Manifest, decode_index, index_sum
from headrace.checkpoint.reuse import Base
from headrace.errors import (
    ChangedError,
    CorruptError,
    DeniedError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from headrace.store.store import Store
from headrace.store.urls import local_path

__all__ = ["GRACE_SECONDS", "Nearest", "Needs", "Place", "check_step", "read_key"]

GRACE_SECONDS = 900.0
"""So long a request of a job may live that another one has followed: what it has not committed by then, it
never will."""


class Needs(NamedTuple):
    """What checkpoints need of what lies below ``saves/``."""

    saves: set[str]
    """All files of these."""
    keys: set[str]
    """Of others: data files that were not written again."""
    broken: set[int]
    """Steps whose manifests cannot be read, and might need anything."""


class _Needed(NamedTuple):
    """By one checkpoint."""

    save: str
    keys: frozenset[str]


# What manifests and indexes are encrypted for: none is taken for the other.
_MANIFEST, _INDEX = "headrace checkpoint manifest 1", "headrace checkpoint index 1"
_SEALED = b"HRSEALED"
_READERS = 16


def read_key(source: str | None) -> _native.SealKey | None:
    """The key that ``encryption_key=`` names. Raises DeniedError, InvalidArgumentError; see
    headrace/seal_key.h."""
    return None if source is None else _native.SealKey(source)


class Place:
    """The objects of a run's checkpoints, at a URL. Threads: any.

    :param key: manifests, indexes and data files are encrypted under it; None: they are not. What is
        otherwise is a DeniedError.
    """

    def __init__(self, store: Store, key: _native.SealKey | None = None) -> None:
        self.store, self.url, self.key = store, store.url, key
        self._known_needs: dict[tuple[str, str], _Needed] = {}

    @property
    def native(self) -> _native.Store:
        return self.store._native

    # --- Checkpoints ---

    def steps(self) -> list[int]:
        """Of all checkpoints, rising."""
        found = (step_of(info.key) for info in self.objects("steps/"))
        return sorted(step for step in found if step is not None)

    def manifest(self, step: int) -> Manifest:
        """Raises NotFoundError, naming the steps that there are, or CorruptError."""
        key = step_key(step)
        try:
            data = self.store.get(key)
        except NotFoundError:
            raise self.missing(step) from None
        manifest = self._decode(data, f"{self.url}/{key}")
        if manifest.step != step:
            raise CorruptError(f"{self.url}/{key}: is the manifest of step {manifest.step}")
        return manifest

    def missing(self, step: int) -> NotFoundError:
        """Of a step that is not there: names those that are."""
        steps = self.steps()
        return NotFoundError(
            f"{self.url}: has no checkpoint of step {step}; "
            + (f"those of {', '.join(map(str, steps[-10:]))}" if steps else "nor any other")
        )

    def encode(self, manifest: Manifest) -> bytes:
        """As it lies here."""
        data = manifest.encode()
        return data if self.key is None else self.key.seal_text(_MANIFEST, data)

    def _decode(self, data: bytes, where: str) -> Manifest:
        """Raises DeniedError, CorruptError, UnsupportedError."""
        try:
            text = _native.open_text(self.key, _MANIFEST, data, where)
        except DeniedError as error:
            if data.startswith(_SEALED):
                if self.key is None:
                    raise DeniedError(f"{error}: encryption_key=, --encryption-key") from None
                raise
            Manifest.decode(data, where)  # What is no manifest at all is broken, and nobody's secret.
            raise
        return Manifest.decode(text, where)

    def check_key(self) -> None:
        """Raises DeniedError where what was saved here last is encrypted under another key, or in that it
        is."""
        for step in self.candidates()[:1]:
            with contextlib.suppress(NotFoundError, CorruptError, UnsupportedError):
                self.manifest(step)

    def holder(self, manifest: Manifest) -> Place:
        """Where the files of a checkpoint lie that have to be whole for it to last."""
        return self

    def index(self, manifest: Manifest, rank: int) -> Index:
        """Of a data file. Raises CorruptError."""
        file, where = manifest.files[rank], f"{self.url}/{manifest.files[rank].index_key}"
        index = decode_index(self.index_bytes(file), where)
        if index.files > 1 + len(file.earlier):
            raise CorruptError(
                f"{where}: names {index.files} data files; the manifest has {1 + len(file.earlier)}"
            )
        return index

    def write_index(self, key: str, index: bytes, check: str) -> None:
        """``check``: see check_written()."""
        data = index if self.key is None else self.key.seal_text(_INDEX, index)
        _native.checkpoint_write_small(self.native, key, data)
        self.check_written(key, data, check)

    def index_bytes(self, file: DataFile) -> bytes:
        """Not encrypted. Raises CorruptError."""
        try:
            data = self.store.get(file.index_key)
        except NotFoundError as error:
            raise CorruptError(
                f"{self.url}/{file.index_key}: is missing, though the checkpoint has it"
            ) from error
        try:
            data = _native.open_text(self.key, _INDEX, data, f"{self.url}/{file.index_key}")
        except DeniedError as error:
            raise CorruptError(str(error)) from None  # Its manifest has the key that it was saved under.
        if index_sum(data) != file.index_crc32c:
            raise CorruptError(f"{self.url}/{file.index_key}: is not what was saved")
        return data

    def read(self, key: str, boxes: list[Any], only: Sequence[bytes] = ()) -> tuple[int, int]:
        """Reads boxes of a data file, or ``only`` some blocks of each; see _native.checkpoint_read()."""
        return _native.checkpoint_read(self.native, key, "", boxes, only, self.key)

    def commit(self, manifest: Manifest, *, overwrite: bool) -> str:
        """Makes a checkpoint of what was saved. Returns the version of its manifest; "": it is there, but the
        answer that told it was lost. Raises ChangedError where the step is taken, InvalidArgumentError where
        it would replace one that is pinned."""
        if overwrite:
            self.check_not_pinned(manifest.step)
        key, data = step_key(manifest.step), self.encode(manifest)
        try:
            return _native.checkpoint_write_small(self.native, key, data, not overwrite)
        except HeadraceError as error:
            # The answer may be lost, and the object be this very one. A ChangedError from here on is
            # another's.
            if not self._has(key, data):
                if not isinstance(error, ChangedError):
                    raise
                other = self.manifest(manifest.step)
                if other.save == manifest.save:
                    return ""
                raise self._taken(other) from None
            return ""

    def _taken(self, other: Manifest) -> ChangedError:
        return ChangedError(
            f"{self.url}: step {other.step} was saved before (save {other.save}, {other.created}); save(..., "
            "overwrite=True) replaces it"
        )

    def check_free(self, step: int, *, overwrite: bool) -> None:
        """What commit() would raise now, before anything is written for it; commit() looks again."""
        if overwrite:
            self.check_not_pinned(step)
        elif self.store.exists(step_key(step)):
            raise self._taken(self.manifest(step))

    def _has(self, key: str, data: bytes) -> bool:
        try:
            return self.store.get(key) == data
        except HeadraceError:
            return False

    def set_latest(self, manifest: Manifest) -> None:
        _native.checkpoint_write_small(self.native, LATEST, _latest_text(manifest))

    def publish(
        self,
        manifest: Manifest,
        *,
        overwrite: bool,
        check: str,
        fence: int | None = None,
        base: Base | None = None,
    ) -> str:
        """commit(), and moves LATEST to it: three round trips, the last of which asks for all that must still
        be so (see check_committed()). Returns the version of the manifest, as commit() does. Raises
        ChangedError where it is not there, and never will be."""
        with self.replacing(manifest, overwrite) as old:
            version = self.commit(manifest, overwrite=overwrite)
            try:
                self.set_latest(manifest)
            except HeadraceError as error:
                raise UnavailableError(
                    f"step {manifest.step} is there, but LATEST could not be moved to it: {error}; "
                    f"load({manifest.step}) finds it, and save(..., overwrite=True) replaces it"
                ) from error
            self.check_committed(manifest, check, fence, base, old)
        return version

    @contextlib.contextmanager
    def replacing(self, manifest: Manifest, overwrite: bool) -> Iterator[Manifest | None]:
        """Around a commit and its checks: when all went well, the files of what it has replaced go. Those
        that cannot be deleted are swept by a later job. Gives what is replaced."""
        old = self.readable(manifest.step) if overwrite else None
        yield old
        if old is not None and old.save != manifest.save:
            with contextlib.suppress(HeadraceError):
                self.delete_files(old)

    def readable(self, step: int) -> Manifest | None:
        """None: there is no manifest that can be read."""
        key = step_key(step)
        try:
            return self._decode(self.store.get(key), f"{self.url}/{key}")
        except (NotFoundError, CorruptError, UnsupportedError):
            return None

    def check_committed(
        self,
        manifest: Manifest,
        check: str,
        fence: int | None = None,
        base: Base | None = None,
        replaced: Manifest | None = None,
    ) -> None:
        """Whether manifest and LATEST are what was written, no later job than ``fence`` had begun, and what
        it builds upon is there. Raises CorruptError, and puts what was ``replaced`` in the place of a
        manifest that nobody could read; UnavailableError, and deletes one whose files may be gone with its
        base."""
        calls = [
            lambda: self.check_manifest(manifest, check, replaced),
            lambda: self.check_written(LATEST, _latest_text(manifest), check),
        ]
        if fence is not None:
            calls.append(lambda: self._check_fence_after(manifest, fence))
        beside = Call(lambda: base.check(self.store)) if base is not None else None
        checks = [Call(call) for call in calls]  # One round trip.
        for each in checks:
            each.wait()
        if beside is not None:
            try:
                beside.result()
            except HeadraceError:
                self._withdraw(manifest)
                raise
        for each in checks:
            each.result()

    def check_manifest(self, manifest: Manifest, check: str, replaced: Manifest | None) -> None:
        """The part of check_committed() that is about the manifest itself."""
        try:
            self.check_written(step_key(manifest.step), self.encode(manifest), check)
        except CorruptError:
            with contextlib.suppress(HeadraceError):
                self._take_back(manifest.step, replaced)
            raise

    def _take_back(self, step: int, replaced: Manifest | None) -> None:
        """Deletes a manifest that nobody can read, for what was there before it."""
        try:
            self.manifest(step)
        except CorruptError:
            self.store.delete(step_key(step))
            if replaced is not None:
                self.commit(replaced, overwrite=False)

    def _check_fence_after(self, manifest: Manifest, fence: int) -> None:
        try:
            self.check_fence(fence)
        except ChangedError as error:
            raise UnavailableError(
                f"{error}; step {manifest.step} may be there, or be replaced by it"
            ) from error

    def _withdraw(self, manifest: Manifest) -> None:
        """Deletes a manifest, unless another has replaced it."""
        key = step_key(manifest.step)
        with contextlib.suppress(HeadraceError):
            if self._has(key, self.encode(manifest)):
                self.store.delete(key)

    def check_written(self, key: str, data: bytes, check: str) -> None:
        """Reads a small object back, as ``check`` of Checkpointer says. Raises CorruptError."""
        if check == "none" or (check == "auto" and local_path(self.url) is not None):
            return
        try:
            found = self.store.get(key)
        except NotFoundError:
            raise CorruptError(f"{self.url}/{key}: is not there, though the store took it") from None
        if found != data:
            raise CorruptError(f"{self.url}/{key}: the store has other bytes than were sent")

    def latest(self) -> int | None:
        """The step that LATEST names; None: it is not there, or broken."""
        try:
            step = json.loads(self.store.get(LATEST))["step"]
        except (NotFoundError, ValueError, KeyError, TypeError):
            return None
        return step if type(step) is int else None

    def is_behind(self, manifest: Manifest) -> bool:
        """Whether LATEST names what was saved before this, or nothing that can be read."""
        latest = self.latest()
        if latest is None:
            return True
        try:
            other = self.manifest(latest)
        except (NotFoundError, CorruptError):
            return True
        return not other.comes_after(manifest)

    def candidates(self, passed: Set[int] = frozenset()) -> list[int]:
        """Steps, but for those that were ``passed`` over: first the one that was committed last. The others
        are in no order: see newest_first()."""
        steps, latest = [step for step in self.steps() if step not in passed], self.latest()
        if latest not in steps:
            return self.newest_first(steps)
        return [latest, *(step for step in reversed(steps) if step != latest)]

    def newest_first(self, steps: Sequence[int]) -> list[int]:
        """Those that were saved last first; reads their manifests. One that cannot be read goes before the
        first that has a lower step."""
        with ThreadPoolExecutor(_READERS, "headrace-checkpoint-order") as pool:
            orders = dict(zip(steps, pool.map(self._order_of, steps), strict=True))
        known = {step: order for step, order in orders.items() if order is not None}
        found = sorted(known, key=known.__getitem__, reverse=True)
        for step in sorted(orders.keys() - known.keys()):
            found.insert(next((at for at, each in enumerate(found) if each < step), len(found)), step)
        return found

    def _order_of(self, step: int) -> tuple[int, int, int] | None:
        """None: its manifest cannot be read."""
        try:
            return self.manifest(step).order
        except (NotFoundError, CorruptError, DeniedError, UnsupportedError):
            return None

    def delete(self, manifest: Manifest) -> None:
        """The manifest first: what remains when this is interrupted is nobody's, and swept later. Raises
        InvalidArgumentError where it is pinned."""
        self.check_not_pinned(manifest.step)
        self.store.delete(step_key(manifest.step))
        try:
            self.check_not_pinned(manifest.step)
        except InvalidArgumentError:  # Since the first look: who pinned it was told that it stays.
            self.commit(manifest, overwrite=False)
            raise
        self.delete_files(manifest)

    def delete_broken(self, step: int) -> None:
        """Deletes a manifest that cannot be read; what it needs is nobody's then, and swept later. Raises
        InvalidArgumentError where it is pinned."""
        self.check_not_pinned(step)
        self.store.delete(step_key(step))

    def delete_files(self, manifest: Manifest) -> None:
        """Those of a checkpoint that is gone, but for what others need. Raises as surplus() does: they stay
        then."""
        for save, keep in self.surplus(manifest):
            self.delete_save(save, set(keep))

    def surplus(self, manifest: Manifest) -> list[tuple[str, list[str]]]:
        """Saves whose files nobody needs once that checkpoint is gone; each with those that others need
        still. Raises CorruptError where a manifest cannot be read that may need them."""
        parsed = SaveId.parse(manifest.save)
        if not manifest.earlier and parsed is not None and not parsed.is_shared:
            return [(manifest.save, [])]
        needs = self.needs()
        if needs.broken:
            broken = min(needs.broken)
            raise CorruptError(
                f"{self.url}: files of step {manifest.step} stay, since the manifest of step {broken} cannot "
                f"be read and may need them; delete({broken}) deletes it"
            )
        return [
            (save, sorted(key for key in needs.keys if save_of(key) == save))
            for save in sorted(manifest.saves - needs.saves)
        ]

    def needs(self) -> Needs:
        """What the checkpoints that there are need. What was read is known by its ETag, and not read
        again."""
        needs = Needs(set(), set(), set())
        known: dict[tuple[str, str], _Needed] = {}
        for info in self.objects("steps/"):
            step = step_of(info.key)
            if step is None:
                continue
            found = self._known_needs.get((info.key, info.etag))
            try:
                etag, found = (info.etag, found) if found else self._needed_by(info)
            except NotFoundError:
                continue
            except CorruptError:
                needs.broken.add(step)
                continue
            known[info.key, etag] = found
            needs.saves.add(found.save)
            needs.keys.update(found.keys)
        self._known_needs = known
        return needs

    def _needed_by(self, info: ObjectInfo) -> tuple[str, _Needed]:
        """What a manifest needs, and the version of it that does."""
        while True:
            try:
                data = self.store.get_range(info.key, 0, info.size, etag=info.etag)
                break
            except ChangedError:
                info = self.store.head(info.key)
        manifest = self._decode(data, f"{self.url}/{info.key}")
        return info.etag, _Needed(manifest.save, frozenset(each.key for each in manifest.earlier))

    def storage_classes(self, prefix: str = "saves/") -> dict[str, str]:
        """By key, as far as the store tells any."""
        if local_path(self.url) is not None:
            return {}
        return {info.key: info.storage_class for info in self.objects(prefix) if info.storage_class}

    def uploads(self, prefix: str = "saves/") -> list[tuple[str, str, int]]:
        """Uploads of files of saves that were begun and neither completed nor given up: (key, id, seconds
        since 1970). They cost what they have taken, and no listing shows them."""
        try:
            return [each for each in self.native.uploads(prefix) if each[0].startswith(prefix)]
        except UnsupportedError:  # Files, and stores that have none.
            return []

    def delete_unfinished(self, save: str) -> int:
        """Deletes what a save has left that is no checkpoint: files, and uploads. Returns the files'
        bytes."""
        for key, upload, _ in self.uploads():
            if key.startswith(f"saves/{save}/"):
                with contextlib.suppress(NotFoundError):
                    self.native.abort_upload(key, upload)
        return self.delete_save(save)

    def delete_save(self, save: str, keep: Set[str] = frozenset()) -> int:
        """Deletes the files of a save, but for some. Returns the bytes of those that are gone."""
        found = [info for info in self.objects(f"saves/{save}/") if info.key not in keep]
        if found:
            self.store.delete_many(info.key for info in found)
        self.delete_empty(save)
        return sum(info.size for info in found)

    def delete_empty(self, save: str) -> None:
        """Deletes the directory of a save that has no files any more, where there are directories."""
        directory = local_path(self.url)
        if directory is not None:
            with contextlib.suppress(OSError):  # Another rank was faster, or somebody put something there.
                os.rmdir(os.path.join(directory, "saves", save))

    # --- Pins ---

    def pins(self) -> set[int]:
        """Steps that are never deleted."""
        found = (pin_of(info.key) for info in self.objects("pins/"))
        return {step for step in found if step is not None}

    def pin(self, step: int) -> None:
        """Raises NotFoundError where there is no such checkpoint, also where it goes meanwhile."""
        self.manifest(step)
        _native.checkpoint_write_small(self.native, pin_key(step), b"\n")
        try:
            self.manifest(step)
        except NotFoundError:
            self.unpin(step)
            raise

    def unpin(self, step: int) -> None:
        self.store.delete(pin_key(step))

    def check_not_pinned(self, step: int) -> None:
        if self.store.exists(pin_key(step)):
            raise InvalidArgumentError(
                f"{self.url}: the checkpoint of step {step} is pinned; headrace ckpt pin --remove {self.url} "
                f"{step} lets it go"
            )

    # --- Jobs that save ---

    def take_fence(self) -> int:
        """A number above all that were taken before."""
        note = json.dumps(
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "time": time.time(),
                "token": secrets.token_hex(8),
            }
        )
        while True:
            number = self.highest_fence() + 1
            try:
                _native.checkpoint_write_small(self.native, fence_key(number), note.encode(), True)
            except ChangedError:
                if not self._has(fence_key(number), note.encode()):
                    continue
            taken = self._fences()
            needed = _settled(taken, number) if taken.get(number) is not None else number
            for each in taken:
                if each < needed:
                    self.store.delete(fence_key(each))
            return number

    def settled_fence(self, number: int) -> int:
        """The highest that was taken GRACE_SECONDS before ``number``, by the store's clock; 0: none, or it is
        not known. Jobs below it have no request left."""
        return _settled(self._fences(), number)

    def _fences(self) -> dict[int, int | None]:
        """When each was taken, by the store's clock."""
        found = ((fence_of(info.key), info.modified) for info in self.objects("fence/"))
        return {number: at for number, at in found if number is not None}

    def check_fence(self, number: int) -> None:
        """Raises ChangedError where a later job has taken another."""
        highest = self.highest_fence()
        if highest != number:
            raise ChangedError(
                f"{self.url}: another job saves here now (it has taken number {highest}, this one has "
                f"{number})"
            )

    def highest_fence(self) -> int:
        return max((fence_of(info.key) or 0 for info in self.objects("fence/")), default=0)

    def orphans(self, fence: int) -> Iterator[str]:
        """Saves of jobs before ``fence`` that no checkpoint names."""
        keys = [info.key for info in self.objects("saves/")] + [key for key, _, _ in self.uploads()]
        saves = {save_of(key) for key in keys}
        needs = self.needs()
        if needs.broken:
            return  # It may be any of them.
        for save in sorted(saves - needs.saves - set(map(save_of, needs.keys))):
            parsed = SaveId.parse(save)
            if parsed is not None and parsed.fence < fence:
                yield save

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """That begin with it; none where nothing was saved yet. Raises NotFoundError where there is no such
        bucket: its name is wrong, and what was saved is elsewhere."""
        try:
            yield from self.store.list(prefix)
        except NotFoundError:
            if local_path(self.url) is None:
                raise
            # A directory that nothing was saved to.

    def close(self) -> None:
        self.store.close()


class Nearest(Place):
    """Checkpoints of which some files lie on a local disk as well: what is there and whole is read there."""

    def __init__(self, near: Place, far: Place) -> None:
        super().__init__(far.store, far.key)
        self._near, self._far = near, far
        self._near_keys: dict[str, str] = {}
        """Of files that are called otherwise at the URL, by what they are called there. Threads: keys are
        written once, so what is known stays true."""

    def holder(self, manifest: Manifest) -> Place:
        with contextlib.suppress(NotFoundError, CorruptError):
            if self._far.manifest(manifest.step).save == manifest.save:
                return self._far
        return self._near

    def manifest(self, step: int) -> Manifest:
        """Where both have one, that of the later job: a step may have been saved anew. Of one that was
        brought over that of the URL, by which all ranks name its files."""
        try:
            near = self._near.manifest(step)
        except (NotFoundError, CorruptError):
            return self._far.manifest(step)
        try:
            far = self._far.manifest(step)
        except (NotFoundError, CorruptError):
            return near
        if not far.is_same_save(near):
            return near if near.comes_after(far) else far
        if far.save != near.save:
            names = zip(far.data_keys + far.index_keys, near.data_keys + near.index_keys, strict=True)
            self._near_keys.update(names)
        return far

    def index_bytes(self, file: DataFile) -> bytes:
        near = self._near_keys.get(file.index_key, file.index_key)
        try:
            return self._near.index_bytes(file._replace(index_key=near))
        except CorruptError:
            return self._far.index_bytes(file)

    def read(self, key: str, boxes: list[Any], only: Sequence[bytes] = ()) -> tuple[int, int]:
        try:
            return self._near.read(self._near_keys.get(key, key), boxes, only)
        except NotFoundError:
            return self._far.read(key, boxes, only)
        except CorruptError as error:
            try:
                return self._far.read(key, boxes, only)
            except NotFoundError:  # It was not brought over yet.
                raise error from None

    def steps(self) -> list[int]:
        return sorted({*self._near.steps(), *self._far.steps()})

    def latest(self) -> int | None:
        """That of the disk, where checkpoints are first; unless another job has saved at the URL since."""
        near, far = self._near.latest(), self._far.latest()
        if near is None or far is None:
            return far if near is None else near
        try:
            here, there = self._near.manifest(near), self._far.manifest(far)
        except (NotFoundError, CorruptError):
            return far
        # Of one job the disk is first, also where it went back to an earlier step.
        return near if here.job == there.job or here.comes_after(there) else far


def _settled(taken: Mapping[int, int | None], number: int) -> int:
    now = taken.get(number)
    if now is None:
        return 0
    return max(
        (each for each, at in taken.items() if at is not None and now - at >= GRACE_SECONDS), default=0
    )


def _latest_text(manifest: Manifest) -> bytes:
    return (json.dumps({"step": manifest.step, "save": manifest.save}) + "\n").encode()


def check_step(step: Any) -> int:
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 10**18:
        raise InvalidArgumentError(f"step={step!r}: expected a whole number from 0 on")
    return step
