#!/usr/bin/env python3
"""1 GiB of 4 KiB samples from local files in memory, format by format: Headrace and the format's own loader
in one run.

    pip install litdata mosaicml-streaming webdataset tensorflow-cpu bench/peers/formats.py --data
    /dev/shm/formats --rounds 3 [--samples 262144] [--cases tar,mds,...] [--json]

Cases: tar (webdataset), mds (mosaicml-streaming), tokens (litdata, TokensLoader), tokens-s3 (the same from
`headrace sim` on loopback, empty cache), tfrecord (tf.data, raw records, CRC checked by both), example
(tf.data with parse_example in batches of 64, its quickest way). tf.data gives tensors of strings, so Headrace
gives Arrow arrays there; tfrecord-list and example-list are the same with a Python object a value. All read
in the order of the files, batches of 64, no workers, indexes made before. Every read is a fresh process,
interleaved; CPU is user + system time of that process and its children from the end of the imports to the
last batch.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from litdata_over_http import litdata_source
from tokens import make_parser

SAMPLE_BYTES = 4096
TOKENS = SAMPLE_BYTES // 2
BATCH = 64
SHARD_SAMPLES = 16384


def payloads(samples: int) -> Iterator[bytes]:
    import numpy as np

    rng = np.random.default_rng(1)
    for start in range(0, samples, 4096):
        yield from (
            row.tobytes()
            for row in rng.integers(0, 50_000, (min(4096, samples - start), TOKENS), dtype=np.uint16)
        )


def shards(samples: int) -> Iterator[tuple[int, list[bytes]]]:
    rows: list[bytes] = []
    number = 0
    for row in payloads(samples):
        rows.append(row)
        if len(rows) == SHARD_SAMPLES:
            yield number, rows
            rows, number = [], number + 1
    if rows:
        yield number, rows


# --- what is read ---


def make_tar(root: Path, samples: int) -> None:
    position = 0
    for number, rows in shards(samples):
        with tarfile.open(root / f"{number:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for row in rows:
                member = tarfile.TarInfo(f"{position:09d}.bin")
                member.size, position = len(row), position + 1
                tar.addfile(member, io.BytesIO(row))


def make_mds(root: Path, samples: int) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(root / "mds"), columns={"data": "bytes"}, size_limit=64 << 20) as writer:
        for row in payloads(samples):
            writer.write({"data": row})


def _one_tensor(task: tuple[int, int]) -> Any:
    import numpy as np
    import torch

    for row in payloads(task[1]):
        yield torch.from_numpy(np.frombuffer(row, np.uint16).copy())


def make_tokens(root: Path, samples: int) -> None:
    import litdata
    from litdata.streaming.item_loader import TokensLoader

    litdata.optimize(
        fn=_one_tensor,
        inputs=[(0, samples)],
        output_dir=str(root / "bench" / "tokens"),
        chunk_bytes="64MB",
        num_workers=1,
        item_loader=TokensLoader(block_size=TOKENS),
    )


def make_tfrecord(root: Path, samples: int) -> None:
    import tensorflow as tf

    for number, rows in shards(samples):
        with tf.io.TFRecordWriter(str(root / f"{number:05d}.tfrecord")) as writer:
            for row in rows:
                writer.write(row)


def make_example(root: Path, samples: int) -> None:
    import tensorflow as tf

    features, feature = tf.train.Features, tf.train.Feature
    for number, rows in shards(samples):
        with tf.io.TFRecordWriter(str(root / f"{number:05d}.tfrecord")) as writer:
            for i, row in enumerate(rows):
                fields = {
                    "data": feature(bytes_list=tf.train.BytesList(value=[row[:3968]])),
                    "label": feature(int64_list=tf.train.Int64List(value=[i])),
                    "weights": feature(float_list=tf.train.FloatList(value=[i * 0.5] * 16)),
                }
                writer.write(tf.train.Example(features=features(feature=fields)).SerializeToString())


# --- how it is read ---


def count_batches(loader: Any, column: str) -> int:
    return sum(len(batch[column]) for batch in loader)


def headrace_loader(url: str | Path, **options: Any) -> Any:
    import headrace as hr

    return hr.Loader(url, batch_size=BATCH, shuffle=False, epoch_end="uneven", **options)


def headrace_tar(root: Path) -> int:
    return count_batches(headrace_loader(root), "bin")


def webdataset_tar(root: Path) -> int:
    import webdataset as wds

    dataset = wds.WebDataset(sorted(map(str, root.glob("*.tar"))), shardshuffle=False)
    return sum(1 for sample in dataset if sample["bin"])


def headrace_mds(root: Path) -> int:
    return count_batches(headrace_loader(root / "mds"), "data")


def mosaic_mds(root: Path) -> int:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(local=str(root / "mds"), shuffle=False, batch_size=BATCH)
    return count_batches(
        DataLoader(
            dataset,
            batch_size=BATCH,
            num_workers=0,
            collate_fn=lambda rows: {"data": [r["data"] for r in rows]},
        ),
        "data",
    )


def headrace_tokens(root: Path) -> int:
    return count_batches(headrace_loader(root / "bench" / "tokens", tokens_per_sample=TOKENS), "data")


def litdata_tokens(root: Path) -> int:
    import litdata
    from litdata.streaming.item_loader import TokensLoader

    dataset = litdata.StreamingDataset(
        str(root / "bench" / "tokens"),
        item_loader=TokensLoader(block_size=TOKENS),
        shuffle=False,
        drop_last=False,
    )
    return sum(len(batch) for batch in litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0))


def headrace_tokens_s3(root: Path) -> int:
    return count_batches(
        headrace_loader("s3://bench/tokens", endpoint=os.environ["ENDPOINT"], tokens_per_sample=TOKENS),
        "data",
    )


def litdata_tokens_s3(root: Path) -> int:
    import litdata
    from litdata.streaming.item_loader import TokensLoader

    cache = root / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    dataset = litdata.StreamingDataset(
        **litdata_source("s3://bench/tokens", cache, os.environ["ENDPOINT"]),
        item_loader=TokensLoader(block_size=TOKENS),
        shuffle=False,
        drop_last=False,
    )
    return sum(len(batch) for batch in litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0))


def headrace_tfrecord(root: Path) -> int:
    return count_batches(headrace_loader(root, ragged="arrow"), "record")


def headrace_tfrecord_list(root: Path) -> int:
    return count_batches(headrace_loader(root), "record")


def _tf_records(root: Path) -> Any:
    import tensorflow as tf

    return tf.data.TFRecordDataset(sorted(map(str, root.glob("*.tfrecord")))).batch(BATCH)


def tf_tfrecord(root: Path) -> int:
    return sum(int(batch.shape[0]) for batch in _tf_records(root))


def headrace_example(root: Path, ragged: str = "arrow") -> int:
    total = 0
    for batch in headrace_loader(root, ragged=ragged):
        assert batch["weights"].shape[1:] == (16,)
        first = batch["data"][0]
        assert len(first if ragged == "list" else first.as_py()) == 3968
        total += len(batch["label"])
    return total


def headrace_example_list(root: Path) -> int:
    return headrace_example(root, "list")


def tf_example(root: Path) -> int:
    import tensorflow as tf

    spec = {
        "data": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "weights": tf.io.FixedLenFeature([16], tf.float32),
    }
    return count_batches(_tf_records(root).map(lambda records: tf.io.parse_example(records, spec)), "label")


Reader = Callable[[Path], int]
CASES: dict[str, tuple[str, Callable[[Path, int], None], dict[str, tuple[str, Reader]]]] = {
    "tar": (
        "tar",
        make_tar,
        {"headrace": ("headrace", headrace_tar), "webdataset": ("webdataset", webdataset_tar)},
    ),
    "mds": (
        "mds",
        make_mds,
        {"headrace": ("headrace", headrace_mds), "mosaicml-streaming": ("streaming", mosaic_mds)},
    ),
    "tokens": (
        "tokens",
        make_tokens,
        {"headrace": ("headrace", headrace_tokens), "litdata": ("litdata", litdata_tokens)},
    ),
    "tokens-s3": (
        "tokens",
        make_tokens,
        {"headrace": ("headrace", headrace_tokens_s3), "litdata": ("litdata", litdata_tokens_s3)},
    ),
    "tfrecord": (
        "tfrecord",
        make_tfrecord,
        {"headrace": ("headrace", headrace_tfrecord), "tf.data": ("tensorflow", tf_tfrecord)},
    ),
    "tfrecord-list": (
        "tfrecord",
        make_tfrecord,
        {"headrace": ("headrace", headrace_tfrecord_list), "tf.data": ("tensorflow", tf_tfrecord)},
    ),
    "example": (
        "example",
        make_example,
        {"headrace": ("headrace", headrace_example), "tf.data": ("tensorflow", tf_example)},
    ),
    "example-list": (
        "example",
        make_example,
        {"headrace": ("headrace", headrace_example_list), "tf.data": ("tensorflow", tf_example)},
    ),
}


def cpu_seconds() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in uses)


def child(case: str, loader: str, root: Path) -> None:
    module, reader = CASES[case][2][loader]
    for name in ("numpy", "torch", "pyarrow", module):
        if module != "tensorflow" or name not in ("torch", "pyarrow"):
            importlib.import_module(name)
    started, cpu = time.monotonic(), cpu_seconds()
    samples = reader(root)
    print(
        json.dumps(
            {
                "case": case,
                "loader": loader,
                "samples": samples,
                "seconds": time.monotonic() - started,
                "cpu_s": cpu_seconds() - cpu,
            }
        )
    )


def run_child(case: str, loader: str, root: Path) -> dict[str, Any]:
    for leftover in Path("/dev/shm").glob("0000*"):
        leftover.unlink()  # mosaicml-streaming's shared memory of an earlier run
    command = [sys.executable, __file__, "--child", f"{case}:{loader}", "--data", str(root)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    )
    if done.returncode:
        raise SystemExit(f"{case}, {loader} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def prepare(case: str, data: Path, samples: int) -> Path:
    name, make, _ = CASES[case]
    root = data / name
    done = data / f".{name}-{samples}"
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        # In a process of its own: some writers leave threads and settings behind.
        code = (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import formats, pathlib; "
            f"formats.{make.__name__}(pathlib.Path({str(root)!r}), {samples})"
        )
        subprocess.run(
            [sys.executable, "-c", code], check=True, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        )
        done.touch()
    return root


def start_simulator(root: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "sim", str(root), "--json"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "headrace",
        "AWS_SECRET_ACCESS_KEY": "headrace-secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    os.environ["ENDPOINT"] = json.loads(process.stdout.readline())["endpoint"]
    return process


def run_case(case: str, data: Path, samples: int, rounds: int) -> list[dict[str, Any]]:
    root = prepare(case, data, samples)
    simulator = start_simulator(root) if case.endswith("-s3") else None
    try:
        run_child(case, "headrace", root)  # makes the index and warms the page cache
        results = [run_child(case, loader, root) for _ in range(rounds) for loader in CASES[case][2]]
    finally:
        if simulator is not None:
            simulator.terminate()
            simulator.wait()
    wrong = [r for r in results if r["samples"] != samples]
    if wrong:
        raise SystemExit(f"{case}: {wrong[0]['loader']} delivered {wrong[0]['samples']} of {samples} samples")
    return results


def summarise(case: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    def rates(loader: str) -> list[float]:
        return [r["samples"] / r["cpu_s"] for r in results if r["loader"] == loader]

    peer = next(loader for loader in CASES[case][2] if loader != "headrace")
    ratios = [ours / theirs for ours, theirs in zip(rates("headrace"), rates(peer), strict=True)]
    return {
        "case": case,
        "headrace_per_cpu_s": round(statistics.median(rates("headrace"))),
        "peer": peer,
        "peer_per_cpu_s": round(statistics.median(rates(peer))),
        "ratio": round(statistics.median(ratios), 2),
        "spread": f"{min(ratios):.2f}-{max(ratios):.2f}",
    }


def main() -> None:
    parser = make_parser(__doc__, "/dev/shm/headrace-formats")
    parser.add_argument("--samples", type=int, default=262_144)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        child(*args.child.split(":"), args.data)
        return
    args.data.mkdir(parents=True, exist_ok=True)
    for case in args.cases.split(","):
        row = summarise(case, run_case(case, args.data, args.samples, args.rounds))
        print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
