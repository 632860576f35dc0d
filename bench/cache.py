#!/usr/bin/env python3
"""The cache on disk: how fast it gives back what it has, and what it costs where it has nothing.

    bench/cache.py [--directory DIR] [--only reads,epochs,decoded,start] [--mib 1024] [--rounds 3]
                   [--profiles none,s3-express,s3-standard] [--extents 1000000] [--photographs 2000]
                   [--disk-mb-s 50]

`reads`: extents of 8 MiB, checked, beside fio's O_DIRECT reads of the same files by as many threads
(unchecked). `epochs`: a loader over tokens of 4 KiB in MDS with and without a cache, in turns: the first
epoch (nothing is there) and the second (everything is that was written by then). CPU is this process's, the
simulator runs in another. What the rounds have written is deleted at the end: an ext4 without a journal looks
at each inode that was deleted in the last minutes before it makes a file. `--disk-mb-s`: with a disk that
reads and writes no more (root, cgroup v1). `decoded`: a loader over photographs (JPEG, 500 x 375) that makes
224 x 224 x 3 uint8 of them, with a cache and `cache_decoded=` "never", "auto" and "always", in turns: images
for a CPU second in the first epoch and in the second. `start`: from the making of a loader to its first
batch, in a new process, with an empty directory and with one of so many extents (headers without data, 4 KiB
of a sparse file each): as another process left it; at its limit; and without its ledger, as after a loss. The
directory should be on the disk that is to be measured.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from simulated import simulated, store_options

import headrace as hr
from headrace import prepare

EXTENT = 8 << 20
THREADS = 8


@contextmanager
def served(root: Path, profile: str) -> Iterator[dict[str, Any]]:
    """Options of a store on a simulator."""
    with simulated(root, "--profile", profile) as variables:
        yield store_options(variables)


def flush(cache: Path) -> None:
    hr.Cache(cache)._native.flush()


def fio_reads(files: list[Path]) -> tuple[float, float]:
    """(GB/s, CPU s/GB) of reading files past the page cache."""
    groups = [files[i::THREADS] for i in range(THREADS)]
    jobs = [
        f"[r{i}]\nfilename={':'.join(map(str, group))}\nsize={len(group) * EXTENT}\n"
        for i, group in enumerate(groups)
        if group
    ]
    script = f"[global]\nrw=read\nbs={EXTENT}\ndirect=1\nioengine=psync\nthread=1\nfile_service_type=sequential\ngroup_reporting\n"  # noqa: E501
    report = subprocess.run(
        ["fio", "--output-format=json", "-"],
        input=script + "".join(jobs),
        capture_output=True,
        text=True,
        check=True,
    )
    job = json.loads(report.stdout)["jobs"][0]
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    return job["read"]["bw_bytes"] / 1e9, cpu / (job["read"]["io_bytes"] / 1e9)


def measure_reads(scratch: Path, mib: int, rounds: int) -> None:
    (scratch / "objects" / "b").mkdir(parents=True)
    size = mib << 20
    with (scratch / "objects" / "b" / "object").open("wb") as file:
        for _ in range(size // EXTENT):
            file.write(np.random.default_rng(1).bytes(EXTENT))
    cache = scratch / "cache"
    with (
        served(scratch / "objects", "none") as where,
        hr.Store("s3://b", cache=cache, memory="2GiB", **where) as store,
    ):
        ranges = [("object", offset, EXTENT) for offset in range(0, size, EXTENT)]

        def read() -> tuple[float, float]:
            begin, cpu = time.perf_counter(), time.process_time()
            for _ in store.get_ranges(ranges, in_flight=2 * THREADS):
                pass
            return size / 1e9 / (time.perf_counter() - begin), (time.process_time() - cpu) / (size / 1e9)

        while hr.Cache(cache).usage().data_bytes < size:
            read()
            flush(cache)
        files = [path for path in (cache / "v1").glob("???/*") if path.stat().st_size > EXTENT]
        rows: dict[str, list[tuple[float, float]]] = {"cache, checked": [], "fio, unchecked": []}
        read()
        for _ in range(rounds):
            rows["cache, checked"].append(read())
            if shutil.which("fio"):
                rows["fio, unchecked"].append(fio_reads(files))
    for name, found in rows.items():
        if found:
            rate, cpu = (statistics.median(column) for column in zip(*found, strict=True))
            print(f"reads   {name:20} {rate:6.2f} GB/s {cpu:6.3f} CPU s/GB")


def epoch(loader: hr.Loader) -> tuple[float, float]:
    """(seconds, CPU seconds)."""
    begin, cpu = time.perf_counter(), time.process_time()
    for batch in loader:
        batch["tokens"]
    return time.perf_counter() - begin, time.process_time() - cpu


def make_tokens(path: Path, samples: int) -> None:
    rng = np.random.default_rng(2)
    prepare.write(
        ({"tokens": rng.integers(0, 50_000, 1024, dtype=np.int32)} for _ in range(samples)),
        str(path),
        format="mds",
        shard_bytes="64MiB",
    )


def measure_epochs(scratch: Path, mib: int, rounds: int, profiles: list[str]) -> None:
    samples = (mib << 20) // 4096
    make_tokens(scratch / "tokens" / "b", samples)
    for profile in profiles:
        found: dict[tuple[str, int], list[tuple[float, float]]] = {}
        with served(scratch / "tokens", profile) as where:
            for i in range(rounds):
                cache = scratch / f"epochs-{profile}-{i}"
                for name in ("without", "with") if i % 2 else ("with", "without"):
                    options: dict[str, Any] = {"cache": cache} if name == "with" else {}
                    with hr.Loader("s3://b", batch_size=64, seed=i, **options, **where) as loader:
                        for number in (1, 2):
                            found.setdefault((name, number), []).append(epoch(loader))
                            if options:
                                flush(cache)
        for number, name in itertools.product((1, 2), ("without", "with")):
            rows = found[name, number]
            wall, cpu = (statistics.median(column) for column in zip(*rows, strict=True))
            ratios = [a[0] / b[0] for a, b in zip(rows, found["without", number], strict=True)]
            spread = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
            print(
                f"epochs  {profile:12} epoch {number} {name:8} {wall:6.2f} s {samples / cpu:10,.0f} "
                f"samples/CPU s   x {spread}"
            )
        for i in range(rounds):
            shutil.rmtree(scratch / f"epochs-{profile}-{i}")


def slow_down(directory: Path, mb_s: int) -> None:
    """Limits what this process and its children may read and write of the disk with a directory."""
    group = Path("/sys/fs/cgroup/blkio/headrace-bench")
    group.mkdir(exist_ok=True)
    device = os.stat(directory).st_dev
    for what in ("read", "write"):
        (group / f"blkio.throttle.{what}_bps_device").write_text(
            f"{os.major(device)}:{os.minor(device)} {mb_s * 1_000_000}"
        )
    (group / "cgroup.procs").write_text(str(os.getpid()))


def make_photographs(path: Path, count: int) -> None:
    """JPEGs of smooth noise, 500 x 375, which take about as many bytes as photographs."""
    from PIL import Image

    rng = np.random.default_rng(4)
    files = []
    for _ in range(min(count, 200)):
        coarse = Image.fromarray(rng.integers(0, 256, (94, 125, 3), np.uint8)).resize((500, 375))
        out = io.BytesIO()
        coarse.save(out, "JPEG", quality=92)
        files.append(out.getvalue())
    rows = ({"image": files[i % len(files)], "label": i} for i in range(count))
    prepare.write(rows, str(path), format="mds", shard_bytes="64MiB")


def measure_decoded(scratch: Path, count: int, rounds: int) -> None:
    make_photographs(scratch / "photographs" / "b", count)
    decode = {"image": hr.decode.image(resize=256, crop=224)}
    found: dict[str, list[float]] = {}
    for i, setting in itertools.product(range(rounds), ("never", "auto", "always")):
        cache = scratch / f"decoded-{setting}-{i}"
        with (
            served(scratch / "photographs", "none") as where,
            hr.Loader(
                "s3://b",
                batch_size=64,
                seed=i,
                memory="1GiB",
                decode=decode,
                cache=cache,
                cache_decoded=setting,
                epochs=2,
                **where,
            ) as loader,
        ):
            for number in (1, 2):
                cpu = time.process_time()
                for batch in loader:
                    batch["image"]
                flush(cache)
                found.setdefault(f"{setting}, epoch {number}", []).append(count / (time.process_time() - cpu))
            stats = loader.stats()
        shutil.rmtree(cache, ignore_errors=True)
        took = ", ".join(
            f"{name} {stats['loader.' + name]:.0f}" for name in ("decode_value_us", "cached_value_us")
        )
        print(f"decoded {setting:6} {stats['loader.decoded_values']:.0f} decoded, {took}")
    for name, rates in found.items():
        spread = f"({min(rates):,.0f} to {max(rates):,.0f})"
        print(f"decoded {name:16} {statistics.median(rates):8,.0f} images/CPU s {spread}")


def make_extents(cache: Path, count: int) -> int:
    """Fills a cache with files that nobody will ask for. Returns their bytes, as the cache counts them."""
    hr.Cache(cache, create=True)
    rng = np.random.default_rng(3)
    for bucket in range(4096):
        folder = cache / "v1" / f"{bucket:03x}"
        folder.mkdir(mode=0o700)
        for i in range(count * bucket // 4096, count * (bucket + 1) // 4096):
            file = os.open(
                folder / f"{bucket:03x}{rng.bytes(14).hex()}{i % 16:x}-0-1000",
                os.O_CREAT | os.O_WRONLY,
                0o600,
            )
            os.ftruncate(file, 8192)
            os.close(file)
    (cache / "v1" / "ledger").unlink()
    return 8192 * count


FIRST_BATCH = """
import sys, time, headrace as hr
begin = time.perf_counter()
with hr.Loader("s3://b", batch_size=64, memory="1GiB", **eval(sys.argv[1])) as loader:
    next(iter(loader))["tokens"]
    print(time.perf_counter() - begin)
