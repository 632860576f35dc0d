#!/usr/bin/env python3
"""Time from hr.Loader(...) to the first batch on a dataset of 1,000 shards with a built index.

    bench/first_batch.py [--shards 1000] [--profile none|s3-standard] [--rounds 10] [--json]

Makes the dataset in a temporary directory, serves it by an in-process simulator, and starts a fresh loader
each round. The figure is the median; the first-byte time that the profile adds is reported beside it (median
of single small GETs).
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

import headrace as hr
from headrace import sim

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "python"))
from conftest import write_mds


def write_dataset(root: Path, shards: int, samples: int) -> None:
    """MDS: `shards` shards of `samples` samples of one int column."""
    values = [{"x": struct.pack("<q", number)} for number in range(shards * samples)]
    write_mds(root, {"x": ("int", 8)}, values, per_shard=samples)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=1000, help="a shard")
    parser.add_argument("--profile", default="none")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        write_dataset(Path(scratch) / "buckets" / "b" / "ds", args.shards, args.samples)
        with sim.Server(Path(scratch) / "buckets", profile=args.profile, seed=1) as server:
            where = {
                "endpoint": server.endpoint,
                "access_key": server.access_key,
                "secret_key": server.secret_key,
            }
            hr.Dataset("s3://b/ds", **where).write_index()
            times, singles = [], []
            for _ in range(args.rounds):
                started = time.monotonic()
                with hr.Loader("s3://b/ds", batch_size=64, shuffle=True, seed=1, **where) as loader:
                    next(iter(loader))
                    times.append(time.monotonic() - started)
                with hr.Store("s3://b/ds", **where) as store:
                    store.get_range("shard.00000.mds", 0, 8)  # opens the connection
                    started = time.monotonic()
                    store.get_range("shard.00000.mds", 0, 8)
                    singles.append(time.monotonic() - started)
    result = {
        "shards": args.shards,
        "profile": args.profile,
        "first_batch_ms": 1000 * statistics.median(times),
        "worst_ms": 1000 * max(times),
        "one_small_get_ms": 1000 * statistics.median(singles),
    }
    print(json.dumps(result) if args.json else "\n".join(f"{k:18} {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
