"""FSDP2 (fully_shard) with torch.distributed.checkpoint, which takes the loader as it is.

torchrun --nproc-per-node 2 examples/fsdp2.py /tmp/images --checkpoint run
torchrun --nproc-per-node 2 examples/fsdp2.py /tmp/images --checkpoint run --resume
"""

import argparse
import json

import torch
from models import MODELS
from torch import distributed
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

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

distributed.init_process_group("gloo")  # "nccl" where there are GPUs.
torch.manual_seed(0)
model = Model()
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = headrace.torch.Loader(
    args.data,
    batch_size=16,
    seed=17,
    epoch_end="drop",
    **Model.options,
)


def state():
    parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    return {**parts, "loader": loader}


if args.resume:
    saved = state()
    checkpoint.load(saved, checkpoint_id=args.checkpoint)
    set_state_dict(model, optimizer, model_state_dict=saved["model"], optim_state_dict=saved["optimizer"])

step = 0
while loader.epoch < args.epochs and step != args.stop:
    for batch in loader:
        loss = model(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        print(json.dumps({"loss": loss.item(), "ids": batch.ids.tolist()}), flush=True)
        if step == args.stop:
            break
checkpoint.save(state(), checkpoint_id=args.checkpoint)
distributed.destroy_process_group()
