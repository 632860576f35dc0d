"""What ranks do with checkpoints; run by test_checkpoint_ranks.py."""

from __future__ import annotations

import hashlib
import random
import warnings
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from framework_ranks import Job, main
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import headrace.checkpoint

SHAPES = [(7,), (64, 33), (5, 3, 2), (1, 1), (130, 70), (0, 4), ()]
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.float8_e4m3fn, torch.bool]


def value_of(number: int) -> torch.Tensor:
    """A tensor that every rank can make, and no two alike."""
    shape, dtype = SHAPES[number % len(SHAPES)], DTYPES[number % len(DTYPES)]
    generator = torch.Generator().manual_seed(number)
    return torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator).to(dtype)


def meshes(world: int) -> list[Any]:
    found = [init_device_mesh("cpu", (world,))]
    if world % 2 == 0 and world > 2:
        found.append(init_device_mesh("cpu", (2, world // 2)))
    return found


def placed(seed: int, world: int, number: int, value: torch.Tensor) -> Any:
    """The tensor, whole or distributed somehow: the same way on each rank."""
    chosen = random.Random(f"{seed} {world} {number}")
    if chosen.random() < 0.2:
        return value.clone()
    mesh = chosen.choice(meshes_of[world])
    placements = [
        Shard(chosen.randrange(value.ndim)) if value.ndim and chosen.random() < 0.7 else Replicate()
        for _ in range(mesh.ndim)
    ]
    return distribute_tensor(value.clone(), mesh, placements, src_data_rank=None)


meshes_of: dict[int, list[Any]] = {}


def begin(job: Job) -> int:
    if job.world > 1:
        dist.init_process_group("gloo")
    elif not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    meshes_of[job.world] = meshes(job.world)
    return dist.get_rank()


def tensors(job: Job, like: bool) -> dict[str, Any]:
    seed = job.options["seed"] + (1 if like else 0)
    return {
        f"t{n}": placed(seed, job.world, n, torch.zeros_like(value_of(n)) if like else value_of(n))
        for n in range(30)
    }


def whole(value: Any) -> torch.Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def is_same(value: Any, expected: torch.Tensor) -> bool:
    """Whether what this rank has of it is the same, bit for bit."""
    if isinstance(value, DTensor):
        local = value.to_local()
        for chunk in value.__create_chunk_list__() if local.numel() else ():
            expected = expected[
                tuple(slice(o, o + s) for o, s in zip(chunk.offsets, chunk.sizes, strict=True))
            ]
        value = local
    raw = [each.contiguous().flatten().view(torch.uint8) for each in (value, expected)]
    return value.numel() == 0 or torch.equal(*raw)


def save(job: Job) -> Any:
    rank = begin(job)
    differential = job.options.get("differential", False)
    compression = job.options.get("compression")
    with headrace.checkpoint.Checkpointer(
        job.data, rank_timeout=60, differential=differential, compression=compression
    ) as checkpointer:
        state = {"tensors": tensors(job, False), "number": 5, "array": np.arange(20)}
        for step in (1, 2):
            saved = checkpointer.save(step, state, metadata={"step": step}).result(60)
        assert bool(saved.earlier) == differential
    return rank


def load(job: Job) -> Any:
    begin(job)
    with headrace.checkpoint.Checkpointer(job.data, rank_timeout=60) as checkpointer:
        state = {"tensors": tensors(job, True), "number": 0, "array": np.zeros(20, np.int64)}
        got = checkpointer.load(into=state)
        assert got["number"] == 5
        assert (got["array"] == np.arange(20)).all()
        for n in range(30):
            assert is_same(got["tensors"][f"t{n}"], value_of(n)), n
        return checkpointer.latest()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(33, 33) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def digests(tree: Any, path: str = "") -> dict[str, str]:
    """Of whole tensors, and values, by place."""
    if isinstance(tree, dict):
        return {k: v for key, each in tree.items() for k, v in digests(each, f"{path}.{key}").items()}
    if isinstance(tree, (list, tuple)):
        return digests(dict(enumerate(tree)), path)
    if not isinstance(tree, torch.Tensor):
        return {path: repr(tree)}
    return {path: hashlib.sha256(whole(tree).contiguous().numpy().tobytes()).hexdigest()}


def to_train(job: Job) -> tuple[Any, torch.optim.Optimizer]:
    """A model by FSDP2 or DDP, and its optimizer."""
    torch.set_num_threads(1)
    model: Any = Net()
    if job.options["way"] == "fsdp":
        for layer in model.layers:
            fully_shard(layer, mesh=meshes_of[job.world][0])
        fully_shard(model, mesh=meshes_of[job.world][0])
    elif job.world > 1:
        model = nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train_step(model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    """With the same batch on each rank: the mean of gradients is then the same whatever the world."""
    x = torch.randn(8, 33, generator=torch.Generator().manual_seed(step))
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def train(job: Job) -> Any:
    """FSDP2 (or DDP) on some ranks: from the last checkpoint on, if there is one; a checkpoint after each
    step. Returns the weights at the end."""
    begin(job)
    torch.use_deterministic_algorithms(True)
    model, optimizer = to_train(job)
    with headrace.checkpoint.Checkpointer(job.data, rank_timeout=60, keep=2) as checkpointer:
        first = 0
        if checkpointer.latest() is not None:
            weights, moments = get_state_dict(model, optimizer)
            got = checkpointer.load(into={"model": weights, "optimizer": moments, "step": 0})
            set_state_dict(model, optimizer, model_state_dict=got["model"], optim_state_dict=got["optimizer"])
            first = got["step"]
        for step in range(first, job.options["steps"]):
            train_step(model, optimizer, step)
            weights, moments = get_state_dict(model, optimizer)
            checkpointer.save(step + 1, {"model": weights, "optimizer": moments, "step": step + 1})
    dist.barrier()  # Rank 0 has deleted what need not stay.
    with headrace.checkpoint.Checkpointer(job.data) as checkpointer:
        steps = checkpointer.steps()
    weights, moments = get_state_dict(model, optimizer)
    return {
        "steps": steps,
        "weights": {name: whole(w).double().sum().item() for name, w in weights.items()},
        "digests": digests({"model": weights, "optimizer": moments}),
    }


def different(job: Job) -> Any:
    """Ranks have different values of something that only one of them would save."""
    rank = begin(job)
    states = {
        "array": {"x": torch.full((1000,), rank)},
        "number": {"x": rank},
        "shape": {"x": torch.zeros(3 + rank)},
        "step": {"x": 1},
        "kind": {"x": object() if rank == 1 else 1},
        "stage": {f"stage{rank}": torch.full((3,), rank), "common": 1},
    }
    with headrace.checkpoint.Checkpointer(job.data, rank_timeout=20) as checkpointer:
        name = job.options["name"]
        checkpointer.save(rank if name == "step" else 1, states[name]).result(30)
        return {key: value.tolist() for key, value in checkpointer.load().items() if key != "common"}


def lost(job: Job) -> Any:
    """One rank ends before its part is written."""
    rank = begin(job)
    checkpointer = headrace.checkpoint.Checkpointer(job.data, rank_timeout=3)
    state = {"x": distribute_tensor(torch.arange(100.0), meshes_of[job.world][0], [Shard(0)])}
    checkpointer.save(1, state).result(30)
    if rank == 1:
        return "gone"
    try:
        checkpointer.save(2, state).result(30)
    except Exception as error:
        return [type(error).__name__, str(error), checkpointer.steps()]
    return "saved"


def damaged(job: Job) -> Any:
    """All ranks fall back to the checkpoint before, though only one would read what is damaged."""
    begin(job)
    with headrace.checkpoint.Checkpointer(job.data, rank_timeout=30) as checkpointer:
        state = {"x": distribute_tensor(torch.zeros(5000), meshes_of[job.world][0], [Shard(0)])}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            got = checkpointer.load(into=state)
        return [whole(got["x"]).sum().item(), [each.step for each in checkpointer.rejected], len(said)]


def reference(job: Job) -> Any:
    """One rank computes something else."""
    rank = begin(job)
    told = []
    with headrace.checkpoint.Checkpointer(job.data, rank_timeout=30) as checkpointer:
        checkpointer.save(1, {"x": 1}, metadata={"reference": {"loss": 2.0}}).result(30)
        checkpointer.load()
        for loss, name in ((2.0, "loss"), (2.0 + rank, "loss"), (2.0, "loss" if rank == 0 else "other")):
            try:
                checkpointer.check_reference({name: loss})
                told.append("alike")
            except headrace.HeadraceError as error:
                told.append(f"{type(error).__name__}: {error}")
    return told


def save_numbers(job: Job) -> Any:
    begin(job)
    with headrace.checkpoint.Checkpointer(job.data, rank_timeout=30) as checkpointer:
        for step in (1, 2):
            x = distribute_tensor(torch.full((5000,), float(step)), meshes_of[job.world][0], [Shard(0)])
            checkpointer.save(step, {"x": x}).result(30)
    return None


if __name__ == "__main__":
    main(
        {way.__name__: way for way in (save, load, train, different, lost, damaged, reference, save_numbers)},
        ["torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict"],
    )
