"""The sweep of `headrace bench fetch`: on model stores the knee is found, and no more is measured than
needed."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli._knee import bar, collapse, knee, recommend, sweep

DOUBLINGS = [1 << i for i in range(11)]


def rows_of(throughput: Any, part_bytes: int = 1 << 20, cpu: float = 0.2) -> list[dict[str, Any]]:
    def measure(count: int) -> dict[str, Any]:
        return {
            "in_flight": count,
            "part_bytes": part_bytes,
            "gb_per_s": throughput(count),
            "cpu_seconds_per_gb": cpu,
            "failures": 0,
            "requests": 1000,
            "extra_attempts": 0,
        }

    return list(sweep(measure, DOUBLINGS))


@pytest.mark.parametrize("limit", [1, 4, 32, 200, 1024])
def test_knee_of_a_store_with_a_rate_per_connection_and_a_total(limit: int) -> None:
    rows = rows_of(lambda count: min(count, limit) * 0.08)
    assert knee(rows)["in_flight"] == next(count for count in DOUBLINGS if count >= 0.95 * limit)


def test_sweep_ends_two_steps_after_the_knee() -> None:
    assert [row["in_flight"] for row in rows_of(lambda count: min(count, 8))] == [1, 2, 4, 8, 16, 32]


def test_one_flat_step_does_not_end_the_sweep() -> None:
    measured = {1: 1.0, 2: 2.0, 4: 2.0, 8: 6.0}
    rows = rows_of(lambda count: measured.get(count, 6.0))
    assert knee(rows)["in_flight"] == 8


def test_sweep_ends_with_the_first_failures() -> None:
    def measure(count: int) -> dict[str, Any]:
        return {"in_flight": count, "gb_per_s": float(count), "failures": int(count >= 16)}

    assert list(sweep(measure, DOUBLINGS))[-1]["in_flight"] == 16


def test_collapse_is_reported_and_not_recommended() -> None:
    rows = rows_of(lambda count: min(count, 64) * 0.1 if count <= 64 else 6.4 * 64 / count)
    assert collapse(rows, 1 << 20) == 128
    advice = recommend(rows)
    assert advice["max_in_flight"] == 64
    assert advice["collapses_at"] == 128


def test_what_the_store_refused_in_part_is_not_recommended() -> None:
    rows = rows_of(lambda count: count * 0.1)
    for row in rows:
        row["extra_attempts"] = 11 if row["in_flight"] > 128 else 10
    assert recommend(rows)["max_in_flight"] == 128
    for row in rows:
        row["failures"] = 1
    assert recommend(rows)["max_in_flight"] == 1024, "something must be said"


def test_recommendation_prefers_less_cpu_then_less_memory() -> None:
    large = rows_of(lambda count: min(count, 16) * 0.1, 8 << 20, cpu=0.15)
    middle = rows_of(lambda count: min(count, 16) * 0.1, 1 << 20, cpu=0.15)
    small = rows_of(lambda count: min(count, 16) * 0.1, 64 << 10, cpu=0.3)
    assert recommend(large + middle + small)["part_bytes"] == 1 << 20


def test_bars_are_proportional() -> None:
    assert bar(0) == ""
    assert bar(1, 4) == "████"
    assert bar(0.5, 4) == "██"
    assert bar(1 / 32, 4) == "▏"
    assert bar(7.0, 4) == "████"
