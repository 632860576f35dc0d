"""Ways to train with Accelerate; run by test_accelerate.py."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import accelerate
import torch
from accelerate.utils import DataLoaderConfiguration
from framework_ranks import EPOCHS, LOADER, Job, main

import headrace.torch

CONFIGURATION = {
    "dispatch_batches",
    "split_batches",
    "even_batches",
    "use_stateful_dataloader",
    "use_seedable_sampler",
}


class IsNotIn:
    """Leaves out all samples of some batches of the first epoch, so that these are not delivered."""

    def __init__(self, batches: list[int], loader: headrace.torch.Loader) -> None:
        planned = [ids.tolist() for ids in loader.sample_ids()]
        self.samples = {i for number in batches for i in planned[number]}

    def __call__(self, sample: dict[str, Any]) -> bool:
        return int(sample["x"] - 1) // 7 not in self.samples  # Sample i has x = 7 i + 1.


class Run:
    """An Accelerator with a tiny model, and the ids that the loop receives."""

    def __init__(self, job: Job, *, wraps: bool = False) -> None:
        configuration = {name: value for name, value in job.options.items() if name in CONFIGURATION}
        self.job = job
        self.loader = headrace.torch.Loader(job.data, **LOADER)
        if batches := job.options.get("empties"):
            self.loader = self.loader.filter(IsNotIn(batches, self.loader))
        self.accelerator = accelerate.Accelerator(
            cpu=True,
            dataloader_config=DataLoaderConfiguration(**configuration),
            gradient_accumulation_steps=job.options.get("accumulates", 1),
        )
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
        if job.options.get("registers"):
            self.accelerator.register_for_checkpointing(self.loader)
            self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
            self.prepared: Any = self.loader
        else:
            given: Any = self.loader
            if wraps:
                workers = job.options.get("workers", 0)
                given = torch.utils.data.DataLoader(self.loader, batch_size=None, num_workers=workers)
            self.model, self.optimizer, self.prepared = self.accelerator.prepare(model, optimizer, given)
        self.ids: list[list[int]] = []
        self.syncs: list[bool] = []
        self.checkpoint = Path(job.directory) / "checkpoint"
        self.step = 0

    def resume(self) -> None:
        self.accelerator.load_state(str(self.checkpoint))
        self.step = int((self.checkpoint / "step").read_text())

    def save(self) -> None:
        self.accelerator.save_state(str(self.checkpoint))
        if self.accelerator.is_main_process:
            (self.checkpoint / "step").write_text(str(self.step))
        self.accelerator.wait_for_everyone()

    def train(self, batches: Any) -> bool:
        """One epoch; False when the run is to end."""
        for batch in batches:
            with self.accelerator.accumulate(self.model):
                loss = self.model(batch["x"].float()[:, None]).mean()
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.syncs.append(self.accelerator.sync_gradients)
            self.ids.append(batch.ids.tolist())
            self.step += 1
            if self.step == self.job.stop:
                self.save()
                return False
        return True

    def report(self) -> Any:
        return {"ids": self.ids, "syncs": self.syncs}


def epochs_from(run: Run) -> Iterator[int]:
    return itertools.takewhile(lambda epoch: epoch < EPOCHS, itertools.count(run.step // len(run.prepared)))


def skip(job: Job) -> Any:
    """As Accelerate's page on checkpoints shows: load_state(), then skip_first_batches()."""
    run = Run(job)
    if job.resumes:
        run.resume()
    first, skipped = divmod(run.step, len(run.prepared))
    for epoch in range(first, EPOCHS):
        batches = run.prepared
        if epoch == first and skipped:
            batches = run.accelerator.skip_first_batches(run.prepared, skipped)
        if not run.train(batches):
            break
    return run.report()


def go_on(job: Job) -> Any:
    """load_state() brings the position; set_epoch() as loops of others call it."""
    run = Run(job)
    if job.resumes:
        run.resume()
    for epoch in epochs_from(run):
        if job.options.get("sets_epoch"):
            run.prepared.set_epoch(epoch)
        if not run.train(run.prepared):
            break
    return run.report()


def one_epoch(job: Job) -> Any:
    run = Run(job)
    batches = run.prepared
    if skipped := job.options.get("skips"):
        batches = run.accelerator.skip_first_batches(batches, skipped)
    run.train(batches)
    return run.report()


def skip_alone(job: Job) -> Any:
    """Without the loader's state: set_epoch() and skip_first_batches()."""
    run = Run(job)
    first, skipped = divmod(job.options["from"], len(run.prepared))
    for epoch in range(first, EPOCHS):
        run.prepared.set_epoch(epoch)
        run.train(
            run.accelerator.skip_first_batches(run.prepared, skipped) if epoch == first else run.prepared
        )
    return run.report()


def wrapped(job: Job) -> Any:
    """torch's DataLoader around the loader."""
    run = Run(job, wraps=True)
    if job.options.get("skips"):
        run.train(run.accelerator.skip_first_batches(run.prepared, 2))
    else:
        run.train(run.prepared)
    return run.report()


def late_group(job: Job) -> Any:
    """A loader made before the process group, without RANK: every use before the first loop, then the
    loop."""
    rank, world = int(os.environ.pop("RANK")), int(os.environ["WORLD_SIZE"])
    if not job.options.get("half_set"):
        del os.environ["WORLD_SIZE"]
    loader = headrace.torch.Loader(job.data, **LOADER)
    before: dict[str, Any] = {}
    if not job.options.get("half_set"):
        before = {"length": len(loader), "state": loader.state_dict(), "world": loader.world_size}
    if state := job.options.get("state"):
        loader.load_state_dict(state)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{job.directory}/group", rank=rank, world_size=world
    )
    ids = [batch.ids.tolist() for batch in loader]
    return {
        "before": before,
        "length": len(loader),
        "rank": [loader.rank, loader.world_size],
        "ids": ids,
        "state": loader.state_dict(),
    }


if __name__ == "__main__":
    main({way.__name__: way for way in (skip, go_on, one_epoch, skip_alone, wrapped, late_group)})
