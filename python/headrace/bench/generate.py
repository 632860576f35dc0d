"""Makes the data of a workload: records of the published sizes, of random bytes, in the published
container."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from headrace.bench.workloads import Workload
from headrace.data.index import write_index
from headrace.errors import NotFoundError
from headrace.prepare.writers import MDSWriter, TFRecordWriter
from headrace.store.store import Store

__all__ = ["generate", "record_sizes"]

_FRAME_BYTES = 54
"""Of a record of tf.train.Example beside its image, about: only the number of records in a file depends on
it."""

Report = Callable[[int], None]
"""Takes the bytes of the records made so far."""


def record_sizes(workload: Workload, samples: int, seed: int = 0) -> list[int]:
    """Of each record: normally distributed, those beyond 90 % from the mean drawn again. The mean stays, the
    spread of unet3d becomes 0.87 of what is published."""
    average = workload.record_bytes
    if not workload.record_stdev:
        return [round(average)] * samples
    random = np.random.Generator(np.random.SFC64(seed))
    sizes: list[int] = []
    while len(sizes) < samples:
        drawn = random.normal(average, workload.record_stdev, samples)
        sizes += [int(size) for size in drawn if abs(size - average) <= 0.9 * average]
    return sizes[:samples]


def generate(
    workload: Workload,
    url: str,
    samples: int,
    *,
    seed: int = 0,
    report: Report | None = None,
    **options: Any,
) -> None:
    """Writes so many samples to a directory or prefix that is empty, the same bytes for the same seed. When
    it ends early, by an error or Ctrl-C, what it wrote is removed.

    :param options: how to reach the store.
    """
    try:
        if workload.container == "npz":
            _write_npz(url, _records(workload, samples, seed, report), options)
        elif workload.container == "tfrecord":
            _write_tfrecord(workload, url, _records(workload, samples, seed, report), options)
        else:
            _write_tokens(workload, url, _records(workload, samples, seed, report), options)
    except BaseException:
        with Store(url, **options) as store, contextlib.suppress(NotFoundError):
            store.delete_many([info.key for info in store.list()])
        raise


def _records(workload: Workload, samples: int, seed: int, report: Report | None) -> Iterator[bytes]:
    random = np.random.Generator(np.random.SFC64(seed))
    done = 0
    for size in record_sizes(workload, samples, seed):
        yield random.bytes(size)
        done += size
        if report is not None:
            report(done)


def _write_npz(url: str, records: Iterator[bytes], options: dict[str, Any]) -> None:
    """A file a sample: `x`, a square of bytes as near as may be, and `y`, its label."""
    with Store(url, **options) as store:
        for number, record in enumerate(records):
            values = np.frombuffer(record, np.uint8)
            side = max(1, int(len(values) ** 0.5))
            file = io.BytesIO()
            np.savez(
                file, x=values[: side * (len(values) // side)].reshape(side, -1, 1), y=np.zeros(1, np.int64)
            )
            store.put(f"img_{number:07d}.npz", file.getbuffer())


def _write_tfrecord(workload: Workload, url: str, records: Iterator[bytes], options: dict[str, Any]) -> None:
    shard_bytes = round((workload.samples_per_file + 0.5) * (workload.record_bytes + _FRAME_BYTES))
    if workload.samples_per_file == 1:
        shard_bytes = 1  # Each record is more than that: a file of its own.
    columns = {"image": "bytes", "size": "int"}
    with TFRecordWriter(url, columns, shard_bytes=shard_bytes, **options) as writer:
        for record in records:
            writer.write({"image": record, "size": len(record)})
    write_index(url, index_cache="", **options)  # TFRecord has none of its own: it is not scanned each time.


def _write_tokens(workload: Workload, url: str, records: Iterator[bytes], options: dict[str, Any]) -> None:
    tokens = max(1, round(workload.record_bytes) // 2)
    with MDSWriter(url, {"tokens": f"ndarray:uint16:{tokens}"}, **options) as writer:
        for record in records:
            writer.write({"tokens": np.frombuffer(record, np.uint16, tokens)})
