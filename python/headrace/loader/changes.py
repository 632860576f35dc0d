"""Changes of a mixture in the middle of a run: other weights, one more source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace import _native
from headrace.errors import InvalidArgumentError
from headrace.loader.engine import Engine
from headrace.sources.mixed import weights_list
from headrace.sources.source import Source

__all__ = ["Standing", "moved", "set_weights", "standing"]


class Standing(NamedTuple):
    """Where a run stands, and from where a change holds."""

    state: str
    order: _native.OrderSource
    """As the state has it."""
    schedule: Sequence[tuple[int, Sequence[float]]]
    sample: int
    """The run's sample from which the change holds: the start of a global batch."""
    step: int
    """That global batch."""


def standing(engine: Engine, at_step: int | None) -> Standing:
    """Of an engine over a mixture, for a change from global batch ``at_step`` of the run on (default: the
    next one)."""
    assert engine.order is not None
    text = engine.native.state()
    state = json.loads(text)
    order = engine.order.restored(text)
    facts = order.describe()
    now, batch = state["epoch"] * facts["samples_per_epoch"] + state["t"], facts["global_batch"]
    sample = _change_at(order, now, batch, at_step)
    return Standing(text, order, facts["schedule"], sample, sample // batch)


def _change_at(order: _native.OrderSource, now: int, batch: int, at_step: int | None) -> int:
    if at_step is None:
        return order.boundary(now)
    if isinstance(at_step, bool) or not isinstance(at_step, int) or not 0 <= at_step < 1 << 40:
        raise InvalidArgumentError(f"at_step={at_step!r} is no number of a global batch")
    if at_step * batch < now:
        raise InvalidArgumentError(
            f"at_step={at_step} is past: the run has received {now / batch:g} global batches of {batch}"
        )
    return at_step * batch


def set_weights(engine: Engine, now: Standing, weights: Mapping[str, float]) -> None:
    """Lets the engine go on with its order, changed."""
    names = engine.source.parts
    engine.native.set_order_source(now.order.changed(now.sample, weights_list(names, weights)))


def moved(engine: Engine, source: Source, now: Standing, weights: Mapping[str, float]) -> Engine:
    """An engine that goes on where this one stands, over ``source``: the same mixture and more."""
    new = engine.over(source)
    try:
        assert new.order is not None
        new.native.load_state(now.state)
        changed = new.order.restored(now.state).changed(now.sample, weights_list(source.parts, weights))
        new.native.set_order_source(changed)
        if engine.native.has_ended:
            new.native.end_epoch()
    except BaseException:
        new.close()
        raise
    return new
