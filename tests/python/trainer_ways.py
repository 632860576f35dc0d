"""Ways to train with transformers.Trainer; run by test_trainer.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from framework_ranks import EPOCHS, LOADER, Job, main

import headrace.torch
from headrace.loader.frameworks import BatchIndexes


class Model(torch.nn.Module):
    """Tells what it was given: sample i has x = 7 i + 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.ids: list[list[int]] = []
        self.evaluated: list[list[int]] = []

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        (self.ids if self.training else self.evaluated).append(((x - 1) // 7).tolist())
        return {"loss": (x.float() * self.weight).mean()}


class Stop(transformers.TrainerCallback):  # type: ignore[misc]
    """Saves and ends after a step, and keeps the loader's state with the checkpoint."""

    def __init__(self, job: Job, loader: headrace.torch.Loader) -> None:
        self.job, self.loader = job, loader

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.job.stop:
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            Path(self.job.directory, "loader.json").write_text(json.dumps(self.loader.state_dict()))


def trainer(
    job: Job, loader: headrace.torch.Loader, train: Any, model: Model, **more: Any
) -> transformers.Trainer:
    class Trainer(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return train

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            return headrace.torch.Loader(job.data, shuffle=False, columns=["x"], **LOADER)

        def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
            """transformers 4.57 loads them onto "cpu:0" where there are two processes, which torch does not
            know."""

    arguments = transformers.TrainingArguments(
        output_dir=job.directory,
        num_train_epochs=EPOCHS,
        max_steps=job.options.get("max_steps", -1),
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        save_strategy="no",
        logging_strategy="no",
        gradient_accumulation_steps=job.options.get("accumulates", 1),
        ignore_data_skip=job.options.get("ignores", False),
        restore_callback_states_from_checkpoint=job.options.get("restores", False),
        eval_strategy="epoch" if job.options.get("evaluates") else "no",
        prediction_loss_only=True,
        dataloader_num_workers=job.options.get("workers", 0),
    )
    kind = transformers.Trainer if "train_dataset" in more else Trainer
    return kind(
        model, arguments, callbacks=[Stop(job, loader)], eval_dataset=[0], **more
    )  # It wants one, and uses the loader above.


def checkpoint(job: Job) -> str:
    (found,) = Path(job.directory).glob("checkpoint-*")
    return str(found)


def forget(job: Job) -> None:
    """Takes the loader's state out of the checkpoint, as if another version had written it."""
    path = Path(checkpoint(job), "trainer_state.json")
    kept = json.loads(path.read_text())
    kept["stateful_callbacks"].pop("HeadraceLoader", None)
    path.write_text(json.dumps(kept))


def is_any(sample: dict[str, Any]) -> bool:
    return True


def override(job: Job) -> Any:
    """get_train_dataloader() returns the loader."""
    loader = headrace.torch.Loader(job.data, columns=["x"], **{**LOADER, **job.options.get("loader", {})})
    if job.options.get("filters"):
        loader = loader.filter(is_any)
    model = Model()
    if job.options.get("silent"):
        del BatchIndexes.set_epoch  # As with transformers 5.0, whose Trainer does not tell it to what skips.
    if job.resumes and job.options.get("loads"):
        loader.load_state_dict(json.loads(Path(job.directory, "loader.json").read_text()))
    training = trainer(job, loader, loader, model)
    training.train(resume_from_checkpoint=checkpoint(job) if job.resumes else None)
    if job.options.get("forgets") and training.is_world_process_zero():
        forget(job)
    return {"ids": model.ids, "evaluated": model.evaluated}


def version(job: Job) -> Any:
    return transformers.__version__


def again(job: Job) -> Any:
    """One Trainer trains up to a checkpoint, and from it on."""
    loader = headrace.torch.Loader(job.data, columns=["x"], **LOADER)
    model = Model()
    training = trainer(job, loader, loader, model)
    training.train()
    training.train(resume_from_checkpoint=checkpoint(job))
    return {"ids": model.ids}


def wrapped(job: Job) -> Any:
    """get_train_dataloader() returns torch's DataLoader around it, or the loader is the train_dataset."""
    loader = headrace.torch.Loader(job.data, columns=["x"], **LOADER)
    model = Model()
    if job.options.get("as_dataset"):
        trainer(job, loader, None, model, train_dataset=loader).train()
    else:
        workers = job.options.get("workers", 0)
        given = torch.utils.data.DataLoader(loader, batch_size=None, num_workers=workers)
        trainer(job, loader, given, model).train()
    return {"ids": model.ids}


if __name__ == "__main__":
    lazy = ("image_processing_utils", "modelcard", "modeling_utils", "trainer_seq2seq")
    main(
        {way.__name__: way for way in (override, again, wrapped, version)},
        [f"transformers.{name}" for name in lazy],
    )
