"""Several datasets mixed by weights."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import _native
from headrace.errors import InvalidArgumentError
from headrace.sources.source import ForwardingSource

if TYPE_CHECKING:
    from headrace.sources.concat import ListSource
    from headrace.sources.orders import OrderRequest

__all__ = ["MixedSource", "Shares", "as_weight", "weights_list"]


class Shares(NamedTuple):
    """How much of each dataset an epoch of a mixture has, and how they alternate."""

    schedule: Sequence[tuple[int, Sequence[float]]] = ()
    """(global batch of the run, weights from there on), where there are weights."""
    epoch_shares: Sequence[int] = ()
    """Samples of each in an epoch, where those are given."""
    epoch_samples: int = 0
    """0: the sum of the sizes, rounded down to whole global batches."""
    batching: str = "proportional"
    groups: int = 0


def weights_list(names: Collection[str], weights: Mapping[str, float]) -> list[float]:
    """Weights in the order of ``names``; names left out have 0."""
    unknown = sorted(set(weights) - set(names))
    if unknown:
        raise InvalidArgumentError(f"there is no source {unknown[0]!r}; there are {', '.join(names)}")
    return [as_weight(name, weights.get(name, 0)) for name in names]


def as_weight(name: str, value: Any) -> float:
    """The weight of a source. Raises InvalidArgumentError for what is no number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"source {name!r}: weight {value!r} is no number") from None


class MixedSource(ForwardingSource):
    """The datasets of a list, by their names, in the order of a mixture."""

    def __init__(self, datasets: ListSource, shares: Shares) -> None:
        super().__init__(datasets)
        self.shares = shares

    def order_source(self, request: OrderRequest) -> _native.OrderSource:
        if request.order is not None or request.lane_count:
            raise InvalidArgumentError(
                "a mixture has its own order and chooses lanes for each source: leave out order= and lanes="
            )
        global_batch = request.batch_size * request.world_size
        if 0 < self.shares.epoch_samples < global_batch:
            # No error: a run goes on from its state with any global batch, and then its first one decides.
            warnings.warn(
                f"samples_per_epoch={self.shares.epoch_samples} is less than a global batch: an epoch of a "
                f"new run is one, {global_batch} samples",
                RuntimeWarning,
                stacklevel=4,
            )
        return _native.plan_mixture(
            [(name, part.native) for name, part in self.parts.items()],
            schedule=self.shares.schedule,
            epoch_shares=self.shares.epoch_shares,
            epoch_samples=self.shares.epoch_samples,
            batching=self.shares.batching,
            seed=request.seed,
            shuffle=request.shuffle,
            global_batch=global_batch,
            memory_bytes=request.memory_bytes,
            window_blocks=request.window_blocks,
            groups=self.shares.groups,
        )
