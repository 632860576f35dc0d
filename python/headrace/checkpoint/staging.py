"""Copies pieces into the parts of a data file. What does not lie row-major in this machine's memory (other
strides, other devices) comes through two buffers, some parts of the file at a time: never all of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace import _native
from headrace.checkpoint.copy_buffers import CopyBuffers, PieceBytes, size_of
from headrace.checkpoint.row_major import RowMajor

__all__ = ["stage"]


class _Run(NamedTuple):
    """Parts of the file that are staged together, and which bytes of which pieces are copied before."""

    first_part: int
    end_part: int
    copied: list[PieceBytes]


def stage(
    writer: _native.CheckpointWriter,
    places: Sequence[tuple[int, int]],
    parts: Sequence[RowMajor],
    threads: int,
) -> None:
    """``places``: (offset in the file, length) of each piece; ``threads`` copy at a time."""
    memories = [part.memory() for part in parts]
    rows = [(n, each.address, places[n][1], 0) for n, each in enumerate(memories) if each is not None]
    copied = [
        n for n, (each, place) in enumerate(zip(memories, places, strict=True)) if not each and place[1]
    ]
    copied.sort(key=places.__getitem__)
    runs = list(_runs(writer, places, copied, max(1, threads)))
    buffers = CopyBuffers(max(size_of(run.copied) for run in runs), {n: parts[n] for n in copied})
    coming = buffers.fill(runs[0].copied)
    for run, following in itertools.zip_longest(runs, runs[1:]):
        came = coming
        if following is not None:  # A GPU copies while the CPU does.
            coming = buffers.fill(following.copied)
        writer.stage(rows + came(), run.first_part, run.end_part)
        rows = []  # They stay.


def _runs(
    writer: _native.CheckpointWriter, places: Sequence[tuple[int, int]], copied: Sequence[int], most: int
) -> Iterator[_Run]:
    """At most ``most`` parts of which something is copied; of others, all that follow one another."""
    size, first, at = writer.part_bytes, 0, 0
    some: list[PieceBytes] = []
    for part in range(writer.part_count):
        begin, end = part * size, (part + 1) * size
        here = []
        while at < len(copied) and places[copied[at]][0] < end:
            offset, length = places[copied[at]]
            here.append((copied[at], max(begin, offset) - offset, min(end, offset + length) - offset))
            if offset + length > end:
                break
            at += 1
        if part > first and (bool(here) != bool(some) or (some and part - first == most)):
            yield _Run(first, part, some)
            first, some = part, []
        if some and here and some[-1][0] == here[0][0]:  # Its bytes in one piece.
            here[0] = (here[0][0], some.pop()[1], here[0][2])
        some += here
    yield _Run(first, writer.part_count, some)
