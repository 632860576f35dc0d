"""transformers.Trainer: get_train_dataloader() returns the loader; checkpoints hold its state.

python examples/hf_trainer.py /tmp/images --checkpoint runs
python examples/hf_trainer.py /tmp/images --checkpoint runs --resume
"""

import argparse
import json

import torch
import transformers
from models import MODELS
from torch import nn

import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label, or tokens")
parser.add_argument("--model", choices=MODELS, default="resnet", help="bytes: for tokens")
parser.add_argument("--checkpoint", default="runs", help="the directory of checkpoints")
parser.add_argument("--resume", action="store_true", help="from the last of them")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = MODELS[args.model]()

    def forward(self, image=None, label=None, tokens=None) -> dict[str, torch.Tensor]:
        return {"loss": self.net({"image": image, "label": label, "tokens": tokens})}


def arguments_of_the_model(batch: headrace.torch.Batch) -> dict[str, torch.Tensor]:
    print(json.dumps({"ids": batch.ids.tolist()}), flush=True)
    return dict(batch)


class Trainer(transformers.Trainer):
    def get_train_dataloader(self) -> headrace.torch.Loader:
        return headrace.torch.Loader(
            args.data,
            batch_size=self.args.per_device_train_batch_size,
            seed=self.args.seed,
            epoch_end="drop",
            transform=arguments_of_the_model,
            **MODELS[args.model].options,
        )


class Stop(transformers.TrainerCallback):
    def on_step_end(self, _, state, control, **kwargs) -> None:
        if state.global_step == args.stop:
            control.should_save = control.should_training_stop = True


transformers.set_seed(17)
settings = transformers.TrainingArguments(
    output_dir=args.checkpoint,
    num_train_epochs=args.epochs,
    per_device_train_batch_size=32,
    learning_rate=3e-3,
    lr_scheduler_type="constant",
    logging_steps=4,
    seed=17,
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(Model(), settings, callbacks=[Stop()])
trainer.train(resume_from_checkpoint=args.resume)
