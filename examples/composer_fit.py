"""Composer: Trainer takes the loader as it is, and its checkpoints hold the loader's state.

python examples/composer_fit.py /tmp/images --checkpoint run
python examples/composer_fit.py /tmp/images --checkpoint run --resume
"""

import argparse
import json

import composer
import torch
from torch import nn

import headrace as hr
import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label")
parser.add_argument("--checkpoint", default="run", help="the directory of checkpoints")
parser.add_argument("--resume", action="store_true", help="from the last of them")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()


class Model(composer.ComposerModel):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 4)
        )

    def forward(self, batch: headrace.torch.Batch) -> torch.Tensor:
        return self.layers(batch["image"])

    def loss(self, outputs: torch.Tensor, batch: headrace.torch.Batch) -> torch.Tensor:
        loss = nn.functional.cross_entropy(outputs, batch["label"])
        print(json.dumps({"loss": loss.item(), "ids": batch["ids"].tolist()}), flush=True)
        return loss


image = hr.decode.image(resize=(64, 64), dtype="float32", layout="CHW")
# Composer hands the model plain dicts: what else it wants to see of a batch becomes a column.
loader = headrace.torch.Loader(
    args.data,
    batch_size=32,
    seed=17,
    epoch_end="drop",
    decode={"image": image},
    transform=lambda batch: {**batch, "ids": batch.ids},
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
