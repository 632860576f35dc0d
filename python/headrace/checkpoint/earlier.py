"""Pieces of a checkpoint that lie in files of earlier saves: proved by the sums, or the tags, in
its own indexes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np

from headrace.checkpoint.manifest import DataFile, Index, Piece
from headrace.checkpoint.place import Place
from headrace.errors import CorruptError, NotFoundError

__all__ = ["verify_earlier"]

_RUN_BYTES = 1 << 20
_RUNS_AT_ONCE = 16


def verify_earlier(place: Place, file: DataFile, index: Index, note: Callable[[int], None]) -> None:
    """Reads what the index of a data file has in earlier ones, and proves it. ``note`` is told
    bytes that were read. Raises CorruptError, also where an earlier file is missing."""
    runs: dict[str, list[tuple[Piece, int]]] = defaultdict(list)
    for piece in index.pieces():
        if piece.file != 0:
            runs[file.key_of(piece)] += [(piece, at) for at in range(0, piece.length, _RUN_BYTES)]
    memory = np.empty((_RUNS_AT_ONCE, _RUN_BYTES), np.uint8)
    for key, all_runs in runs.items():
        for first in range(0, len(all_runs), _RUNS_AT_ONCE):
            some = all_runs[first : first + _RUNS_AT_ONCE]
            counts = [min(_RUN_BYTES, piece.length - at) for piece, at in some]
            rows = [
                (piece.offset, piece.length, piece.proofs, 1, (piece.length,), (at,), (count,), to, (1,))
                for (piece, at), count, to in zip(
                    some, counts, (part.ctypes.data for part in memory), strict=False
                )
            ]
            try:
                place.read(key, rows)
            except NotFoundError as error:
                raise CorruptError(
                    f"{place.url}/{key}: is missing, though {file.index_key} refers to it"
                ) from error
            note(sum(_stored(piece, at, count) for (piece, at), count in zip(some, counts, strict=True)))


def _stored(piece: Piece, at: int, count: int) -> int:
    begin, end = piece.stored_between(at, at + count)
    return end - begin
