"""Which pieces still have the bytes that were written. Those that do not lie row-major in this machine's
memory come through two buffers, as they do when they are written: never all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from headrace import _native
from headrace.checkpoint.copy_buffers import CopiedBytes, CopyBuffers, PieceBytes, size_of
from headrace.checkpoint.row_major import RowMajor

__all__ = ["Written", "find_unchanged"]

_BLOCK = _native.checkpoint_sum_block_bytes()
_SUM, _FINGERPRINT = 4, 16
_RUN_BLOCKS = 1024  # 16 MiB that are copied, and then compared, at once.


class Written(Protocol):
    """How a piece is known again."""

    @property
    def length(self) -> int: ...
    @property
    def sums(self) -> bytes: ...
    @property
    def fingerprints(self) -> bytes: ...


def find_unchanged(
    parts: Mapping[int, RowMajor], written: Mapping[int, Written], key: bytes, threads: int
) -> set[int]:
    """Numbers of the pieces of ``written`` whose ``parts`` have those bytes, by fingerprints under
    ``key``."""
    memories = {number: parts[number].memory() for number in written}
    here = [
        (number, each.address, written[number].length, 0)
        for number, each in memories.items()
        if each is not None
    ]
    comparing = _Comparing(written, key, threads)
    comparing.compare(here)
    elsewhere = {number: parts[number] for number, each in memories.items() if each is None}
    # What has changed all over, as parameters do that are trained, costs a block.
    first = [(number, 0, min(_BLOCK, written[number].length)) for number in elsewhere]
    _compare_copies(elsewhere, first, comparing)
    rest = [
        (number, _BLOCK, written[number].length)
        for number in elsewhere
        if number not in comparing.changed and written[number].length > _BLOCK
    ]
    _compare_copies(elsewhere, rest, comparing)
    return written.keys() - comparing.changed


class _Comparing:
    def __init__(self, written: Mapping[int, Written], key: bytes, threads: int) -> None:
        self._written, self._key, self._threads = written, key, threads
        self.changed: set[int] = set()

    def compare(self, copied: Sequence[CopiedBytes]) -> None:
        """Whole blocks of pieces."""
        rows = []
        for number, address, length, begin in copied:
            first, end = begin // _BLOCK, -(-(begin + length) // _BLOCK)
            each = self._written[number]
            sums = each.sums[_SUM * first : _SUM * end]
            rows.append((address, length, sums, each.fingerprints[_FINGERPRINT * first : _FINGERPRINT * end]))
        same = _native.checkpoint_find_unchanged(rows, self._key, self._threads)
        self.changed.update(row[0] for row, is_same in zip(copied, same, strict=True) if not is_same)


def _compare_copies(parts: Mapping[int, RowMajor], some: Sequence[PieceBytes], comparing: _Comparing) -> None:
    most = min(_RUN_BLOCKS * _BLOCK, size_of(some))
    runs = _runs(some, comparing.changed)
    buffers = CopyBuffers(most, parts)

    def begin() -> Callable[[], list[CopiedBytes]] | None:
        run = next(runs, None)
        return None if run is None else buffers.fill(run)

    coming = begin()
    while coming is not None:
        came, coming = coming, begin()  # A GPU copies while the CPU compares.
        comparing.compare(came())


def _runs(some: Sequence[PieceBytes], changed: set[int]) -> Iterator[list[PieceBytes]]:
    """All, in the same order, but for pieces that have changed by then; cut between blocks."""
    run: list[PieceBytes] = []
    blocks = _RUN_BLOCKS
    for number, at, end in some:
        while at < end and number not in changed:
            until = min(end, at + blocks * _BLOCK)
            run.append((number, at, until))
            blocks -= -(-(until - at) // _BLOCK)
            at = until
            if blocks == 0:
                yield run
                run, blocks = [], _RUN_BLOCKS
    if run:
        yield run
