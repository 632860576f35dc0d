#!/usr/bin/env python3
"""Tail latency under faults: 8 MiB reads with 1 % of first bytes late by 5 s and 2 % 503, against the same
store without faults.

    bench/tail.py [--requests 4000] [--in-flight 16] [--rounds 3] [--loader] [--json]

Both run against `headrace sim` with the same first-byte times (30 ms median, 80 ms at the 99th percentile)
and 80 MB/s a connection, interleaved. Prints percentiles of the time from submitting a read to its
completion, the extra requests (hedges and retries of the engine, and what the server counted), and the ratio
of p99.9. A request that waits for its turn waits in the same queue in both.

--loader: what a training loop sees of them: three epochs of a Loader at defaults over 670 blocks of 1 MiB,
batches of 64 samples of 4 KiB, with 2 % 503, with 1 % of first bytes late, and without; p99.9 and the longest
of all waits for a batch but the first.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from builds import pack

import headrace as hr
from headrace import _native, sim

PART = 8 << 20
CLEAN = {"first_byte_p50_ms": 30, "first_byte_p99_ms": 80, "connection_bytes_per_s": 80e6}
FAULTY = {**CLEAN, "slow_first_byte_rate": 0.01, "slow_first_byte_ms": 5000, "throttle_rate": 0.02}


def where(server: sim.Server) -> dict[str, str]:
    return {
        "endpoint": server.endpoint,
        "access_key": server.access_key,
        "secret_key": server.secret_key,
    }


def run(
    directory: Path, behaviour: dict[str, float], seed: int, arguments: argparse.Namespace
) -> dict[str, float]:
    with sim.Server(directory, behaviour=behaviour, seed=seed) as server:
        memory = (arguments.in_flight + 4) * PART * 5 // 4
        with hr.Store(
            "s3://bkt",
            memory=memory,
            max_in_flight=2 * arguments.in_flight,
            control_directory="",
            **where(server),
        ) as store:
            objects = list(store.list())
            # The quantile of first-byte times that hedging waits for is learnt from the requests themselves.
            row = _native.probe_fetch(
                store._native, objects, PART, arguments.in_flight, 3600, arguments.requests * PART
            )
            stats = store.stats()
    return {
        "p50_ms": row["request_p50_us"] / 1000,
        "p99_ms": row["request_p99_us"] / 1000,
        "p999_ms": row["request_p999_us"] / 1000,
        "requests": row["requests"],
        "failures": row["failures"],
        "hedges": stats["store.hedges"],
        "hedges_won": stats["store.hedges_won"],
        "retries": stats["store.retries"],
    }


LOADER = {
    "clean": CLEAN,
    "503": {**CLEAN, "throttle_rate": 0.02},
    "late": {**CLEAN, "slow_first_byte_rate": 0.01, "slow_first_byte_ms": 5000},
}


def load(directory: Path, behaviour: dict[str, float], seed: int) -> dict[str, float]:
    with sim.Server(directory, behaviour=behaviour, seed=seed) as server:
        waits, epochs = [], []
        with hr.Loader(
            "s3://bkt/mds", batch_size=64, control_directory="", block_bytes="1MiB", **where(server)
        ) as loader:
            for _ in range(3):
                begin = last = time.monotonic()
                for _batch in loader:
                    now = time.monotonic()
                    waits.append(now - last)
                    last = now
                epochs.append(last - begin)
            stats = loader.stats()
    waits = sorted(waits[1:])
    return {
        "p999_ms": 1000 * waits[int(len(waits) * 0.999)],
        "longest_ms": 1000 * waits[-1],
        "epoch_s": statistics.median(epochs),
        "requests": stats["store.requests"],
        "hedges": stats["store.hedges"],
        "retries": stats["store.retries"],
    }


def compare_loaders(rounds: int, as_json: bool) -> None:
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in LOADER}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        source = Path(directory) / "source"
        source.mkdir()
        (source / "bytes").write_bytes(random.Random(1).randbytes(67 << 20) * 5)  # A byte becomes a uint16.
        pack(source, Path(directory) / "bkt" / "mds", "", "--tokens", "2048")
        for seed in range(rounds):
            for name, behaviour in LOADER.items():
                rows[name].append(load(Path(directory), behaviour, seed))
    for name, found in rows.items():
        row = {key: round(statistics.median(one[key] for one in found), 3) for key in found[0]}
        row["p999_ratio"] = round(
            row["p999_ms"] / statistics.median(one["p999_ms"] for one in rows["clean"]), 2
        )
        print(
            json.dumps({"run": name, **row})
            if as_json
            else f"{name:7}" + "  ".join(f"{k} {v:.4g}" for k, v in row.items()),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loader", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.loader:
        compare_loaders(arguments.rounds, arguments.json)
        return
    ratios, rows = [], []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        (Path(directory) / "bkt").mkdir()
        for index in range(4):
            (Path(directory) / "bkt" / f"object-{index}").write_bytes(bytes(64 << 20))
        for seed in range(arguments.rounds):
            pair: dict[str, Any] = {
                name: run(Path(directory), behaviour, seed, arguments)
                for name, behaviour in (("clean", CLEAN), ("faulty", FAULTY))
            }
            ratios.append(pair["faulty"]["p999_ms"] / pair["clean"]["p999_ms"])
            rows.append(pair)
            for name, row in pair.items():
                print(
                    json.dumps({"run": name, **row})
                    if arguments.json
                    else f"{name:7}" + "  ".join(f"{k} {v:.4g}" for k, v in row.items()),
                    flush=True,
                )
    extra = max(row["faulty"]["hedges"] / row["faulty"]["requests"] for row in rows)
    result = {
        "p999_ratio": round(statistics.median(ratios), 2),
        "spread": f"{min(ratios):.2f}..{max(ratios):.2f}",
        "most_hedges": round(extra, 4),
    }
    print(json.dumps(result) if arguments.json else "  ".join(f"{k} {v}" for k, v in result.items()))


if __name__ == "__main__":
    main()
