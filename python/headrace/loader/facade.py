"""What stands before a loader and delivers its batches as something else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.base import live
from headrace.loader.epoch import Epoch, Epochs

if TYPE_CHECKING:
    from headrace.base.metrics import Metric
    from headrace.data.batch import BadSample
    from headrace.data.dataset import Dataset
    from headrace.data.mixture import Mixture, MixtureSource
    from headrace.loader.loader import Loader
    from headrace.loader.mapping.mapped import MappedLoader

    DatasetLike: TypeAlias = (
        str | os.PathLike[str] | Dataset | Mixture | Iterable[str | os.PathLike[str] | Dataset]
    )
    """What a loader reads."""

__all__ = ["Facade"]


class Facade(Epochs, live.Closing):
    """The methods of a :class:`headrace.Loader`, which mean the same here."""

    _loader: Loader | MappedLoader

    def _begun(self, convert: Callable[[Any], Any]) -> Epoch:
        """A loop from the position to the end of the epoch, which delivers what ``convert`` makes of each
        batch."""
        iter(self._loader)
        return Epoch(self._loader._next, convert)

    def __len__(self) -> int:
        """Batches of a whole epoch on this rank."""
        return len(self._loader)

    @property
    def batch_size(self) -> int:
        """Samples of this rank in a batch."""
        return self._loader.batch_size

    @property
    def rank(self) -> int:
        return self._loader.rank

    @property
    def world_size(self) -> int:
        return self._loader.world_size

    @property
    def epoch(self) -> int:
        """Epoch of the position, from 0."""
        return self._loader.epoch

    @property
    def batches_left(self) -> int:
        """Batches from the position to the end of the epoch."""
        return self._loader.batches_left

    @property
    def order_spec(self) -> dict[str, Any]:
        """Identity of the order: id, version, seed, lanes, window."""
        return self._loader.order_spec

    @property
    def mixture(self) -> Mixture | None:
        """The mixture that the loader reads, if it does."""
        return self._loader.mixture

    @property
    def bad_samples(self) -> list[BadSample]:
        """See :attr:`headrace.Loader.bad_samples`."""
        return self._loader.bad_samples

    @property
    def closed(self) -> bool:
        return self._loader.closed

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`headrace.Loader.state_dict`: the same in all processes."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`headrace.Loader.load_state_dict`."""
        self._loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """See :meth:`headrace.Loader.set_epoch`."""
        self._loader.set_epoch(epoch)

    def reset(self, epoch: int | None = None) -> None:
        """See :meth:`headrace.Loader.reset`."""
        self._loader.reset(epoch)

    def set_weights(self, weights: Mapping[str, float], at_step: int | None = None) -> int:
        """See :meth:`headrace.Loader.set_weights`."""
        return self._loader.set_weights(weights, at_step)

    def add_source(
        self,
        name: str,
        source: str | os.PathLike[str] | Dataset | MixtureSource,
        weights: Mapping[str, float],
        at_step: int | None = None,
    ) -> int:
        """See :meth:`headrace.Loader.add_source`."""
        return self._loader.add_source(name, source, weights, at_step)

    def sample_ids(self, epoch: int = 0) -> Iterator[Any]:
        """See :meth:`headrace.Loader.sample_ids`: arrays of int64."""
        return self._loader.sample_ids(epoch)

    def stats(self) -> dict[str, Any]:
        """See :meth:`headrace.Loader.stats`."""
        return self._loader.stats()

    def metrics(self) -> Sequence[Metric]:
        """See :meth:`headrace.Loader.metrics`."""
        return self._loader.metrics()

    def report(self, path: str | os.PathLike[str]) -> None:
        """See :meth:`headrace.Loader.report`."""
        self._loader.report(path)

    def close(self) -> None:
        """Stops reading and ends the threads. Batches in use stay valid. May be repeated."""
        self._loader.close()
