"""Data sets that are hard on a memory limit, of any size, and a process that reads one and says how much
memory that took."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import prepare

MiB = 1 << 20


def _copies(path: Path, count: int) -> None:
    """More files of the same content, which take no room."""
    for i in range(1, count):
        os.link(path, path.with_name(f"{i}-{path.name}"))


def _table(rows: int) -> Any:
    """About 700 bytes a row, as Arrow has it."""
    import pyarrow as pa

    rng = np.random.default_rng(3)
    lists = pa.FixedSizeListArray.from_arrays(
        pa.array(rng.integers(0, 1000, rows * 256).astype(np.int16)), 256
    )
    return pa.table(
        {"id": np.arange(rows), "list": lists, "text": [f"word {i % 977} " * 20 for i in range(rows)]}
    )


def _ragged_table(size: int) -> Any:
    """Lists of very different lengths, ``size`` bytes together."""
    import pyarrow as pa

    rng = np.random.default_rng(4)
    lengths = (rng.pareto(0.7, 600) * 500 + 1).clip(1, size / 64)
    lengths = (lengths * (size / 4 / lengths.sum())).astype(int)
    values = pa.array(rng.integers(0, 256, int(lengths.sum())).astype(np.int32))
    lists = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)), values
    )
    return pa.table({"id": np.arange(600), "list": lists})


def parquet_flat(path: Path, block: int) -> None:
    import pyarrow.parquet as pq

    pq.write_table(
        _table(3 * block // 700), path / "a.parquet", row_group_size=block // 700, compression="zstd"
    )
    _copies(path / "a.parquet", 3)


def parquet_ragged(path: Path, block: int) -> None:
    import pyarrow.parquet as pq

    pq.write_table(
        _ragged_table(3 * block),
        path / "a.parquet",
        row_group_size=200,
        compression="zstd",
        use_dictionary=False,
    )
    _copies(path / "a.parquet", 3)


def arrow_plain(path: Path, block: int) -> None:
    _write_arrow(path / "a.arrow", _table(3 * block // 700), block // 700, None)


def arrow_zstd(path: Path, block: int) -> None:
    _write_arrow(path / "a.arrow", _ragged_table(3 * block), 200, "zstd")


def _write_arrow(path: Path, table: Any, rows: int, compression: str | None) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(
        str(path), table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_table(table, max_chunksize=rows)
    _copies(path, 3)


def jsonl_gz(path: Path, block: int) -> None:
    line = "".join(
        json.dumps({"id": i, "text": f"lorem ipsum {i} " * 20}) + "\n" for i in range(1000)
    ).encode()
    (path / "a.jsonl.gz").write_bytes(gzip.compress(line * (block // len(line)), 1))
    _copies(path / "a.jsonl.gz", 6)


def tar_gz(path: Path, block: int) -> None:
    rng = np.random.default_rng(5)
    with tarfile.open(path / "a.tar.gz", "w:gz", compresslevel=1) as tar:
        for i in range(block // 100_000):
            entry = tarfile.TarInfo(f"{i:06d}.bin")
            entry.size = 100_000
            tar.addfile(entry, io.BytesIO(rng.bytes(50_000) + bytes(50_000)))
    _copies(path / "a.tar.gz", 6)


def mds_zstd(path: Path, block: int) -> None:
    streaming = pytest.importorskip("streaming")
    rng = np.random.default_rng(6)
    with streaming.MDSWriter(
        out=str(path), columns={"x": "bytes"}, size_limit=block, compression="zstd:1"
    ) as writer:
        for _ in range(4 * block // 8192):
            writer.write({"x": rng.integers(0, 50_000, 2048).astype(np.int32).tobytes()})


def tfrecord(path: Path, block: int) -> None:
    rng = np.random.default_rng(7)
    with prepare.TFRecordWriter(path, columns={"x": "bytes"}) as writer:
        for _ in range(4 * block // 65536):
            writer.write({"x": rng.bytes(65536)})


def lance(path: Path, block: int) -> None:
    pytest.importorskip("lance").write_dataset(_table(4 * block // 700), str(path / "t.lance"))


def array_record(path: Path, block: int) -> None:
    module = pytest.importorskip("array_record.python.array_record_module")
    rng = np.random.default_rng(8)
    writer = module.ArrayRecordWriter(str(path / "a.array_record"), "group_size:64")
    for _ in range(4 * block // 65536):
        writer.write(rng.bytes(65536))
    writer.close()


def litdata_rows(path: Path, block: int) -> None:
    writer_module = pytest.importorskip("litdata.streaming.writer")
    rng = np.random.default_rng(9)
    writer = writer_module.BinaryWriter(str(path), chunk_bytes=block)
    for i in range(3 * block // 4096):
        writer.add_item(
            i,
            {
                "messages": [{"role": "user", "content": f"word {i % 977} " * 100}],
                "ids": rng.integers(0, 50_000, 500).tolist(),
            },
        )
    writer.done()
    writer.merge()


FORMATS: dict[str, Callable[[Path, int], None]] = {
    make.__name__: make
    for make in (
        parquet_flat,
        parquet_ragged,
        arrow_plain,
        arrow_zstd,
        litdata_rows,
        jsonl_gz,
        tar_gz,
        mds_zstd,
        tfrecord,
        lance,
        array_record,
    )
}

_READ = """
import json, sys
import pyarrow, pyarrow.compute, pyarrow.parquet, numpy
import headrace as hr
from headrace import prepare
path, memory, batch, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
def resident(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))
answer = {"samples": 0}
try:
    with hr.Dataset(path) as dataset:  # The index is made before memory is looked at.
        len(dataset)
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")  # From here on VmHWM is the peak.
    answer["start"] = resident("VmRSS")
    with hr.Loader(path, batch_size=batch, rank=0, world_size=1, seed=1, memory=memory) as loader:
        for data in loader:
            answer["samples"] += len(data.ids)
            if answer["samples"] >= most:
                break
        answer["pool"] = loader.stats()["pool.peak_bytes"]
        answer["wanted"] = loader.stats()["loader.memory_wanted_bytes"]
    answer["peak"] = resident("VmHWM") - answer["start"]
except hr.HeadraceError as error:
    answer["error"] = f"{type(error).__name__}: {error}"
print(json.dumps(answer))
"""


def read(
    path: Path, memory: int, batch: int, cache: Path, most: int = 1 << 62, group: Path | None = None
) -> dict[str, Any]:
    """Reads an epoch (``most`` samples of it) in a process of its own. ``peak``: resident bytes above those
    before the loader was made. ``group``: a control group that the process enters first."""
    enter = (lambda: (group / "cgroup.procs").write_text(str(os.getpid()))) if group is not None else None
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "HEADRACE_INDEX_CACHE": str(cache / "index")}
    command = [sys.executable, "-c", _READ, str(path), str(memory), str(batch), str(most)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, preexec_fn=enter)
    if done.returncode != 0:
        return {"error": f"the process ended with {done.returncode}: {done.stderr[-2000:]}"}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
