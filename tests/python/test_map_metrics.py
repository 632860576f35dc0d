"""What the counters and the log say of functions behind a loader."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import map_functions as functions
import pytest
from map_loaders import open_loader

from headrace.loader.mapping.meter import Meter

PLACES: list[dict[str, Any]] = [
    {"workers": 0},
    {"workers": 2, "where": "thread"},
    {"workers": 2, "where": "process"},
]


def of_stalls(stats: dict[str, Any]) -> float:
    return sum(value for name, value in stats.items() if name.startswith("stall."))


@pytest.mark.parametrize("place", PLACES)
def test_functions_and_waits_for_them_are_counted(few_numbers: Path, place: dict[str, Any]) -> None:
    with open_loader(few_numbers).map(functions.double, **place) as mapped:
        count = sum(1 for _ in mapped)
        stats = mapped.stats()
        assert stats["map.batches"] == stats["loader.batches"] == count
        assert stats["map.workers"] == place["workers"]
        assert stats["map.function_us"] > 0
        assert stats["stall.transform_us"] > 0
        assert stats["stall_seconds"]["transform"] == stats["stall.transform_us"] / 1e6
        assert stats["loader.waited_us"] == pytest.approx(of_stalls(stats), abs=len(stats) * count)
        if not place["workers"]:  # In next(): all their time is waited for.
            assert stats["stall.transform_us"] >= stats["map.function_us"]
        assert mapped._loader.stats()["stall.transform_us"] == 0, "the loader itself calls no function"


def test_counters_go_on_over_epochs_and_after_another_position(few_numbers: Path) -> None:
    with open_loader(few_numbers).map(functions.double, workers=1) as mapped:
        first = sum(1 for _ in mapped)
        before = mapped.stats()
        mapped.set_epoch(0)
        next(iter(mapped))
        after = mapped.stats()
    assert after["map.batches"] == first + 1
    assert after["map.function_us"] > before["map.function_us"]


def test_what_a_filter_leaves_nothing_of_is_counted(few_numbers: Path) -> None:
    with open_loader(few_numbers).filter(functions.is_none_of_them, holes="compact") as mapped:
        assert not list(mapped)
        stats = mapped.stats()
        assert (stats["map.batches"], stats["map.empty_batches"]) == (0, len(mapped))


def test_replaced_samples_and_restarted_workers_are_counted(few_numbers: Path, tmp_path: Path) -> None:
    with open_loader(few_numbers, on_bad_sample="replace").map(functions.fail_on_13) as mapped:
        with pytest.warns(RuntimeWarning, match="thirteen"):
            list(mapped)
        assert mapped.stats()["map.replaced_samples"] == 1
    counter = tmp_path / "counter"
    counter.touch()
    ends = functions.EndsOnce("kill", 2, counter)
    with open_loader(few_numbers).map(ends, workers=1, where="process") as mapped:
        list(mapped)
        assert mapped.stats()["map.worker_restarts"] == 2


def test_progress_has_the_waits(few_numbers: Path) -> None:
    with open_loader(few_numbers, progress=True).map(functions.double) as mapped:
        list(mapped)
        progress = mapped._loader._progress
        assert progress is not None
        read = progress._read(mapped._native).counts
        assert read["stall.transform_us"] == mapped.stats()["stall.transform_us"] > 0


def test_long_waits_are_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [1000.0]
    meter = Meter(lambda: now[0])

    def said_after(seconds: float) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "headrace.loader"):
            meter.waited(seconds, lambda: "double of batch 3")
        return [record.getMessage() for record in caplog.records]

    assert said_after(4.9) == []
    (line,) = said_after(5.0)
    assert line.startswith("waited 5.0 s for double of batch 3: raise workers=")
    assert line.endswith("see docs/stalls.md#transform")
    now[0] += 59
    assert said_after(6.0) == []
    assert said_after(7.5) == []
    now[0] += 1
    (line,) = said_after(8.0)
    assert line.startswith("waited 8.0 s for double of batch 3; for 2 more since the last such line 13.5 s:")
    assert meter.waits == {key: pytest.approx(31.4e6) for key in ("stall.transform_us", "loader.waited_us")}
