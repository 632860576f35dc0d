"""One measurement: opens the data, makes the accelerators' loaders, trains, and reports."""

from __future__ import annotations

import importlib.util
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from headrace.base.units import format_bytes
from headrace.bench import emulation
from headrace.bench.utilisation import EpochLog, summarize
from headrace.bench.workloads import Workload
from headrace.data.dataset import Dataset
from headrace.errors import InvalidArgumentError
from headrace.loader.loader import Loader

__all__ = ["Setting", "accelerator_memory", "largest_count", "measure"]

Report = Callable[[int, int], None]
"""Takes the steps done and all of them, of all accelerators together."""


class Setting(NamedTuple):
    """What stays the same over the rows of a command."""

    workload: Workload
    accelerator: str
    url: str
    epochs: int
    seed: int
    memory_bytes: int
    """Of each loader."""
    prefetch: int
    options: Mapping[str, Any]
    """How to open the dataset and to reach its store."""

    @property
    def compute_seconds(self) -> float:
        return self.workload.compute_seconds[self.accelerator]


def accelerator_memory(workload: Workload) -> int:
    """Of a loader, when nobody says: what MLPerf Storage allows an accelerator, half a gigabyte, or four
    batches where those are larger."""
    return max(512 << 20, round(4 * workload.batch_size * workload.record_bytes))


def largest_count(setting: Setting) -> int:
    """As many accelerators as have memory in four fifths of this machine's, and 2 steps an epoch of the
    data."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with Dataset(setting.url, **_opening(setting)) as dataset:
        by_data = len(dataset) // (2 * setting.workload.batch_size)
    return max(1, min(by_data, machine * 4 // 5 // setting.memory_bytes))


def measure(setting: Setting, count: int, report: Report | None = None) -> dict[str, Any]:
    """Trains with so many accelerators. Raises InvalidArgumentError when the data is not enough for a step of
    all."""
    with ExitStack() as opened:
        dataset = opened.enter_context(Dataset(setting.url, **_opening(setting)))
        loaders = [opened.enter_context(_loader(setting, dataset, rank, count)) for rank in range(count)]
        steps = min(len(loader) for loader in loaders)
        if not steps:
            raise InvalidArgumentError(
                f"{dataset.url}: {len(dataset)} samples are no step of {count} accelerators with batches of "
                f"{setting.workload.batch_size}; generate more (--samples), or lower --batch-size"
            )
        total = steps * setting.epochs * count
        cpu = time.process_time()
        logs = emulation.train(
            loaders,
            epochs=setting.epochs,
            compute_seconds=setting.compute_seconds,
            report=None if report is None else lambda done: report(done, total),
        )
        cpu = time.process_time() - cpu
        return _row(setting, dataset, logs, cpu, [loader.stats() for loader in loaders])


def _row(
    setting: Setting,
    dataset: Dataset,
    logs: Sequence[Sequence[EpochLog]],
    cpu_seconds: float,
    stats: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    workload, count = setting.workload, len(logs)
    row = summarize(
        logs,
        compute_seconds=setting.compute_seconds,
        samples_per_step=workload.batch_size,
        record_bytes=dataset.nbytes / len(dataset),
        bar=workload.bar,
    )
    stalls: Counter[str] = Counter()
    for each in stats:
        stalls.update(each["stall_seconds"])
    cores = cpu_seconds / max(sum(row["epoch_seconds"]), 1e-9)
    return {
        "accelerators": count,
        **row,
        "cpu_seconds": cpu_seconds,
        "cores_used": cores,
        "accelerators_per_core": count * row["utilisation"] / max(cores, 1e-9),
        "fetched_bytes": sum(int(each.get("store.received_bytes", 0)) for each in stats),
        "delivered_bytes": sum(int(each["loader.delivered_bytes"]) for each in stats),
        "stall_seconds": dict(stalls.most_common()),
        "peak_memory_bytes": sum(int(each["pool.peak_bytes"]) for each in stats),
        "dataset_samples": len(dataset),
        "dataset_bytes": dataset.nbytes,
    }


def _opening(setting: Setting) -> dict[str, Any]:
    # Samples of unet3d are files, each of its own shape: not rows of one array.
    return {"format": "raw" if setting.workload.container == "npz" else "auto", **setting.options}


def _loader(setting: Setting, dataset: Dataset, rank: int, count: int) -> Loader:
    # Values as they are stored, in the least costly form there is: what a model makes of them is not storage.
    has_arrow = importlib.util.find_spec("pyarrow") is not None
    return Loader(
        dataset,
        batch_size=setting.workload.batch_size,
        rank=rank,
        world_size=count,
        seed=setting.seed,
        epoch_end="drop",
        memory=setting.memory_bytes,
        keep_in_memory=False,  # MLPerf Storage measures storage: each epoch reads its data there.
        prefetch=setting.prefetch,
        columns=["data"] if dataset.format == "raw" else None,
        ragged="arrow" if has_arrow else "list",
    )


def caching_note(dataset_bytes: int) -> str:
    """What to say of data that this machine may keep in memory; empty: nothing."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if dataset_bytes >= 5 * machine:
        return ""
    return (
        f"{format_bytes(dataset_bytes)} of data on a machine with {format_bytes(machine)} of memory: what "
        "lies on its own disks comes from the page cache. MLPerf Storage asks for five times the memory."
    )
