"""Parquet."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterable
from typing import Any

from headrace.data import unischema
from headrace.data.tables.arrow import arrow, pool
from headrace.data.tables.blocks import BATCH_BYTES, Part, Plan, Request, export
from headrace.data.tables.outputs import all_outputs, answer


def describe(spec: dict[str, Any], head: memoryview, body: memoryview) -> str:
    pa = arrow()
    schema, declared = (pa.parquet.read_schema(pa.BufferReader(bytes(part))) for part in (head, body))
    metadata = dict(declared.metadata or {})
    if spec["common"]:
        common = pa.parquet.read_schema(pa.BufferReader(bytes.fromhex(spec["common"])))
        metadata = {**(common.metadata or {}), **metadata}
    codecs = unischema.read_codecs(metadata.get(unischema.KEY))
    return answer(all_outputs(schema, declared, spec["columns"], codecs))


_TOGETHER_BYTES = 4 << 20
"""Columns of Parquet are unpacked together while their chunks have no more than this."""


def _column_groups(plan: Plan, sizes: dict[int, int]) -> Iterable[tuple[int, int, int]]:
    """(begin, end, stored bytes once inflated) of columns that are unpacked together. ``sizes``: of
    leaves."""
    begin, total = 0, 0
    for i, column in enumerate(plan.columns):
        size = sum(sizes[leaf] for leaf in column.leaves)
        if i > begin and total + size > _TOGETHER_BYTES:
            yield begin, i, total
            begin, total = i, 0
        total += size
    yield begin, len(plan.columns), total


@functools.cache
def _reader_options() -> dict[str, bool]:
    options = {"pre_buffer": False, "page_checksum_verification": True}
    # As pyarrow.parquet.read_schema() has it, which describe() asks; pyarrow before 21 knows no other way.
    if "arrow_extensions_enabled" in inspect.signature(arrow().parquet.ParquetFile.__init__).parameters:
        options["arrow_extensions_enabled"] = True
    return options


def unpack(request: Request) -> Iterable[Part]:
    pa = arrow()
    plan = request.plan
    metadata = pa.parquet.read_metadata(pa.BufferReader(pa.py_buffer(request.head)))
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    sizes = {
        leaf: sum(group.column(leaf).total_uncompressed_size for group in groups) for leaf in plan.leaves
    }
    reader = importlib.import_module("pyarrow._parquet").ParquetReader(memory_pool=pool())
    reader.open(pa.BufferReader(pa.py_buffer(request.body)), metadata=metadata, **_reader_options())
    for begin, end, size in _column_groups(plan, sizes):
        columns = plan.columns[begin:end]
        leaves = sorted({leaf for column in columns for leaf in column.leaves})
        unpacked = max(size, request.unpacked_bytes * size // max(1, sum(sizes.values())), 1)
        rows = max(1, min(request.most_rows, BATCH_BYTES * metadata.num_rows // unpacked))
        for batch in reader.iter_batches(
            rows, row_groups=range(len(groups)), column_indices=leaves, use_threads=False
        ):
            yield from export(pa.Table.from_batches([batch]), columns, begin)
