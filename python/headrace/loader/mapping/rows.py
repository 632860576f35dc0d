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
    """Values of a column, one a row. Lists of numbers in Arrow become arrays over the same memory."""
    if isinstance(column, np.ndarray):
        return list(column)
    if hasattr(column, "to_pylist"):
        if hasattr(column, "flatten") and hasattr(column, "offsets") and not column.null_count:
            return [value.values.to_numpy(zero_copy_only=False) for value in column]
        values: list[Any] = column.to_pylist()
        return values
    return column  # type: ignore[no-any-return]


def split(batch: Any, count: int) -> list[dict[str, Any]]:
    """The samples of a batch as dicts by column.

    Raises InvalidArgumentError for what has no columns of ``count`` values.
    """
    if not isinstance(batch, Mapping):
        raise InvalidArgumentError(
            f"a function of samples cannot follow one that made {type(batch).__name__} of a batch: it wants "
            "columns by name"
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
