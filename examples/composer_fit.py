"""Composer: Trainer takes the loader as it is, and its checkpoints hold the loader's state.

python examples/composer_fit.py /tmp/images --checkpoint run
python examples/composer_fit.py /tmp/images --checkpoint run --resume
"""

import argparse
import json

import composer
import torch
from models import MODELS

import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label, or tokens")
parser.add_argument("--model", choices=MODELS, default="resnet", help="bytes: for tokens")
parser.add_argument("--checkpoint", default="run", help="the directory of checkpoints")
parser.add_argument("--resume", action="store_true", help="from the last of them")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()


class Model(composer.ComposerModel):
    def __init__(self) -> None:
        super().__init__()
        self.net = MODELS[args.model]()

    def forward(self, batch: headrace.torch.Batch) -> torch.Tensor:
        return self.net(batch)

    def loss(self, outputs: torch.Tensor, batch: headrace.torch.Batch) -> torch.Tensor:
        print(json.dumps({"loss": outputs.item(), "ids": batch["ids"].tolist()}), flush=True)
        return outputs


# Composer hands the model plain dicts: what else it wants to see of a batch becomes a column.
loader = headrace.torch.Loader(
    args.data,
    batch_size=32,
    seed=17,
    epoch_end="drop",
    transform=lambda batch: {**batch, "ids": batch.ids},
    **MODELS[args.model].options,
)

model = Model()
trainer = composer.Trainer(
    model=model,
    train_dataloader=loader,
    optimizers=torch.optim.AdamW(model.parameters(), lr=3e-3),
    max_duration=f"{args.stop}ba" if args.stop else f"{args.epochs}ep",
    save_folder=args.checkpoint,
    save_interval="1ba",
    save_overwrite=True,
    load_path=f"{args.checkpoint}/latest-rank0.pt" if args.resume else None,
    seed=17,
    device="cpu",
    progress_bar=False,
    log_to_console=False,
)
trainer.fit()
