"""What ``Loader(progress=True)`` shows: where the epoch stands, how fast it goes, what the loop waits for."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import _native
from headrace.base.metrics import by_name
from headrace.base.progress import StatusLine
from headrace.base.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EpochProgress"]


class _Reading(NamedTuple):
    """The engine's counters at a time."""

    seconds: float
    counts: Mapping[str, float]


class EpochProgress:
    """Shows the progress of a loader's epochs. Between two lines a batch costs a look at the clock.

    :param line: where it is shown.
    """

    def __init__(self, line: StatusLine | None = None) -> None:
        self._line = StatusLine() if line is None else line
        self._readings: deque[_Reading] = deque()
        self.beside: Mapping[str, float] = {}
        """Counters of who waits beside the engine, by name; they are added to the engine's."""

    def begin(self, engine: _native.Loader) -> None:
        """A loop begins: rates are of what follows."""
        self._line.end()
        self._readings = deque([self._read(engine)])

    def after_batch(self, engine: _native.Loader, epoch: int) -> None:
        """A batch of this epoch was taken."""
        has_ended = (
            engine.has_taken_all
        )  # With the last batch; the engine counts the next epoch from there on.
        if not self._line.is_due() and not (has_ended and self._line.is_live):
            return
        now = self._read(engine)
        if not self._readings or now.counts["loader.batches"] < self._readings[-1].counts["loader.batches"]:
            self._readings = deque([now])  # Another engine: a rank that changed, one more source.
            return
        self._readings.append(now)
        while len(self._readings) > 2 and self._readings[1].seconds <= now.seconds - self._line.window:
            self._readings.popleft()
        self._line.show(_text(engine, epoch, self._readings[0], now))
        if has_ended:
            self._line.end()

    def end(self) -> None:
        self._line.end()

    def _read(self, engine: _native.Loader) -> _Reading:
        counts: dict[str, Any] = by_name(engine.metrics())
        for name, value in self.beside.items():
            counts[name] = counts.get(name, 0.0) + value
        return _Reading(self._line.now(), counts)


def _text(engine: _native.Loader, epoch: int, before: _Reading, now: _Reading) -> str:
    seconds = max(now.seconds - before.seconds, 1e-9)

    def rate(name: str) -> float:
        return (now.counts.get(name, 0.0) - before.counts.get(name, 0.0)) / seconds

    batches, all_batches = rate("loader.batches"), engine.epoch_batches
    left = engine.batches_left
    parts = [
        f"epoch {epoch}, batch {all_batches - left:,} of {all_batches:,}",
        f"{_short(batches)} batches/s",
        f"{_short(rate('loader.samples'))} samples/s",
        f"{format_bytes(rate('loader.delivered_bytes'))}/s ({format_bytes(rate('store.received_bytes'))}/s "
        "read)",
        _waits({cause: rate(f"stall.{cause}_us") / 1e6 for cause in _native.STALL_CAUSES}),
    ]
    if left and batches > 0:
        parts.append(f"{_duration(left / batches)} left")
    return ", ".join(parts)


def _waits(shares: Mapping[str, float]) -> str:
    """Of the time, what the loop waited in the loader, and for what, the longest first."""
    causes = sorted((share, cause) for cause, share in shares.items() if share >= 0.005)
    named = ", ".join(f"{cause} {share:.0%}" for share, cause in reversed(causes))
    return f"waiting {min(sum(shares.values()), 1):.0%}" + (f" ({named})" if named else "")


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
