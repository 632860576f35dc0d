"""Which checkpoints stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import InvalidArgumentError

__all__ = ["Keep"]


class Keep(NamedTuple):
    """Checkpoints that stay when another has been committed; a checkpoint that any of these wants stays, and so
    does the one that was committed last.

    :ivar latest: so many of those saved last; 0: all.
    :ivar every: those whose step is a multiple of it, for ever; 0: none.
    :ivar best: so many with the best value of ``metadata[metric]``.
    :ivar metric: a name in the metadata given to ``save()``.
    :ivar higher_is_better: of the metric.
    """

    latest: int = 0
    every: int = 0
    best: int = 0
    metric: str = ""
    higher_is_better: bool = False

    def check(self) -> Keep:
        """Raises InvalidArgumentError."""
        if min(self.latest, self.every, self.best) < 0:
            raise InvalidArgumentError("keep: numbers are 0 or more")
        if bool(self.best) != bool(self.metric):
            raise InvalidArgumentError(
                'keep: best= and metric= go together, as in Keep(best=3, metric="loss")'
            )
        return self

    def surplus(self, steps: Sequence[int], metrics: dict[int, float]) -> list[int]:
        """Of the steps that there are, in the order in which they were saved, those that go. ``metrics``: of those
        that have one."""
        if self.latest == 0:
            return []
        wanted = set(steps[-self.latest :])
        if self.every:
            wanted |= {step for step in steps if step % self.every == 0}
        ranked = sorted(
            metrics, key=lambda step: (-metrics[step] if self.higher_is_better else metrics[step], -step)
        )
        wanted |= set(ranked[: self.best])
        return [step for step in steps if step not in wanted]
