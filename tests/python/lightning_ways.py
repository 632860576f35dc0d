"""Ways to train with Lightning; run by test_lightning.py."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from framework_ranks import EPOCHS, LOADER, Job, main
from lightning.pytorch.utilities import CombinedLoader

import headrace.torch

warnings.filterwarnings("ignore")


class Module(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, loader: Any = None) -> None:
        super().__init__()
        self.model = torch.nn.Linear(1, 1)
        self.loader = loader
        self.ids: list[list[int]] = []
        self.validated: list[list[int]] = []

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        assert batch.mask.dtype == torch.bool
        self.ids.append(batch.ids.tolist())
        return self.model(batch["x"].float()[:, None]).mean()

    def validation_step(self, batch: Any, _: int) -> None:
        self.validated.append(batch.ids.tolist())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-9)


class ModuleOfTwo(Module):
    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        return super().training_step(batch[0], number)


class ModuleWithLoader(Module):
    def train_dataloader(self) -> Any:
        return self.loader()


class Stop(lightning.Callback):  # type: ignore[misc]
    def __init__(self, job: Job) -> None:
        self.job = job

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self.job.stop:
            trainer.save_checkpoint(Path(self.job.directory) / "run.ckpt")
            trainer.should_stop = True


class StopAtEpochEnd(Stop):
    def on_train_batch_end(self, *_: Any) -> None:
        pass

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        super().on_train_batch_end(trainer)


def trainer(job: Job, **more: Any) -> lightning.Trainer:
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    return lightning.Trainer(
        accelerator="cpu",
        devices=job.world,
        strategy="ddp" if job.world > 1 else "auto",
        max_epochs=EPOCHS,
        callbacks=[StopAtEpochEnd(job) if job.way == "epoch_end" else Stop(job)],
        default_root_dir=job.directory,
        **quiet,
        **more,
    )


def make(job: Job, **more: Any) -> headrace.torch.Loader:
    """Before the process group, as in the processes that Lightning starts: these have WORLD_SIZE and no
    RANK."""
    os.environ.pop("RANK", None)
    return headrace.torch.Loader(job.data, **{**LOADER, **more})


def fit(job: Job) -> Any:
    """The loader as the training data."""
    module = Module()
    trainer(job, limit_train_batches=job.options.get("limit")).fit(
        module, make(job), ckpt_path=str(Path(job.directory) / "run.ckpt") if job.resumes else None
    )
    return {"ids": module.ids}


def combined(job: Job) -> Any:
    """Beside a loader with fewer batches, which ends the epochs."""
    module = ModuleOfTwo()
    few = torch.utils.data.DataLoader(list(range(job.options["limit"])))
    trainer(job).fit(module, CombinedLoader([make(job), few], "min_size"))
    return {"ids": module.ids}


def is_any(sample: dict[str, Any]) -> bool:
    return True


def filtered(job: Job) -> Any:
    """Filters behind the loaders for training and validation."""
    module, holes = Module(), job.options["holes"]
    trainer(job, num_sanity_val_steps=0).fit(
        module, make(job).filter(is_any, holes=holes), make(job).filter(is_any)
    )
    return {"ids": module.ids, "validated": module.validated}


def hook(job: Job) -> Any:
    """train_dataloader() makes the loader."""
    module = ModuleWithLoader(lambda: make(job))
    trainer(job).fit(module, ckpt_path=str(Path(job.directory) / "run.ckpt") if job.resumes else None)
    return {"ids": module.ids}


def stateful(job: Job) -> Any:
    """torchdata's StatefulDataLoader around the loader."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    module = Module()
    workers, more = job.options.get("workers", 0), job.options.get("more", {})
    loader = StatefulDataLoader(make(job), batch_size=None, num_workers=workers, **more)
    limit = job.options.get("limit")
    trainer(job, limit_train_batches=limit).fit(
        module, loader, ckpt_path=str(Path(job.directory) / "run.ckpt") if job.resumes else None
    )
    return {"ids": module.ids}


