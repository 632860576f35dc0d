#!/usr/bin/env python3
"""Images and tokens a second with 1, 2, 4, ... threads of the engine: how near to linear.

Usage: bench/scaling.py [--workers 1,2,4,8,16] [--cases images,tokens] [--rounds 3] [--seconds 3]
                        [--sources files,s3]

images: JPEGs of 500 x 375 (about 100 KB) to random crops of 224 x 224, batches of 256. tokens: samples of
4 KiB in MDS, batches of 512. Both lie in /dev/shm: `files` reads them from there, `s3` through `headrace sim`
on loopback, in a process of its own with a thread for each four cores. Settings are interleaved; a run counts
from the end of its first epoch on, for --seconds and to the end of an epoch. "memcpy" beside the tokens: so
many threads that copy 64 MiB each. "of linear" is the rate over the threads times the rate with the fewest;
"cores" what CPU time the process took.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from decode_settings import write_jpegs
from peers.tokens import TOKENS, token_rows
from simulated import simulated, store_options

import headrace as hr


class Run(NamedTuple):
    rate: float
    """Samples a second; GB/s of memcpy."""
    cores: float


def write_tokens(root: Path, count: int) -> None:
    """As peers/tokens.py writes them."""
    with hr.prepare.MDSWriter(root, {"tokens": f"ndarray:uint16:{TOKENS}"}) as writer:
        for row in token_rows(count):
            writer.write({"tokens": row})


def load(url: str, workers: int, seconds: float, case: str, **store: Any) -> Run:
    decode = {"jpg": hr.decode.image(random_resized_crop=224, flip=True)} if case == "images" else None
    with hr.Loader(
        url,
        batch_size=256 if case == "images" else 512,
        workers=workers,
        memory="8GiB",
        epochs=1_000_000,
        decode=decode,
        index_cache="",
        **store,
    ) as loader:
        for _ in loader:  # First touch, and what starts once.
            pass
        samples, begun, cpu = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - begun < seconds:
            for batch in loader:
                samples += len(batch.ids)
        spent = time.perf_counter() - begun
        return Run(samples / spent, (time.process_time() - cpu) / spent)


def copy_memory(workers: int, seconds: float) -> Run:
    copied = [0] * workers
    start = threading.Barrier(workers + 1)
    until = [0.0]

    def copy(number: int) -> None:
        source, target = np.ones(64 << 20, np.uint8), np.zeros(64 << 20, np.uint8)
        start.wait()
        while time.perf_counter() < until[0]:
            np.copyto(target, source)
            copied[number] += source.nbytes

    threads = [threading.Thread(target=copy, args=(n,)) for n in range(workers)]
    for thread in threads:
        thread.start()
    begun, cpu = time.perf_counter(), time.process_time()
    until[0] = begun + seconds
    start.wait()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - begun
    return Run(sum(copied) / spent / 1e9, (time.process_time() - cpu) / spent)


def measures(bucket: Path, arguments: argparse.Namespace, opened: ExitStack) -> Iterator[tuple[str, Any]]:
    """Name, and what measures a number of threads."""
    store: dict[str, Any] = {}
    if "s3" in arguments.sources:
        servers = str(max(1, (os.cpu_count() or 4) // 4))
        store = store_options(opened.enter_context(simulated(bucket.parent, "--threads", servers)))
    for case in arguments.cases:
        if "files" in arguments.sources:
            yield f"{case}, files", lambda n, case=case: load(str(bucket / case), n, arguments.seconds, case)
        if "s3" in arguments.sources:
            yield (
                f"{case}, s3",
                lambda n, case=case: load(f"s3://bench/{case}", n, arguments.seconds, case, **store),
            )
        if case == "tokens":
            yield "memcpy, GB/s", lambda n: copy_memory(n, arguments.seconds / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", default="1,2,4,8,16")
    parser.add_argument("--cases", default="images,tokens")
    parser.add_argument("--sources", default="files,s3")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    counts = [int(n) for n in arguments.workers.split(",")]
    arguments.cases, arguments.sources = arguments.cases.split(","), arguments.sources.split(",")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root, ExitStack() as opened:
        bucket = Path(root) / "buckets" / "bench"
        if "images" in arguments.cases:
            write_jpegs(bucket / "images", 512, copies=8)
        if "tokens" in arguments.cases:
            write_tokens(bucket / "tokens", 1 << 19)
        for name, measure in measures(bucket, arguments, opened):
            runs: dict[int, list[Run]] = {n: [] for n in counts}
            for _ in range(arguments.rounds):
                for n in counts:
                    runs[n].append(measure(n))
            rates = {n: statistics.median(run.rate for run in runs[n]) for n in counts}
            for n in counts:
                spread = [run.rate for run in runs[n]]
                row = {
                    "case": name,
                    "workers": n,
                    "rate": round(rates[n], 1),
                    "least": round(min(spread), 1),
                    "most": round(max(spread), 1),
                    "of_linear": round(rates[n] * counts[0] / (rates[counts[0]] * n), 3),
                    "cores": round(statistics.median(run.cores for run in runs[n]), 2),
                }
                print(json.dumps(row) if arguments.json else row, flush=True)


if __name__ == "__main__":
    main()
