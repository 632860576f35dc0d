#!/usr/bin/env python3
"""Emulated training of resnet50 as `headrace bench train` does it, fed by Headrace and by its peers.

    pip install mosaicml-streaming webdataset; DALI by --path dali=DIR
    bench/peers/train.py --rounds 3 [--samples 3200] [--epochs 3] [--loaders headrace,dali]

One H100: batches of 400 records of 114,660 random bytes, 224 ms a step, which it sleeps. The same records lie
as TFRecord, MDS and tar files, served by `headrace sim` (profile none) on loopback; DALI reads the local
TFRecord files. Each loader delivers what is stored, as it is cheapest for it: nothing is decoded. Each run is
a fresh process with an empty cache, interleaved; CPU is user and system time of it and its children from the
end of the imports on, without the simulator's. Peers run --workers processes or threads that stay from epoch
to epoch. Accelerators a core: utilisation divided by cores used, CPU by the seconds of the epochs, as
`headrace bench train` has it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import sys
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from tokens import cpu_seconds, empty_cache, make_parser, named, run_peer, start_simulator

from headrace.bench import emulation
from headrace.bench.generate import generate
from headrace.bench.utilisation import summarize
from headrace.bench.workloads import WORKLOADS

WORKLOAD = WORKLOADS["resnet50"]
STEP_SECONDS = WORKLOAD.compute_seconds["h100"]
BATCH = WORKLOAD.batch_size
FILE_SAMPLES = WORKLOAD.samples_per_file


class Epochs:
    """What an accelerator takes: each iteration is an epoch of whole batches."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()

    def close(self) -> None:
        """The process ends anyway."""


def records(count: int) -> Iterator[bytes]:
    import numpy as np

    random = np.random.Generator(np.random.SFC64(1))
    for _ in range(count):
        yield random.bytes(round(WORKLOAD.record_bytes))


def prepare(data: Path, count: int) -> None:
    if (data / ".done").exists() and (data / ".done").read_text() == str(count):
        return
    shutil.rmtree(data, ignore_errors=True)
    bucket = data / "buckets" / "bench"
    (bucket / "wds").mkdir(parents=True)
    generate(WORKLOAD, str(bucket / "tfrecord"), count)
    from streaming import MDSWriter

    with MDSWriter(out=str(bucket / "mds"), columns={"image": "bytes"}, size_limit=144 << 20) as mds:
        for record in records(count):
            mds.write({"image": record})
    for first in range(0, count, FILE_SAMPLES):
        write_tar(
            bucket / "wds" / f"{first:06}.tar",
            first,
            itertools.islice(records(count), first, first + FILE_SAMPLES),
        )
    (data / ".done").write_text(str(count))