"""


def measure_start(scratch: Path, rounds: int, extents: int) -> None:
    make_tokens(scratch / "tokens" / "b", 16_384)
    full = scratch / "full"
    begin = time.perf_counter()
    held = make_extents(full, extents)
    made = time.perf_counter() - begin
    begin = time.perf_counter()
    assert hr.Cache(full).usage().extents == extents
    counted = time.perf_counter() - begin
    print(f"start   {extents:,} extents made in {made:.0f} s, counted in {counted:.2f} s")
    found: dict[str, list[float]] = {}
    for i, name in itertools.product(
        range(rounds), ("empty", "full", "full, at its limit", "full, no ledger")
    ):
        options: dict[str, Any] = {"cache": str(full)}
        if name == "empty":
            options["cache"] = str(scratch / f"empty-{i}")
        if name == "full, at its limit":
            options["cache_limit"] = held
        if name == "full, no ledger":
            (full / "v1" / "ledger").unlink()
        with served(scratch / "tokens", "none") as where:  # Another port: other objects.
            command = [sys.executable, "-c", FIRST_BATCH, repr({**options, **where})]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        found.setdefault(name, []).append(float(done.stdout))
        hr.Cache(full).usage()  # Counts, where that was left to do.
    for name, times in found.items():
        spread = f"({1000 * min(times):.0f} to {1000 * max(times):.0f})"
        print(f"start   {name:20} {1000 * statistics.median(times):6.0f} ms to the first batch {spread}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", default=None)
    parser.add_argument("--only", default="reads,epochs", help="of reads, epochs, decoded, start")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profiles", default="none,s3-express,s3-standard")
    parser.add_argument("--extents", type=int, default=1_000_000)
    parser.add_argument("--photographs", type=int, default=2000)
    parser.add_argument("--disk-mb-s", type=int, default=0)
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        if arguments.disk_mb_s:
            slow_down(Path(scratch), arguments.disk_mb_s)
        if "reads" in parts:
            measure_reads(Path(scratch) / "reads", arguments.mib, arguments.rounds)
            shutil.rmtree(Path(scratch) / "reads")
        if "epochs" in parts:
            measure_epochs(Path(scratch), arguments.mib, arguments.rounds, arguments.profiles.split(","))
        if "decoded" in parts:
            measure_decoded(Path(scratch), arguments.photographs, arguments.rounds)
        if "start" in parts:
            measure_start(Path(scratch), arguments.rounds, arguments.extents)


if __name__ == "__main__":
    main()
