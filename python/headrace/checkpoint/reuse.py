"""Pieces that lie in the data files of an earlier save already, and need not be written again.

A piece is known again by its bytes: each block of 16 KiB has the CRC32C that it was written with, and the
same fingerprint (GMAC) under a secret key of this process. So what is taken for unchanged is unchanged, also
where somebody wants it to look so. Fingerprints do not outlive the process: the first save of a job writes
everything.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.checkpoint.arrays import Chunk, width_of
from headrace.checkpoint.comparing import find_unchanged
from headrace.checkpoint.keys import save_of, step_key
from headrace.checkpoint.row_major import RowMajor
from headrace.errors import NotFoundError, UnavailableError
from headrace.store.store import Store

__all__ = ["Base", "Comparison", "Known", "OwnFile", "PieceName", "Reuse", "choose"]

_LEAST_NEEDED = 4
_MOST_FILES = 32

PieceName = tuple[str, str, Chunk]
"""Array, dtype and box."""


class OwnFile(NamedTuple):
    """A data file that this rank wrote."""

    key: str
    size: int
    crc32c: int
    data_bytes: int
    """Of its pieces."""


class Known(NamedTuple):
    """A piece that was written, and how it is known again."""

    file: OwnFile
    offset: int
    length: int
    sums: bytes
    fingerprints: bytes
    values: tuple[int, bool]
    """See CheckpointWriter.finish()."""
    tags: bytes = b""
    """Of an encrypted file: see Piece."""
    stored: bytes = b""
    """Of a compressed file: see Piece."""


class Base(NamedTuple):
    """The checkpoint that a save builds upon: committed by this job."""

    step: int
    save: str
    version: str
    """ETag of its manifest; known on rank 0 alone."""
    pieces: Mapping[PieceName, Known]
    """Of this rank, wherever they lie."""

    def check(self, store: Store) -> None:
        """Raises UnavailableError where it has been deleted or replaced: the files may be gone then. As long
        as it is there after another manifest that refers to them, they stay: who deletes it looks then for
        manifests that do."""
        try:
            if store.head(step_key(self.step)).etag == self.version:
                return
        except NotFoundError:
            pass
        raise UnavailableError(
            f"{store.url}: the checkpoint of step {self.step}, whose unchanged pieces were not written "
            "again, has been deleted or replaced meanwhile; save once more, which writes everything"
        )


class Reuse:
    """What one rank knows of the checkpoint that this job committed last. Threads: any."""

    def __init__(self) -> None:
        self.fingerprint_key = secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._base: Base | None = None
        self._held: list[Base] = []
        self._replaced: list[int] = []

    def begin_replacing(self, step: int) -> None:
        """A save is under way that replaces it: until end_replacing() none that begins builds upon it."""
        with self._lock:
            self._replaced.append(step)

    def end_replacing(self, step: int) -> None:
        with self._lock:
            self._replaced.remove(step)

    def hold(self, step: int) -> Base | None:
        """What a save of ``step`` may build upon, until release(): not what it would replace."""
        with self._lock:
            base = self._base
            if base is None or base.step == step or base.step in self._replaced:
                return None
            self._held.append(base)
            return base

    def release(self, base: Base | None) -> None:
        with self._lock:
            if base is not None:
                self._held.remove(base)

    def held(self) -> set[int]:
        """Steps that saves under way and the next one build upon."""
        with self._lock:
            return {base.step for base in (self._base, *self._held) if base is not None}

    def renew(self, base: Base | None) -> None:
        """None: the next save writes everything."""
        with self._lock:
            self._base = base

    def forget(self, step: int) -> None:
        """That checkpoint goes."""
        with self._lock:
            if self._base is not None and self._base.step == step:
                self._base = None


class Comparison(NamedTuple):
    """What one save compares its pieces with, by fingerprints under a key."""

    key: bytes
    known: Mapping[PieceName, Known]

    def find(self, names: Sequence[PieceName], parts: Sequence[RowMajor], threads: int) -> dict[int, Known]:
        """Pieces that are not to be written, by number."""
        found = {
            number: self.known[name]
            for number, name in enumerate(names)
            if name in self.known and self.known[name].length > 0
        }
        same = find_unchanged({number: parts[number] for number in found}, found, self.key, threads)
        unchanged = {number: each for number, each in found.items() if number in same}
        return choose(unchanged, sum(math.prod(box.sizes) * width_of(dtype) for _, dtype, box in names))


def choose(unchanged: Mapping[int, Known], total: int) -> dict[int, Known]:
    """Of unchanged pieces those that are not written again. Earlier files are given up, the least needed
    first, of which less than a quarter is needed, or while a checkpoint needs files of more than twice its
    bytes (``total``) or too many: else a few pieces would keep for ever what nobody needs."""
    needed: dict[OwnFile, int] = defaultdict(int)
    for known in unchanged.values():
        needed[known.file] += known.length
    files = sorted(needed, key=lambda file: (needed[file] / file.data_bytes, save_of(file.key)))
    while files:
        worst = files[0]
        written = total - sum(needed[file] for file in files)
        held = written + sum(file.data_bytes for file in files)
        if (
            _LEAST_NEEDED * needed[worst] >= worst.data_bytes
            and held <= 2 * total
            and len(files) <= _MOST_FILES
        ):
            break
        files = files[1:]
    kept = set(files)
    return {number: known for number, known in unchanged.items() if known.file in kept}
