#!/usr/bin/env python3
"""Reading through fsspec: Headrace's file system beside s3fs and obstore, everything at its defaults.

    bench/peers/fsspec_reads.py [--rounds 3] [--mib 1024] [--profiles none,s3-standard] [--clients
    headrace,s3fs,obstore]

`ranges`: cat_ranges of 1,000 ranges of 64 KiB at random places; `file`: open() and read(1 MiB) to the end.
Each run is a process of its own, clients take turns, the simulator runs beside them (`none`: loopback). CPU
is the client's process, user and system, without its start. s3fs runs in the venv of `tools/setup test` for
clients.
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
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from simulated import simulated

CLIENTS_PYTHON = (
    Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace") / "clients/bin/python"
)
OBJECT = "bench/object"
RANGES = 1000
RANGE_BYTES = 64 << 10
READ_BYTES = 1 << 20


def open_client(name: str) -> Any:
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    if name == "s3fs":
        import s3fs

        return s3fs.S3FileSystem(endpoint_url=endpoint)
    if name == "obstore":
        from obstore.fsspec import FsspecStore

        return FsspecStore(
            "s3",
            endpoint=endpoint,
            client_options={"allow_http": True},
            region="us-east-1",
            access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
            secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        )
    import headrace as hr

    return hr.fs("s3://bench", endpoint=endpoint, control_directory="")


def places(size: int) -> list[int]:
    chosen = random.Random(7)
    return [chosen.randrange(size - RANGE_BYTES) for _ in range(RANGES)]


def read_ranges(fs: Any, size: int) -> list[tuple[int, bytes]]:
    starts = places(size)
    found = fs.cat_ranges([OBJECT] * RANGES, starts, [start + RANGE_BYTES for start in starts])
    return list(zip(starts, found, strict=True))


def read_file(fs: Any, size: int) -> list[tuple[int, bytes]]:
    kept = []
    at = 0
    with fs.open(OBJECT, "rb") as file:
        while data := file.read(READ_BYTES):
            if at % (64 << 20) == 0:
                kept.append((at, bytes(data)))
            at += len(data)
    if at != size:
        raise SystemExit(f"{at} bytes of {size}")
    return kept


def run(client: str, task: str, path: str) -> None:
    """In a process of its own: prints seconds and CPU seconds."""
    fs = open_client(client)
    fs.info("bench/small")  # imports, credentials, the first connection
    size = os.path.getsize(path)
    used = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    found = (read_ranges if task == "ranges" else read_file)(fs, size)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    with open(path, "rb") as file:
        for at, data in found:
            file.seek(at)
            if file.read(len(data)) != bytes(data):
                raise SystemExit(f"{client}: wrong bytes at {at}")
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    print(json.dumps({"seconds": seconds, "cpu": cpu}))


def measure(profile: str, directory: Path, arguments: argparse.Namespace) -> None:
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    with simulated(directory, "--profile", profile) as variables:
        environment = {**os.environ, **variables, "AWS_EC2_METADATA_DISABLED": "true"}
        for _ in range(arguments.rounds):
            for task in ("ranges", "file"):
                for client in arguments.clients.split(","):
                    python = str(CLIENTS_PYTHON) if client == "s3fs" else sys.executable
                    command = [python, __file__, "--run", client, task, str(directory / OBJECT)]
                    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
                    results.setdefault((task, client), []).append(json.loads(done.stdout))
    size = {"ranges": RANGES * RANGE_BYTES, "file": arguments.mib << 20}
    for (task, client), runs in sorted(results.items()):
        seconds = statistics.median(one["seconds"] for one in runs)
        cpu = statistics.median(one["cpu"] for one in runs)
        spread = " ".join(f"{one['seconds']:.2f}" for one in runs)
        rate, cost = size[task] / seconds / 1e6, cpu / size[task] * 1e9
        print(
            f"{profile:12} {task:7} {client:9} {seconds:7.2f} s ({spread})  {rate:7.0f} MB/s  {cost:6.2f} "
            "CPU s/GB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--profiles", default="none,s3-standard")
    parser.add_argument("--clients", default="headrace,s3fs,obstore")
    parser.add_argument("--run", nargs=3, metavar=("CLIENT", "TASK", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(*arguments.run)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / OBJECT
        path.parent.mkdir()
        (path.parent / "small").write_bytes(b"1")
        with path.open("wb") as file:
            for _ in range(arguments.mib):
                file.write(os.urandom(1 << 20))
        for profile in arguments.profiles.split(","):
            measure(profile, Path(directory), arguments)


if __name__ == "__main__":
    main()
