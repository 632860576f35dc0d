"""Indexing like a numpy array's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt


class Array:
    """A read-only list; subclasses have ``size`` and ``get_item()``."""

    @property
    def size(self) -> int:
        raise NotImplementedError

    def get_item(self, sample_id: int) -> Any:
        raise NotImplementedError

    def _each_slice_index(self, at: slice) -> Iterable[int]:
        return range(*at.indices(self.size))

    def __getitem__(self, at: int | slice | list[int] | npt.NDArray[np.int64]) -> Any:
        """A sample, or (lists of lists of) samples for slices, lists and arrays."""
        if isinstance(at, (int, np.integer)):
            index = int(at)
            return self.get_item(index + self.size if -self.size <= index < 0 else index)
        if isinstance(at, slice):
            return [self.get_item(i) for i in self._each_slice_index(at)]
        if isinstance(at, (list, np.ndarray)):
            return [self[item] for item in at]
        raise ValueError(f"Unsupported argument type passed to __getitem__: {type(at)}.")
