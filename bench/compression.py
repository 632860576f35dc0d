#!/usr/bin/env python3
"""What compressed checkpoints save and cost, by what is in them.

bench/compression.py DIRECTORY [--bytes 1GB] [--rounds 3] [--memory 2GB] [--only KIND] [--json]

States of random weights (normal, 0.02) in bfloat16 and float32, of Adam's moments of such gradients, and of
zeros. Saves as they are and compressed ones take turns, the first of each left out; then each is loaded into
the same state. Medians, for each GB of arrays.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headrace.base.units import parse_bytes
from headrace.checkpoint import Checkpointer

ARRAYS = 8
STEPS = 30
"""That the moments have seen."""


def normal(seed: int, count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 0.02, count).astype(np.float32))


def moments(seed: int, count: int) -> torch.Tensor:
    """Half of them the first, half the second, as Adam(betas=(0.9, 0.95)) has them."""
    first, second = torch.zeros(count // 2), torch.zeros(count // 2)
    for step in range(STEPS):
        gradient = normal(seed * STEPS + step, count // 2) * 0.01
        first.lerp_(gradient, 0.1)
        second.lerp_(gradient.square_(), 0.05)
    return torch.cat([first, second])


KINDS: dict[str, tuple[int, Callable[[int, int], torch.Tensor]]] = {
    "bfloat16 weights": (2, lambda seed, count: normal(seed, count).to(torch.bfloat16)),
    "float32 weights": (4, normal),
    "Adam's moments": (4, moments),
    "zeros": (4, lambda seed, count: torch.zeros(count)),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--bytes", default="1GB", help="of a state")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="2GB", help="of the checkpointer")
    parser.add_argument("--only", default="", help="kinds that have this in their name")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.directory.is_dir():
        parser.error(f"{args.directory} is no directory")
    logging.getLogger("headrace.checkpoint").setLevel(
        logging.ERROR
    )  # States that do not change are a warning.
    results = {}
    for kind, (width, make) in KINDS.items():
        if args.only not in kind:
            continue
        count = parse_bytes(args.bytes) // width // ARRAYS
        state = {f"array{i}": make(i, count) for i in range(ARRAYS)}
        results[kind] = measure(args, state, count * width * ARRAYS / 1e9)
        if not args.json:
            for name, row in results[kind].items():
                print(
                    f"{kind:18} {name:6} {row['stored']:.3f} stored; save: blocked {row['blocked_s']:.2f} s, "
                    f"there after {row['there_s']:.2f} s, {row['save_cpu_s']:.2f} CPU s; load: "
                    f"{row['load_s']:.2f} s, {row['load_cpu_s']:.2f} CPU s"
                )
    if args.json:
        print(json.dumps(results))


def measure(args: argparse.Namespace, state: dict[str, Any], gigabytes: float) -> dict[str, Any]:
    seen: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(args.rounds):
        for compression in (None, "zstd"):
            seen[compression or "none"].append(save_and_load(args, state, compression))
    return {
        name: {key: statistics.median(row[key] for row in rows) / gigabytes for key in rows[0]}
        for name, rows in seen.items()
    }


def save_and_load(args: argparse.Namespace, state: dict[str, Any], compression: Any) -> dict[str, float]:
    place = tempfile.mkdtemp(dir=args.directory)
    with Checkpointer(place, compression=compression, memory=args.memory) as checkpointer:
        checkpointer.save(0, state).result()  # Which touches the memory first.
        begun, used = time.perf_counter(), time.process_time()
        handle = checkpointer.save(1, state)
        blocked = time.perf_counter() - begun
        saved = handle.result()
        there, save_cpu = time.perf_counter() - begun, time.process_time() - used
        begun, used = time.perf_counter(), time.process_time()
        checkpointer.load(1, into=state)
        load, load_cpu = time.perf_counter() - begun, time.process_time() - used
    shutil.rmtree(place)
    row = {"stored": saved.size / 1e9, "blocked_s": blocked, "there_s": there, "save_cpu_s": save_cpu}
    return row | {"load_s": load, "load_cpu_s": load_cpu}


if __name__ == "__main__":
    main()
