"""What a loader yields."""

from __future__ import annotations

from typing import Any, NamedTuple


class BadSample(NamedTuple):
    """Something that turned out bad while it was read."""

    position: int
    """Dataset position."""
    samples: int
    """1, or those of a whole block from ``position`` on."""
    message: str


class Batch(dict[str, Any]):
    """The columns of one batch by name, as a dict.

    A fixed-size column is a numpy array whose first axis counts the samples; it views the engine's memory,
    which returns to the loader's budget when the last array of the batch is dropped. Other columns are lists
    of values, or with ``ragged="arrow"`` pyarrow arrays over the same memory.
    """

    __slots__ = ("epoch", "ids", "index", "mask", "replaced")

    ids: Any
    """Dataset position of each sample that was delivered, int64."""
    mask: Any
    """False where a sample is a repeat that fills up the last batch of an epoch (``epoch_end="pad"``),
    bool."""
    replaced: dict[int, int]
    """Dataset positions that the order planned, by row, where that sample is bad and another stands in for
    it."""
    epoch: int
    """Epoch that the batch belongs to, from 0."""
    index: int
    """Number of the global batch in its epoch, from 0."""

    def __len__(self) -> int:
        """Number of columns, as for any dict; the number of samples is ``len(batch.ids)``."""
        return super().__len__()

    def __repr__(self) -> str:
        columns = ", ".join(f"{name}: {_describe(value)}" for name, value in self.items())
        if not hasattr(self, "ids"):  # Made of columns alone, by somebody who converts them.
            return f"Batch({{{columns}}})"
        return f"Batch(epoch={self.epoch}, index={self.index}, samples={len(self.ids)}, {{{columns}}})"


def _describe(value: Any) -> str:
    if hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    if hasattr(value, "type"):
        return f"arrow {value.type}"
    return f"list of {type(value[0]).__name__}" if value else "list"
