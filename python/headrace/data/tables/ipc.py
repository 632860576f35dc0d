"""Arrow's IPC: files and streams."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from headrace.data.tables.arrow import arrow, pool
from headrace.data.tables.blocks import Part, Plan, Request, export
from headrace.data.tables.outputs import Output, all_outputs, answer


def describe(spec: dict[str, Any], head: memoryview, body: memoryview) -> str:
    pa = arrow()
    schema = pa.ipc.read_schema(pa.py_buffer(bytes(head)))
    outputs = [output._replace(leaves=()) for output in all_outputs(schema, schema, spec["columns"], {})]
    order = spec["order"]
    if sorted(order) == sorted(output.name for output in outputs):
        outputs.sort(key=lambda output: order.index(output.name))
    likes = {column["name"]: column for column in spec["likes"]}
    outputs = [
        _alike(output, likes[output.name]) if output.is_unknown and output.name in likes else output
        for output in outputs
    ]
    return answer(outputs, unknown=[output.name for output in outputs if output.is_unknown])


def _alike(output: Output, like: dict[str, Any]) -> Output:
    """A column without values, delivered as the other parts of the table have it: null fits all, empty lists
    fit lists."""
    known = output._replace(
        encoding=like["encoding"],
        dtype=like["dtype"],
        shape=tuple(like["shape"]),
        size=like["size"],
        is_unknown=False,
    )
    if output.how == "plain" or like["encoding"] == "json":
        return known
    prefix, _, dtype = like["encoding"].partition(":")
    return known._replace(how=f"list of {dtype}") if prefix in ("list", "nullable_list") else output


def unpack(request: Request) -> Iterable[Part]:
    pa = arrow()
    head, body = request.head, request.body
    # Record batches are views of the bytes they are read from, and a reader wants schema and batches in one
    # piece: a copy, in Arrow's memory.
    copy = pa.allocate_buffer(len(head) + len(body), memory_pool=pool())
    target = memoryview(copy).cast("B")
    target[: len(head)] = head
    target[len(head) :] = body
    target.release()
    options = pa.ipc.IpcReadOptions(
        use_threads=False, included_fields=_included_fields(request.plan, bytes(head))
    )
    with pa.ipc.open_stream(pa.BufferReader(copy), options=options, memory_pool=pool()) as stream:
        for batch in stream:
            yield from export(pa.Table.from_batches([batch]), request.plan.columns, 0, has_own_offsets=True)


@functools.lru_cache(maxsize=256)
def _included(names: tuple[str, ...], schema: bytes) -> list[int]:
    pa = arrow()
    return [i for i, name in enumerate(pa.ipc.read_schema(pa.py_buffer(schema)).names) if name in names]


def _included_fields(plan: Plan, schema: bytes) -> list[int]:
    return _included(tuple(column.path[0] for column in plan.columns), schema)
