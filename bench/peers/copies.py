#!/usr/bin/env python3
"""`headrace cp` beside s5cmd and rclone, interleaved: many small files, and four large ones, from and to a
real S3 server.

    bench/peers/copies.py --minio PROGRAM [--rclone PROGRAM] [--s5cmd PROGRAM] [--rounds 3] [--case
    small,down,up] [--json]

Small: 20,000 objects of 10 KB to a local directory; files per client CPU second. Down, up: 4 objects of 256
MiB; GB/s and CPU seconds a GB. CPU is user + system time of the whole process tree of the client, start-up
included (wait4). GB is 10^9 bytes. The target directory is emptied before every run. `disk` is what dd writes
to that directory (oflag=direct), for scale.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SMALL_COUNT, SMALL_BYTES = 20_000, 10_000
LARGE_COUNT, LARGE_BYTES = 4, 256 << 20
KEYS = {
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark-secret",
    "AWS_REGION": "us-east-1",
}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def minio(program: str, data: Path) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    environment = {
        **os.environ,
        "MINIO_ROOT_USER": KEYS["AWS_ACCESS_KEY_ID"],
        "MINIO_ROOT_PASSWORD": KEYS["AWS_SECRET_ACCESS_KEY"],
    }
    command = [program, "server", str(data), "--address", address, "--quiet"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://{address}/minio/health/live", timeout=1)
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        yield f"http://{address}"
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def client_command(
    client: str, programs: dict[str, str], endpoint: str, source: str, target: str
) -> list[str]:
    if client == "headrace":
        return [*programs["headrace"].split(), "cp", "-r", source, target, "--endpoint", endpoint, "--quiet"]
    if client == "s5cmd":
        if source.startswith("s3://"):
            source += "/*"
        else:
            source, target = source + "/", target + "/"
        return [
            programs["s5cmd"],
            "--endpoint-url",
            endpoint,
            "--log",
            "error",
            "cp",
            source,
            target.rstrip("/") + "/",
        ]
    remote = f":s3,provider=Minio,env_auth=true,endpoint='{endpoint}':"
    ends = [
        remote + end.removeprefix("s3://") if end.startswith("s3://") else end for end in (source, target)
    ]
    return [
        programs["rclone"],
        "copy",
        "--transfers",
        "64",
        "--checkers",
        "16",
        "--fast-list",
        "--no-traverse",
        *ends,
    ]


def measure(command: list[str]) -> tuple[float, float]:
    """(wall, CPU) seconds of a program and all its children."""
    started = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, **KEYS}, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} exited with {process.returncode}")
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime


def make_objects(path: Path, count: int, size: int) -> None:
    path.mkdir(parents=True)
    generator = random.Random(7)
    for i in range(count):
        (path / f"object-{i:06d}").write_bytes(generator.randbytes(min(size, 1 << 20)) * max(1, size >> 20))


def disk_rate(directory: Path) -> float:
    """GB/s that dd writes to the directory, past the page cache."""
    target = directory / "dd"
    started = time.monotonic()
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={target}", "bs=8M", "count=128", "oflag=direct"],
        check=True,
        capture_output=True,
    )
    seconds = time.monotonic() - started
    target.unlink()
    return 128 * (8 << 20) / seconds / 1e9


def run_case(
    case: str, clients: list[str], programs: dict[str, str], endpoint: str, work: Path, rounds: int
) -> list[dict[str, Any]]:
    count, size = (SMALL_COUNT, SMALL_BYTES) if case == "small" else (LARGE_COUNT, LARGE_BYTES)
    results: dict[str, list[tuple[float, float]]] = {client: [] for client in clients}
    for round_number in range(rounds):
        for client in clients:
            target = work / "target"
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            os.sync()
            up = f"s3://up-{case}-{client}-{round_number}"
            if case == "up":
                make_bucket(endpoint, up.removeprefix("s3://"), programs)
            ends = (
                (str(work / "large"), up)
                if case == "up"
                else (f"s3://{'small' if case == 'small' else 'large'}", str(target))
            )
            results[client].append(measure(client_command(client, programs, endpoint, *ends)))
            if case != "up":
                copied = sum(1 for entry in target.iterdir())
                assert copied == count, f"{client} copied {copied} of {count}"
    rows = []
    for client, runs in results.items():
        wall, cpu = (statistics.median(values) for values in zip(*runs, strict=True))
        gigabytes = count * size / 1e9
        rows.append(
            {
                "case": case,
                "client": client,
                "wall_s": wall,
                "cpu_s": cpu,
                "files_per_cpu_s": count / cpu,
                "gb_per_s": gigabytes / wall,
                "cpu_s_per_gb": cpu / gigabytes,
            }
        )
    return rows


def make_bucket(endpoint: str, name: str, programs: dict[str, str]) -> None:
    subprocess.run(
        [programs["s5cmd"], "--endpoint-url", endpoint, "mb", f"s3://{name}"],
        env={**os.environ, **KEYS},
        check=True,
        capture_output=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minio", required=True)
    parser.add_argument("--rclone", default=shutil.which("rclone"))
    parser.add_argument("--s5cmd", default=shutil.which("s5cmd"))
    parser.add_argument(
        "--headrace", default=f"{sys.executable} -m headrace.cli", help="The command, split at spaces."
    )
    parser.add_argument("--clients", default="headrace,s5cmd,rclone")
    parser.add_argument("--case", default="small,down,up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--directory", type=Path, help="Where data goes; default: the directory for temporary files."
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    programs = {"headrace": arguments.headrace, "s5cmd": arguments.s5cmd, "rclone": arguments.rclone}
    clients = [client for client in arguments.clients.split(",") if programs[client]]
    rows = []
    with tempfile.TemporaryDirectory(prefix="headrace-copies-", dir=arguments.directory) as directory:
        work = Path(directory)
        make_objects(work / "small", SMALL_COUNT, SMALL_BYTES)
        make_objects(work / "large", LARGE_COUNT, LARGE_BYTES)
        (work / "server").mkdir()
        with minio(arguments.minio, work / "server") as endpoint:
            for bucket in ("small", "large"):
                make_bucket(endpoint, bucket, programs)
                measure(client_command("s5cmd", programs, endpoint, str(work / bucket), f"s3://{bucket}"))
            disk = disk_rate(work)
            for case in arguments.case.split(","):
                rows += run_case(case, clients, programs, endpoint, work, arguments.rounds)
    for row in rows:
        if arguments.json:
            print(json.dumps({**row, "disk_gb_per_s": disk}))
        elif row["case"] == "small":
            print(
                f"small {row['client']:9} {row['wall_s']:6.2f} s wall  {row['cpu_s']:6.2f} s CPU  {row['files_per_cpu_s']:9,.0f} files per CPU second"
            )
        else:
            print(
                f"{row['case']:5} {row['client']:9} {row['gb_per_s']:6.2f} GB/s  {row['cpu_s_per_gb']:6.2f} CPU s/GB  (disk {disk:.2f} GB/s)"
            )


if __name__ == "__main__":
    main()
