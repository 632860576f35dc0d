#!/usr/bin/env python3
"""Two builds of Headrace against each other: did a change cost speed?

    pip install --no-deps --target /tmp/old OLD_CHECKOUT; pip install --no-deps --target /tmp/new .
    bench/builds.py /tmp/old /tmp/new [--rounds 5] [--mib 512] [--cases mds,tar,...] [--json]

Cases: mds, mds-s3, tar, tfrecord, tokens and tokens-s3 (4 KiB samples, shuffled, two epochs, from files in
memory or from `headrace sim` on loopback; tokens are flat files of uint16, 2,048 to a sample), ranges of 64
KiB, 1 MiB and 8 MiB (get_ranges from the simulator), samples (Dataset.read of random ones), copy (small
files to the simulator) and pack (small files to MDS). Every run is a fresh process; the builds take turns,
and change who is first. CPU is user + system time of the process from the end of the imports; the ratio is
the median over rounds of new / old, with its spread. The simulator is that of the new build for both.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from simulated import simulated

SAMPLE = 4096

PRELUDE = """
import json, os, resource, sys, time
import numpy
import headrace as hr
root, port = sys.argv[1], sys.argv[2]
remote = dict(endpoint=f"http://127.0.0.1:{port}", access_key="headrace", secret_key="headrace-secret",
              control_directory="")
def used():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime
cpu, wall = used(), time.perf_counter()
"""
POSTLUDE = """
print(json.dumps([used() - cpu, time.perf_counter() - wall, count]))
"""
LOADER = """
count = 0
with hr.Loader({url}, batch_size=64, memory="1GiB", {more}) as loader:
    for _ in range(2):
        for batch in loader:
            count += len(batch.ids)
"""
RANGES = """
count = 0
with hr.Store("s3://bucket", memory="256MiB", **remote) as store:
    sizes = {{o.key: o.size for o in store.list("blobs/")}}
    def ranges():
        for _ in range({passes}):
            for key, size in sizes.items():
                for offset in range(0, size, {size}):
                    yield key, offset, {size}
    for result in store.get_ranges(ranges(), in_flight=32):
        count += 1
        del result
"""
TOKENS = f'seed=1, format="tokens", tokens_per_sample={SAMPLE // 2}'
CASES = {
    "mds": LOADER.format(url='root + "/bucket/mds"', more="seed=1"),
    "mds-s3": LOADER.format(url='"s3://bucket/mds"', more="seed=1, **remote"),
    "tar": LOADER.format(url='root + "/bucket/tar"', more="seed=1"),
    "tfrecord": LOADER.format(url='root + "/bucket/tfrecord"', more='seed=1, ragged="arrow"'),
    "tokens": LOADER.format(url='root + "/bucket/tokens"', more=TOKENS),
    "tokens-s3": LOADER.format(url='"s3://bucket/tokens"', more=TOKENS + ", **remote"),
    "ranges-64KiB": RANGES.format(size=64 << 10, passes=1),
    "ranges-1MiB": RANGES.format(size=1 << 20, passes=4),
    "ranges-8MiB": RANGES.format(size=8 << 20, passes=4),
    "samples": """
count = 0
rng = numpy.random.default_rng(3)
with hr.Dataset("s3://bucket/mds", **remote) as data:
    for _ in range(40):
        count += len(data.read(rng.integers(0, len(data), 256).tolist()))
