"""Batches as torch tensors, and the loader as an IterableDataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from headrace._batch import Batch
from headrace._loader import Loader as _NumpyLoader
from headrace.errors import InvalidArgumentError

__all__ = ["Loader"]

_ONE_PROCESS = (
    "headrace.torch.Loader reads ahead with its own threads and cannot run in DataLoader workers, which would each get a part of "
    "its state: use DataLoader(loader, batch_size=None, num_workers=0), or iterate the loader itself"
)


class Loader(IterableDataset[Batch]):
    """A :class:`headrace.Loader` whose batches hold tensors; takes the same arguments.

    Fixed columns, ``ids`` and ``mask`` become tensors over the engine's memory, without a copy; other columns stay lists.
    Works by itself and inside ``torch.utils.data.DataLoader(loader, batch_size=None, num_workers=0)``.

    :param pin_memory: copy tensors to pinned memory (needs CUDA).
    :param device: move tensors there; from pinned memory the copy is asynchronous.
    """

    def __init__(self, dataset: Any, *, pin_memory: bool = False, device: torch.device | str | None = None, **arguments: Any) -> None:
        super().__init__()
        if pin_memory and not torch.cuda.is_available():
            raise InvalidArgumentError("pin_memory=True needs CUDA, which this torch does not see; leave it out")
        self._loader = _NumpyLoader(dataset, **arguments)
        self._pin_memory = pin_memory
        self._device = None if device is None else torch.device(device)

    def __iter__(self) -> Iterator[Batch]:
        if get_worker_info() is not None:
            raise InvalidArgumentError(_ONE_PROCESS)
        return map(self._convert, iter(self._loader))

    def __reduce__(self) -> Any:
        raise InvalidArgumentError(_ONE_PROCESS)

    def __len__(self) -> int:
        return len(self._loader)

    def _tensor(self, array: Any) -> Any:
        if not isinstance(array, np.ndarray):
            return array
        tensor = torch.from_numpy(array)
        if self._pin_memory:
            tensor = tensor.pin_memory()
        return tensor if self._device is None else tensor.to(self._device, non_blocking=self._pin_memory)

    def _convert(self, batch: Batch) -> Batch:
        for name, value in batch.items():
            batch[name] = self._tensor(value)
        batch.ids = self._tensor(batch.ids)
        batch.mask = self._tensor(batch.mask)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`headrace.Loader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`headrace.Loader.load_state_dict`."""
        self._loader.load_state_dict(state)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the numpy loader's: stats, sample_ids, epoch, batches_left, close, ..."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self._loader.close()
