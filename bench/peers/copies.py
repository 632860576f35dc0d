#!/usr/bin/env python3
"""`headrace cp` and `rm` beside s5cmd and rclone, interleaved: many small files, and some large ones, from
and to a real S3 server, or the simulator with the latencies of one.

    bench/peers/copies.py --minio PROGRAM | --profile s3-standard [--rclone PROGRAM] [--s5cmd PROGRAM]
                          [--rounds 3] [--case small,small-up,down,up,rm] [--small 20000x10000]
                          [--large 4x268435456] [--json]

Small: objects to a local directory (small-up: the other way; rm: the small ones are deleted); files per
client CPU second. Down, up: large objects; GB/s and CPU seconds a GB. CPU is user + system time of the whole
process tree of the client, start-up included (wait4). GB is 10^9 bytes. The target directory is emptied
before every run. `disk` is what dd writes to that directory (oflag=direct), for scale.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from builds import simulator
from sim_vs_nginx import free_port

SMALL = ("small", "small-up", "rm")
KEYS = {
    "AWS_ACCESS_KEY_ID": "headrace",
    "AWS_SECRET_ACCESS_KEY": "headrace-secret",
    "AWS_REGION": "us-east-1",
}


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


@contextmanager
def sim(profile: str, data: Path) -> Iterator[str]:
    with simulator(data, "", "--profile", profile, "--seed", "5") as port:
        yield f"http://127.0.0.1:{port}"


def client_command(
    client: str, programs: dict[str, str], endpoint: str, source: str, target: str
) -> list[str]:
    if client == "headrace":
        words = ["cp", "-r", source, target, "--quiet"] if target else ["rm", "-r", "--yes", source + "/"]
        return [*programs["headrace"].split(), *words, "--endpoint", endpoint]
    if client == "s5cmd":
        if not target:
            return [programs["s5cmd"], "--endpoint-url", endpoint, "--log", "error", "rm", source + "/*"]
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
    if not target:
        return [programs["rclone"], "delete", "--checkers", "16", "--fast-list", ends[0]]
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


def make_objects(path: Path, count_and_size: str) -> None:
    count, size = map(int, count_and_size.split("x"))
    path.mkdir(parents=True)
    generator = random.Random(7)
    for i in range(count):
        (path / f"object-{i:06d}").write_bytes(generator.randbytes(min(size, 1 << 20)) * max(1, size >> 20))


def listed(endpoint: str, bucket: str, programs: dict[str, str]) -> int:
    command = [programs["s5cmd"], "--endpoint-url", endpoint, "ls", bucket]
    done = subprocess.run(command, env={**os.environ, **KEYS}, check=True, capture_output=True, text=True)
    return len(done.stdout.splitlines())


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
    case: str,
    clients: list[str],
    programs: dict[str, str],
    endpoint: str,
    work: Path,
    rounds: int,
    new_bucket: Callable[[str], None],
) -> list[dict[str, Any]]:
    kind, is_up = ("small" if case in SMALL else "large"), case.endswith("up")
    files = list((work / kind).iterdir())
    count, size = len(files), files[0].stat().st_size
    results: dict[str, list[tuple[float, float]]] = {client: [] for client in clients}
    for round_number in range(rounds):
        for client in clients:
            target = work / "target"
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            os.sync()
            up = f"s3://{case}-{client}-{round_number}"
            if is_up or case == "rm":
                new_bucket(up.removeprefix("s3://"))
            ends = (str(work / kind), up) if is_up else (f"s3://{kind}", str(target))
            if case == "rm":
                measure(client_command("s5cmd", programs, endpoint, str(work / kind), up))
                ends = (up, "")
            results[client].append(measure(client_command(client, programs, endpoint, *ends)))
            if case == "rm":
                left = listed(endpoint, up, programs)
                assert left == 0, f"{client} left {left} of {count}"
            elif not is_up:
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
    server = parser.add_mutually_exclusive_group(required=True)
    server.add_argument("--minio", metavar="PROGRAM")
    server.add_argument("--profile", help="Of `headrace sim`.")
    parser.add_argument("--rclone", default=shutil.which("rclone"))
    parser.add_argument("--s5cmd", default=shutil.which("s5cmd"))
    parser.add_argument(
        "--headrace", default=f"{sys.executable} -m headrace.cli", help="The command, split at spaces."
    )
    parser.add_argument("--clients", default="headrace,s5cmd,rclone")
    parser.add_argument("--case", default="small,down,up", help="Of small, small-up, down, up, rm.")
    parser.add_argument("--small", default="20000x10000", metavar="COUNTxBYTES")
    parser.add_argument("--large", default=f"4x{256 << 20}", metavar="COUNTxBYTES")
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
        make_objects(work / "small", arguments.small)
        make_objects(work / "large", arguments.large)
        data = work / "server"
        data.mkdir()
        with minio(arguments.minio, data) if arguments.minio else sim(arguments.profile, data) as endpoint:

            def new_bucket(name: str) -> None:
                if arguments.minio:
                    make_bucket(endpoint, name, programs)
                else:
                    (data / name).mkdir()

            for bucket in ("small", "large"):
                new_bucket(bucket)
                measure(client_command("s5cmd", programs, endpoint, str(work / bucket), f"s3://{bucket}"))
            disk = disk_rate(work)
            for case in arguments.case.split(","):
                rows += run_case(case, clients, programs, endpoint, work, arguments.rounds, new_bucket)
    for row in rows:
        if arguments.json:
            print(json.dumps({**row, "disk_gb_per_s": disk}))
        elif row["case"] in SMALL:
            print(
                f"{row['case']:8} {row['client']:9} {row['wall_s']:6.2f} s wall  {row['cpu_s']:6.2f} s CPU  "
                f"{row['files_per_cpu_s']:9,.0f} files per CPU second"
            )
        else:
            print(
                f"{row['case']:8} {row['client']:9} {row['wall_s']:6.2f} s wall  {row['gb_per_s']:6.2f} GB/s "
                f" {row['cpu_s_per_gb']:6.2f} CPU s/GB  (disk {disk:.2f} GB/s)"
            )


if __name__ == "__main__":
    main()
