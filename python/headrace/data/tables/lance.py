"""Lance tables, which lance reads by itself."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from typing import Any

from headrace.base.packages import missing_package
from headrace.data.tables.arrow import arrow
from headrace.data.tables.blocks import BATCH_BYTES, Part, Request, export
from headrace.data.tables.outputs import all_outputs, answer


@functools.cache
def _lance() -> Any:
    try:
        return importlib.import_module("lance")
    except ImportError as error:
        raise missing_package("Lance tables need", "lance", error, "pylance") from None


@functools.lru_cache(maxsize=16)
def _open(url: str, version: int | None) -> Any:
    return _lance().dataset(url, version=version)


_SAMPLED_ROWS = 64


def describe(spec: dict[str, Any], head: memoryview, body: memoryview) -> str:
    # Another table may be in its place now, whose versions have the same numbers.
    _open.cache_clear()
    url = spec["url"].removeprefix("file://")
    table = _lance().dataset(url)
    outputs = [
        output._replace(leaves=()) for output in all_outputs(table.schema, table.schema, spec["columns"], {})
    ]
    names = list(dict.fromkeys(output.path[0] for output in outputs))
    sample = table.head(_SAMPLED_ROWS, columns=names)
    return answer(
        outputs,
        spec={"url": url, "version": table.version, "names": names},
        version=table.version,
        row_bytes=max(1, sample.nbytes // max(1, sample.num_rows)),
        fragments=[fragment.count_rows() for fragment in table.get_fragments()],
    )


_READ_BYTES = 8 << 20
"""What lance reads ahead."""


def unpack(request: Request) -> Iterable[Part]:
    first, count = (int.from_bytes(request.head[at : at + 8], "little") for at in (0, 8))
    plan = request.plan
    table = _open(plan.spec["url"], plan.spec["version"])
    rows = max(1, min(count, BATCH_BYTES * count // max(1, request.unpacked_bytes)))
    scanner = table.scanner(
        columns=plan.spec["names"],
        offset=first,
        limit=count,
        batch_size=rows,
        batch_readahead=1,
        fragment_readahead=1,
        io_buffer_size=_READ_BYTES,
    )
    for batch in scanner.to_batches():
        yield from export(arrow().Table.from_batches([batch]), plan.columns, 0)
