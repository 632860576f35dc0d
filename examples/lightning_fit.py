"""Lightning: fit() takes the loader as it is, and its checkpoints hold the loader's state.

python examples/lightning_fit.py /tmp/images --checkpoint run
python examples/lightning_fit.py /tmp/images --checkpoint run --resume
"""

import argparse
import json

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import headrace as hr
import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label")
parser.add_argument("--checkpoint", default="run", help="the directory of checkpoints")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, default=-1, help="end after so many steps, with a checkpoint")
args = parser.parse_args()


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 5, 4), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 4)
        )

    def training_step(self, batch: headrace.torch.Batch, _: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.model(batch["image"]), batch["label"])
        print(json.dumps({"loss": loss.item(), "ids": batch.ids.tolist()}), flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)

    def train_dataloader(self) -> headrace.torch.Loader:
        image = hr.decode.image(resize=(64, 64), dtype="float32", layout="CHW")
        return headrace.torch.Loader(
            args.data, batch_size=32, seed=17, epoch_end="drop", decode={"image": image}
        )


lightning.seed_everything(0)
# Within fit(): after it, Lightning has let go of the loader, and save_checkpoint() would leave out its state.
saves = ModelCheckpoint(args.checkpoint, "last", every_n_train_steps=1, enable_version_counter=False)
trainer = lightning.Trainer(
    callbacks=[saves],
    max_epochs=args.epochs,
    max_steps=args.stop,
    logger=False,
    enable_progress_bar=False,
)
trainer.fit(Module(), ckpt_path=f"{args.checkpoint}/last.ckpt" if args.resume else None)
