"""What a loader's metrics were in the course of a run: a bounded number of points, closer where a run is
short."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from headrace import _native
from headrace.base.metrics import by_name

__all__ = ["OF_STORES", "History", "Point", "Record"]

_COUNTERS = (
    "loader.batches",
    "loader.samples",
    "loader.delivered_bytes",
    "store.received_bytes",
    "store.answered_gets",
    "store.answer_wait_us",
    "store.retries",
    "store.throttles",
    "cache.hit_bytes",
    "cache.memcached_hit_bytes",
    "cache.store_hit_bytes",
    *(f"stall.{cause}_us" for cause in _native.STALL_CAUSES),
)
_GAUGES = (
    "store.first_byte_p50_us",
    "store.first_byte_p99_us",
    "store.request_p50_us",
    "store.request_p99_us",
    "cache.used_bytes",
)
_NAMES = _COUNTERS + _GAUGES

# 512 points of some 200 bytes; in a run of days one every few minutes. A point costs 30 us or so, and the
# first are taken every 0.1 s: 0.03 % of a thread, and less and less from there.
_MOST_POINTS = 512
_FIRST_SECONDS = 0.1
_MOST_LOOPS = 64
_MOST_STORES = 8

OF_STORES = ("store.received_bytes", "store.answered_gets", "store.answer_wait_us")
"""What is kept of each store, where there are several: as these names with a blank and its URL."""


class Engine(Protocol):
    """What has metrics."""

    def metrics(self) -> Iterable[tuple[Any, ...]]: ...


class Store(Engine, Protocol):
    """One of several that a loader reads from."""

    @property
    def url(self) -> str: ...


class Point(NamedTuple):
    """The metrics at a time."""

    seconds: float
    """Since the run began."""
    values: Mapping[str, float]


class Record(NamedTuple):
    """A run until now."""

    points: list[Point]
    loops: list[tuple[float, int]]
    """When loops began, and in which epochs; the first ones."""


class History:
    """Of one loader, which hands in the engine that it has at the time. Between two points a batch costs a
    look at the clock. One thread at a time takes points; any may read them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.beside: Mapping[str, float] = {}
        """What others know of metrics: to be added to those of the engine."""
        self.stores: Sequence[Store] = ()
        """Where there are several."""
        self._start = self._due = self._clock()
        self._seconds = _FIRST_SECONDS
        self._is_over = True
        self._names = list(_NAMES)  # More come with stores; none goes.
        self._points: list[tuple[float, array[float]]] = []
        self._loops: list[tuple[float, int]] = []
        self._ended: dict[str, float] = {}  # What engines counted that were replaced.
        self._last: dict[str, float] = {}

    def begin(self, engine: Engine, epoch: int) -> None:
        """A loop begins: what was before it is no part of its rates."""
        now = self._clock()
        if not self._points:
            self._start = now
        self._is_over = False
        self._take(engine, now)
        if len(self._loops) < _MOST_LOOPS:
            self._loops.append((now - self._start, epoch))

    def after_batch(self, engine: Engine, is_last: bool) -> None:
        """A batch is delivered; or the last one was, and the loop ends."""
        now = self._clock()
        self._is_over = is_last
        if is_last or now >= self._due:
            self._take(engine, now)

    def record(self, engine: Engine | None) -> Record:
        """With a point of now, where a loop is under way.

        :param engine: None: it is closed.
        """
        if engine is not None and not self._is_over:
            self._take(engine, self._clock())
        names = list(self._names)
        points = [
            Point(seconds, {**dict.fromkeys(names, 0.0), **dict(zip(names, values, strict=False))})
            for seconds, values in list(self._points)
        ]
        return Record(points, list(self._loops))

    def _take(self, engine: Engine, now: float) -> None:
        found = self._read(engine)
        if found.get("loader.batches", 0) < self._last.get("loader.batches", 0):
            # Another engine: a rank that changed, one more source.
            for name, value in self._last.items():
                if name not in _GAUGES:
                    self._ended[name] = self._ended.get(name, 0.0) + value
        self._last = found
        self._names += [name for name in found if name not in self._names]
        row = array("d", (found.get(name, 0.0) + self._ended.get(name, 0.0) for name in self._names))
        self._points.append((now - self._start, row))
        if len(self._points) > _MOST_POINTS:
            self._points = self._points[::2]
            self._seconds *= 2
        self._due = now + self._seconds

    def _read(self, engine: Engine) -> dict[str, float]:
        metrics = by_name(engine.metrics())
        found = {name: metrics.get(name, 0.0) + self.beside.get(name, 0.0) for name in _NAMES}
        for store in self.stores[:_MOST_STORES]:
            of_store = by_name(store.metrics())
            for name in OF_STORES:
                key = f"{name} {store.url}"
                found[key] = found.get(key, 0.0) + of_store.get(name, 0.0)
        return found