def write_tar(path: Path, first: int, records: Iterator[bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for i, record in enumerate(records):
            info = tarfile.TarInfo(f"{first + i:06}.bin")
            info.size = len(record)
            tar.addfile(info, BytesIO(record))


def whole(batches: Any) -> Iterator[Any]:
    return (batch for batch in batches if size_of(batch) == BATCH)


def size_of(batch: Any) -> int:
    return len(batch["image"] if isinstance(batch, dict) else batch)


def headrace_epochs(endpoint: str, args: argparse.Namespace) -> Epochs:
    import headrace as hr

    loader = hr.Loader(
        "s3://bench/tfrecord", endpoint=endpoint, batch_size=BATCH, epoch_end="drop", ragged="arrow"
    )
    return Epochs(lambda: iter(loader))


def mosaic_epochs(endpoint: str, args: argparse.Namespace) -> Epochs:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    os.environ["S3_ENDPOINT_URL"] = endpoint
    dataset = StreamingDataset(remote="s3://bench/mds", local=str(args.cache), shuffle=True, batch_size=BATCH)
    loader = DataLoader(
        dataset,
        batch_size=BATCH,
        num_workers=args.workers,
        collate_fn=as_it_is,
        persistent_workers=args.workers > 0,
    )
    return Epochs(lambda: whole(loader))


def as_it_is(samples: Any) -> list[bytes]:
    return [sample["image"] for sample in samples]


def webdataset_epochs(endpoint: str, args: argparse.Namespace) -> Epochs:
    import webdataset
    from torch.utils.data import DataLoader

    names = sorted(path.name for path in (args.data / "buckets/bench/wds").iterdir())
    urls = [f"pipe:curl -s -f {endpoint}/bench/wds/{name}" for name in names]  # Without a signature.
    dataset = (
        webdataset.WebDataset(urls, shardshuffle=100, empty_check=False)
        .shuffle(1000)
        .to_tuple("bin")
        .batched(BATCH, collation_fn=firsts, partial=False)
    )
    # Each worker has tars of its own.
    workers = min(args.workers, len(urls))
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    return Epochs(lambda: whole(loader))


def firsts(samples: Any) -> list[bytes]:
    return [sample[0] for sample in samples]


def dali_epochs(endpoint: str, args: argparse.Namespace) -> Epochs:
    from nvidia.dali import fn, pipeline_def, tfrecord  # type: ignore[import-not-found]

    files = sorted(map(str, (args.data / "buckets/bench/tfrecord").glob("*.tfrecord")))
    indexes = [index_of(Path(name), args.cache) for name in files]

    @pipeline_def(batch_size=BATCH, num_threads=args.workers, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        features = {"image": tfrecord.FixedLenFeature((), tfrecord.string, "")}
        found = fn.readers.tfrecord(path=files, index_path=indexes, features=features, random_shuffle=True)
        return found["image"]

    running = pipeline()
    running.build()
    steps = args.samples // BATCH
    return Epochs(lambda: (list(running.run()[0]) for _ in range(steps)))


def index_of(path: Path, directory: Path) -> str:
    """DALI's: where each record begins, and how long it is, with its head and foot."""
    out, at = [], 0
    data = path.read_bytes()
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little") + 16
        out.append(f"{at} {size}\n")
        at += size
    index = directory / f"{path.name}.idx"
    index.write_text("".join(out))
    return str(index)


LOADERS: dict[str, tuple[str, Callable[[str, argparse.Namespace], Epochs]]] = {
    "headrace": ("headrace", headrace_epochs),
    "mosaicml-streaming": ("streaming", mosaic_epochs),
    "webdataset": ("webdataset", webdataset_epochs),
    "dali": ("nvidia.dali", dali_epochs),
}


def child(args: argparse.Namespace) -> None:
    module, make = LOADERS[args.child]
    __import__(module)
    if args.child in ("mosaicml-streaming", "webdataset"):
        __import__("torch")
    cpu = cpu_seconds()
    loading = make(args.endpoint, args)
    logs = emulation.train([loading], epochs=args.epochs, compute_seconds=STEP_SECONDS)
    del loading  # Workers end, and their CPU counts.
    row = summarize(
        logs,
        compute_seconds=STEP_SECONDS,
        samples_per_step=BATCH,
        record_bytes=WORKLOAD.record_bytes,
        bar=WORKLOAD.bar,
    )
    cpu = cpu_seconds() - cpu
    cores = cpu / sum(row["epoch_seconds"])
    print(
        json.dumps(
            {
                "loader": args.child,
                "steps": row["steps"],
                "utilisation": row["utilisation"],
                "later_epochs": row["utilisation_later_epochs"],
                "cpu_s": cpu,
                "cpu_ms_a_step": cpu / row["steps"] * 1000,
                "wait_p99_ms": row["wait_p99_s"] * 1000,
                "accelerators_a_core": row["utilisation"] / cores,
            }
        )
    )


def run_child(name: str, endpoint: str, args: argparse.Namespace) -> dict[str, Any]:
    cache = empty_cache(args.data)
    command = [sys.executable, __file__, "--child", name, "--endpoint", endpoint, "--cache", str(cache)]
    for option in ("data", "workers", "samples", "epochs"):
        command += [f"--{option}", str(getattr(args, option))]
    return run_peer(name, command, args.path)


def summary(results: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for name in dict.fromkeys(each["loader"] for each in results):
        runs = [each for each in results if each["loader"] == name]
        row: dict[str, Any] = {"loader": name}
        for key in runs[0]:
            if key != "loader":
                values = [each[key] for each in runs]
                row[key] = round(statistics.median(values), 3)
        a_core = [each["accelerators_a_core"] for each in runs]
        yield row | {"spread": f"{min(a_core):.1f}..{max(a_core):.1f}"}


def main() -> None:
    parser = make_parser(__doc__, "/dev/shm/headrace-train")
    parser.add_argument("--samples", type=int, default=3200)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--loaders", default=",".join(LOADERS))
    parser.add_argument("--path", type=named, action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.path = dict(args.path)
    if args.child:
        child(args)
        return
    prepare(args.data, args.samples)
    simulator, endpoint = start_simulator(args.data, "--unsigned")
    try:
        results = [
            run_child(name, endpoint, args) for _ in range(args.rounds) for name in args.loaders.split(",")
        ]
    finally:
        simulator.terminate()
        simulator.wait()
    for row in summary(results):
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
