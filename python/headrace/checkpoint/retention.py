"""Which checkpoints stay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from datetime import datetime
from typing import NamedTuple

from headrace.base.units import whole_number
from headrace.checkpoint.manifest import Manifest
from headrace.errors import InvalidArgumentError

__all__ = ["Keep", "Kept", "in_order", "keep_of"]


class Kept(NamedTuple):
    """What of a checkpoint says whether it stays."""

    job: int
    metric: float | None
    seconds: float
    """Since 1970, by the clock of who saved it."""
    number: int = 0
    """See Manifest."""


def in_order(about: Mapping[int, Kept]) -> list[int]:
    """Steps in the order in which they were saved; see Manifest.order."""
    return sorted(about, key=lambda step: (about[step].job, about[step].number, step))


def keep_of(given: int | Keep | None) -> Keep:
    """What ``keep=`` stands for. Raises InvalidArgumentError."""
    if isinstance(given, Keep):
        return given.check()
    if given == 0:
        raise InvalidArgumentError("keep=0 would keep nothing: give None for all, or 1 and more")
    return Keep() if given is None else Keep(latest=whole_number("keep", given, 63))


class Keep(NamedTuple):
    """Checkpoints that stay when another has been committed; a checkpoint that any of these wants stays, and
    so does the one that was committed last.

    :ivar latest: so many of those saved last; 0: all.
    :ivar every: those whose step is a multiple of it, for ever; 0: none.
    :ivar hours: those saved within so many hours before the last one; 0: none.
    :ivar every_hours: the first that was saved in each span of so many hours, for ever; 0: none.
    :ivar best: so many with the best value of ``metadata[metric]``.
    :ivar metric: a name in the metadata given to ``save()``.
    :ivar higher_is_better: of the metric.
    """

    latest: int = 0
    every: int = 0
    best: int = 0
    metric: str = ""
    higher_is_better: bool = False
    hours: float = 0
    every_hours: float = 0

    def check(self) -> Keep:
        """Raises InvalidArgumentError."""
        for name in ("latest", "every", "best"):
            whole_number(f"Keep: {name}", getattr(self, name), 63)
        for name in ("hours", "every_hours"):
            hours = getattr(self, name)
            if isinstance(hours, bool) or not isinstance(hours, (int, float)) or not 0 <= hours < math.inf:
                raise InvalidArgumentError(f"Keep: {name}={hours!r}: expected a number, 0 or more")
        if self.latest == 0 and any((self.every, self.best, self.hours, self.every_hours)):
            raise InvalidArgumentError(
                "keep: latest=0 keeps all; how many of the last ones stay beside the others? For example "
                "Keep(latest=3, every=1000)"
            )
        if bool(self.best) != bool(self.metric):
            raise InvalidArgumentError(
                'keep: best= and metric= go together, as in Keep(best=3, metric="loss")'
            )
        return self

    def about(self, manifest: Manifest) -> Kept:
        value = manifest.metadata.get(self.metric)
        try:
            seconds = datetime.fromisoformat(manifest.created).timestamp()
        except ValueError:
            seconds = 0.0
        metric = float(value) if isinstance(value, (int, float)) else None
        return Kept(manifest.job, metric, seconds, manifest.number)

    def surplus(self, about: Mapping[int, Kept], broken: Set[int] = frozenset()) -> list[int]:
        """Of the steps that there are those that go, in the order in which they were saved. Those that are
        ``broken`` take no other's place: they go when ``latest`` whole ones were saved after them."""
        if self.latest == 0:
            return []
        steps = in_order(about)
        whole = {step: each for step, each in about.items() if step not in broken}
        last = in_order(whole)[-self.latest :]
        wanted = set(steps[steps.index(last[0]) :] if len(last) == self.latest else steps)
        if self.every:
            wanted |= {step for step in steps if step % self.every == 0}
        if self.hours and steps:
            since = about[steps[-1]].seconds - self.hours * 3600
            wanted |= {step for step in steps if about[step].seconds >= since}
        if self.every_hours:
            spans = {
                about[step].seconds // (self.every_hours * 3600): step for step in reversed(in_order(whole))
            }
            wanted |= set(spans.values())
        return [step for step in steps if step not in wanted | self._best(whole)]

    def _best(self, about: Mapping[int, Kept]) -> set[int]:
        metrics = {step: each.metric for step, each in about.items() if each.metric is not None}
        sign = -1 if self.higher_is_better else 1
        return set(sorted(metrics, key=lambda step: (sign * metrics[step], -step))[: self.best])
