"""The workloads of ``headrace bench train``: what a record weighs, how many make a batch, how long an
accelerator computes on it.

Source of unet3d, resnet50 and cosmoflow: MLPerf Storage v2.0, the DLIO configurations
``configs/dlio/workload/{unet3d,resnet50,cosmoflow}_{a100,h100}.yaml`` of mlcommons/storage. llm is not one of
MLPerf's (its language models only write checkpoints): its compute time follows from the formula beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.errors import InvalidArgumentError

__all__ = ["ACCELERATORS", "WORKLOADS", "Workload", "find_workload"]

ACCELERATORS = ("h100", "a100")


class Workload(NamedTuple):
    """One model's training, as storage sees it."""

    name: str
    container: str
    """What the records lie in: ``"npz"``, ``"tfrecord"`` or ``"mds"``."""
    record_bytes: float
    record_stdev: float
    """Record sizes are normally distributed; 0: all the same."""
    samples_per_file: int
    """0: as many as fit a shard of the writer's usual size."""
    batch_size: int
    """Samples a step and accelerator."""
    compute_seconds: Mapping[str, float]
    """Of one step, by accelerator."""
    bar: float
    """Least utilisation that passes."""
    epochs: int
    is_published: bool
    """By MLPerf Storage, and nothing was changed about it."""

    def bytes_per_second(self, accelerator: str) -> float:
        """What one accelerator takes that never waits."""
        return self.batch_size * self.record_bytes / self.compute_seconds[accelerator]

    def changed(self, **given: Any) -> Workload:
        """With other numbers, where they say something: no published workload any more."""
        told = {name: value for name, value in given.items() if value}
        if not told:
            return self
        if "record_bytes" in told:
            told["record_stdev"] = self.record_stdev * told["record_bytes"] / self.record_bytes
        return self._replace(**told, is_published=False)

    def scaled(self, factor: float) -> Workload:
        """With compute times multiplied."""
        if factor == 1:
            return self
        times = {name: seconds * factor for name, seconds in self.compute_seconds.items()}
        return self._replace(compute_seconds=times, is_published=False)

    def default_samples(self, accelerator: str, accelerators: int) -> int:
        """So many that the epochs take about 45 s and an epoch has at most 2 GiB, but at least 4 steps."""
        steps = 45 / self.epochs / self.compute_seconds[accelerator]
        room = (2 << 30) / (self.batch_size * accelerators * self.record_bytes)
        return max(4, math.floor(min(steps, room))) * self.batch_size * accelerators


def _language_model_seconds(flops_per_second: float) -> float:
    """A step of 16 sequences of 2,048 tokens through 1.3e9 parameters: 6 operations a parameter and token, at
    40 % of the accelerator's peak in bfloat16. Rounded to milliseconds."""
    return round(16 * 2048 * 6 * 1.3e9 / (0.4 * flops_per_second), 3)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="unet3d",
            container="npz",
            record_bytes=146_600_628,
            record_stdev=68_341_808,
            samples_per_file=1,
            batch_size=7,
            compute_seconds={"a100": 0.636, "h100": 0.323},
            bar=0.90,
            epochs=5,
            is_published=True,
        ),
        Workload(
            name="resnet50",
            container="tfrecord",
            record_bytes=114_660.07,
            record_stdev=0,
            samples_per_file=1251,
            batch_size=400,
            compute_seconds={"a100": 0.435, "h100": 0.224},
            bar=0.90,
            epochs=5,
            is_published=True,
        ),
        Workload(
            name="cosmoflow",
            container="tfrecord",
            record_bytes=2_828_486,
            record_stdev=71_311,
            samples_per_file=1,
            batch_size=1,
            compute_seconds={"a100": 0.00551, "h100": 0.00350},
            bar=0.70,
            epochs=5,
            is_published=True,
        ),
        Workload(
            name="llm",
            container="mds",
            record_bytes=2049 * 2,  # uint16 tokens, one more than the model sees
            record_stdev=0,
            samples_per_file=0,
            batch_size=16,
            compute_seconds={
                "a100": _language_model_seconds(312e12),
                "h100": _language_model_seconds(989e12),
            },
            bar=0.90,
            epochs=3,
            is_published=False,
        ),
    )
}


def find_workload(name: str) -> Workload:
    """By name. Raises InvalidArgumentError that lists them."""
    if name not in WORKLOADS:
        raise InvalidArgumentError(f"workload {name!r} is unknown; there are {', '.join(WORKLOADS)}")
    return WORKLOADS[name]
