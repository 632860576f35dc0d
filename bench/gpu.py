#!/usr/bin/env python3
"""A GPU that trains on what Headrace streams: how long it waits, and whether copies run beside its work.

Usage: bench/gpu.py [--cases images,tokens,checkpoint] [--rounds 3] [--steps 40] [--profiles none,s3-standard]
Needs CUDA; torchvision for images.

images: torchvision's ResNet-50 (channels last, bfloat16 autocast, SGD), batches of 256 random crops of 224 x
224 from JPEGs of 500 x 375 (about 100 KB), normalised on the GPU. tokens: a transformer of 12 layers (width
768, bfloat16 autocast, AdamW) over 16 x 2,048 bytes. "resident" takes the same batch, on the GPU, in each
step: what the step costs by itself; "headrace" takes batches from `headrace sim` in a process of its own, by
headrace.torch.Loader(device="cuda") at defaults; "item()" also waits for the loss in each step. They are
interleaved. GPU times come from CUPTI (torch.profiler): "idle" is the part of the time, from the first
kernel's begin to the last one's end, in which no kernel ran; "overlapped" the part of the copies to the GPU
that kernels ran beside. "wait" is the host's, in next().

checkpoint: a state of --gigabytes GB in CUDA tensors by a Checkpointer to /dev/shm, with less memory than the
state and with more, against one pass of copies to a pinned buffer of 256 MiB; then back into the tensors,
compared bit by bit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from decode_settings import write_jpegs
from simulated import simulated, store_options
from torch import nn
from torch.profiler import ProfilerActivity, profile

import headrace as hr
import headrace.torch
from headrace.checkpoint import Checkpointer

WARM_UP = 15
KINDS = ("resident", "headrace", "resident, item()", "headrace, item()")
TOKENS = 2048


class Workload(NamedTuple):
    batch_size: int
    decode: dict[str, Any] | None
    step: Callable[[Any], torch.Tensor]
    """Takes a batch on the GPU, gives the loss there."""


def images() -> Workload:
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    mean = torch.tensor([123.7, 116.3, 103.5], device="cuda").view(1, 3, 1, 1)
    deviation = torch.tensor([58.4, 57.1, 57.4], device="cuda").view(1, 3, 1, 1)

    def step(batch: Any) -> torch.Tensor:
        pixels = (batch["jpg"].permute(0, 3, 1, 2).float() - mean) / deviation
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(pixels), batch.ids % 1000)
        return trained(loss, optimizer)

    return Workload(256, {"jpg": hr.decode.image(random_resized_crop=224, flip=True)}, step)


def tokens() -> Workload:
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0, batch_first=True, norm_first=True)
    embedding, head = nn.Embedding(256, 768).cuda(), nn.Linear(768, 256).cuda()
    body = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False).cuda()
    parts = nn.ModuleList([embedding, body, head])
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-4, fused=True)
    mask = nn.Transformer.generate_square_subsequent_mask(TOKENS - 1, device="cuda")

    def step(batch: Any) -> torch.Tensor:
        text = batch["tokens"].long()
        with torch.autocast("cuda", torch.bfloat16):
            logits = head(body(embedding(text[:, :-1]), mask=mask, is_causal=True))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        return trained(loss, optimizer)

    return Workload(16, None, step)


def trained(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


class Run(NamedTuple):
    step_ms: float
    idle: float
    overlapped: float
    wait_ms: float


def covered(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Their union, in order."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def common(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> float:
    """Length of what both have."""
    total, j = 0.0, 0
    for begin, end in one:
        while j < len(other) and other[j][1] <= begin:
            j += 1
        k = j
        while k < len(other) and other[k][0] < end:
            total += min(end, other[k][1]) - max(begin, other[k][0])
            k += 1
    return total


def measure(work: Workload, batches: Iterator[Any], steps: int, takes_loss: bool) -> Run:
    for batch in islice(batches, WARM_UP):
        work.step(batch)
    torch.cuda.synchronize()
    waited = 0.0
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            asked = time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - asked
            loss = work.step(batch)
            if takes_loss:
                loss.item()
        torch.cuda.synchronize()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]

    def spans(category: str, text: str = "") -> list[tuple[float, float]]:
        return covered(
            [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == category and text in e["name"]]
        )

    kernels, copies = spans("kernel"), spans("gpu_memcpy", "HtoD")
    busy = sum(end - begin for begin, end in kernels)
    span = kernels[-1][1] - kernels[0][0]
    copying = sum(end - begin for begin, end in copies)
    return Run(
        span / steps / 1e3,
        1 - busy / span,
        common(copies, kernels) / copying if copying else 1.0,
        waited / steps * 1e3,
    )


def forever(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


def train(name: str, url: str, store: dict[str, Any], rounds: int, steps: int) -> Iterator[dict[str, Any]]:
    work = {"images": images, "tokens": tokens}[name]()
    runs: dict[str, list[Run]] = {kind: [] for kind in KINDS}
    with headrace.torch.Loader(
        url,
        batch_size=work.batch_size,
        device="cuda",
        decode=work.decode,
        epoch_end="drop",
        epochs=1_000,
        index_cache="",
        **store,
    ) as loader:
        coming = forever(loader)
        held = next(coming)
        for _ in range(rounds):
            for kind, found in runs.items():
                batches = iter(lambda: held, None) if kind.startswith("resident") else coming
                found.append(measure(work, batches, steps, "item" in kind))
        stats = loader.stats()
    for kind, found in runs.items():
        middle = Run(*(statistics.median(values) for values in zip(*found, strict=True)))
        idle = [round(run.idle, 4) for run in found]
        yield (
            {"batches": kind}
            | {k: round(v, 4) for k, v in middle._asdict().items()}
            | {
                "idle_range": [min(idle), max(idle)],
                "samples_s": round(work.batch_size / middle.step_ms * 1e3),
            }
        )
    yield {"loader": {key: stats[key] for key in stats if key.startswith(("stall", "pool.peak"))}}


def checkpoint(gigabytes: float, memory: str, rounds: int) -> Iterator[dict[str, Any]]:
    count = max(1, round(gigabytes * 1e9 / (256 << 20)))
    state = {f"w{n}": torch.randn(64 << 20, device="cuda") for n in range(count)}
    state["strided"] = torch.randn(4096, 8192, device="cuda").t()
    state["half"] = torch.randn(4096, 8191, device="cuda").bfloat16()
    size = sum(t.numel() * t.element_size() for t in state.values())
    pinned = torch.empty(64 << 20, pin_memory=True)
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as root,
        Checkpointer(root, memory=memory, keep=1) as checkpointer,
    ):
        for turn in range(rounds):
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for n in range(count):
                pinned.copy_(state[f"w{n}"], non_blocking=True)
            torch.cuda.synchronize()
            floor = (time.perf_counter() - begun) * size / (count * (256 << 20))
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            begun, cpu = time.perf_counter(), time.process_time()
            handle = checkpointer.save(turn, state)
            blocked = time.perf_counter() - begun
            taken = torch.cuda.max_memory_allocated() - before
            copies = {name: value.clone() for name, value in state.items() if turn == rounds - 1}
            for value in state.values():  # A step of the optimiser, right behind.
                value.add_(1)
            handle.result()
            saved, cpu = time.perf_counter() - begun, time.process_time() - cpu
            yield {
                "checkpoint": "first" if turn == 0 else "then",
                "memory": memory,
                "gigabytes": round(size / 1e9, 2),
                "copies_s": round(floor, 3),
                "blocked_s": round(blocked, 3),
                "of_copies": round(blocked / floor, 2),
                "save_gb_s": round(size / saved / 1e9, 2),
                "cpu_s_gb": round(cpu / size * 1e9, 3),
                "gpu_memory_mb": round(taken / 1e6),
            }
        begun, cpu = time.perf_counter(), time.process_time()
        checkpointer.load(into=state)
        torch.cuda.synchronize()
        spent, cpu = time.perf_counter() - begun, time.process_time() - cpu
        same = all(torch.equal(state[name], value) for name, value in copies.items())
        yield {
            "load_gb_s": round(size / spent / 1e9, 2),
            "cpu_s_gb": round(cpu / size * 1e9, 3),
            "equal": same,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="images,tokens,checkpoint")
    parser.add_argument("--profiles", default="none,s3-standard")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--gigabytes", type=float, default=8)
    arguments = parser.parse_args()
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    torch.backends.cudnn.benchmark = True
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root, ExitStack() as opened:
        bucket = Path(root) / "buckets" / "bench"
        cases = arguments.cases.split(",")
        if "images" in cases:
            write_jpegs(bucket / "images", 512, copies=16)
        if "tokens" in cases:
            with hr.prepare.MDSWriter(bucket / "tokens", {"tokens": f"ndarray:uint8:{TOKENS}"}) as writer:
                for row in torch.randint(97, 123, (20_000, TOKENS), dtype=torch.uint8).numpy():
                    writer.write({"tokens": row})
        for name in cases:
            if name == "checkpoint":
                for memory in ("1GiB", f"{round(arguments.gigabytes) + 2}GiB"):
                    for row in checkpoint(arguments.gigabytes, memory, arguments.rounds):
                        print(row, flush=True)
                continue
            for profile_name in arguments.profiles.split(","):
                store = store_options(
                    opened.enter_context(
                        simulated(bucket.parent, "--threads", "2", "--profile", profile_name)
                    )
                )
                for row in train(name, f"s3://bench/{name}", store, arguments.rounds, arguments.steps):
                    print({"case": name, "profile": profile_name, **row}, flush=True)


if __name__ == "__main__":
    main()
