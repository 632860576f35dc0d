"""StreamingDataLoader: a DataLoader that counts what it yields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from headrace.compat.streaming._dataset import StreamingDataset
from headrace.compat.streaming._world import World


class StreamingDataLoader(DataLoader[Any]):
    """torch's DataLoader with ``state_dict()`` and ``load_state_dict()`` as Mosaic's has them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_samples_yielded = 0

    def _get_batch_size(self, batch: Any) -> int:
        if isinstance(batch, Mapping):
            for value in batch.values():
                return len(value)
            raise ValueError("Batch is empty")
        return len(batch) if isinstance(batch, Tensor) else len(batch[0])

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.num_samples_yielded = 0
        for batch in super().__iter__():
            self.num_samples_yielded += self._get_batch_size(batch)
            yield batch

    def state_dict(self) -> dict[str, Any] | None:
        """Where training is, counted over all ranks; None for other data sets."""
        if not isinstance(self.dataset, StreamingDataset):
            return None
        samples = self.num_samples_yielded * World.detect().num_ranks
        if self.dataset.replication is not None:
            samples //= self.dataset.replication
        return self.dataset.state_dict(samples, False)

    def load_state_dict(self, obj: dict[str, Any]) -> None:
        """Goes on from ``obj`` with the next pass."""
        if isinstance(self.dataset, StreamingDataset):
            self.dataset.load_state_dict(obj)
