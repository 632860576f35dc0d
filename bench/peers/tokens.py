#!/usr/bin/env python3
"""Token samples of 4 KiB from S3, empty cache, shuffled, batches of 64: Headrace, litdata and
mosaicml-streaming in one run.

    pip install litdata mosaicml-streaming obstore
    bench/peers/tokens.py --data /dev/shm/tokens --rounds 3 [--samples 262144] [--json]

Writes the same samples (2,048 x uint16, random) once as MDS and once as LitData tokens, serves both by
`headrace sim` (profile none) on loopback, and reads each a number of times, interleaved, every read in a
fresh process with an empty cache on the same file system. Client CPU is user + system time of that process
and all its children from the end of the imports to the last batch; peers run in the mode that is best for
them (num_workers=0).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litdata_over_http import litdata_source

TOKENS = 2048
BATCH = 64
SEED = 17


def token_rows(samples: int) -> Any:
    import numpy as np

    rng = np.random.default_rng(1)
    for start in range(0, samples, 4096):
        yield from rng.integers(0, 50_000, (min(4096, samples - start), TOKENS), dtype=np.uint16)


def one_chunk(task: tuple[int, int]) -> Any:
    """All tokens of samples [first, last) as one tensor: what LitData's optimize() takes for tokens."""
    import torch

    for index, row in enumerate(token_rows(task[1])):
        if index >= task[0]:
            yield torch.from_numpy(row)


def prepare(data: Path, samples: int) -> None:
    if (data / ".done").exists() and (data / ".done").read_text() == str(samples):
        return
    shutil.rmtree(data, ignore_errors=True)
    bucket = data / "buckets" / "bench"
    bucket.mkdir(parents=True)
    import litdata
    from litdata.streaming.item_loader import TokensLoader
    from streaming import MDSWriter

    columns = {"tokens": f"ndarray:uint16:{TOKENS}"}
    with MDSWriter(out=str(bucket / "mds"), columns=columns, size_limit=64 << 20) as writer:
        for row in token_rows(samples):
            writer.write({"tokens": row})
    litdata.optimize(
        fn=one_chunk,
        inputs=[(0, samples)],
        output_dir=str(bucket / "litdata"),
        chunk_bytes="64MB",
        num_workers=1,
        item_loader=TokensLoader(block_size=TOKENS),
    )
    (data / ".done").write_text(str(samples))


def cpu_seconds() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in uses)


def headrace_batches(endpoint: str, cache: Path) -> Any:
    import headrace as hr

    for batch in hr.Loader("s3://bench/mds", endpoint=endpoint, batch_size=BATCH, shuffle=True, seed=SEED):
        yield batch["tokens"]


def litdata_batches(endpoint: str, cache: Path) -> Any:
    import litdata
    from litdata.streaming.item_loader import TokensLoader

    dataset = litdata.StreamingDataset(
        **litdata_source("s3://bench/litdata", cache, endpoint),
        item_loader=TokensLoader(block_size=TOKENS),
        shuffle=True,
        seed=SEED,
        drop_last=False,
    )
    yield from litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)


def mosaic_batches(endpoint: str, cache: Path) -> Any:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    os.environ["S3_ENDPOINT_URL"] = endpoint
    dataset = StreamingDataset(
        remote="s3://bench/mds", local=str(cache), shuffle=True, shuffle_seed=SEED, batch_size=BATCH
    )
    for batch in DataLoader(dataset, batch_size=BATCH, num_workers=0):
        yield batch["tokens"]


LOADERS = {"headrace": headrace_batches, "litdata": litdata_batches, "mosaicml-streaming": mosaic_batches}


def child(name: str, endpoint: str, cache: Path) -> None:
    """One epoch in this process; CPU is counted from the first batch's request on, after imports."""
    import numpy  # noqa: F401  (imported by all; not part of the loader's cost)
    import torch  # noqa: F401

    if name == "litdata":
        import litdata  # noqa: F401
    elif name == "mosaicml-streaming":
        import streaming  # noqa: F401
    else:
        import headrace  # noqa: F401
    started, cpu = time.monotonic(), cpu_seconds()
    first = None
    samples = 0
    for tokens in LOADERS[name](endpoint, cache):
        first = first or time.monotonic() - started
        samples += len(tokens)
    seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "loader": name,
                "samples": samples,
                "seconds": seconds,
                "cpu_s": cpu,
                "first_batch_s": first,
                "peak_rss_mib": rss,
            }
        )
    )


def empty_cache(data: Path) -> Path:
    """A folder that nothing of an earlier run is in."""
    cache = data / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir()
    for leftover in Path("/dev/shm").glob("0000*"):
        leftover.unlink()  # mosaicml-streaming's shared memory
    return cache


def run_peer(name: str, command: list[str], paths: Mapping[str, str]) -> dict[str, Any]:
    """The last line of what a program prints, which finds the packages of ``paths[name]`` first."""
    path = [paths[name]] if name in paths else []
    environment = os.environ | {"PYTHONPATH": ":".join([*path, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def run_child(name: str, endpoint: str, data: Path) -> dict[str, Any]:
    cache = empty_cache(data)
    command = [sys.executable, __file__, "--child", name, "--endpoint", endpoint, "--cache", str(cache)]
    return run_peer(name, command, {})


def start_simulator(data: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "headrace.cli", "sim", str(data / "buckets"), "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "headrace",
        "AWS_SECRET_ACCESS_KEY": "headrace-secret",
        "AWS_REGION": "us-east-1",
    }
    os.environ |= {"AWS_DEFAULT_REGION": "us-east-1"}
    return process, json.loads(process.stdout.readline())["endpoint"]


def summary(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys(r["loader"] for r in results):
        runs = [r for r in results if r["loader"] == name]
        per_cpu = [r["samples"] / r["cpu_s"] for r in runs]
        rows.append(
            {
                "loader": name,
                "samples_per_cpu_s": statistics.median(per_cpu),
                "spread": f"{min(per_cpu):,.0f}..{max(per_cpu):,.0f}",
                "samples_per_s": statistics.median(r["samples"] / r["seconds"] for r in runs),
                "cpu_s_per_gb": statistics.median(
                    r["cpu_s"] / (r["samples"] * 2 * TOKENS / 1e9) for r in runs
                ),
                "first_batch_ms": 1000 * statistics.median(r["first_batch_s"] for r in runs),
                "peak_rss_mib": statistics.median(r["peak_rss_mib"] for r in runs),
            }
        )
    return rows


def named(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def make_parser(description: str | None, data: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path(data))
    return parser


def main() -> None:
    parser = make_parser(__doc__, "/dev/shm/headrace-tokens")
    parser.add_argument("--samples", type=int, default=262_144)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loaders", default=",".join(LOADERS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child")
    parser.add_argument("--endpoint")
    parser.add_argument("--cache", type=Path)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.endpoint, args.cache)
        return
    prepare(args.data, args.samples)
    simulator, endpoint = start_simulator(args.data)
    try:
        subprocess.run(
            [sys.executable, "-m", "headrace.cli", "index", "s3://bench/mds", "--endpoint", endpoint],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        results = [
            run_child(name, endpoint, args.data)
            for _ in range(args.rounds)
            for name in args.loaders.split(",")
        ]
    finally:
        simulator.terminate()
        simulator.wait()
    for row in summary(results):
        print(
            json.dumps(row)
            if args.json
            else "  ".join(f"{k} {v:,.2f}" if isinstance(v, float) else f"{v}" for k, v in row.items())
        )


if __name__ == "__main__":
    main()