""",
}
COMMANDS = {
    "copy": ["cp", "-r", "--json", "{root}/small", "s3://bucket/copy-{number}"],
    "pack": ["pack", "--json", "{root}/small", "{root}/pack-{number}", "--format", "mds"],
}


def make_tars(bucket: Path, mib: int) -> bytes:
    """Tars of 64 MiB, samples of 4 KiB; returns the samples of each, one after the other."""
    payload = random.Random(1).randbytes(64 << 20)
    (bucket / "tar").mkdir(parents=True)
    for shard in range(max(1, mib // 64)):
        with tarfile.open(bucket / "tar" / f"{shard:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(len(payload) // SAMPLE):
                member = tarfile.TarInfo(f"{shard:05d}{i:07d}.bin")
                member.size = SAMPLE
                tar.addfile(member, io.BytesIO(payload[i * SAMPLE : (i + 1) * SAMPLE]))
    return payload


def of_build(build: str) -> dict[str, str]:
    """Environment in which Python imports this build; "": the package that is installed."""
    return {**os.environ, "PYTHONPATH": build} if build else dict(os.environ)


def pack(source: Path, target: Path, build: str, *options: str) -> None:
    """With the command line of `build`."""
    subprocess.run(
        [sys.executable, "-m", "headrace.cli", "pack", source, target, *options],
        env=of_build(build),
        check=True,
        capture_output=True,
    )


def make_data(root: Path, mib: int, build: str) -> None:
    bucket = root / "bucket"
    payload = make_tars(bucket, mib)
    for folder, ending in (("blobs", ""), ("tokens", ".bin")):
        (bucket / folder).mkdir()
        for shard in range(max(1, mib // 64)):
            (bucket / folder / f"{shard}{ending}").write_bytes(payload)
    for name in ("mds", "tfrecord"):
        pack(bucket / "tar", bucket / name, build, "--format", name)
    small = root / "small"
    for i in range(4000):
        file = small / f"d{i % 40}" / f"{i}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(payload[i * 1000 : i * 1000 + 16384])


def environment(build: str, port: int) -> dict[str, str]:
    return {
        **of_build(build),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "headrace",
        "AWS_SECRET_ACCESS_KEY": "headrace-secret",
    }


@contextlib.contextmanager
def simulator(root: Path, build: str, *options: str) -> Iterator[int]:
    """Its port, of the simulator of `build` over the buckets in `root`."""
    with simulated(root, *options, environment=of_build(build)) as variables:
        yield int(variables["AWS_ENDPOINT_URL_S3"].rsplit(":", 1)[1])


def run_command(build: str, case: str, root: Path, port: int) -> tuple[float, float]:
    """CPU and wall seconds of the whole process."""
    number = time.monotonic_ns()
    words = [word.format(root=root, number=number) for word in COMMANDS[case]]
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *words],
        env=environment(build, port),
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{case} with {build} ended with {process.returncode}")
    shutil.rmtree(root / f"pack-{number}", ignore_errors=True)
    shutil.rmtree(root / "bucket" / f"copy-{number}", ignore_errors=True)
    return used.ru_utime + used.ru_stime, wall


def run(build: str, case: str, root: Path, port: int) -> tuple[float, float]:
    if case in COMMANDS:
        return run_command(build, case, root, port)
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + CASES[case] + POSTLUDE, str(root), str(port)],
        env=environment(build, port),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{case} with {build}:\n{done.stderr}")
    cpu, wall, count = json.loads(done.stdout.splitlines()[-1])
    assert count, f"{case}: nothing was read"
    return cpu, wall


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--cases", default=",".join([*CASES, *COMMANDS]))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="builds-", dir="/dev/shm") as directory:
        root = Path(directory)
        make_data(root, args.mib, args.new)
        with simulator(root, args.new) as port:
            table = {}
            for case in args.cases.split(","):
                ratios: dict[str, list[float]] = {"cpu": [], "wall": []}
                for number in range(args.rounds + 1):
                    turns = [args.old, args.new] if number % 2 else [args.new, args.old]
                    took = {build: run(build, case, root, port) for build in turns}
                    if number == 0:
                        continue  # Both warm: indexes are made, pages are there.
                    for i, what in enumerate(("cpu", "wall")):
                        ratios[what].append(took[args.new][i] / took[args.old][i])
                table[case] = {
                    what: (round(statistics.median(v), 3), round(min(v), 3), round(max(v), 3))
                    for what, v in ratios.items()
                }
                if not args.json:
                    cpu, wall = table[case]["cpu"], table[case]["wall"]
                    print(
                        f"{case:14} CPU new/old {cpu[0]:.3f} ({cpu[1]:.3f} to {cpu[2]:.3f})   "
                        f"wall {wall[0]:.3f} ({wall[1]:.3f} to {wall[2]:.3f})",
                        flush=True,
                    )
            if args.json:
                print(json.dumps(table))


if __name__ == "__main__":
    main()
