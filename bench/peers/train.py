#!/usr/bin/env python3
"""Emulated training as `headrace bench train` does it, fed by Headrace and by its peers.

    pip install mosaicml-streaming webdataset litdata obstore; DALI by --path dali=DIR
    bench/peers/train.py --workload resnet50 --rounds 3 [--samples 3200] [--epochs 3]
                         [--loaders headrace,dali]

One H100, which sleeps for the published time of a step. The same random records, of the published sizes, lie
in the published container (TFRecord, npz), as MDS, LitData and tar files (144 MB of them, or one larger
record, to a file), served by `headrace sim` (profile none) on loopback; DALI reads the published container
in local files. Headrace keeps in memory what fits; headrace-streamed fetches each epoch anew, as webdataset
does; headrace-cached reads later epochs from files, as mosaicml-streaming and LitData do. Each loader
delivers what is stored, as it is cheapest for it: nothing is decoded. Each run is
a fresh process with an empty cache, interleaved; CPU is user and system time of it and its children from the
end of the imports on, without the simulator's. Peers run --workers processes or threads that stay from epoch
to epoch. Accelerators a core: utilisation divided by cores used, CPU by the seconds of the epochs, as
`headrace bench train` has it. All of it lies in memory: some five times the samples.
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

from litdata_over_http import litdata_source
from tokens import cpu_seconds, empty_cache, make_parser, named, run_peer, start_simulator

from headrace.bench import emulation
from headrace.bench.generate import generate, record_sizes
from headrace.bench.utilisation import summarize
from headrace.bench.workloads import Workload, find_workload

SHARD_BYTES = 144 << 20
WORKLOADS = ("resnet50", "cosmoflow", "unet3d")


class Epochs:
    """What an accelerator takes: each iteration is an epoch of whole batches."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()

    def close(self) -> None:
        """The process ends anyway."""


def records(workload: Workload, count: int) -> Iterator[bytes]:
    import numpy as np

    random = np.random.Generator(np.random.SFC64(1))
    for size in record_sizes(workload, count):
        yield random.bytes(size)


def prepare(data: Path, workload: Workload, count: int) -> None:
    done = f"{workload.name} {count}"
    if (data / ".done").exists() and (data / ".done").read_text() == done:
        return
    shutil.rmtree(data, ignore_errors=True)
    bucket = data / "buckets" / "bench"
    (bucket / "wds").mkdir(parents=True)
    generate(workload, str(bucket / "own"), count)
    from streaming import MDSWriter

    with MDSWriter(out=str(bucket / "mds"), columns={"image": "bytes"}, size_limit=SHARD_BYTES) as mds:
        for record in records(workload, count):
            mds.write({"image": record})
    import litdata

    litdata.optimize(
        fn=as_samples,
        inputs=[(workload, count)],
        output_dir=str(bucket / "litdata"),
        chunk_bytes="64MB",
        num_workers=1,
    )
    step = samples_of_shard(workload)
    every = records(workload, count)
    for first in range(0, count, step):
        write_tar(bucket / "wds" / f"{first:06}.tar", first, itertools.islice(every, step))
    (data / ".done").write_text(done)


def samples_of_shard(workload: Workload) -> int:
    return max(1, round(SHARD_BYTES / workload.record_bytes))


def as_samples(which: tuple[Workload, int]) -> Iterator[dict[str, bytes]]:
    for record in records(*which):
        yield {"image": record}


