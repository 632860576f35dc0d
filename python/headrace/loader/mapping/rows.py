"""The samples of a batch, one by one, and a batch of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.data.batch import Batch
from headrace.errors import InvalidArgumentError
from headrace.loader.mapping.stack import Allocate, stack

__all__ = ["About", "assemble", "make_batch", "split"]


class About(NamedTuple):
    """What a batch says of its rows. The arrays may be written to."""

    ids: Any
    """int64[rows]."""
    mask: Any
    """bool[rows]."""
    replaced: dict[int, int]
    epoch: int
    number: int
    """Of the global batch in its epoch: ``batch.index``."""

    @classmethod
    def of(cls, batch: Batch) -> About:
        return cls(batch.ids, batch.mask, batch.replaced, batch.epoch, batch.index)

    def only(self, rows: Sequence[int]) -> About:
        """Of some of the rows, in their order."""
        numbers = {row: number for number, row in enumerate(rows)}
        replaced = {numbers[row]: planned for row, planned in self.replaced.items() if row in numbers}
        chosen = list(rows)
        return self._replace(ids=self.ids[chosen], mask=self.mask[chosen], replaced=replaced)


def make_batch(kind: type[Batch], columns: Mapping[str, Any], about: About) -> Batch:
    batch = kind(columns)
    batch.ids, batch.mask, batch.replaced, batch.epoch, batch.index = about
    return batch


def _values(column: Any) -> Sequence[Any]:
    """Values of a column, one a row. What a row becomes does not depend on the others of its batch: None
    where it is missing, else a number of numpy's, an array over the same memory, or a list where some of its
    numbers are missing."""
    if isinstance(column, np.ndarray):
        return list(column)
    if hasattr(column, "to_pylist"):
        return _values_of_arrow(column)
    if type(column) is list and type(next((value for value in column if value is not None), None)) is bool:
        return [np.bool_(value) if type(value) is bool else value for value in column]
    return column  # type: ignore[no-any-return]


def _values_of_arrow(column: Any) -> list[Any]:
    import pyarrow as pa  # type: ignore[import-untyped]

    def holds_numbers(kind: Any) -> bool:
        return any(of(kind) for of in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean))

    items = getattr(column.type, "value_type", None) if hasattr(column, "offsets") else None
    if items is not None and holds_numbers(items):
        return [_numbers_of_row(row.values) for row in column]
    if not holds_numbers(column.type):
        values: list[Any] = column.to_pylist()
        return values
    # to_numpy() of what has nulls rounds: the numbers without the bits that say which are missing.
    whole = pa.Array.from_buffers(column.type, len(column), [None, column.buffers()[1]], offset=column.offset)
    rows = zip(whole.to_numpy(zero_copy_only=False), column.is_valid().to_pylist(), strict=True)
    return [value if is_there else None for value, is_there in rows]


def _numbers_of_row(values: Any) -> Any:
    """Of a list array; None: the row is missing."""
    if values is None:
        return None
    return values.to_pylist() if values.null_count else values.to_numpy(zero_copy_only=False)


def split(batch: Any, count: int) -> list[dict[str, Any]]:
    """The samples of a batch as dicts by column.

    Raises InvalidArgumentError for what has no columns of ``count`` values.
    """
    if not isinstance(batch, Mapping):
        raise InvalidArgumentError(
            f"a function of samples cannot follow one that made {type(batch).__name__} of a batch: it wants "
            "columns by name"
        )
    if not batch:
        raise InvalidArgumentError(
            "a function of samples cannot follow one that made a batch without columns"
        )
    columns = [_values(column) for column in batch.values()]
    for name, column in zip(batch, columns, strict=True):
        if not hasattr(column, "__len__") or len(column) != count:
            raise InvalidArgumentError(
                f"column {name!r} has no value for each of the batch's {count} samples"
            )
    names = list(batch)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _columns(samples: list[Any], about: About, allocate: Allocate) -> dict[str, Any]:
    names = samples[0].keys()
    for row, sample in enumerate(samples):
        if sample.keys() != names:
            raise InvalidArgumentError(
                f"samples {about.ids[0]} and {about.ids[row]} of one batch have different columns: "
                f"{', '.join(map(repr, names))} and {', '.join(map(repr, sample.keys()))}"
            )
    return {name: stack([sample[name] for sample in samples], allocate) for name in names}


def assemble(samples: list[Any], about: About, kind: type[Batch], allocate: Allocate) -> Any:
    """A batch of dicts; of samples that are tuples a tuple of columns, of others one column."""
    first = samples[0]
    if all(isinstance(sample, Mapping) for sample in samples):
        return make_batch(kind, _columns(samples, about, allocate), about)
    if type(first) is tuple and all(type(s) is tuple and len(s) == len(first) for s in samples):
        return tuple(stack(list(column), allocate) for column in zip(*samples, strict=True))
    return stack(samples, allocate)
