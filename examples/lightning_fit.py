"""Lightning: fit() takes the loader as it is, and its checkpoints hold the loader's state.

python examples/lightning_fit.py /tmp/images --checkpoint run
python examples/lightning_fit.py /tmp/images --checkpoint run --resume
"""

import argparse
import json

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from models import MODELS

import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label, or tokens")
parser.add_argument("--model", choices=MODELS, default="resnet", help="bytes: for tokens")
parser.add_argument("--checkpoint", default="run", help="the directory of checkpoints")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, default=-1, help="end after so many steps, with a checkpoint")
args = parser.parse_args()
Model = MODELS[args.model]


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def training_step(self, batch: headrace.torch.Batch, _: int) -> torch.Tensor:
        loss = self.model(batch)
        print(json.dumps({"loss": loss.item(), "ids": batch.ids.tolist()}), flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)

    def train_dataloader(self) -> headrace.torch.Loader:
        return headrace.torch.Loader(args.data, batch_size=32, seed=17, epoch_end="drop", **Model.options)


lightning.seed_everything(0)
saves = ModelCheckpoint(args.checkpoint, "last", every_n_train_steps=1, enable_version_counter=False)
trainer = lightning.Trainer(
    callbacks=[saves],
    max_epochs=args.epochs,
    max_steps=args.stop,
    logger=False,
    enable_progress_bar=False,
)
trainer.fit(Module(), ckpt_path=f"{args.checkpoint}/last.ckpt" if args.resume else None)
