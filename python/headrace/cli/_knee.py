"""Where a store's knee lies: the sweep over concurrency and what it recommends. No I/O here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Row = dict[str, Any]

ENOUGH = 0.95
"""Of the best throughput: the knee is the least concurrency that gives it. More only adds waiting."""
GROWTH = 1.05
"""Less growth than this for a doubling counts as none."""
REFUSED = 0.01
"""Of the requests, made a second time: with more the store was past its limit. Hedges are off in a sweep."""


def sweep(measure: Callable[[int], Row], counts: Iterable[int]) -> Iterator[Row]:
    """Measures rising concurrency until two steps in a row bring nothing, or the store pushes back.

    ``counts`` rises. A single flat step may be noise; a falling one after the knee shows the collapse, so it
    is measured too.
    """
    best, flat = 0.0, 0
    for count in counts:
        row = measure(count)
        yield row
        flat = 0 if row["gb_per_s"] > GROWTH * best else flat + 1
        best = max(best, row["gb_per_s"])
        if flat == 2 or row["failures"]:
            return


def knee(rows: list[Row]) -> Row:
    """The row with the least concurrency among those of one part size that reach ENOUGH of the best
    throughput."""
    best = max(row["gb_per_s"] for row in rows)
    return min(
        (row for row in rows if row["gb_per_s"] >= ENOUGH * best), key=lambda row: int(row["in_flight"])
    )


def recommend(rows: list[Row]) -> Row:
    """The best part size and its knee, of the rows that the store did not refuse in part, where there are
    any. Among nearly equal throughputs the one with the least CPU, then with the least in flight."""
    taken = [row for row in rows if not is_refused(row)] or rows
    knees = [
        knee([row for row in taken if row["part_bytes"] == size])
        for size in sorted({row["part_bytes"] for row in taken})
    ]
    best = max(row["gb_per_s"] for row in knees)
    good = [row for row in knees if row["gb_per_s"] >= ENOUGH * best]
    chosen = min(
        good, key=lambda row: (round(row["cpu_seconds_per_gb"], 2), row["part_bytes"] * row["in_flight"])
    )
    return {
        "part_bytes": chosen["part_bytes"],
        "max_in_flight": chosen["in_flight"],
        "memory_bytes": chosen["part_bytes"] * chosen["in_flight"],
        "gb_per_s": chosen["gb_per_s"],
        "collapses_at": collapse(rows, chosen["part_bytes"]),
    }


def is_refused(row: Row) -> bool:
    """Whether the store failed requests of a row, or had more than a few made again."""
    return bool(row["failures"]) or row["extra_attempts"] > REFUSED * row["requests"]


def collapse(rows: list[Row], part_bytes: int) -> int | None:
    """The concurrency from which throughput falls below ENOUGH of the best; None when it was not seen."""
    same = [row for row in rows if row["part_bytes"] == part_bytes]
    best = max(same, key=lambda row: float(row["gb_per_s"]))
    return next(
        (
            row["in_flight"]
            for row in same
            if row["in_flight"] > best["in_flight"] and row["gb_per_s"] < ENOUGH * best["gb_per_s"]
        ),
        None,
    )


def bar(share: float, width: int = 24) -> str:
    """A bar of eighths of a character."""
    eighths = max(0, min(width * 8, round(share * width * 8)))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
