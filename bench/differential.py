#!/usr/bin/env python3
"""What differential saves write and cost: a state of which a share changes between saves.

bench/differential.py DIRECTORY [--bytes 755MB] [--changed 0.1] [--rounds 3] [--json]

Four saves a round, of which the first writes everything and is left out; saves as they are and differential
ones take turns. Medians.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from headrace.base.units import parse_bytes
from headrace.checkpoint import Checkpointer

ARRAYS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--bytes", default="755MB", help="of the state")
    parser.add_argument("--changed", type=float, default=0.1, help="share of the arrays that change")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.directory.is_dir():
        parser.error(f"{args.directory} is no directory")
    count = parse_bytes(args.bytes) // 8 // ARRAYS
    state = {f"array{i}": np.random.default_rng(i).random(count) for i in range(ARRAYS)}
    changing = list(state)[: round(args.changed * ARRAYS)]
    seen: dict[str, list[Any]] = defaultdict(list)
    for _ in range(args.rounds):
        for differential in (False, True):
            seen["differential" if differential else "whole"] += measure(
                args.directory, state, changing, differential
            )
    result = {
        name: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for name, rows in seen.items()
    }
    if args.json:
        print(json.dumps(result))
        return
    for name, row in result.items():
        print(
            f"{name:12}  blocked {row['blocked_s']:.3f} s, there after {row['there_s']:.3f} s, "
            f"{row['cpu_s']:.3f} CPU s, {row['written'] / 1e6:.0f} MB"
        )


def measure(
    directory: Path, state: dict[str, Any], changing: list[str], differential: bool
) -> list[dict[str, float]]:
    place = tempfile.mkdtemp(dir=directory)
    rows = []
    with Checkpointer(place, differential=differential, memory="1GiB") as checkpointer:
        for step in range(4):
            for name in changing:
                state[name] += 1
            begun, used = time.perf_counter(), time.process_time()
            handle = checkpointer.save(step, state)
            blocked = time.perf_counter() - begun
            saved = handle.result()
            row = {"blocked_s": blocked, "there_s": time.perf_counter() - begun}
            rows.append(row | {"cpu_s": time.process_time() - used, "written": saved.written})
    shutil.rmtree(place)
    return rows[1:]


if __name__ == "__main__":
    main()
