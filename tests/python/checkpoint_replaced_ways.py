"""Ranks that load a step which is saved anew meanwhile; run by test_checkpoint_replaced.py.

When it is saved anew is no matter of time: rank 0 does something, then the others wait for the new save
before they do it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoint_ways import begin, meshes_of, whole
from framework_ranks import Job, main
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import Shard, distribute_tensor

from headrace.checkpoint import Checkpointer, Group, sharing
from headrace.checkpoint.dcp import Reader

SIZE = 30_000


def state_of(number: int, x: float | None = None) -> dict[str, Any]:
    return {"x": torch.full((SIZE,), float(number) if x is None else x), "n": number}


def save(job: Job) -> None:
    """Steps 1 and 2, a part of x by each rank."""
    begin(job)
    with Checkpointer(job.data, rank_timeout=60, **job.options.get("store", {})) as saving:
        for step in (1, 2):
            x = distribute_tensor(state_of(step)["x"], meshes_of[job.world][0], [Shard(0)])
            saving.save(step, {"x": x, "n": step}).result(60)


def save_anew(job: Job, step: int, state: dict[str, Any], keep: int | None = None) -> None:
    """By one process, which is not among those that load."""
    with Checkpointer(job.data, group=Group(), keep=keep, **job.options.get("store", {})) as other:
        other.save(step, state, overwrite=True).result(60)


class Meeting:
    """Where rank 0 waits, while rank 1 saves step 2 anew; so often. Or, with ``keep``, steps 3, 4, ..., and
    lets older ones go."""

    def __init__(self, job: Job, rank: int) -> None:
        self._job, self._rank = job, rank
        self._numbers = iter(range(3, 3 + job.options.get("times", 1)))

    def wait(self) -> None:
        number = next(self._numbers, None)
        if number is None:
            return
        dist.barrier()
        if self._rank == 1:
            keep, state = self._job.options.get("keep"), state_of(number, self._job.options.get("x"))
            save_anew(self._job, number if keep else 2, state, keep)
        dist.barrier()

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def meets(*arguments: Any, **more: Any) -> Any:
            self.wait()
            return call(*arguments, **more)

        return meets

    def after(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def meets(*arguments: Any, **more: Any) -> Any:
            result = call(*arguments, **more)
            self.wait()
            return result

        return meets


def load(job: Job) -> Any:
    """Step 2 is saved anew when rank 0 has its manifest, or all of it, and no other rank has any."""
    rank, options = begin(job), job.options
    sharing._STRIPE_BLOCKS = 4
    with Checkpointer(
        job.data, rank_timeout=60, share_reads=options["share"], **options.get("store", {})
    ) as loading:
        meeting: Any = Meeting(job, rank)
        if rank > 0:
            loading._try = meeting.before(loading._try)  # type: ignore[method-assign]
        else:
            wrapped = meeting.before if options["at"] == "manifest" else meeting.after
            loading._read = wrapped(loading._read)  # type: ignore[method-assign]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                into = state_of(0) if options.get("into", True) else None
                got = loading.load(options.get("step"), into=into)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        return [got["x"].unique().tolist(), got["n"], [each.step for each in loading.rejected], len(said)]


ANEW = {
    "replaced": (2, state_of(3)),
    "another step": (5, state_of(3)),
    "other dtype": (2, {"x": torch.zeros(SIZE, dtype=torch.float64), "n": 3}),
    "other names": (2, {"x": torch.zeros(SIZE), "n": 3, "y": 1}),
}


def load_by_dcp(job: Job) -> Any:
    """As above, between what ranks read of metadata; ``again``: also when they have agreed."""
    rank, options = begin(job), job.options
    reader: Any = Reader(job.data, step=options.get("step"), **options.get("store", {}))
    numbers = itertools.count()

    def saves_anew() -> None:
        dist.barrier()
        if rank == 1:
            save_anew(job, *ANEW[options["anew"]])
        dist.barrier()

    read_metadata, prepare_global_plan = reader.read_metadata, reader.prepare_global_plan

    def reads_metadata() -> Any:
        if next(numbers) > 0:
            return read_metadata()
        if rank > 0:
            saves_anew()
            return read_metadata()
        metadata = read_metadata()
        saves_anew()
        return metadata

    def prepares(plans: Any) -> Any:
        if options.get("again"):
            save_anew(job, 2, state_of(4))
        return prepare_global_plan(plans)

    reader.read_metadata, reader.prepare_global_plan = reads_metadata, prepares
    mesh = meshes_of[job.world][0]
    x = distribute_tensor(torch.zeros(SIZE), mesh, [Shard(0)]) if options.get("shards") else torch.zeros(SIZE)
    state = {"x": x, "n": 0}
    try:
        dcp.load(state, storage_reader=reader)
    except CheckpointException as error:
        return f"{error}"
    return [whole(state["x"]).unique().tolist(), state["n"]]


if __name__ == "__main__":
    main({way.__name__: way for way in (save, load, load_by_dcp)}, ["torch.distributed.tensor"])
