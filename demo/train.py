"""Trains a small byte-level transformer from an object store; stop it at any moment and start it again on any
number of ranks.

    python demo/train.py s3://linux/part --global-batch 32 --run-dir runs/a            # one rank
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python demo/train.py ... # one of two (or use
    torchrun)

What to look at is `train()`: model, optimizer and loader are saved together, so all stand at the same step;
the loop goes on while they are on their way to the bucket. Each rank also appends one JSON line per step to
RUN_DIR/log-<run>-<rank>.jsonl (ids and a checksum of what it received): the demo's evidence.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

import headrace.torch
from headrace.checkpoint import Checkpointer

VOCABULARY = 257  # bytes, and 256 after the end of a file


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class ByteTransformer(nn.Module):
    """About 0.2 million weights: small enough for two CPU cores, large enough to learn C's spelling in a
    minute."""

    def __init__(self, length: int, width: int = 64, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def masked_loss(model: nn.Module, tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean cross-entropy over the real samples of this rank (the mask is false for repeats that fill up the
    last batch)."""
    logits = model(tokens[:, :-1])
    per_sample = functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)
    return (per_sample * mask).sum() / mask.sum().clamp(min=1)


def average_over_ranks(model: nn.Module, loss: Tensor) -> float:
    if not dist.is_initialized():
        return float(loss.detach())
    flat = torch.cat(
        [p.grad.reshape(-1) for p in model.parameters() if p.grad is not None] + [loss.detach().reshape(1)]
    )
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for p in model.parameters():
        if p.grad is not None:
            p.grad.copy_(flat[at : at + p.grad.numel()].view_as(p.grad))
            at += p.grad.numel()
    return float(flat[-1])


def train(args: argparse.Namespace) -> None:
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world_size > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    run_dir = Path(args.run_dir)

    started = time.monotonic()
    loader = headrace.torch.Loader(
        args.url,
        batch_size=args.global_batch // world_size,
        shuffle=True,
        seed=args.seed,
        memory=args.memory,
        # uint16 as they are stored: their bytes are compared later, and the model takes a copy.
        unsigned="keep",
    )
    model = ByteTransformer(length=1024)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    checkpoints = Checkpointer(args.checkpoints or run_dir / "checkpoints", keep=3, memory="256MiB")
    state = {"model": model, "optimizer": optimizer, "loader": loader, "step": 0}
    if checkpoints.latest() is not None:
        state = checkpoints.load(into=state)
    log = (run_dir / f"log-{args.run}-{rank}.jsonl").open("a", buffering=1)

    first_batch_s, save_s = None, []
    for batch in loader:
        first_batch_s = first_batch_s or time.monotonic() - started
        tokens = batch["tokens"]
        optimizer.zero_grad(set_to_none=True)
        loss = masked_loss(model, tokens.long(), batch.mask.float())
        loss.backward()
        mean_loss = average_over_ranks(model, loss)
        optimizer.step()
        entry = {
            "step": state["step"],
            "ids": batch.ids.tolist(),
            "mask": batch.mask.tolist(),
            "crc": zlib.crc32(tokens.numpy()),
            "loss": mean_loss,
        }
        log.write(json.dumps(entry) + "\n")
        state["step"] += 1
        if state["step"] % args.checkpoint_every == 0:
            begun = time.monotonic()
            checkpoints.save(state["step"], state, metadata={"loss": mean_loss})
            save_s.append(time.monotonic() - begun)
    checkpoints.close()
    if rank == 0:
        report = {
            "first_batch_s": first_batch_s,
            "seconds": time.monotonic() - started,
            "stats": loader.stats(),
            "save_s": save_s,
        }
        (run_dir / f"stats-{args.run}.json").write_text(json.dumps(report))
    if world_size > 1:
        dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="dataset of token samples with a column `tokens` of 1,025 uint16")
    parser.add_argument(
        "--global-batch", type=int, default=32, help="samples a step over all ranks (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument(
        "--memory", default="256MiB", help="limit of the engine's memory for data (default: %(default)s)"
    )
    parser.add_argument("--run-dir", required=True, help="where the logs go")
    parser.add_argument("--checkpoints", metavar="URL", help="where they go (default: RUN_DIR/checkpoints)")
    parser.add_argument("--run", default="run", help="name of this start in the logs (default: %(default)s)")
    parser.add_argument("--checkpoint-every", type=int, default=10, metavar="STEPS")
    parser.add_argument(
        "--threads", type=int, default=1, help="torch threads of this rank (default: %(default)s)"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)  # What goes on after a kill is compared bit by bit.
    train(args)


if __name__ == "__main__":
    main()
