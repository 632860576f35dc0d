"""What ranks do with safetensors files; run by test_checkpoint_safetensors.py."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoint_ways import begin, is_same, meshes_of, placed, value_of
from framework_ranks import Job, main
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from headrace import _native
from headrace.checkpoint import safetensors
from headrace.store.store import Store


def options_of(job: Job) -> dict[str, Any]:
    ours = ("seed", "expects")
    return {"rank_timeout": 60, **{name: value for name, value in job.options.items() if name not in ours}}


def save(job: Job) -> Any:
    begin(job)
    seed = job.options["seed"]
    state = {f"t{n}": placed(seed, job.world, n, value_of(n)) for n in range(30)}
    try:
        return safetensors.save_sharded(job.data, state, **options_of(job))
    except Exception as error:
        if type(error).__name__ != job.options.get("expects"):
            raise
        return str(error)


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
    """Ranks have different values, or were given different options."""
    rank = begin(job)
    given = {name: values[rank] for name, values in job.options.items()}
    value = torch.full((1000,), 0 if given else rank)
    try:
        safetensors.save_sharded(job.data, {"x": value, "y": value.clone()}, rank_timeout=30, **given)
    except Exception:
        return traceback.format_exc()
    return "written"


def dcp_save(job: Job) -> Any:
    """By DCP itself."""
    begin(job)
    state = {f"t{n}": placed(job.options["seed"], job.world, n, value_of(n)) for n in range(30)}
    dcp.save(state, storage_writer=dcp.FileSystemWriter(job.data))


class Killed(NamedTuple):
    """What is called when a model is written; the process ends before the nth of them."""

    calls: list[tuple[Any, str]]
    left: list[int]

    def arm(self) -> None:
        for owner, name in self.calls:
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, call: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.left[0] -= 1
            if self.left[0] < 0:
                os._exit(9)
            return call(*arguments, **options)

        return counted


def killed(job: Job) -> Any:
    """Replaces a model by another of more files, and ends before any step of it. What is there then, by step:
    the old model, none, or the new one."""
    states = [{f"t{n}": torch.full((1000,), float(seed)) for n in range(6)} for seed in (1, 2)]
    calls = [(_native.SharedFile, name) for name in ("put", "settle", "publish")]
    calls += [(_native, "checkpoint_write_small"), (Store, "delete"), (Store, "delete_many")]
    seen = []
    for step in range(100):
        place = Path(job.data, str(step))
        pid = os.fork()
        if pid == 0:
            safetensors.save_sharded(place, states[0], max_shard_bytes="12kB", part_bytes=4096)
            Killed(calls, [step]).arm()
            safetensors.save_sharded(place, states[1], max_shard_bytes="8kB", part_bytes=4096, overwrite=True)
            os._exit(0)
        end = os.waitpid(pid, 0)[1]
        seen.append(_seen(place))
        pid = os.fork()
        if pid == 0:
            safetensors.save_sharded(place, states[0], overwrite=True)
            os._exit(0 if _seen(place) == "old" else 1)
        if os.waitpid(pid, 0)[1] != 0:
            return f"{step}: cannot be replaced"
        if end == 0:
            return seen
    return "does not end"


def _seen(place: Path) -> str:
    if not any((place / name).exists() for name in (safetensors.SINGLE, safetensors.INDEX)):
        return "none"
    values = {each for value in safetensors.load(place).values() for each in value.tolist()}
    return {(1.0,): "old", (2.0,): "new"}.get(tuple(values), f"a mixture: {values}")


def large(job: Job) -> Any:
    """Parts of 5 MiB of two files, at a server."""
    begin(job)
    mesh = meshes_of[job.world][0]
    state = {
        f"t{n}": distribute_tensor(torch.arange(3e6).reshape(3000, 1000) + n, mesh, [Shard(n % 2)])
        for n in range(3)
    }
    options = {**job.options, "part_bytes": 5 << 20}
    safetensors.save_sharded(job.data, state, max_shard_bytes="25MB", rank_timeout=60, **options)
    dist.barrier()
    into = {name: torch.zeros(3000, 1000) for name in state}
    safetensors.load(job.data, into, **job.options)
    return [torch.equal(into[f"t{n}"], torch.arange(3e6).reshape(3000, 1000) + n) for n in range(3)]


if __name__ == "__main__":
    main(
        {way.__name__: way for way in (save, load, fsdp, fails, different, dcp_save, killed, large)},
        ["torch.distributed.fsdp", "transformers.models.llama.modeling_llama"],
    )
