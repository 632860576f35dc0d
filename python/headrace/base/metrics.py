"""Snapshots of the engine's counters, as exporters and people read them (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace import _native


class Metric(NamedTuple):
    """One number of a snapshot, with what an exporter has to know of it.

    ``kind``: ``"counter"`` (only grows), ``"gauge"`` or ``"quantile"`` (of a histogram). ``family`` and
    ``labels`` name the same number where several belong together: ``stall.first_byte_us`` is
    ``stall.waited_us`` with ``{"cause": "first_byte"}``.
    """

    name: str
    value: float
    kind: str
    unit: str
    family: str
    labels: dict[str, str]


def snapshot(rows: Iterable[tuple[str, float, str, str, str, dict[str, str]]]) -> list[Metric]:
    """Of what the engine returns."""
    return [Metric(*row) for row in rows]


def stats_of(rows: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
    """The values of a loader's metrics by name, and ``stall_seconds`` by cause."""
    stats: dict[str, Any] = by_name(rows)
    stats["stall_seconds"] = {
        cause: stats.get(f"stall.{cause}_us", 0.0) / 1e6 for cause in _native.STALL_CAUSES
    }
    return stats


def by_name(rows: Iterable[tuple[Any, ...]]) -> dict[str, float]:
    """The values alone, by name."""
    return {row[0]: row[1] for row in rows}
