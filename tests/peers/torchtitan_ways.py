"""A run whose checkpoints torchtitan's manager keeps, its own or Headrace's; run by test_torchtitan.py."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import torch
import torch.distributed as dist
from checkpoint_ways import Net, whole
from framework_ranks import Job, main
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.fsdp import fully_shard
from torchtitan.components.checkpointer import CheckpointManager as Original
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, ParamGroupConfig

import headrace.checkpoint
from headrace.checkpoint.torchtitan import CheckpointManager

MANAGERS = {"torchtitan": Original, "headrace": CheckpointManager}


class Counter:
    """torchtitan's trainer, or its data loader, as a checkpoint sees them."""

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0

    def state_dict(self) -> dict[str, Any]:
        return {self.name: self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state[self.name]


class Run:
    def __init__(self, job: Job) -> None:
        torch.manual_seed(0)
        self.model = Net()
        fully_shard(self.model)
        group = ParamGroupConfig(pattern=".*", optimizer_name="AdamW", optimizer_kwargs={"lr": 0.01})
        optimizers = OptimizersContainer.Config(param_groups=[group], implementation="for-loop")
        self.optimizers = optimizers.build(model_parts=[self.model])
        schedule = LRSchedulersContainer.Config(warmup_steps=2)
        self.schedulers = schedule.build(optimizers=self.optimizers, training_steps=10)
        self.loader, self.trainer = Counter("batches"), Counter("step")
        manager = MANAGERS[job.options["manager"]]
        config = manager.Config(enable=True, folder=job.data, interval=1, **job.options["config"])
        self.manager = config.build(
            dataloader=self.loader,
            model_parts=[self.model],
            optimizers=self.optimizers,
            lr_schedulers=self.schedulers,
            states={"train_state": self.trainer},
            sd_adapter=None,
        )
        if config.async_mode == "async_with_pinned_mem":  # torchtitan's is pinned: by an accelerator.
            self.manager.stager = DefaultStager(StagingOptions(False, False, True, False))

    def step(self) -> None:
        self.loader.count += 1
        self.trainer.count += 1
        generator = torch.Generator().manual_seed(self.loader.count)
        self.optimizers.zero_grad()
        self.model(torch.randn(8, 33, generator=generator)).square().mean().backward()
        self.optimizers.step()
        self.schedulers.step()

    def sums(self) -> dict[str, float]:
        weights = {name: whole(weight.detach()) for name, weight in self.model.named_parameters()}
        moments = {
            name: whole(value)
            for name, value in self.optimizers.state_dict().items()
            if isinstance(value, torch.Tensor)
        }
        return {name: value.double().sum().item() for name, value in (weights | moments).items()}


def train(job: Job) -> Any:
    """From the last checkpoint on, up to a step; what there is then."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    run = Run(job)
    loaded = run.manager.load(job.options.get("load_step", -1))
    begun = dataclasses.asdict(Begun(loaded, run.trainer.count, run.loader.count))
    for step in range(run.trainer.count + 1, job.options["steps"] + 1):
        run.step()
        run.manager.maybe_wait_for_staging()
        run.manager.save(step, last_step=step == job.options.get("last"))
    run.manager.maybe_wait_for_staging()
    run.manager.maybe_wait_for_saving()
    dist.barrier()
    run.manager.close()
    out = {"begun": begun, "lr": run.schedulers.schedulers[0].get_last_lr(), "sums": run.sums()}
    dist.destroy_process_group()
    return out


@dataclasses.dataclass
class Begun:
    loaded: bool
    step: int
    batches: int


def last_model(job: Job) -> Any:
    """Dtypes of what the last save has."""
    with headrace.checkpoint.Checkpointer(job.data, **job.options["options"]) as checkpoints:
        state = checkpoints.load()
    return {name: [str(value.dtype), list(value.shape)] for name, value in state.items()}


if __name__ == "__main__":
    main(
        {"train": train, "last_model": last_model},
        ["torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict", "torchtitan.config"],
    )
