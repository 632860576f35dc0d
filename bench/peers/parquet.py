#!/usr/bin/env python3
"""Parquet: an epoch of hr.Loader against pyarrow's own scan, same file, same cores, interleaved rounds, CPU
seconds.

Usage: bench/peers/parquet.py DIRECTORY [--bytes 1000000000] [--rounds 5] [--kind tokens|mixed]

The data is made in DIRECTORY on the first run. What is compared is CPU time of the process, user and system
together:

* scan: ParquetFile.iter_batches(65536) of every file, one thread: columns decoded, nothing done with them
* batches: iter_batches(256), columns made what a batch of hr holds: numpy arrays, lists of str; in the file's
  order
* rows: the same, and every row made a Python object (to_pylist), which is what a loader without an engine
  does
* decode: Dataset.decode of every block, as the loader calls it, nothing cut (hr.Dataset, one row a block)
* hr: batches of hr.Loader in shuffled order, numpy arrays and lists of Python values
* hr-arrow: the same with ragged="arrow": what scan gives, shuffled; hr-file: in the file's order
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr


def make_mixed(rows: int, rng: np.random.Generator) -> pa.Table:
    words = np.array([f"w{i:05d}" for i in range(20_000)])
    texts = [" ".join(words[rng.integers(0, 20_000, rng.integers(20, 120))]) for _ in range(rows)]
    return pa.table(
        {
            "id": pa.array(rng.integers(0, 2**40, rows)),
            "score": pa.array(rng.random(rows)),
            "label": pa.array(rng.integers(0, 1000, rows), pa.int32()),
            "flag": pa.array(rng.random(rows) < 0.5),
            "category": pa.array(words[rng.integers(0, 50, rows)]),
            "maybe": pa.array(rng.integers(0, 100, rows), mask=rng.random(rows) < 0.2),
            "text": pa.array(texts),
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(rng.random(rows * 64, dtype=np.float32)), 64
            ),
        }
    )


def make_tokens(rows: int, rng: np.random.Generator) -> pa.Table:
    tokens = pa.array(rng.integers(0, 50_000, rows * 1024, dtype=np.uint16))
    return pa.table({"tokens": pa.FixedSizeListArray.from_arrays(tokens, 1024)})


def make(directory: Path, kind: str, total_bytes: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    rows = 20_000 if kind == "mixed" else 8_000
    written = index = 0
    while written < total_bytes:
        path = directory / f"part-{index:05d}.parquet"
        pq.write_table(
            (make_mixed if kind == "mixed" else make_tokens)(rows, rng),
            path,
            compression="zstd",
            row_group_size=rows // 2,
        )
        written += path.stat().st_size
        index += 1


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def scan(directory: Path) -> int:
    count = 0
    for path in sorted(directory.glob("*.parquet")):
        file = pq.ParquetFile(path, pre_buffer=False)
        for batch in file.iter_batches(65536, use_threads=False):
            count += batch.num_rows
    return count


def to_values(column: pa.Array) -> object:
    if pa.types.is_fixed_size_list(column.type):
        return column.values.to_numpy().reshape(len(column), -1)
    if pa.types.is_string(column.type) or column.null_count:
        return column.to_pylist()
    return column.to_numpy(zero_copy_only=False)


def batches(directory: Path) -> int:
    count = 0
    for path in sorted(directory.glob("*.parquet")):
        for batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(256, use_threads=False):
            values = [to_values(column) for column in batch.columns]
            count += len(values[0])
    return count


def rows(directory: Path) -> int:
    count = 0
    for path in sorted(directory.glob("*.parquet")):
        for batch in pq.ParquetFile(path, pre_buffer=False).iter_batches(65536, use_threads=False):
            count += len(batch.to_pylist())
    return count


def decode(directory: Path) -> int:
    with hr.Dataset(directory, index_cache="") as dataset:
        for block in dataset.blocks:
            dataset.read([block.first_sample])
        return len(dataset)


def load(directory: Path, **options: Any) -> int:
    count = 0
    with hr.Loader(directory, batch_size=256, index_cache="", epoch_end="uneven", **options) as loader:
        for batch in loader:
            count += len(batch.ids)
            for name in batch:
                batch[name]
    return count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kind", choices=("mixed", "tokens"), default="mixed")
    parser.add_argument(
        "--only", nargs="*", default=["scan", "decode", "batches", "rows", "hr", "hr-arrow", "hr-file"]
    )
    arguments = parser.parse_args()
    directory = arguments.directory / arguments.kind
    if not directory.exists():
        make(directory, arguments.kind, arguments.bytes)
    size = sum(path.stat().st_size for path in directory.glob("*.parquet"))
    runs: dict[str, Callable[[Path], int]] = {
        "scan": scan,
        "batches": batches,
        "rows": rows,
        "decode": decode,
        "hr": load,
    }
    runs["hr-arrow"] = lambda path: load(path, ragged="arrow")
    runs["hr-file"] = lambda path: load(path, ragged="arrow", shuffle=False)
    seconds: dict[str, list[float]] = {name: [] for name in arguments.only}
    walls: dict[str, list[float]] = {name: [] for name in arguments.only}
    for round_index in range(arguments.rounds + 1):
        for name in arguments.only:
            before, started = cpu(), time.monotonic()
            count = runs[name](directory)
            if round_index > 0:  # The first round warms caches.
                seconds[name].append(cpu() - before)
                walls[name].append(time.monotonic() - started)
    print(
        f"{size / 1e6:,.0f} MB, {count:,} rows, zstd, {arguments.kind}; median of {arguments.rounds} "
        "interleaved rounds"
    )
    for name in arguments.only:
        used, wall = statistics.median(seconds[name]), statistics.median(walls[name])
        first = statistics.median(seconds[arguments.only[0]])
        print(
            f"{name:8} {used:7.2f} CPU s  {size / used / 1e6:7.0f} MB/CPU s  {count / used:10,.0f} rows/CPU "
            f"s  {used / first:5.2f} x  wall {wall:6.2f} s"
        )


if __name__ == "__main__":
    main()
