"""Plain PyTorch with DistributedDataParallel, resumable at any step.

torchrun --nproc-per-node 2 examples/pytorch_ddp.py /tmp/images --checkpoint run
torchrun --nproc-per-node 2 examples/pytorch_ddp.py /tmp/images --checkpoint run --resume  # or on 1, 4, ...
"""

import argparse
import json

import torch
from models import MODELS
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import headrace as hr
import headrace.torch

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("data", help="a dataset with the columns image and label, or tokens")
parser.add_argument("--model", choices=MODELS, default="resnet", help="bytes: for tokens")
parser.add_argument("--checkpoint", default="run", help="a directory that all nodes see, or s3://bucket/run")
parser.add_argument("--every", type=int, default=100, help="steps from one checkpoint to the next")
parser.add_argument("--resume", action="store_true", help="from the last checkpoint, where there is one")
parser.add_argument("--cache", help="a directory of a fast disk, which the ranks of a node share")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--stop", type=int, help="end after so many steps, with a checkpoint")
args = parser.parse_args()
Model = MODELS[args.model]

distributed.init_process_group("gloo")  # "nccl" where there are GPUs.
torch.manual_seed(0)
model = DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
# Each rank makes the same call; the loader asks torch.distributed which part is its own.
loader = headrace.torch.Loader(
    args.data,
    batch_size=16,
    seed=17,
    epoch_end="drop",
    cache=args.cache,
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
distributed.destroy_process_group()
