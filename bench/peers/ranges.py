#!/usr/bin/env python3
"""Range GETs over plain HTTP: the raw floor, Headrace (C++ and Python) and the peers, interleaved in one run.

    pip install obstore boto3 s3torchconnector awscrt
    bench/peers/ranges.py --programs build/release/bench [--rounds 3] [--clients floor,headrace,...] [--json]

Four objects of 256 MiB in memory behind nginx (one worker, sendfile). CPU is user + system time of the
client, measured inside it from the first request to the last (imports, start-up and one warming request are
left out); the server's is nginx's own over the same time, because loopback moves TCP work between the two
ends. GB is 10^9 bytes. Every client signs its requests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
OBJECTS, OBJECT_BYTES = 4, 256 << 20
# part bytes, requests in flight, pattern, MiB by a fast client, MiB by a slow one
CASES = [
    (8 << 20, 16, "sequential", 4096, 1024),
    (1 << 20, 16, "sequential", 2048, 512),
    (64 << 10, 16, "random", 2048, 128),
]
KEYS = {
    "AWS_ACCESS_KEY_ID": "headrace",
    "AWS_SECRET_ACCESS_KEY": "headrace-secret",
    "AWS_REGION": "us-east-1",
}


def ranges(part: int, pattern: str, total_mib: int) -> list[tuple[str, int]]:
    count = (total_mib << 20) // part
    per_object = OBJECT_BYTES // part
    if pattern == "random":
        rng = random.Random(17)
        return [(f"obj{rng.randrange(OBJECTS)}.bin", rng.randrange(per_object) * part) for _ in range(count)]
    return [(f"obj{i // per_object % OBJECTS}.bin", i % per_object * part) for i in range(count)]


def by_threads(read: Any, work: list[tuple[str, int]], in_flight: int) -> None:
    with ThreadPoolExecutor(in_flight) as pool:
        for _ in pool.map(read, work):
            pass


def use_headrace_python(endpoint: str, part: int, in_flight: int) -> Any:
    import headrace as hr

    store = hr.Store("s3://bkt", endpoint=endpoint, max_in_flight=in_flight)
    return lambda work: sum(1 for _ in store.get_ranges((key, offset, part) for key, offset in work))


def use_obstore_async(endpoint: str, part: int, in_flight: int) -> Any:
    import asyncio

    from obstore.store import S3Store

    store = S3Store(
        "bkt", endpoint=endpoint, client_options={"allow_http": True}, virtual_hosted_style_request=False
    )

    async def run(work: list[tuple[str, int]]) -> None:
        items = iter(work)

        async def worker() -> None:
            for key, offset in items:
                await store.get_range_async(key, start=offset, length=part)

        await asyncio.gather(*(worker() for _ in range(in_flight)))

    return lambda work: asyncio.run(run(work))


def use_obstore_threads(endpoint: str, part: int, in_flight: int) -> Any:
    from obstore.store import S3Store

    store = S3Store(
        "bkt", endpoint=endpoint, client_options={"allow_http": True}, virtual_hosted_style_request=False
    )
    return lambda work: by_threads(
        lambda item: len(store.get_range(item[0], start=item[1], length=part)), work, in_flight
    )


def use_boto3(endpoint: str, part: int, in_flight: int) -> Any:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        config=Config(max_pool_connections=in_flight, s3={"addressing_style": "path"}),
    )

    def read(item: tuple[str, int]) -> int:
        answer = client.get_object(Bucket="bkt", Key=item[0], Range=f"bytes={item[1]}-{item[1] + part - 1}")
        return len(answer["Body"].read())

    return lambda work: by_threads(read, work, in_flight)


def use_s3torchconnector(endpoint: str, part: int, in_flight: int) -> Any:
    from s3torchconnector import S3ClientConfig
    from s3torchconnector._s3client import S3Client
    from s3torchconnector.s3reader import S3ReaderConstructor

    client = S3Client("us-east-1", endpoint=endpoint, s3client_config=S3ClientConfig(force_path_style=True))

    def read(item: tuple[str, int]) -> int:
        reader = client.get_object(
            "bkt", item[0], reader_constructor=S3ReaderConstructor.range_based(buffer_size=0)
        )
        reader.seek(item[1])
        return len(reader.read(part))

    return lambda work: by_threads(read, work, in_flight)


PEERS = {
    "headrace-python": use_headrace_python,
    "obstore-async": use_obstore_async,
    "obstore-threads": use_obstore_threads,
    "s3torchconnector": use_s3torchconnector,
    "boto3": use_boto3,
}


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def child(arguments: argparse.Namespace) -> None:
    """Runs one peer in this process and prints its figures."""
    read = PEERS[arguments.child](arguments.endpoint, arguments.part, arguments.in_flight)
    work = ranges(arguments.part, arguments.pattern, arguments.total_mib)
    read(work[:1])
    cpu, started = cpu_seconds(), time.perf_counter()
    read(work)
    seconds = time.perf_counter() - started
    gigabytes = len(work) * arguments.part / 1e9
    print(json.dumps({"cpu_s_per_GB": (cpu_seconds() - cpu) / gigabytes, "GB_per_s": gigabytes / seconds}))


def process_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def command_of(
    client: str, programs: Path, port: int, case: tuple[int, int, str, int, int]
) -> tuple[list[str], int]:
    """(command, MiB that it reads)"""
    part, in_flight, pattern, fast_mib, slow_mib = case
    shape = ["--part", str(part), "--in-flight", str(in_flight), "--pattern", pattern]
    if client == "floor":
        return [
            str(programs / "fetch_floor"),
            "--port",
            str(port),
            "--poller",
            "uring",
            *shape,
            "--total-mib",
            str(fast_mib),
        ], fast_mib
    endpoint = ["--endpoint", f"http://127.0.0.1:{port}"]
    if client == "headrace":
        return [
            str(programs / "fetch_bench"),
            "--url",
            "s3://bkt",
            *endpoint,
            *shape,
            "--total-mib",
            str(fast_mib),
        ], fast_mib
    mib = fast_mib if client == "headrace-python" else slow_mib
    return [sys.executable, __file__, "--child", client, *endpoint, *shape, "--total-mib", str(mib)], mib


def measure(command: list[str], mib: int, server_pid: int) -> dict[str, float]:
    before = process_cpu(server_pid)
    done = subprocess.run(command, env=os.environ | KEYS, capture_output=True, text=True)
    # A peer may crash while its interpreter ends, after its figures are out.
    if not done.stdout.strip():
        sys.exit(f"{' '.join(command)}: status {done.returncode} {done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result | {"server_cpu_s_per_GB": (process_cpu(server_pid) - before) / ((mib << 20) / 1e9)}


def report(part: int, client: str, runs: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    def median(field: str) -> float:
        return round(statistics.median(run[field] for run in runs[client]), 3)

    row: dict[str, Any] = {
        "part": part,
        "client": client,
        "cpu_s_per_GB": median("cpu_s_per_GB"),
        "server_cpu_s_per_GB": median("server_cpu_s_per_GB"),
    }
    row["GB_per_s"] = median("GB_per_s")
    if "floor" in runs:
        ratios = sorted(
            run["cpu_s_per_GB"] / floor["cpu_s_per_GB"]
            for run, floor in zip(runs[client], runs["floor"], strict=True)
        )
        row |= {
            "to_floor": round(statistics.median(ratios), 2),
            "spread": f"{ratios[0]:.2f}..{ratios[-1]:.2f}",
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=Path, help="folder of fetch_floor and fetch_bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", default=",".join(["floor", "headrace", *PEERS]))
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm/ranges"))
    parser.add_argument("--json", action="store_true")
    for name in ("child", "endpoint", "pattern"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    for name in ("part", "in-flight", "total-mib"):
        parser.add_argument(f"--{name}", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    if not arguments.programs:
        parser.error("--programs is needed")
    from fetch_ratio import served

    with served("nginx", arguments.directory) as (port, server):
        for case in CASES:
            runs: dict[str, list[dict[str, float]]] = {client: [] for client in arguments.clients.split(",")}
            for _ in range(arguments.rounds):
                for client, results in runs.items():
                    results.append(measure(*command_of(client, arguments.programs, port, case), server.pid))
            for client in runs:
                row = report(case[0], client, runs)
                print(
                    json.dumps(row) if arguments.json else "  ".join(f"{k} {v}" for k, v in row.items()),
                    flush=True,
                )


if __name__ == "__main__":
    main()
