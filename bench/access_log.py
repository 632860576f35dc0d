#!/usr/bin/env python3
"""What the access log costs: reads of a file in the page cache, with and without it, in turns.

    bench/access_log.py [--part 64KiB] [--seconds 2] [--rounds 5] [--in-flight 8]

Prints the medians: reads a second and CPU microseconds a read (the log's own thread included); and the bytes
of a line.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import headrace as hr
from headrace import _native
from headrace.base.units import parse_bytes

OBJECT_BYTES = 64 << 20


def measure(directory: Path, log: str, part: int, in_flight: int, seconds: float) -> tuple[float, float]:
    """(reads a second, CPU microseconds a read)."""
    cpu = time.process_time()
    with hr.Store(directory, access_log=log) as store:
        row = _native.probe_fetch(store._native, [store.head("object")], part, in_flight, seconds)
    return row["requests"] / row["seconds"], (time.process_time() - cpu) * 1e6 / row["requests"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", default="64KiB")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory, log = Path(scratch) / "data", Path(scratch) / "log"
        directory.mkdir()
        (directory / "object").write_bytes(bytes(OBJECT_BYTES))
        rows: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
        for _ in range(arguments.rounds):
            for name, found in rows.items():
                path = str(log) if name == "with" else ""
                found.append(
                    measure(
                        directory, path, parse_bytes(arguments.part), arguments.in_flight, arguments.seconds
                    )
                )
        for name, found in rows.items():
            print(
                f"{name:8} {statistics.median(row[0] for row in found):10,.0f} reads/s "
                f"{statistics.median(row[1] for row in found):7.2f} CPU us a read"
            )
        with log.open("rb") as file:
            file.readline()  # of head()
            print(f"{len(file.readline())} bytes a line")


main()
