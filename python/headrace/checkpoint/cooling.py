"""Moves the data files of older checkpoints to colder storage classes.

A file is moved by one request, or one upload that is completed by one: before it the old version is there,
behind it the new one, with the same bytes. So whoever is killed between any two steps leaves a checkpoint of
which some files are cold already, and the next job goes on with the others. Manifests and indexes stay where
they are: they are little, and are wanted by every listing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from headrace import _native
from headrace.checkpoint.cold import Cold, rule_of_each
from headrace.checkpoint.keys import save_of, step_of
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.place import Place
from headrace.checkpoint.retention import Kept
from headrace.errors import CorruptError, NotFoundError, UnsupportedError

__all__ = ["Cooling"]

_AT_ONCE = 8


class _File(NamedTuple):
    """A data file."""

    key: str
    size: int
    crc32c: int


class _Known(NamedTuple):
    """What a manifest of a version names."""

    etag: str
    files: Sequence[_File]


class Cooling:
    """Of one run's checkpoints.

    :param rules: as check_rules() gives them. Raises UnsupportedError where the store has no classes.

    Threads: one at a time.
    """

    def __init__(self, place: Place, rules: Sequence[Cold]) -> None:
        self._place, self._rules = place, rules
        for rule in rules:
            place.native.check_settings({"storage_class": rule.storage_class})
        self._known: dict[int, _Known] = {}  # By step.
        self._moved: dict[str, int] = {}  # By key: the number of the rule by whose class it lies there.

    def run(self, about: Mapping[int, Kept], stay: Set[int | None]) -> int:
        """Moves what the rules want, and gives the number of files that it has moved. A file that several
        checkpoints need goes by the warmest of them.

        :param about: of the checkpoints that there are; what is not in it stays where it is.
        :param stay: steps that never move: pinned, or needed by what is being saved.

        Raises CorruptError where a manifest cannot be read, since it may need any file, or where the store
        has other bytes behind a move.
        """
        self._look()
        wanted = rule_of_each(self._rules, about, stay)
        rules: dict[_File, int] = {}
        for step, known in self._known.items():
            for file in known.files:
                rules[file] = min(rules.get(file, len(self._rules)), wanted.get(step, 0))
        due: dict[str, list[_File]] = defaultdict(list)
        for file, number in rules.items():
            if number > self._moved.get(file.key, 0):
                due[save_of(file.key)].append(file)
        return sum(self._move_save(save, files, rules) for save, files in sorted(due.items()))

    def _look(self) -> None:
        """Reads the manifests that were not read before."""
        there: dict[int, _Known] = {}
        for info in list(self._place.objects("steps/")):
            step = step_of(info.key)
            if step is None:
                continue
            known = self._known.get(step)
            try:
                if known is None or known.etag != info.etag:
                    known = _Known(info.etag, _files_of(self._place.manifest(step)))
            except NotFoundError:
                continue  # Deleted meanwhile.
            there[step] = known
        self._known = there
        keys = {file.key for known in there.values() for file in known.files}
        self._moved = {key: number for key, number in self._moved.items() if key in keys}

    def _move_save(self, save: str, files: Sequence[_File], rules: Mapping[_File, int]) -> int:
        present = {info.key: info for info in self._place.objects(f"saves/{save}/")}
        self._abort_uploads(save, {file.key for file in files})
        with ThreadPoolExecutor(_AT_ONCE, "headrace-checkpoint-cool") as pool:
            moved = list(pool.map(lambda file: self._move(file, rules[file], present.get(file.key)), files))
        if any(moved):
            self._delete_if_gone(save)
        return sum(moved)

    def _abort_uploads(self, save: str, keys: Set[str]) -> None:
        """Files of a checkpoint are whole: an upload of one is a copy that somebody was killed at."""
        for key, upload, _ in self._place.uploads(f"saves/{save}/"):
            if key in keys:
                self._place.native.abort_upload(key, upload)

    def _move(self, file: _File, number: int, before: _native.ObjectInfo | None) -> bool:
        """Whether it was moved, and not there already, or deleted meanwhile."""
        if before is None:
            return False
        is_cold = self._is_cold(before.storage_class or "", number)
        if not is_cold:
            try:
                self._copy(file, self._rules[number - 1].storage_class, before.etag)
            except NotFoundError:
                return False
        self._moved[file.key] = number
        return not is_cold

    def _copy(self, file: _File, storage_class: str, etag: str) -> None:
        native = self._place.native
        after = native.set_storage_class(file.key, storage_class)
        if after.size != file.size:
            raise CorruptError(
                f"{self._place.url}/{file.key}: has {after.size} bytes since it was moved to "
                f"{storage_class}, and had {file.size}"
            )
        kept = after.storage_class or "STANDARD"  # S3 does not name that.
        if kept.casefold() != storage_class.casefold():
            raise UnsupportedError(
                f"{self._place.url}/{file.key}: was to move to {storage_class}, and the store has left it in "
                f"{kept}"
            )
        if after.etag != etag:  # Else nothing was copied.
            _native.checkpoint_prove_file(native, file.key, file.size, file.crc32c)

    def _is_cold(self, storage_class: str, number: int) -> bool:
        """Whether a class is that of a rule, or of a later one."""
        classes = [rule.storage_class.casefold() for rule in self._rules[number - 1 :]]
        return storage_class.casefold() in classes

    def _delete_if_gone(self, save: str) -> None:
        """A file that was deleted while it was copied onto itself may have come back."""
        named = [
            step for step, known in self._known.items() if any(save_of(f.key) == save for f in known.files)
        ]
        there = {step_of(info.key): info.etag for info in self._place.objects("steps/")}
        if all(there.get(step) == self._known[step].etag for step in named):
            return
        needs = self._place.needs()
        if not needs.broken and save not in needs.saves:
            self._place.delete_save(save, needs.keys)


def _files_of(manifest: Manifest) -> Sequence[_File]:
    own = [_File(file.key, file.size, file.crc32c) for file in manifest.files]
    return own + [_File(each.key, each.size, each.crc32c) for each in manifest.earlier]