def epoch_end(job: Job) -> Any:
    """A checkpoint that is written at the end of an epoch, whose states Lightning does not load. With
    ``workers``, in a StatefulDataLoader; ``loads``: the user loads its state."""
    module, path = Module(), Path(job.directory) / "run.ckpt"
    seed = LOADER["seed"] + (job.resumes and job.options.get("reseeds", 0))
    loader: Any = make(job, seed=seed)
    if "workers" in job.options:
        from torchdata.stateful_dataloader import StatefulDataLoader

        loader = StatefulDataLoader(loader, batch_size=None, num_workers=job.options["workers"])
    if job.resumes and job.options.get("loads"):
        saved = torch.load(path, weights_only=False)
        loader.load_state_dict(saved["loops"]["fit_loop"]["state_dict"]["combined_loader"][0])
    trainer(job, limit_train_batches=job.options.get("limit")).fit(
        module, loader, ckpt_path=str(path) if job.resumes else None
    )
    return {"ids": module.ids}


def fabric(job: Job) -> Any:
    """Fabric's setup_dataloaders(); the loader's state goes into its checkpoint."""
    runner = lightning.Fabric(
        accelerator="cpu", devices=job.world, strategy="ddp" if job.world > 1 else "auto"
    )
    os.environ["RANK"] = os.environ.get("LOCAL_RANK", "0")  # Of the torchrun that framework_ranks acts as.
    runner.launch()
    loader = make(job)
    saved = str(Path(job.directory) / "run.ckpt")
    wraps = job.options.get("wraps")
    batches: Any = torch.utils.data.DataLoader(loader, batch_size=None) if wraps else loader
    batches = runner.setup_dataloaders(batches)
    kept = {"loader": batches if not wraps or job.options.get("keeps_wrapper") else loader}
    if job.resumes:
        runner.load(saved, kept)
    ids: list[list[int]] = []
    while loader.epoch < EPOCHS:
        for batch in batches:
            assert batch.mask.dtype == torch.bool
            ids.append(batch.ids.tolist())
            if len(ids) == job.stop:
                runner.save(saved, kept)
                return {"ids": ids}
    return {"ids": ids}


def validate(job: Job) -> Any:
    """A check of two batches before the training, and a part after each epoch."""
    module = Module()
    validation: Any = make(job, shuffle=False)
    if job.options.get("wraps"):
        validation = torch.utils.data.DataLoader(
            validation,
            batch_size=None,
            num_workers=job.options.get("workers", 0),
            persistent_workers=job.options.get("persist", False),
        )
    trainer(job, limit_val_batches=5, num_sanity_val_steps=2).fit(module, make(job), validation)
    return {"ids": module.ids, "validated": module.validated}


def wrapped(job: Job) -> Any:
    """torch's DataLoader around the loader."""
    module = Module()
    workers = job.options.get("workers", 0)
    trainer(job).fit(module, torch.utils.data.DataLoader(make(job), batch_size=None, num_workers=workers))
    return {"ids": module.ids}


def late(job: Job) -> Any:
    """A checkpoint that is written when fit() is over, and a run that goes on from it: without the loader's
    state, where it ``strips`` that; from an epoch that it is told, where ``epoch`` is given."""
    path = Path(job.directory) / "late.ckpt"
    first = trainer(job, max_steps=3)
    first.fit(Module(), make(job))
    first.save_checkpoint(path)
    if job.options.get("strips"):
        saved = torch.load(path, weights_only=False)
        del saved["loops"]["fit_loop"]["state_dict"]["combined_loader"]
        torch.save(saved, path)
    module, loader = Module(), make(job)
    if "epoch" in job.options:
        loader.set_epoch(job.options["epoch"])
    trainer(job).fit(module, loader, ckpt_path=str(path))
    return {"ids": module.ids}


if __name__ == "__main__":
    main(
        {
            way.__name__: way
            for way in (fit, combined, filtered, hook, stateful, epoch_end, fabric, validate, wrapped, late)
        }
    )
