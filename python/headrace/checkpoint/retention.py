"""Which checkpoints stay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from datetime import datetime
from typing import Any, NamedTuple

from headrace.base.units import whole_number
from headrace.checkpoint.manifest import Manifest
from headrace.errors import InvalidArgumentError

__all__ = ["Keep", "Kept", "in_order", "keep_of"]


class Kept(NamedTuple):
    """What of a checkpoint says whether it stays."""

    job: int
    metric: float | None
    """None: its metadata have no finite number of that name."""
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
    :ivar best: so many with the best value of ``metadata[metric]``. A save without it is an
        InvalidArgumentError; checkpoints of other jobs that lack it stay, with a warning.
    :ivar metric: a name in the metadata given to ``save()``, where it has a finite number.
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

    def check_metadata(self, metadata: Mapping[str, Any] | None) -> None:
        """Of a save: raises InvalidArgumentError where they lack what ``best`` goes by. What is no mapping is
        another's to refuse."""
        given = metadata or {}
        if not self.best or not isinstance(given, Mapping) or _finite(given.get(self.metric)) is not None:
            return
        if self.metric in given:
            value = given[self.metric]
            found = f"is {value!r:.80} (a {type(value).__name__}) in this save"
        else:
            found = f"this save lacks; its metadata have {', '.join(map(repr, given)) or 'no keys'}"
        raise InvalidArgumentError(
            f"Keep(best={self.best}, metric={self.metric!r}) goes by metadata[{self.metric!r}], which "
            f"{found}: expected a finite int or float, as in save(..., metadata={{{self.metric!r}: 1.7}})"
        )

    def about(self, manifest: Manifest) -> Kept:
        try:
            seconds = datetime.fromisoformat(manifest.created).timestamp()
        except ValueError:
            seconds = 0.0
        metric = _finite(manifest.metadata.get(self.metric))
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
        wanted |= self._best(whole) | self.unranked(about, broken)
        return [step for step in steps if step not in wanted]

    def unranked(self, about: Mapping[int, Kept], broken: Set[int] = frozenset()) -> set[int]:
        """Steps of which nobody can say whether they are among the best: they stay."""
        lacking = {step for step, each in about.items() if each.metric is None} if self.best else set()
        return lacking - broken

    def _best(self, about: Mapping[int, Kept]) -> set[int]:
        metrics = {step: each.metric for step, each in about.items() if each.metric is not None}
        sign = -1 if self.higher_is_better else 1
        return set(sorted(metrics, key=lambda step: (sign * metrics[step], -step))[: self.best])


def _finite(value: Any) -> float | None:
    """None: it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # Of an integer.
        return None
