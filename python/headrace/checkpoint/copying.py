"""Copies a checkpoint to another store."""

from __future__ import annotations

from typing import NamedTuple

from headrace import _native
from headrace.checkpoint.keys import SaveId
from headrace.checkpoint.loading import verify
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.place import Place
from headrace.errors import (
    ChangedError,
    CorruptError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)

__all__ = ["Broken", "Copying", "Left", "left_behind"]

_COPIES = 10**18 - 1
"""Stands for a job's number in the ids of copies: above all of them, so that no job that begins at the target
takes what is being copied for left by an older one."""


class Left(NamedTuple):
    """A checkpoint that lies on a local disk and not at its URL."""

    manifest: Manifest
    missing: list[str]
    """Files of it that are not on the disk either."""
    replaces: bool
    """The URL has an earlier one of the same step."""
    keeps_order: bool
    """See :class:`Copying`."""


class Broken(NamedTuple):
    """A step on a local disk that stays there."""

    step: int
    why: str


def left_behind(near: Place, far: Place) -> list[Left | Broken]:
    """Oldest first; what cannot be read, or told, last."""
    there = set(far.steps())
    found: list[Left] = []
    broken: list[Broken] = []
    here: list[Manifest] = []
    for step in near.steps():
        try:
            here.append(near.manifest(step))
        except NotFoundError:
            continue  # It went meanwhile.
        except (CorruptError, UnsupportedError) as error:
            broken.append(Broken(step, f"its manifest on the disk: {error}"))
    is_of_url = _is_disk_of_jobs(near)
    for manifest in sorted(here, key=lambda manifest: manifest.order):
        is_there = manifest.step in there
        if is_there:
            try:
                if not (manifest if is_of_url else manifest._replace(job=0)).replaces(
                    far.manifest(manifest.step)
                ):
                    continue
                if not manifest.overwrites:
                    why = "the URL has another save of it, which it was not to replace (overwrite=True)"
                    broken.append(Broken(manifest.step, why))
                    continue
            except NotFoundError:
                is_there = False
            except (CorruptError, UnsupportedError) as error:
                broken.append(Broken(manifest.step, str(error)))
                continue
        missing = [key for key in manifest.data_keys if not near.store.exists(key)]
        found.append(Left(manifest, missing, is_there, is_of_url))
    return [*found, *broken]


def _is_disk_of_jobs(near: Place) -> bool:
    """Whether it is what ``local=`` names, where jobs have the numbers that they have at their URL; and not a
    place with jobs of its own."""
    return near.highest_fence() == 0


class Copying:
    """One copy. A checkpoint is there when :meth:`run` returns, and not before; a run that was stopped goes
    on where it stood.

    :param replaces: another checkpoint of the step at the target gives way, once this one is proved.
    :param keeps_order: the job that saved it has its number at the target.

    Threads: :attr:`done` from any.
    """

    def __init__(
        self,
        source: Place,
        manifest: Manifest,
        target: Place,
        *,
        replaces: bool = False,
        keeps_order: bool = False,
    ) -> None:
        parsed = SaveId.parse(manifest.save)
        if parsed is None:
            raise CorruptError(f"{source.url}: step {manifest.step} names no save: {manifest.save!r}")
        if (source.key and source.key.id) != (target.key and target.key.id):
            raise InvalidArgumentError(
                f"{target.url}: a copy is encrypted under the key of what is copied: give both the same"
            )
        self._source, self._target, self._replaces = source, target, replaces
        self._from = manifest
        save = parsed._replace(fence=_COPIES, is_shared=False)
        renamed = manifest.renamed(str(save))
        self.manifest = renamed if keeps_order else renamed._replace(job=0, number=0)
        """What is there then."""
        self.was_there = False
        self._copied = 0
        self._before: float | None = None

    @property
    def total(self) -> int:
        """Bytes to write, and to read back."""
        return self._to_copy + self._from.size

    @property
    def _to_copy(self) -> int:
        """Earlier files come whole, though not all of them is needed."""
        return self._from.written + sum(each.size for each in self._from.earlier)

    @property
    def done(self) -> int:
        if self._before is None:
            return self._copied
        return self._copied + int(self._target.store.stats()["store.received_bytes"] - self._before)

    def run(self) -> None:
        """Data and indexes, which are then read back and compared with their sums; the manifest last. Raises
        ChangedError where the target has another checkpoint of the step, CorruptError where what arrived is
        not what was saved: it is deleted again."""
        self.was_there = self._is_there()
        if not self.was_there:
            self._copy_files()
        self._copied = self._to_copy
        self._before = self._target.store.stats()["store.received_bytes"]
        try:
            self._prove()
        except CorruptError as error:
            if not self.was_there:
                self._target.delete_save(self.manifest.save)
            raise CorruptError(
                f"{error}; headrace ckpt verify {self._source.url} {self.manifest.step} tells whether it was "
                "so at the source"
            ) from None
        if not self.was_there:
            with self._target.replacing(self.manifest, self._replaces):
                self._target.commit(self.manifest, overwrite=self._replaces)
            latest = self._target.latest()
            if latest is None or latest < self.manifest.step:
                self._target.set_latest(self.manifest)

    def _is_there(self) -> bool:
        try:
            there = self._target.manifest(self.manifest.step)
        except NotFoundError:
            return False
        if there.save in (self.manifest.save, self._from.save):
            self.manifest = there
            return True
        if self._replaces:
            return False
        raise ChangedError(
            f"{self._target.url}: has another checkpoint of step {there.step} (save {there.save}, "
            f"{there.created})"
        )

    def _copy_files(self) -> None:
        pairs = [
            pair
            for old, new in zip(self._from.files, self.manifest.files, strict=True)
            for pair in (
                (old.key, new.key),
                (old.index_key, new.index_key),
                *((one.key, other.key) for one, other in zip(old.earlier, new.earlier, strict=True)),
            )
        ]
        tasks = [(source, target, False, 0, "") for source, target in pairs]
        # What an earlier run has copied is left as it is: it is proved like the rest.
        options = {"rule": "size", "fsync": True}
        job = _native.CopyJob(self._source.native, self._target.native, tasks, options)
        job.run(lambda: self._note(job))
        for key, _, message in job.failures():
            raise HeadraceError(message if key in message else f"{key}: {message}")

    def _note(self, job: _native.CopyJob) -> None:
        self._copied = job.progress()["done_bytes"]

    def _prove(self) -> None:
        verify(self._target, self.manifest)
