"""What ranks do with safetensors files; run by test_checkpoint_safetensors.py."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from checkpoint_ways import begin, is_same, meshes_of, placed, value_of
from framework_ranks import Job, main
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from headrace import _native
from headrace.checkpoint import safetensors


def options_of(job: Job) -> dict[str, Any]:
    return {"rank_timeout": 60, **{name: value for name, value in job.options.items() if name != "seed"}}


def save(job: Job) -> Any:
    begin(job)
    seed = job.options["seed"]
    state = {f"t{n}": placed(seed, job.world, n, value_of(n)) for n in range(30)}
    return safetensors.save_sharded(job.data, state, **options_of(job))


def load(job: Job) -> Any:
    begin(job)
    seed = job.options["seed"]
    into = {f"t{n}": placed(seed, job.world, n, torch.zeros_like(value_of(n))) for n in range(30)}
    safetensors.load(job.data, into)
    for n in range(30):
        assert is_same(into[f"t{n}"], value_of(n)), n
    return None


def fsdp(job: Job) -> Any:
    """Loads what transformers has written into an FSDP2 model, and writes it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    begin(job)
    before = Path(job.data, "before")
    config = AutoConfig.from_pretrained(before)
    model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16)
    mesh = meshes_of[job.world][0]
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    safetensors.load(before, model)
    return safetensors.save_sharded(Path(job.data, "after"), model, **options_of(job))


def fails(job: Job) -> Any:
    """One rank's disk is full after its first part."""
    rank = begin(job)
    put = _native.SharedFile.put
    count = 0

    def full(self: Any, part: int, rows: Any) -> None:
        nonlocal count
        count += 1
        if rank == 1 and count == 2:
            raise OSError("no room")
        put(self, part, rows)

    _native.SharedFile.put = full
    mesh = meshes_of[job.world][0]
    state = {f"t{n}": distribute_tensor(torch.rand(64, 60), mesh, [Shard(n % 2)]) for n in range(6)}
    try:
        safetensors.save_sharded(job.data, state, part_bytes=4096, max_shard_bytes="40kB", rank_timeout=30)
    except Exception:
        dist.barrier()
        return traceback.format_exc()
    return "written"


def different(job: Job) -> Any:
    rank = begin(job)
    try:
        safetensors.save_sharded(job.data, {"x": torch.full((1000,), rank)}, rank_timeout=30)
    except Exception:
        return traceback.format_exc()
    return "written"


if __name__ == "__main__":
    main(
        {way.__name__: way for way in (save, load, fsdp, fails, different)},
        ["torch.distributed.fsdp", "transformers.models.llama.modeling_llama"],
    )
