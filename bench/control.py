#!/usr/bin/env python3
"""Closed-loop concurrency control against every fixed concurrency, on stores that collapse when driven too
hard.

    bench/control.py [--profiles collapse-8,collapse-32,collapse-96] [--part 1MiB] [--seconds 8] [--json]

For each profile of `headrace sim` (docs/simulator.md has their numbers): the goodput of each fixed
concurrency, then of the adaptive store from a cold start with a ceiling of 256, cut into half seconds: when
it first reached 95 % of the best fixed one, and what it held after ten seconds. No process knows the
profile's numbers but the simulator's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from sim_vs_nginx import free_port, wait_for

import headrace as hr
from headrace import _native
from headrace.base.units import parse_bytes

SERVER = """import sys
from headrace import sim
with sim.Server(sys.argv[1], port=int(sys.argv[2]), profile=sys.argv[3], seed=5, require_signature=False):
    sys.stdin.read()
"""
FIXED = [4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
CEILING = 256
TICK_SECONDS = 0.5
ADAPTIVE_SECONDS = 25.0
SETTLED_SECONDS = 10.0


def make_objects(directory: Path) -> None:
    (directory / "bkt").mkdir(parents=True)
    for index in range(16):
        (directory / "bkt" / f"object-{index}").write_bytes(bytes(16 << 20))


def open_store(port: int, in_flight: int, part: int, adaptive: bool) -> hr.Store:
    return hr.Store(
        "s3://bkt",
        endpoint=f"http://127.0.0.1:{port}",
        access_key="headrace",
        secret_key="headrace-secret",
        memory=max(in_flight * part * 5 // 4, 64 << 20),
        max_in_flight=in_flight,
        adaptive=adaptive,
        control_directory="",
    )


def fixed_goodput(port: int, part: int, in_flight: int, seconds: float) -> float:
    with open_store(port, in_flight, part, adaptive=False) as store:
        row = _native.probe_fetch(store._native, list(store.list()), part, in_flight, seconds)
        return float(row["bytes"] / row["seconds"] / 1e6)


def adaptive_goodput(port: int, part: int) -> tuple[list[float], list[float]]:
    """(MB/s, limit) of each tick from a cold start."""
    with open_store(port, CEILING, part, adaptive=True) as store:
        objects = list(store.list())
        worker = threading.Thread(
            target=_native.probe_fetch, args=(store._native, objects, part, CEILING, ADAPTIVE_SECONDS)
        )
        worker.start()
        rates, limits = [], []
        then, received = time.monotonic(), 0.0
        while worker.is_alive():
            worker.join(TICK_SECONDS)
            now, stats = time.monotonic(), store.stats()
            rates.append((stats["store.received_bytes"] - received) / (now - then) / 1e6)
            limits.append(stats["store.concurrency_limit"])
            then, received = now, stats["store.received_bytes"]
        return rates[:-1], limits[:-1]


def run_profile(directory: Path, profile: str, part: int, seconds: float) -> dict[str, Any]:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(directory), str(port), profile], stdin=subprocess.PIPE
    )
    try:
        wait_for(port)
        fixed = {count: fixed_goodput(port, part, count, seconds) for count in FIXED}
        rates, limits = adaptive_goodput(port, part)
    finally:
        server.terminate()
        server.wait()
    best = max(fixed, key=lambda count: fixed[count])
    good = 0.95 * fixed[best]
    settled = rates[int(SETTLED_SECONDS / TICK_SECONDS) :]
    return {
        "profile": profile,
        "best_fixed": best,
        "best_fixed_MB_per_s": round(fixed[best]),
        "worst_fixed_MB_per_s": round(min(fixed.values())),
        "adaptive_MB_per_s": round(statistics.mean(settled)),
        "share_of_best": round(statistics.mean(settled) / fixed[best], 3),
        "reached_after_s": next(
            (TICK_SECONDS * (i + 1) for i, rate in enumerate(rates) if rate >= good), None
        ),
        "settled_limit": round(statistics.median(limits[int(SETTLED_SECONDS / TICK_SECONDS) :])),
        "fixed": {count: round(rate) for count, rate in fixed.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", default="collapse-8,collapse-32,collapse-96")
    parser.add_argument("--part", default="1MiB", help="bytes of a read")
    parser.add_argument("--seconds", type=float, default=5, help="for each fixed concurrency")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        make_objects(Path(directory))
        for profile in arguments.profiles.split(","):
            row = run_profile(Path(directory), profile, parse_bytes(arguments.part), arguments.seconds)
            print(
                json.dumps(row) if arguments.json else "  ".join(f"{k} {v}" for k, v in row.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
