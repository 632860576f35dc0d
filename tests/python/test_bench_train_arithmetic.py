"""The arithmetic of `headrace bench train`: utilisation as published, percentiles, the search, the
workloads."""

from __future__ import annotations

import random

import pytest

import headrace as hr
from headrace.base.units import parse_seconds
from headrace.bench.generate import record_sizes
from headrace.bench.utilisation import EpochLog, find_largest, percentile, summarize, utilisation
from headrace.bench.workloads import WORKLOADS, find_workload


def test_utilisation_leaves_the_first_step_out() -> None:
    # 3 steps of 2 s: the first batch comes after 10 s, the others after 0.5 s.
    log = EpochLog(started=100, first_step_ended=112, ended=117, waits=[10, 0.5, 0.5])
    assert utilisation(log, 2) == pytest.approx(4 / 5)
    only = EpochLog(started=0, first_step_ended=4, ended=4, waits=[2])
    assert utilisation(only, 2) == pytest.approx(0.5)


def test_utilisation_counts_what_the_barrier_and_late_sleeps_take() -> None:
    log = EpochLog(started=0, first_step_ended=1, ended=5, waits=[0, 0, 0], overslept=2)
    assert utilisation(log, 1) == pytest.approx(0.5)
    assert utilisation(EpochLog(0, 0, 0, [0, 0]), 0) == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_percentiles_are_the_nearest_ranks(seed: int) -> None:
    draw = random.Random(seed)
    values = [draw.random() for _ in range(draw.randrange(1, 300))]
    for share in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        found = percentile(values, share)
        assert found in values
        assert sum(v <= found for v in values) >= share * len(values)
        assert sum(v < found for v in values) < share * len(values)
    assert percentile([], 0.5) == 0.0


def test_a_summary_is_the_mean_over_accelerators_and_epochs() -> None:
    good = EpochLog(started=0, first_step_ended=2, ended=4, waits=[1, 0.0, 0.0])
    half = EpochLog(started=4, first_step_ended=6, ended=10, waits=[1, 1.0, 1.0])
    row = summarize(
        [[good, half], [good, half]], compute_seconds=1, samples_per_step=5, record_bytes=2e6, bar=0.8
    )
    assert row["utilisation_by_epoch"] == [1.0, 0.5]
    assert (row["utilisation"], row["passes"]) == (0.75, False)
    assert (row["utilisation_first_epoch"], row["utilisation_later_epochs"]) == (1.0, 0.5)
    assert (row["steps"], row["samples"]) == (6, 60)
    assert (row["samples_per_s"], row["mb_per_s"]) == (6.0, 12.0)
    assert (row["wait_p50_s"], row["wait_p99_s"], row["first_batch_s"]) == (0.0, 1.0, 1)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 100])
def test_the_largest_that_passes_is_found_and_none_is_measured_twice(limit: int) -> None:
    for largest in range(limit + 3):
        asked: list[int] = []

        def passes(count: int, largest: int = largest, asked: list[int] = asked) -> bool:
            asked.append(count)
            return count <= largest

        assert find_largest(passes, limit) == min(largest, limit)
        assert len(asked) == len(set(asked))
        assert max(asked) <= limit


def test_workloads_take_what_mlperf_says() -> None:
    rates = {name: WORKLOADS[name].bytes_per_second("h100") / 1e6 for name in WORKLOADS}
    assert rates["unet3d"] == pytest.approx(3177, abs=1)
    assert rates["resnet50"] == pytest.approx(204.8, abs=0.1)
    assert rates["cosmoflow"] == pytest.approx(808, abs=1)
    assert WORKLOADS["llm"].compute_seconds == {"a100": 2.048, "h100": 0.646}
    assert [w.bar for w in WORKLOADS.values()] == [0.9, 0.9, 0.7, 0.9]
    with pytest.raises(hr.InvalidArgumentError, match="unet3d, resnet50"):
        find_workload("bert")


def test_a_changed_workload_is_not_the_published_one() -> None:
    published = WORKLOADS["unet3d"]
    assert published.changed(batch_size=0, epochs=0).scaled(1) is published
    changed = published.changed(record_bytes=1000, batch_size=2)
    assert (changed.record_stdev, changed.batch_size) == (pytest.approx(466.2, abs=0.1), 2)
    assert not changed.is_published
    assert not published.scaled(0.5).is_published
    assert published.scaled(0.5).compute_seconds["h100"] == pytest.approx(0.1615)


@pytest.mark.parametrize("name", WORKLOADS)
def test_default_data_is_whole_steps_for_all_accelerators(name: str) -> None:
    workload = WORKLOADS[name]
    for count in (1, 3, 64):
        samples = workload.default_samples("h100", count)
        steps = samples / (workload.batch_size * count)
        assert steps == int(steps) >= 4


def test_record_sizes_have_the_published_mean() -> None:
    sizes = record_sizes(WORKLOADS["unet3d"], 20_000)
    average = WORKLOADS["unet3d"].record_bytes
    assert sum(sizes) / len(sizes) == pytest.approx(average, rel=0.01)
    assert 0.09 * average < min(sizes) < max(sizes) < 1.91 * average
    assert set(record_sizes(WORKLOADS["resnet50"], 10)) == {114_660}


def test_times_are_read_as_people_write_them() -> None:
    assert [parse_seconds(t, "t") for t in ("+20ms", "1.5s", "0", "30us")] == [0.02, 1.5, 0.0, 3e-5]
    for wrong in ("20", "-1s", "1 h", "", "ms"):
        with pytest.raises(hr.InvalidArgumentError, match="expected a time"):
            parse_seconds(wrong, "t")
