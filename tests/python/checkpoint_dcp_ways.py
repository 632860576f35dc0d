"""What ranks do with DCP over our storage; run by test_checkpoint_dcp.py."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoint_ways import (
    begin,
    is_same,
    meshes_of,
    tensors,
    to_train,
    train_step,
    value_of,
    whole,
)
from framework_ranks import Job, main
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import EnumerableShardingSpec, ShardMetadata
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import Shard, distribute_tensor

import headrace.checkpoint
from headrace.checkpoint.dcp import Reader, SafeLoadPlanner, Writer

WHOLE = torch.arange(1600.0).reshape(80, 20)


def sharded(world: int, rank: int, *, filled: bool) -> Any:
    """Rows of a ShardedTensor, the more the higher the rank."""
    unit = world * (world + 1) // 2
    ends = [80 * k * (k + 1) // 2 // unit for k in range(world + 1)]
    rows = [
        ShardMetadata(shard_offsets=[a, 0], shard_sizes=[b - a, 20], placement=f"rank:{k}/cpu")
        for k, (a, b) in enumerate(itertools.pairwise(ends))
    ]
    tensor = sharded_tensor.zeros(EnumerableShardingSpec(rows), 80, 20)
    if filled:
        (shard,) = tensor.local_shards()
        shard.tensor.copy_(WHOLE[ends[rank] : ends[rank + 1]])
    return tensor


def state_of(job: Job, rank: int, *, like: bool) -> dict[str, Any]:
    state = {
        "tensors": tensors(job, like),
        "number": 0 if like else 5,
        "list": [torch.zeros(3) if like else torch.ones(3), {"text": "" if like else "x"}],
        "lr": [0.0] if like else [0.5, 0.25],
    }
    return state | ({"sharded": sharded(job.world, rank, filled=not like)} if job.world > 1 else {})


def save(job: Job) -> Any:
    rank = begin(job)
    state = state_of(job, rank, like=False)
    writer = Writer(job.data, step=7, part_bytes=5 << 20)
    for _ in range(2):
        if job.options.get("asynchronous"):
            dcp.async_save(state, storage_writer=writer).result()
        else:
            dcp.save(state, storage_writer=writer)
    return rank


def load(job: Job) -> Any:
    rank = begin(job)
    state = state_of(job, rank, like=True)
    if job.options.get("lacks_sharded"):
        state.pop("sharded", None)
    dcp.load(
        state, storage_reader=Reader(job.data), planner=SafeLoadPlanner(allow_partial_load=job.world == 1)
    )
    for n in range(30):
        assert is_same(state["tensors"][f"t{n}"], value_of(n)), n
    if "sharded" in state:
        (shard,) = state["sharded"].local_shards()
        first = shard.metadata.shard_offsets[0]
        assert torch.equal(shard.tensor, WHOLE[first : first + len(shard.tensor)])
    assert torch.equal(state["list"][0], torch.ones(3))
    return [state["number"], state["list"][1], state["lr"]]


def train(job: Job) -> Any:
    """FSDP2 or DDP, from the last checkpoint on; one after each step."""
    begin(job)
    model, optimizer = to_train(job)
    with headrace.checkpoint.Checkpointer(job.data) as looked:
        first = looked.latest() or 0
    if first:
        weights, moments = get_state_dict(model, optimizer)
        got = {"model": weights, "optimizer": moments}
        dcp.load(got, storage_reader=Reader(job.data))
        set_state_dict(model, optimizer, model_state_dict=got["model"], optim_state_dict=got["optimizer"])
    saving, saves = None, dist.new_group()  # Training goes on meanwhile, and has collectives of its own.
    for step in range(first, job.options["steps"]):
        train_step(model, optimizer, step)
        weights, moments = get_state_dict(model, optimizer)
        if saving is not None:
            saving.result()
        saving = dcp.async_save(
            {"model": weights, "optimizer": moments},
            storage_writer=Writer(job.data, step=step + 1),
            process_group=saves,
        )
    if saving is not None:
        saving.result()
    weights, _ = get_state_dict(model, optimizer)
    return {name: whole(w).double().sum().item() for name, w in weights.items()}


def one_fails(job: Job) -> Any:
    """A rank cannot write its part."""
    rank = begin(job)
    state = {"x": distribute_tensor(torch.arange(100.0), meshes_of[job.world][0], [Shard(0)])}
    dcp.save(state, storage_writer=Writer(job.data, step=1))
    if rank == 1:
        import headrace._native as native

        def fail(*_: Any, **__: Any) -> None:
            raise headrace.UnavailableError("no room for it")

        native.checkpoint_write_small = fail  # type: ignore[assignment]
    try:
        if job.options["asynchronous"]:
            dcp.async_save(state, storage_writer=Writer(job.data, step=2)).result()
        else:
            dcp.save(state, storage_writer=Writer(job.data, step=2))
    except CheckpointException as error:
        dist.barrier()
        with headrace.checkpoint.Checkpointer(job.data, group=headrace.checkpoint.Group()) as looked:
            return [str(error), looked.steps()]
    return "saved"


def other_process(job: Job) -> Any:
    begin(job)
    process, state = AsyncCheckpointerType.PROCESS, {"x": torch.ones(100)}
    told = ""
    try:
        dcp.async_save(state, storage_writer=Writer(job.data), async_checkpointer_type=process).result()
    except Exception as error:
        told = str(error).partition(",")[0]
    stager = DefaultStager(StagingOptions(False, True, False, False))
    future: Any = dcp.async_save(
        state, storage_writer=Writer(job.data), async_checkpointer_type=process, async_stager=stager
    )
    getattr(future, "upload_completion", future).result()
    got = {"x": torch.zeros(100)}
    dcp.load(got, storage_reader=Reader(job.data))
    return [told, got["x"].mean().item()]


if __name__ == "__main__":
    main(
        {way.__name__: way for way in (save, load, train, one_fails, other_process)},
        ["torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict"],
    )
