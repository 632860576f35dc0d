"""Tables: what pyarrow and lance do for the engine. Called by the engine (src/bindings/table.cc), never by
users.

``describe`` answers while an index is built; ``unpack`` turns the bytes of one block into Arrow columns. The
engine fetched those bytes; pyarrow opens no file here. docs/formats.md, "Tables", says which type becomes
which column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from headrace.data.tables import ipc, lance, parquet
from headrace.data.tables.arrow import guarded
from headrace.data.tables.blocks import Part, Request, plan_of
from headrace.data.tables.pruning import prune

_KINDS = {"parquet": parquet, "ipc": ipc, "lance": lance}


@guarded
def describe(kind: str, spec: str, head: memoryview, body: memoryview) -> str:
    """What a table is, as JSON (src/shard/formats/table/table_plan.h)."""
    if kind == "prune":
        return prune(spec, head)
    answer: str = _KINDS[kind].describe(json.loads(spec), head, body)
    return answer


class Batches:
    """What ``unpack`` gives, piece by piece."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts: Iterator[Part] | None = iter(parts)

    @guarded
    def next(self) -> Part | None:
        """The next rows of some columns; None after the last. Columns come in order, each with all its
        rows."""
        return next(self._parts, None) if self._parts is not None else None

    def close(self) -> None:
        """Lets go of what the engine lent."""
        self._parts = None


@guarded
def unpack(
    kind: str, spec: bytes, head: memoryview, body: memoryview, unpacked_bytes: int, most_rows: int
) -> Batches:
    """The columns of a block. ``head`` and ``body`` are the engine's until ``close``, and so is what comes of
    them."""
    request = Request(plan_of(spec), head, body, unpacked_bytes, most_rows)
    return Batches(_KINDS[kind].unpack(request))
