"""The arithmetic of ``headrace bench train``. No I/O and no clock here.

Accelerator utilisation as MLPerf Storage and DLIO define it: the time that an accelerator would compute,
divided by the time that passed, where both begin after the first step of an epoch; the mean over accelerators
and epochs. Compute time is what was asked for, not what was slept: a sleep that the machine ends late counts
as waiting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["EpochLog", "find_largest", "mean", "percentile", "summarize", "utilisation"]


class EpochLog(NamedTuple):
    """One epoch of one accelerator. Times are of one clock, in seconds."""

    started: float
    """When its first batch was asked for."""
    first_step_ended: float
    ended: float
    """When its last step had ended, barrier included."""
    waits: Sequence[float]
    """For the batch of each step."""
    overslept: float = 0.0
    """By which its sleeps, which stand for computing, ended late, all together."""

    @property
    def steps(self) -> int:
        return len(self.waits)


def utilisation(log: EpochLog, compute_seconds: float) -> float:
    """Share of the time that was spent computing, 0 to 1. The first step does not count, unless it is the
    only one."""
    steps, since = (log.steps - 1, log.first_step_ended) if log.steps > 1 else (log.steps, log.started)
    elapsed = log.ended - since
    return min(1.0, compute_seconds * steps / elapsed) if elapsed > 0 else 1.0


def percentile(values: Sequence[float], share: float) -> float:
    """The least value that at least this share of them does not exceed (nearest rank); 0 of none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def mean(values: Iterable[float]) -> float:
    """0 of none."""
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def summarize(
    logs: Sequence[Sequence[EpochLog]],
    *,
    compute_seconds: float,
    samples_per_step: int,
    record_bytes: float,
    bar: float,
) -> dict[str, Any]:
    """What the logs of all accelerators (each a list of epochs) say together.

    :param samples_per_step: of one accelerator.
    :param record_bytes: of one sample, as the workload has it.
    """
    by_epoch = [mean(utilisation(log, compute_seconds) for log in epoch) for epoch in zip(*logs, strict=True)]
    seconds = [
        max(log.ended for log in epoch) - min(log.started for log in epoch)
        for epoch in zip(*logs, strict=True)
    ]
    steps = sum(log.steps for log in logs[0])
    samples = sum(log.steps for epochs in logs for log in epochs) * samples_per_step
    waits = [wait for epochs in logs for log in epochs for wait in log.waits[1:] or log.waits]
    first = [log.waits[0] for epochs in logs for log in epochs]
    overall = mean(by_epoch)
    per_second = samples / sum(seconds) if sum(seconds) > 0 else 0.0
    return {
        "utilisation": overall,
        "passes": overall >= bar,
        "utilisation_first_epoch": by_epoch[0],
        "utilisation_later_epochs": mean(by_epoch[1:]) if by_epoch[1:] else None,
        "utilisation_by_epoch": by_epoch,
        "epoch_seconds": seconds,
        "steps": steps,
        "samples": samples,
        "samples_per_s": per_second,
        "mb_per_s": per_second * record_bytes / 1e6,
        "wait_p50_s": percentile(waits, 0.5),
        "wait_p99_s": percentile(waits, 0.99),
        "wait_p999_s": percentile(waits, 0.999),
        "wait_max_s": max(waits, default=0.0),
        "first_batch_s": max(first, default=0.0),
        "overslept_s": sum(log.overslept for epochs in logs for log in epochs) / len(logs),
    }


def find_largest(passes: Callable[[int], bool], limit: int) -> int:
    """The largest count up to ``limit`` that passes, if what passes is a run from 1 on: doubles until one
    fails, then halves the gap. 0 when 1 fails."""
    good, bad = 0, limit + 1
    count = 1
    while count < bad:
        if passes(count):
            good = count
            count = min(2 * count, limit) if count < limit else bad
        else:
            bad = count
    while bad - good > 1:
        middle = (good + bad) // 2
        if passes(middle):
            good = middle
        else:
            bad = middle
    return good
