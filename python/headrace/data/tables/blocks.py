"""What the engine asks of a block, and the columns that it gets."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace.data.tables.arrow import arrow
from headrace.data.tables.values import is_cut_by_engine, prepared, unwrap


class Column(NamedTuple):
    path: tuple[str, ...]
    how: str
    leaves: tuple[int, ...]


class Plan(NamedTuple):
    leaves: list[int]
    columns: list[Column]
    spec: dict[str, Any]


@functools.lru_cache(maxsize=256)
def plan_of(spec: bytes) -> Plan:
    fields = json.loads(spec)
    # Indexes made before 2026-11-22 do not say which leaves are whose.
    columns = [
        Column(tuple(path), how, tuple(leaves[0] if leaves else fields["leaves"]))
        for path, how, *leaves in fields["columns"]
    ]
    return Plan(fields["leaves"], columns, fields)


class Request(NamedTuple):
    """One call of ``unpack``."""

    plan: Plan
    head: memoryview
    body: memoryview
    unpacked_bytes: int
    """About what all columns take."""
    most_rows: int


Part = tuple[int, Any, Any]
"""First column, capsules of schema and array (Arrow C data interface)."""


BATCH_BYTES = 1 << 20
"""Unpacked bytes of a batch: pyarrow needs up to eight times as much while it unpacks nested lists, and is
quickest with batches that fit in caches."""


def export(
    table: Any, columns: Sequence[Column], first: int, has_own_offsets: bool = False
) -> Iterable[Part]:
    """The columns, of which ``first`` is the first, ready to cut. ``has_own_offsets``: those of the file,
    which may lead anywhere."""
    pa = arrow()
    table.validate()
    ready = []
    for path, how, _ in columns:
        column = unwrap(table.column(path[0]))
        for name in path[1:]:
            column = unwrap(pa.compute.struct_field(column, name))
        if has_own_offsets and not is_cut_by_engine(column.type, how):
            column.validate(full=True)
        ready.append(prepared(column, how))
    for batch in pa.table(ready, names=[str(i) for i in range(len(ready))]).to_batches():
        yield (first, *batch.__arrow_c_array__())
