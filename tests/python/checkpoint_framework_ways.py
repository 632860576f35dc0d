"""Ways to save checkpoints by DCP from Lightning and Accelerate; run by test_checkpoint_frameworks.py.

Each trains from the last checkpoint on, saves one after the last step, and returns what it has then.
"""

from __future__ import annotations

import warnings
from typing import Any

import accelerate
import lightning
import torch
import torch.distributed.checkpoint as dcp
from accelerate.utils import FullyShardedDataParallelPlugin
from checkpoint_ways import Net, whole
from framework_ranks import Job, main
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader

from headrace.checkpoint import Checkpointer, Group
from headrace.checkpoint.dcp import Reader, Writer

warnings.filterwarnings("ignore")


def batch(step: int) -> torch.Tensor:
    return torch.randn(8, 33, generator=torch.Generator().manual_seed(step))


def last_step(job: Job) -> int:
    with Checkpointer(job.data, group=Group()) as looked:  # Before there is a process group.
        return looked.latest() or 0


def load(job: Job, model: Any, optimizers: Any) -> None:
    weights, moments = get_state_dict(model, optimizers)
    state = {"model": weights, "optimizer": moments}
    dcp.load(state, storage_reader=Reader(job.data))
    set_state_dict(model, optimizers, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def save(job: Job, step: int, model: Any, optimizers: Any) -> None:
    weights, moments = get_state_dict(model, optimizers)
    dcp.save({"model": weights, "optimizer": moments}, storage_writer=Writer(job.data, step=step))


def sums(model: Any) -> dict[str, float]:
    return {
        name.removeprefix("module.").removeprefix("net."): whole(weight.detach()).double().sum().item()
        for name, weight in model.named_parameters()
    }


# --- Lightning ---


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, *, shards: bool) -> None:
        super().__init__()
        self.net = Net()
        self._shards = shards

    def configure_model(self) -> None:
        if self._shards:
            mesh = self.device_mesh["data_parallel"]
            for layer in self.net.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(self.net, mesh=mesh)

    def training_step(self, x: torch.Tensor, _: int) -> torch.Tensor:
        return self.net(x).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Saves(lightning.Callback):  # type: ignore[misc]
    def __init__(self, job: Job) -> None:
        self.job = job

    def on_train_start(self, trainer: Any, module: Any) -> None:
        if last_step(self.job):
            load(self.job, module, trainer.optimizers[0])

    def on_train_end(self, trainer: Any, module: Any) -> None:
        save(self.job, self.job.options["steps"], module, trainer.optimizers[0])


def trained_by_lightning(job: Job, strategy: Any, *, shards: bool) -> Any:
    torch.set_num_threads(1)
    steps = range(last_step(job), job.options["steps"])
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=job.world,
        strategy=strategy,
        max_steps=len(steps),
        callbacks=[Saves(job)],
        use_distributed_sampler=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    module = Module(shards=shards)
    trainer.fit(module, DataLoader([batch(step) for step in steps], batch_size=None))
    assert all(isinstance(weight, DTensor) == shards for weight in module.parameters())
    return sums(module)


def lightning_model_parallel(job: Job) -> Any:
    """FSDP2 by ModelParallelStrategy."""
    strategy = ModelParallelStrategy(data_parallel_size=job.world, tensor_parallel_size=1)
    return trained_by_lightning(job, strategy, shards=True)


def lightning_ddp(job: Job) -> Any:
    return trained_by_lightning(job, "ddp" if job.world > 1 else "auto", shards=False)


# --- Accelerate ---


def trained_by_accelerate(job: Job, plugin: Any) -> Any:
    torch.set_num_threads(1)
    accelerator = accelerate.Accelerator(cpu=True, fsdp_plugin=plugin)
    if plugin is not None:  # Which Accelerate takes no notice of on CPUs.
        accelerator.state.distributed_type = accelerate.DistributedType.FSDP
        accelerator.state.fsdp_plugin = plugin
    model = Net()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    assert all(isinstance(weight, DTensor) == (plugin is not None) for weight in model.parameters())
    first = last_step(job)
    if first:
        load(job, model, optimizer.optimizer)
    for step in range(first, job.options["steps"]):
        accelerator.backward(model(batch(step)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    save(job, job.options["steps"], model, optimizer.optimizer)
    return sums(model)


def accelerate_fsdp(job: Job) -> Any:
    """FSDP2, each layer a shard of its own."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Linear"],
        state_dict_type="SHARDED_STATE_DICT",
    )
    return trained_by_accelerate(job, plugin)


def accelerate_ddp(job: Job) -> Any:
    return trained_by_accelerate(job, None)


if __name__ == "__main__":
    ways = (lightning_model_parallel, lightning_ddp, accelerate_fsdp, accelerate_ddp)
    main(
        {way.__name__: way for way in ways},
        ["torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict"],
    )
