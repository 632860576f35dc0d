"""Counts what functions behind a loader do, and what the training loop waits for them (docs/metrics.md)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from headrace.base.metrics import Metric

__all__ = ["Meter"]

_logger = logging.getLogger("headrace.loader")

# As the engine's own line about slow batches has it (src/feed/slow_batches.h).
_SLOW_SECONDS = 5.0
_QUIET_SECONDS = 60.0


class Meter:
    """Of one mapped loader; its workers come and go. One thread at a time, which is the one that delivers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.batches = 0
        """Delivered."""
        self.empty_batches = 0
        """Not delivered, since a filter had left nothing of them."""
        self.replaced_samples = 0
        self.worker_restarts = 0
        self.function_seconds = 0.0
        """In the functions, of all workers together."""
        self.waits = {"stall.transform_us": 0.0, "loader.waited_us": 0.0}
        """What is to be added to the loader's metrics of these names; the same dict for good."""
        self._clock = clock
        self._quiet_until = float("-inf")
        self._untold = 0
        self._untold_seconds = 0.0

    def waited(self, seconds: float, name: Callable[[], str]) -> None:
        """The loop waited so long for the functions on a batch, whose name the log may want to know."""
        waits = self.waits
        waits["stall.transform_us"] += 1e6 * seconds
        waits["loader.waited_us"] += 1e6 * seconds
        if seconds < _SLOW_SECONDS or not _logger.isEnabledFor(logging.WARNING):
            return
        now = self._clock()
        if now < self._quiet_until:
            self._untold += 1
            self._untold_seconds += seconds
            return
        more = ""
        if self._untold:
            more = f"; for {self._untold} more since the last such line {self._untold_seconds:.1f} s"
        _logger.warning(
            "waited %.1f s for %s%s: raise workers= of map(), or do less in them; see "
            "docs/stalls.md#transform",
            seconds,
            name(),
            more,
        )
        self._quiet_until, self._untold, self._untold_seconds = now + _QUIET_SECONDS, 0, 0.0

    def added_to(self, metrics: Sequence[Metric], workers: int) -> list[Metric]:
        """The loader's metrics with the waits in them, and what the functions did behind them."""
        own: list[tuple[str, float, str, str]] = [
            ("map.batches", self.batches, "counter", "batches"),
            ("map.empty_batches", self.empty_batches, "counter", "batches"),
            ("map.replaced_samples", self.replaced_samples, "counter", "samples"),
            ("map.function_us", 1e6 * self.function_seconds, "counter", "us"),
            ("map.workers", workers, "gauge", "workers"),
            ("map.worker_restarts", self.worker_restarts, "counter", "processes"),
        ]
        return [
            *(each._replace(value=each.value + self.waits.get(each.name, 0.0)) for each in metrics),
            *(Metric(name, float(value), kind, unit, name, {}) for name, value, kind, unit in own),
        ]
