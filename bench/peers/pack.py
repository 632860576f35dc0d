#!/usr/bin/env python3
"""Small files to shards: Headrace, MDSWriter, ShardWriter, litdata.optimize and GNU tar in one run, files per
CPU second.

    apt install linux-source-6.1; tar -xf /usr/src/linux-source-6.1.tar.xz -C /dev/shm/linux
    pip install mosaicml-streaming webdataset litdata
    bench/peers/pack.py --files /dev/shm/linux --out /dev/shm/packed --rounds 3 [--json]

Every pack runs in a fresh process, interleaved, tmpfs to tmpfs. CPU is user + system time of that process and
its children from the end of the imports on. "loop" opens, reads and closes every file in Python and writes
nothing: a limit for writers in Python.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def cpu_seconds() -> float:
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def files_below(root: str) -> Iterator[str]:
    """Files in the order of their names; links to files count, links to directories are followed as Headrace
    does."""
    for entry in sorted(os.scandir(root), key=lambda e: e.name):
        if entry.is_dir():
            yield from files_below(entry.path)
        elif entry.is_file():
            yield entry.path


def read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def headrace(format: str) -> Callable[[str, str], int]:
    import headrace._native as native
    from headrace.store.store import open_native

    def run(source: str, target: str) -> int:
        from_store, to_store = open_native(source, "256MiB"), open_native(target, "256MiB")
        return native.pack(from_store, to_store, format=format)["file_count"]

    return run


def mosaic() -> Callable[[str, str], int]:
    from streaming import MDSWriter

    def run(source: str, target: str) -> int:
        paths = list(files_below(source))
        with MDSWriter(out=target, columns={"data": "bytes", "key": "str"}, size_limit=64 << 20) as writer:
            for path in paths:
                writer.write({"data": read(path), "key": path[len(source) + 1 :]})
        return len(paths)

    return run


def shard_writer() -> Callable[[str, str], int]:
    from webdataset import ShardWriter

    def run(source: str, target: str) -> int:
        count = 0
        os.makedirs(target)
        with ShardWriter(f"{target}/shard-%06d.tar", maxsize=64 << 20, maxcount=1 << 30, verbose=0) as writer:
            for count, path in enumerate(files_below(source), 1):
                writer.write(
                    {"__key__": f"{count:09d}", "data": read(path), "key.txt": path[len(source) + 1 :]}
                )
        return count

    return run


def one_item(path: str) -> dict[str, Any]:
    return {"data": read(path), "key": path}


def litdata_optimize() -> Callable[[str, str], int]:
    import litdata

    def run(source: str, target: str) -> int:
        inputs = list(files_below(source))
        litdata.optimize(fn=one_item, inputs=inputs, output_dir=target, chunk_bytes="64MB", num_workers=1)
        return len(inputs)

    return run


def gnu_tar() -> Callable[[str, str], int]:
    def run(source: str, target: str) -> int:
        os.makedirs(target)
        subprocess.run(["tar", "-C", source, "-chf", f"{target}/all.tar", "."], check=True)
        return 0

    return run


def loop() -> Callable[[str, str], int]:
    return lambda source, target: sum(1 for path in files_below(source) if read(path) is not None)


RUNS: dict[str, Callable[[], Callable[[str, str], int]]] = {
    "headrace mds": lambda: headrace("mds"),
    "MDSWriter": mosaic,
    "litdata.optimize": litdata_optimize,
    "headrace tar": lambda: headrace("webdataset"),
    "ShardWriter": shard_writer,
    "GNU tar": gnu_tar,
    "loop": loop,
}
RATIOS = [
    ("headrace mds", "MDSWriter", 4.0),
    ("headrace mds", "litdata.optimize", 12.0),
    ("headrace tar", "ShardWriter", 4.0),
    ("headrace tar", "GNU tar", 1.0),
]


def run_one(name: str, source: str, target: str) -> None:
    run = RUNS[name]()
    cpu, wall = cpu_seconds(), time.monotonic()
    count = run(source, target)
    print(json.dumps({"files": count, "cpu_s": cpu_seconds() - cpu, "wall_s": time.monotonic() - wall}))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="is emptied before every pack")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", choices=list(RUNS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    source, target = str(arguments.files.resolve()), str(arguments.out.resolve() / "packed")
    if arguments.one:
        run_one(arguments.one, source, target)
        return 0
    speeds: dict[str, list[float]] = {name: [] for name in arguments.only}
    count = sum(1 for _ in files_below(source))
    for _ in range(arguments.rounds):
        for name, list_ in speeds.items():
            shutil.rmtree(target, ignore_errors=True)
            command = [
                sys.executable,
                __file__,
                "--files",
                source,
                "--out",
                str(arguments.out),
                "--one",
                name,
            ]
            answer = json.loads(
                subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1]
            )
            list_.append(count / answer["cpu_s"])
            print(
                f"{name:18} {count:7} files {answer['cpu_s']:7.2f} CPU s {answer['wall_s']:7.2f} s "
                f"{count / answer['cpu_s']:9,.0f} files/CPU s",
                file=sys.stderr,
            )
    shutil.rmtree(target, ignore_errors=True)
    medians = {name: statistics.median(list_) for name, list_ in speeds.items()}
    ratios = [
        {"ours": a, "theirs": b, "ratio": medians[a] / medians[b], "goal": goal}
        for a, b, goal in RATIOS
        if a in medians and b in medians
    ]
    if arguments.json:
        print(json.dumps({"files": count, "files_per_cpu_s": medians, "all": speeds, "ratios": ratios}))
        return 0
    for ratio in ratios:
        print(f"{ratio['ours']} / {ratio['theirs']}: {ratio['ratio']:.2f} (goal {ratio['goal']:g})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
