"""Accelerate: prepare() takes the loader as it is; save_state() and load_state() carry its position.

accelerate launch examples/accelerate_loop.py /tmp/images --checkpoint run
accelerate launch examples/accelerate_loop.py /tmp/images --checkpoint run --resume
"""

import argparse
import json

import torch
from accelerate import Accelerator
from models import MODELS

import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label, or tokens")
parser.add_argument("--model", choices=MODELS, default="resnet", help="bytes: for tokens")
parser.add_argument("--checkpoint", default="run")
parser.add_argument("--resume", action="store_true")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()
Model = MODELS[args.model]

accelerator = Accelerator()
torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = headrace.torch.Loader(
    args.data,
    batch_size=32,
    seed=17,
    epoch_end="drop",
    **Model.options,
    device=accelerator.device,
)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
if args.resume:
    accelerator.load_state(args.checkpoint)

step = 0
while loader.epoch < args.epochs and step != args.stop:
    for batch in loader:
        loss = model(batch)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        print(json.dumps({"loss": loss.item(), "ids": batch.ids.tolist()}), flush=True)
        if step == args.stop:
            break
accelerator.save_state(args.checkpoint)
