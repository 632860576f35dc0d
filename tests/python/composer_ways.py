"""Ways to train with Composer; run by test_composer.py."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import composer
import torch
from framework_ranks import BATCH, EPOCHS, LOADER, Job, main

import headrace.torch

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


class Model(composer.ComposerModel):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.ids: list[list[int]] = []
        self.evaluated: list[list[int]] = []

    def forward(self, batch: Any) -> torch.Tensor:
        (self.ids if self.training else self.evaluated).append(batch["ids"].tolist())
        return self.layer(batch["x"].float()[:, None])

    def loss(self, outputs: torch.Tensor, _: Any) -> torch.Tensor:
        return outputs.mean()

    def update_metric(self, *_: Any) -> None:
        pass


def make(job: Job, **more: Any) -> headrace.torch.Loader:
    """Composer moves batches as plain dicts: the ids go along as a column."""
    return headrace.torch.Loader(
        job.data, transform=lambda batch: {"x": batch["x"], "ids": batch.ids}, **{**LOADER, **more}
    )


def trainer(job: Job, model: Model, loader: Any, **more: Any) -> composer.Trainer:
    saved = Path(job.directory) / "latest-rank0.pt"
    os.environ["NODE_RANK"] = "0"  # As Composer's own launcher does, unlike torchrun.
    options: dict[str, Any] = {
        "max_duration": f"{job.stop}ba" if job.stop else f"{EPOCHS}ep",
        "save_folder": job.directory,
        "save_interval": "1000ba",  # And at the end of the run.
        "save_overwrite": True,
        "load_path": str(saved) if job.resumes else None,
        "seed": 3,
        "device": "cpu",
        "progress_bar": False,
        "log_to_console": False,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    return composer.Trainer(model=model, train_dataloader=loader, optimizers=optimizer, **{**options, **more})


def fit(job: Job) -> Any:
    """The loader as train_dataloader."""
    model = Model()
    trainer(job, model, make(job)).fit()
    return {"ids": model.ids}


def late(job: Job) -> Any:
    """The loader is given to fit()."""
    model = Model()
    loader = make(job)
    runner = trainer(job, model, None)
    runner.fit(train_dataloader=loader)
    return {"ids": model.ids}


def spec(job: Job) -> Any:
    """In a DataSpec."""
    model = Model()
    trainer(job, model, composer.DataSpec(make(job))).fit()
    return {"ids": model.ids}


def twice(job: Job) -> Any:
    """fit() goes on where fit() stopped."""
    model = Model()
    runner = trainer(job, model, make(job), spin_dataloaders=job.options.get("spins", True))
    runner.fit()
    runner.fit(duration="2ba")
    return {"ids": model.ids}


def evaluated(job: Job) -> Any:
    """A part of the data is evaluated after each epoch."""
    model = Model()
    evaluation: Any = make(job, shuffle=False)
    if job.options.get("wraps"):
        evaluation = torch.utils.data.DataLoader(evaluation, batch_size=None)
    evaluator = composer.Evaluator(
        label="some",
        dataloader=evaluation,
        metric_names=[],
        subset_num_batches=5,
        device_eval_microbatch_size=BATCH,
    )
    trainer(job, model, make(job), eval_dataloader=evaluator, eval_interval="1ep").fit()
    return {"ids": model.ids, "evaluated": model.evaluated}


def wrapped(job: Job) -> Any:
    """torch's DataLoader around the loader."""
    model = Model()
    trainer(job, model, torch.utils.data.DataLoader(make(job), batch_size=None)).fit()


def stateless(job: Job) -> Any:
    """A checkpoint that was saved with other data, and so without the loader's state."""
    numbers = [{"x": torch.tensor(0), "ids": torch.tensor(i)} for i in range(20 * BATCH)]
    if not job.resumes:
        others: Any = torch.utils.data.DataLoader(numbers, batch_size=BATCH)  # type: ignore[arg-type]
        trainer(job, Model(), others).fit()
        return {"ids": []}
    model, loader = Model(), make(job)
    if told := job.options.get("told"):
        loader.set_epoch(told)
        next(iter(loader))
    spins = job.options.get("spins", True)
    trainer(job, model, loader, spin_dataloaders=spins, load_ignore_keys=["state/dataset_state"]).fit()
    return {"ids": model.ids}


main(
    {
        "fit": fit,
        "late": late,
        "spec": spec,
        "twice": twice,
        "evaluated": evaluated,
        "wrapped": wrapped,
        "stateless": stateless,
    }
)