def write_tar(path: Path, first: int, records: Iterator[bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for i, record in enumerate(records):
            info = tarfile.TarInfo(f"{first + i:06}.bin")
            info.size = len(record)
            tar.addfile(info, BytesIO(record))


def whole(batches: Any, size: int) -> Iterator[Any]:
    return (batch for batch in batches if len(batch) == size)


def headrace_epochs(endpoint: str, args: argparse.Namespace, **keeping: Any) -> Epochs:
    import headrace as hr

    # What a container of arrays is made of is the user's to decode: files as they are.
    options = {"format": "raw", "columns": ["data"]} if args.workload == "unet3d" else {}
    loader = hr.Loader(
        "s3://bench/own",
        endpoint=endpoint,
        batch_size=args.batch,
        epoch_end="drop",
        ragged="arrow",
        epochs=args.epochs,
        **options,
        **keeping,
    )
    return Epochs(lambda: iter(loader))


def streamed_epochs(endpoint: str, args: argparse.Namespace) -> Epochs:
    return headrace_epochs(endpoint, args, keep_in_memory=False)


def cached_epochs(endpoint: str, args: argparse.Namespace) -> Epochs:
    return headrace_epochs(endpoint, args, cache=args.cache)


def litdata_epochs(endpoint: str, args: argparse.Namespace) -> Epochs:
    import litdata

    dataset = litdata.StreamingDataset(
        **litdata_source("s3://bench/litdata", args.cache, endpoint),
        shuffle=True,
        drop_last=False,
    )
    # Without workers: of two, one reads chunks that the other has not brought to their end.
    loader = litdata.StreamingDataLoader(dataset, batch_size=args.batch, num_workers=0, collate_fn=as_it_is)
    return Epochs(lambda: whole(loader, args.batch))


def mosaic_epochs(endpoint: str, args: argparse.Namespace) -> Epochs:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    os.environ["S3_ENDPOINT_URL"] = endpoint
    dataset = StreamingDataset(
        remote="s3://bench/mds", local=str(args.cache), shuffle=True, batch_size=args.batch
    )
    loader = DataLoader(
        dataset,
        batch_size=args.batch,
        num_workers=args.workers,
        collate_fn=as_it_is,
        persistent_workers=args.workers > 0,
    )
    return Epochs(lambda: whole(loader, args.batch))


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
        .batched(args.batch, collation_fn=firsts, partial=False)
    )
    # Each worker has tars of its own.
    workers = min(args.workers, len(urls))
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    return Epochs(lambda: whole(loader, args.batch))


def firsts(samples: Any) -> list[bytes]:
    return [sample[0] for sample in samples]


def dali_epochs(endpoint: str, args: argparse.Namespace) -> Epochs:
    from nvidia.dali import fn, pipeline_def, tfrecord  # type: ignore[import-not-found]

    own = args.data / "buckets/bench/own"
    files = sorted(str(path) for path in own.iterdir() if path.suffix in (".tfrecord", ".npz"))
    has_records = files[0].endswith(".tfrecord")
    indexes = [index_of(Path(name), args.cache) for name in files] if has_records else []

    @pipeline_def(batch_size=args.batch, num_threads=args.workers, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        if not has_records:
            return fn.readers.file(files=files, random_shuffle=True)[0]
        features = {"image": tfrecord.FixedLenFeature((), tfrecord.string, "")}
        found = fn.readers.tfrecord(path=files, index_path=indexes, features=features, random_shuffle=True)
        return found["image"]

    running = pipeline()
    running.build()
    steps = args.samples // args.batch
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
    "headrace-streamed": ("headrace", streamed_epochs),
    "headrace-cached": ("headrace", cached_epochs),
    "mosaicml-streaming": ("streaming", mosaic_epochs),
    "litdata": ("litdata", litdata_epochs),
    "webdataset": ("webdataset", webdataset_epochs),
    "dali": ("nvidia.dali", dali_epochs),
}


def child(args: argparse.Namespace) -> None:
    module, make = LOADERS[args.child]
    __import__(module)
    if args.child in ("mosaicml-streaming", "litdata", "webdataset"):
        __import__("torch")
    workload = find_workload(args.workload)
    step_seconds, args.batch = workload.compute_seconds["h100"], workload.batch_size
    cpu = cpu_seconds()
    loading = make(args.endpoint, args)
    logs = emulation.train([loading], epochs=args.epochs, compute_seconds=step_seconds)
    del loading  # Workers end, and their CPU counts.
    row = summarize(
        logs,
        compute_seconds=step_seconds,
        samples_per_step=args.batch,
        record_bytes=workload.record_bytes,
        bar=workload.bar,
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
    for option in ("data", "workload", "workers", "samples", "epochs"):
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
    parser.add_argument("--workload", choices=WORKLOADS, default="resnet50")
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
    prepare(args.data, find_workload(args.workload), args.samples)
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
