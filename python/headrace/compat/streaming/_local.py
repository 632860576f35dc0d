"""LocalDataset: a data set in a directory, by index."""

from __future__ import annotations

import os
from typing import Any

from torch.utils.data import Dataset

from headrace.compat.streaming._array import Array
from headrace.compat.streaming._reader import StreamReader


class LocalDataset(Array, Dataset[Any]):
    """Arguments as in mosaicml-streaming. Beyond Mosaic's: ``allow_unsafe_types``, without which pickled
    columns are refused."""

    def __init__(self, local: str, split: str | None = None, allow_unsafe_types: bool = False) -> None:
        self.local, self.split = local, split or ""
        self._allow_unsafe_types = allow_unsafe_types
        self._reader: StreamReader | None = None
        self._reader_pid = 0
        self.num_samples = sum(self._open_reader().shard_samples())

    def _open_reader(self) -> StreamReader:
        """This process's reader: a forked worker opens its own."""
        if self._reader is None or self._reader_pid != os.getpid():
            self._reader = StreamReader(os.path.join(self.local, self.split), self._allow_unsafe_types)
            self._reader_pid = os.getpid()
        return self._reader

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reader": None}

    def __len__(self) -> int:
        return self.num_samples

    @property
    def size(self) -> int:
        return self.num_samples

    def get_item(self, sample_id: int) -> dict[str, Any]:
        """The sample at an index."""
        if not 0 <= sample_id < self.num_samples:
            raise IndexError(f"sample {sample_id} is out of range: there are {self.num_samples}")
        return self._open_reader().read([sample_id])[0]
