"""What a cache of some size would bring to a run, before anybody buys disks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace.base.units import parse_bytes, whole_number
from headrace.errors import InvalidArgumentError
from headrace.loader.loader import Loader
from headrace.store.tiers import CACHE_OPTIONS

__all__ = ["POLICIES", "Machine", "SimulatedCache", "Simulation", "simulate"]

POLICIES = ("next_use", "lru")
_STEPS = 10


class Machine(NamedTuple):
    """What stalls depend on. Rates are those of all ranks together."""

    bandwidth: float = 1.25e9
    """Bytes a second from the store."""
    first_byte: float = 0.03
    """Seconds."""
    disk: float = 3e9
    """Bytes a second from the cache."""
    step: float = 0.1
    """Seconds from batch to batch, where nothing is waited for."""


class SimulatedCache(NamedTuple):
    """A run with a cache of one size."""

    policy: str
    """``"next_use"``: as the cache evicts. ``"lru"``: what was used longest ago goes first, for
    comparison."""
    limit_bytes: int
    hit_rate: float
    """Of the bytes that are read."""
    fetched_bytes: int
    epoch_fetched_bytes: list[int]
    """By epoch."""
    stall_seconds: float
    """Waited for reads, the first batch's included."""
    run_seconds: float


class Simulation(NamedTuple):
    data_bytes: int
    """Of the dataset, as far as a cache can keep it."""
    file_bytes: int
    """That it takes in a cache: with a limit above this nothing is evicted."""
    rows: list[SimulatedCache]
    machine: Machine


def simulate(
    dataset: Any,
    *,
    batch_size: int,
    sizes: Sequence[int | str] | None = None,
    epochs: int = 3,
    world_size: int = 1,
    ranks_per_node: int | None = None,
    memory: int | str = "4GiB",
    machine: Machine | None = None,
    progress: Callable[[int, int, int], None] | None = None,
    **options: Any,
) -> Simulation:
    """Runs a loader without moving data, and replays what it reads against caches of several sizes.

    Order, read-ahead and memory are the real ones, so bytes are those of a run whose store keeps up. Times
    follow from a model: a line and a disk that serve reads one after the other in the order in which they are
    made.

    :param dataset: whatever a Loader takes.
    :param sizes: as ``cache_limit=``; 0 is no cache. Default: eleven from none to all of the dataset.
    :param epochs: of the run; the cache is empty before it.
    :param ranks_per_node: ranks that share the cache, from rank 0 on. Default: all.
    :param memory: of each rank, as the run will have it.
    :param progress: called now and then with (batches so far, batches in all, 0).
    :param options: others of the Loader.
    """
    for name in (*CACHE_OPTIONS, "cache_mode", "rank", "epochs"):
        if name in options:
            raise InvalidArgumentError(f"{name}= is what is simulated: leave it out")
    epochs, ranks = whole_number("epochs", epochs, 32), ranks_per_node or world_size
    if not 0 < ranks <= world_size or epochs == 0:
        raise InvalidArgumentError(
            f"{ranks} ranks of {world_size} and {epochs} epochs: there is nothing to simulate"
        )
    with Loader(
        dataset, batch_size=batch_size, rank=0, world_size=world_size, memory=memory, epochs=epochs, **options
    ) as loader:
        trace = loader._native.trace_reads(
            ranks=ranks,
            epochs=epochs,
            memory_bytes=parse_bytes(memory),
            progress=progress,
        )
    machine = machine or Machine()
    if sizes is None:
        limits = [trace.file_bytes * step // _STEPS for step in range(_STEPS)]
        # Blocks that are read in parts have more files.
        limits.append(trace.file_bytes * 21 // 20)
    else:
        limits = [0 if size in (0, "0") else parse_bytes(size, "sizes") for size in sizes]
    rows = []
    for policy in POLICIES:
        for limit in limits:
            found = trace.simulate(
                limit_bytes=limit,
                is_lru=policy == "lru",
                line_bytes_per_s=machine.bandwidth,
                first_byte_s=machine.first_byte,
                disk_bytes_per_s=machine.disk,
                step_s=machine.step,
            )
            read = found["hit_bytes"] + found["fetched_bytes"]
            rows.append(
                SimulatedCache(
                    policy,
                    limit,
                    found["hit_bytes"] / read if read else 0.0,
                    found["fetched_bytes"],
                    found["epoch_fetched_bytes"],
                    found["stall_seconds"],
                    found["run_seconds"],
                )
            )
    return Simulation(trace.data_bytes, trace.file_bytes, rows, machine)
