#!/usr/bin/env python3
"""Range GETs through the Store API against the raw floor, interleaved: client CPU seconds per GB, and their
ratio.

    bench/fetch_ratio.py --programs build/release/bench [--rounds 5] [--server nginx|sim] [--directory
    /dev/shm/fetch_ratio] [--json]

The floor (bench/fetch_floor) moves bodies from the socket into memory and does nothing else: no signing,
parsing or errors. The store (bench/fetch_bench) signs every request (SigV4) and checks every answer. Also
prints what one memcpy of the bytes costs: floor + memcpy is the bound that loaders are measured against.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sim_vs_nginx import NGINX, SIMULATOR, free_port, wait_for

CASES = [
    (8 << 20, 16, "sequential", 4096),
    (1 << 20, 16, "sequential", 4096),
    (64 << 10, 16, "random", 2048),
    (64 << 10, 64, "random", 2048),
]


def make_objects(directory: Path) -> None:
    bucket = directory / "bkt"
    bucket.mkdir(parents=True, exist_ok=True)
    for index in range(4):
        path = bucket / f"obj{index}.bin"
        if not path.exists() or path.stat().st_size != 256 << 20:
            path.write_bytes(np.random.default_rng(index).bytes(256 << 20))


def start_server(kind: str, directory: Path, port: int) -> subprocess.Popen[bytes]:
    if kind == "sim":
        server = subprocess.Popen(
            [sys.executable, "-c", SIMULATOR, str(directory), str(port)], stdin=subprocess.PIPE
        )
    else:
        config = directory / "nginx.conf"
        config.write_text(
            "user root;\n" * (os.getuid() == 0) + NGINX.format(temp=directory, root=directory, port=port)
        )
        server = subprocess.Popen(["nginx", "-p", str(directory), "-c", str(config)])
    wait_for(port)
    return server


@contextmanager
def served(kind: str, directory: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Port and process of a server of the objects; both are gone afterwards."""
    make_objects(directory)
    port = free_port()
    server = start_server(kind, directory, port)
    try:
        yield port, server
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(directory, ignore_errors=True)


def run(command: list[str]) -> float:
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": "headrace",
        "AWS_SECRET_ACCESS_KEY": "headrace-secret",
        "AWS_REGION": "us-east-1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return float(result["cpu_s_per_GB"])


def memcpy_cpu_s_per_gb() -> float:
    """Copies 4 KiB samples from anywhere in 192 MiB (what a loader keeps) into one batch of 64."""
    source = np.ones((49_152, 4096), dtype=np.uint8)
    batch = np.ones((64, 4096), dtype=np.uint8)
    picks = np.random.default_rng(0).permutation(len(source)).reshape(-1, 64)
    np.take(source, picks[0], axis=0, out=batch)
    started = time.process_time()
    for rows in picks:
        np.take(source, rows, axis=0, out=batch, mode="clip")
    return (time.process_time() - started) / (source.nbytes / 1e9)


def make_parser(description: str | None, directory: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=Path, required=True, help="folder of fetch_floor and fetch_bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--server", choices=["nginx", "sim"], default="nginx")
    parser.add_argument("--directory", type=Path, default=Path(directory))
    parser.add_argument("--json", action="store_true")
    return parser


def main() -> None:
    args = make_parser(__doc__, "/dev/shm/fetch_ratio").parse_args()
    with served(args.server, args.directory) as (port, _):
        for part, in_flight, pattern, total_mib in CASES:
            for poller in ("uring", "epoll"):
                common = [
                    "--poller",
                    poller,
                    "--part",
                    str(part),
                    "--in-flight",
                    str(in_flight),
                    "--pattern",
                    pattern,
                    "--total-mib",
                    str(total_mib),
                ]
                floor_command = [str(args.programs / "fetch_floor"), "--port", str(port), *common]
                store_command = [
                    str(args.programs / "fetch_bench"),
                    "--url",
                    "s3://bkt",
                    "--endpoint",
                    f"http://127.0.0.1:{port}",
                    *common,
                ]
                pairs = [(run(floor_command), run(store_command)) for _ in range(args.rounds)]
                ratios = sorted(store / floor for floor, store in pairs)
                row = {
                    "part": part,
                    "in_flight": in_flight,
                    "poller": poller,
                    "floor_cpu_s_per_gb": round(statistics.median(f for f, _ in pairs), 3),
                    "store_cpu_s_per_gb": round(statistics.median(s for _, s in pairs), 3),
                    "ratio": round(statistics.median(ratios), 2),
                    "ratio_spread": f"{ratios[0]:.2f}..{ratios[-1]:.2f}",
                }
                print(
                    json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()),
                    flush=True,
                )
        copies = sorted(memcpy_cpu_s_per_gb() for _ in range(args.rounds))
        print(json.dumps({"memcpy_cpu_s_per_gb": round(statistics.median(copies), 3)}))


if __name__ == "__main__":
    main()
