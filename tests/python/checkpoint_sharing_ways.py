"""Ranks that load what they share; run by test_checkpoint_sharing_ranks.py."""

from __future__ import annotations

import json
import urllib.request
import warnings
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoint_ways import begin, is_same
from framework_ranks import Job, main
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from headrace.checkpoint import Checkpointer, sharing
from headrace.checkpoint.dcp import Reader
from headrace.checkpoint.exchange import TorchExchange

SHAPES = [(1201, 803), (16, 40_001), (70_001,), (3000, 1), (), (257, 65, 9), (5, 7)]


def made(number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    value = torch.rand(SHAPES[number], generator=generator)
    return value.bfloat16() if number % 3 == 2 else value


def placed(value: torch.Tensor, layout: str, world: int) -> Any:
    if layout == "replicas":
        return value.clone()
    hybrid = layout == "hybrid" and world % 2 == 0
    mesh = init_device_mesh("cpu", (2, world // 2) if hybrid else (world,))
    shard = Shard(1 if layout == "columns" and value.ndim > 1 else 0) if value.ndim else Replicate()
    placements = [Replicate(), shard] if hybrid else [shard]
    return distribute_tensor(value.clone(), mesh, placements, src_data_rank=None)


def checkpointer(job: Job, **more: Any) -> Checkpointer:
    sharing._STRIPE_BLOCKS = job.options.get("stripe_blocks", 512)
    return Checkpointer(job.data, rank_timeout=60, **job.options.get("store", {}), **more)


def save(job: Job) -> Any:
    begin(job)
    state = {f"t{n}": placed(made(n), job.options["layout"], job.world) for n in range(len(SHAPES))}
    with checkpointer(job) as saving:
        saving.save(1, {"tensors": state, "array": np.arange(20), "step": 1}).result(60)


def save_differential(job: Job) -> Any:
    """Twice, with every other tensor as it is at the end. Returns how much it did not write again."""
    begin(job)
    tensors = {f"t{n}": placed(made(n), job.options["layout"], job.world) for n in range(len(SHAPES))}
    before = {name: value if n % 2 else value * 0 for n, (name, value) in enumerate(tensors.items())}
    with checkpointer(job, differential=True) as saving:
        saving.save(1, {"tensors": before, "array": np.arange(20), "step": 0}).result(60)
        manifest = saving.save(2, {"tensors": tensors, "array": np.arange(20), "step": 1}).result(60)
    return sum(each.needed for each in manifest.earlier)


def sent_bytes(job: Job) -> int:
    """Of data files, by the store; when all ranks have come here."""
    dist.barrier()
    with urllib.request.urlopen(f"{job.options['store']['endpoint']}/_headrace/stats") as answer:
        objects = json.load(answer)["objects"]
    dist.barrier()
    return sum(each["bytes"] for name, each in objects.items() if name.endswith(".safetensors"))


def load(job: Job) -> Any:
    """Bytes that the store has sent for it, and that were needed."""
    begin(job)
    like = {
        f"t{n}": placed(torch.zeros_like(made(n)), job.options["layout"], job.world)
        for n in range(len(SHAPES))
    }
    with checkpointer(job, share_reads=job.options["share"]) as loading:
        before = sent_bytes(job)
        state = {"tensors": like, "array": np.zeros(20, np.int64), "step": 0}
        got = loading.load(into=state)
        count = sent_bytes(job) - before
    assert got["step"] == 1
    assert (got["array"] == np.arange(20)).all()
    for n in range(len(SHAPES)):
        assert is_same(got["tensors"][f"t{n}"], made(n)), n
    return [count, sum(made(n).nbytes for n in range(len(SHAPES))) + 160]


def load_dcp(job: Job) -> Any:
    """As load(), through torch's distributed checkpoint."""
    begin(job)
    sharing._STRIPE_BLOCKS = job.options.get("stripe_blocks", 512)
    like = {
        f"t{n}": placed(torch.zeros_like(made(n)), job.options["layout"], job.world)
        for n in range(len(SHAPES))
    }
    state = {"tensors": like, "array": np.zeros(20, np.int64), "step": 0}
    reader = Reader(job.data, share_reads=job.options["share"], **job.options["store"])
    before = sent_bytes(job)
    dcp.load(state, storage_reader=reader)
    count = sent_bytes(job) - before
    dcp.load(state, storage_reader=reader)  # It may be used again.
    reader.close()
    assert state["step"] == 1
    assert (state["array"] == np.arange(20)).all()
    for n in range(len(SHAPES)):
        assert is_same(state["tensors"][f"t{n}"], made(n)), n
    return [count, sum(made(n).nbytes for n in range(len(SHAPES))) + 160]


def load_dcp_by_some(job: Job) -> Any:
    """By two of three ranks: the third knows nothing of it."""
    rank = begin(job)
    group = dist.new_group([0, 1])
    x = torch.zeros(300_000)
    if rank < 2:
        reader = Reader(job.data, share_reads="always")
        dcp.load({"x": x}, storage_reader=reader, process_group=group)
    return x.unique().tolist()


class Refuses(DefaultLoadPlanner):
    def resolve_tensor(self, item: Any) -> Any:
        raise ValueError("no place for it")


def mismatch_dcp(job: Job) -> Any:
    """One rank's planner fails; all ranks fail, at once."""
    rank = begin(job)
    planner = Refuses() if rank == 1 else DefaultLoadPlanner()
    reader = Reader(job.data, share_reads="always")
    try:
        dcp.load({"x": torch.zeros(300_000)}, storage_reader=reader, planner=planner)
    except CheckpointException as error:
        return sorted([rank, f"{type(why).__name__}: {why}"] for rank, (why, _) in error.failures.items())
    return "loaded"


def load_whole(job: Job) -> Any:
    """Without a state to load into."""
    begin(job)
    with checkpointer(job, share_reads="always") as loading:
        before = sent_bytes(job)
        got = loading.load()
        count = sent_bytes(job) - before
    for n in range(len(SHAPES)):
        assert is_same(got["tensors"][f"t{n}"], made(n)), n
    return [count, sum(made(n).nbytes for n in range(len(SHAPES))) + 160]


def save_steps(job: Job) -> Any:
    begin(job)
    with checkpointer(job) as saving:
        for step in (1, 2):
            saving.save(step, {"x": torch.full((300_000,), float(step))}).result(60)


def damaged(job: Job) -> Any:
    """All ranks go back to the checkpoint before."""
    begin(job)
    with checkpointer(job, share_reads="always") as loading, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = loading.load(into={"x": torch.zeros(300_000)})
        rejected = [each.step for each in loading.rejected]
        again = loading.load(1, into={"x": torch.zeros(300_000)})
        return [got["x"].unique().tolist(), rejected, again["x"].unique().tolist()]


class Gone(BaseException):
    """The rank ends."""


def lost(job: Job) -> Any:
    """A rank ends while others wait for what it hands on."""
    rank = begin(job)
    calls = iter(range(1000))
    pass_on = TorchExchange.pass_on

    def passes_on(self: Any, *arguments: Any) -> None:
        if rank == 1 and next(calls) == job.options["after"]:
            raise Gone
        pass_on(self, *arguments)

    TorchExchange.pass_on = passes_on  # type: ignore[method-assign]
    sharing._STRIPE_BLOCKS = 4
    loading = Checkpointer(job.data, rank_timeout=4, share_reads="always")
    try:
        loading.load(into={"x": torch.zeros(300_000)})
    except Gone:
        return "gone"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "loaded"


def no_group(job: Job) -> Any:
    """Ranks that have no way to hand bytes on: each reads for itself, or it is an error."""
    rank = begin(job)

    def fails(self: Any) -> None:
        if rank == 1:
            raise RuntimeError("no network")

    TorchExchange.open = fails  # type: ignore[method-assign]
    sharing._LEAST_STRIPES = 1
    told = []
    for mode in ("always", "auto"):
        with checkpointer(job, share_reads=mode) as loading:
            try:
                told.append(loading.load(into={"x": torch.zeros(300_000)})["x"].unique().tolist())
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}")
    return told


def mismatch(job: Job) -> Any:
    """One rank's state does not fit; all fail, at once."""
    rank = begin(job)
    with checkpointer(job, share_reads="always") as loading:
        try:
            loading.load(into={"x": torch.zeros(300_000 + rank)})
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return "loaded"


if __name__ == "__main__":
    ways = (
        save,
        save_differential,
        load,
        load_dcp,
        load_dcp_by_some,
        load_whole,
        save_steps,
        damaged,
        lost,
        no_group,
        mismatch,
        mismatch_dcp,
    )
    main({way.__name__: way for way in ways}, ["torch.distributed.tensor"])
