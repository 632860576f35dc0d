"""Plain PyTorch in one process: load, train, save every so many steps, go on where it stopped.

python examples/make_data.py images /tmp/images
python examples/pytorch_loop.py /tmp/images --checkpoint run
python examples/pytorch_loop.py /tmp/images --checkpoint run --resume --epochs 4
"""

import argparse
import json

import torch
from models import MODELS

import headrace as hr
import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label, or tokens")
parser.add_argument("--model", choices=MODELS, default="resnet", help="bytes: for tokens")
parser.add_argument("--checkpoint", default="run", help="a directory, or s3://bucket/run")
parser.add_argument("--every", type=int, default=100, help="steps from one checkpoint to the next")
parser.add_argument("--resume", action="store_true", help="from the last checkpoint, where there is one")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()
Model = MODELS[args.model]

torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = headrace.torch.Loader(
    args.data,
    batch_size=16,
    seed=17,
    epoch_end="drop",
    **Model.options,
)
checkpoints = hr.checkpoint.Checkpointer(args.checkpoint, keep=2)
state = {"model": model, "optimizer": optimizer, "loader": loader, "step": 0}
if args.resume and checkpoints.latest() is not None:
    state = checkpoints.load(into=state)
saved = state["step"]

while loader.epoch < args.epochs and state["step"] != args.stop:
    for batch in loader:
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state["step"] += 1
        print(json.dumps({"loss": loss.item(), "ids": batch.ids.tolist()}), flush=True)
        if state["step"] % args.every == 0:
            checkpoints.save(state["step"], state)  # Back when the state is copied.
            saved = state["step"]
        if state["step"] == args.stop:
            break
if state["step"] != saved:
    checkpoints.save(state["step"], state)
checkpoints.close()
