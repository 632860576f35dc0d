#!/usr/bin/env python3
"""Whether threads and prefetch of image decoding have to be chosen: runs beside a training loop that is
emulated.

Usage: bench/decode_settings.py [--rounds 5] [--batch 32] [--steps 60] [--images 512] [--json]
A step of the loop computes for a part of its time (Python, one core) and sleeps for the rest (as one that
waits for a GPU). Loops: "starved" takes batches as they come; "even" wants them as quickly as all cores can
decode; "slow" half as quickly; "slow, busy" the same, computing half of the time; "bursts" eight batches at
once, as who accumulates gradients, and half as quickly. The settings are
interleaved; each line has the median over the rounds of the time a step took (its own time taken away), the
part of the time that was waited, and the most memory that the loader took.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

import headrace as hr

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "python"))
from conftest import write_mds

SETTINGS: list[dict[str, int]] = [
    {},
    *({"workers": count} for count in (1, 2, 4)),
    *({"prefetch": count} for count in (1, 2, 4)),
]


class Loop(NamedTuple):
    """A training loop, in parts of the time that all cores take to decode a batch."""

    name: str
    step: float
    computing: float
    """Of the step."""
    burst: int = 1
    """Batches taken at once."""


LOOPS = [
    Loop("starved", 0, 0),
    Loop("even", 1, 0),
    Loop("slow", 2, 0),
    Loop("slow, busy", 2, 0.5),
    Loop("bursts", 2, 0, 8),
]


def write_jpegs(root: Path, count: int, copies: int = 1) -> Path:
    """Smooth noise of 500 x 375, which takes about as many bytes as photographs; each ``copies`` times."""
    rng = np.random.default_rng(1)
    samples = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (94, 125, 3), np.uint8)).resize((500, 375))
        out = io.BytesIO()
        coarse.save(out, "JPEG", quality=92)
        samples.append({"jpg": out.getvalue()})
    return write_mds(root, {"jpg": ("bytes", None)}, samples * copies, per_shard=64)


def compute(seconds: float) -> None:
    """Takes so much CPU time of this thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


class Run(NamedTuple):
    step_ms: float
    waited: float
    memory_mib: float


def measure(path: Path, batch: int, steps: int, loop: Loop, unit: float, **settings: int) -> Run:
    decode = {"jpg": hr.decode.image(random_resized_crop=224, flip=True)}
    own = loop.step * unit
    with hr.Loader(
        path, batch_size=batch, memory="2GiB", index_cache="", decode=decode, **settings
    ) as loader:
        waited, count, begun = 0.0, 0, 0.0
        while count < steps:
            asked = time.perf_counter()
            for _ in loader:
                got = time.perf_counter()
                if count == 0:  # The first batch is another matter.
                    begun = got
                else:
                    waited += got - asked
                count += 1
                if count == steps:
                    break
                if count % loop.burst == 0:
                    compute(own * loop.burst * loop.computing)
                    time.sleep(own * loop.burst * (1 - loop.computing))
                asked = time.perf_counter()
        seconds = time.perf_counter() - begun
        peak = loader.stats()["pool.peak_bytes"]
    return Run(seconds / (steps - 1) * 1e3, waited / seconds, peak / (1 << 20))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        path = write_jpegs(Path(root) / "jpegs", arguments.images)
        shared = path, arguments.batch, arguments.steps
        unit = statistics.median(measure(*shared, LOOPS[0], 0).step_ms for _ in range(3)) / 1e3
        print(f"# {os.cpu_count()} cores, a batch takes them {unit * 1e3:.1f} ms", file=sys.stderr)
        rows: list[dict[str, Any]] = []
        for loop in LOOPS:
            runs: list[list[Run]] = [[] for _ in SETTINGS]
            for _ in range(arguments.rounds):
                for found, settings in zip(runs, SETTINGS, strict=True):
                    found.append(measure(*shared, loop, unit, **settings))
            for found, settings in zip(runs, SETTINGS, strict=True):
                numbers = [round(statistics.median(values), 3) for values in zip(*found, strict=True)]
                rows.append({"loop": loop.name, **settings, **Run(*numbers)._asdict()})
                if not arguments.json:
                    print(rows[-1], flush=True)
        if arguments.json:
            print(json.dumps(rows))


if __name__ == "__main__":
    main()
