#!/usr/bin/env python3
"""Mosaic's order of one epoch, start and resume, by mosaicml-streaming and by Headrace in one run,
interleaved.

    pip install mosaicml-streaming
    bench/peers/mosaic_order.py [--samples 100000000] [--shard-samples 20000] [--rounds 3] [--json]

Each measurement is a fresh process that makes the order of one rank's epoch (8 ranks, 8 workers, batches of
32): generate_work() of the package, MosaicEpoch.open() of Headrace with an empty directory (start) and with
the table there (resume, at half of the epoch). Seconds from after the imports, by the clock and of processor
time (all threads); memory is the peak beyond what the imports took. The ids of the first 1,000 batches must
be equal. Without --json: medians, and the ratios of medians.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

WORLD = (1, 8, 8, 32)
SEED = 9176


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Watch:
    def __init__(self) -> None:
        self.base, self.start, self.cpu = peak_bytes(), time.perf_counter(), time.process_time()

    def result(self) -> dict[str, Any]:
        return {
            "seconds": time.perf_counter() - self.start,
            "cpu_s": time.process_time() - self.cpu,
            "bytes": peak_bytes() - self.base,
        }


def digest(ids: Any) -> str:
    import numpy as np

    return hashlib.sha256(np.ascontiguousarray(ids, np.int64).tobytes()).hexdigest()


def by_mosaic(samples: int, shard: int, position: int, _: str) -> dict[str, Any]:
    import numpy as np
    from streaming.base.batching import generate_work
    from streaming.base.dataset import StreamingDataset
    from streaming.base.stream import Stream
    from streaming.base.world import World

    class Dataset:
        resample_streams = StreamingDataset.resample_streams

    watch = Watch()
    data: Any = Dataset()
    data.streams = [Stream.__new__(Stream)]
    data.num_streams = 1
    data.samples_per_shard = np.full(samples // shard, shard, np.int64)
    data.sample_offset_per_shard = data.samples_per_shard.cumsum() - data.samples_per_shard
    data.shards_per_stream, data.shard_offset_per_stream = np.array([samples // shard]), np.array([0])
    data.samples_per_stream = np.array([samples])
    data.epoch_size = Stream.apply_weights(data.streams, data.samples_per_stream, None, SEED)
    data.shuffle_seed, data.num_canonical_nodes, data.batch_size = SEED, 1, WORLD[3]
    data.shuffle, data.shuffle_algo, data.shuffle_block_size = True, "py1e", 4_000_000
    data.sampling_granularity, data.sampling_method, data.partition_algo = 1, "balanced", "relaxed"
    data.epoch_seed_change, data.initial_physical_nodes = True, None
    work = generate_work("random", data, World(*WORLD[:3], 0), 0, position)
    result = watch.result()
    first = work.transpose(3, 2, 0, 1, 4).reshape(-1)[: 1000 * 256]
    return result | {"digest": digest(first)}


def by_headrace(samples: int, shard: int, position: int, directory: str) -> dict[str, Any]:
    import numpy  # noqa: F401

    from headrace import _native

    watch = Watch()
    streams = [([shard] * (samples // shard), None, None, None)]
    epoch = _native.MosaicEpoch(
        {"shuffle": True, "shuffle_seed": SEED}, streams, WORLD, {"sample_in_epoch": position}
    )
    slots = epoch.open(directory)
    first = slots.read(0, 1000 * 256)
    return watch.result() | {"digest": digest(first)}


def measure(who: str, arguments: argparse.Namespace, position: int, directory: str) -> dict[str, Any]:
    command = [
        sys.executable,
        __file__,
        "--child",
        who,
        "--position",
        str(position),
        "--directory",
        directory,
    ]
    command += ["--samples", str(arguments.samples), "--shard-samples", str(arguments.shard_samples)]
    result: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    )
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=100_000_000)
    parser.add_argument("--shard-samples", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", choices=["mosaic", "headrace"], help=argparse.SUPPRESS)
    parser.add_argument("--position", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--directory", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        run = by_mosaic if arguments.child == "mosaic" else by_headrace
        print(
            json.dumps(
                run(arguments.samples, arguments.shard_samples, arguments.position, arguments.directory)
            )
        )
        return 0

    half = arguments.samples // 2 // 2048 * 2048
    results: dict[str, list[dict[str, Any]]] = {}
    for _ in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as directory:
            for what, position in (("start", 0), ("resume", half)):
                for who in ("mosaic", "headrace"):
                    results.setdefault(f"{who} {what}", []).append(
                        measure(who, arguments, position, directory)
                    )
                if len({results[f"{who} {what}"][-1]["digest"] for who in ("mosaic", "headrace")}) != 1:
                    print(f"{what}: the ids differ", file=sys.stderr)
                    return 1
    summary = {
        name: {
            "seconds": statistics.median(run["seconds"] for run in runs),
            "cpu_s": statistics.median(run["cpu_s"] for run in runs),
            "bytes_a_sample": statistics.median(run["bytes"] for run in runs) / arguments.samples,
        }
        for name, runs in results.items()
    }
    for what in ("start", "resume"):
        mosaic, headrace = summary[f"mosaic {what}"], summary[f"headrace {what}"]
        summary[f"{what} ratio"] = {unit: mosaic[unit] / headrace[unit] for unit in mosaic}
    if arguments.json:
        print(json.dumps(summary))
    else:
        for name, values in summary.items():
            print(f"{name:16}" + "".join(f"  {unit} {value:.3f}" for unit, value in values.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
