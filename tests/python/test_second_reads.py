"""Bits that flip on the wire, where only the format's own sum notices: read again, and no sample is lost,
replaced or wrong for it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_tfrecord import one_record

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.prepare import convert

COUNT = 400


def value(i: int) -> str:
    return f"sample {i:05d}." * 9


def make_tfrecord(root: Path) -> str:
    for shard in range(2):
        numbers = range(shard * COUNT // 2, (shard + 1) * COUNT // 2)
        (root / f"part-{shard}.tfrecord").write_bytes(
            b"".join(one_record(value(i).encode()) for i in numbers)
        )
    return "record"


def make_gzip_tfrecord(root: Path) -> str:
    make_tfrecord(root)
    for file in root.glob("*.tfrecord"):
        file.write_bytes(gzip.compress(file.read_bytes()))
    return "record"


def make_gzip_lines(root: Path) -> str:
    for shard in range(4):
        numbers = range(shard * COUNT // 4, (shard + 1) * COUNT // 4)
        (root / f"part-{shard}.jsonl.gz").write_bytes(
            gzip.compress("".join(json.dumps({"t": value(i)}) + "\n" for i in numbers).encode())
        )
    return "t"


def make_mds(root: Path) -> str:
    from headrace.compat.streaming import MDSWriter

    with MDSWriter(
        out=str(root), columns={"t": "str"}, compression="zstd", hashes=["sha1"], size_limit=1 << 13
    ) as out:
        for i in range(COUNT):
            out.write({"t": value(i)})
    return "t"


def make_parquet(root: Path) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for shard in range(2):
        table = pyarrow.table({"t": [value(i) for i in range(shard * COUNT // 2, (shard + 1) * COUNT // 2)]})
        parquet.write_table(
            table,
            root / f"{shard}.parquet",
            row_group_size=50,
            compression="zstd",
            write_page_checksum=True,
            use_dictionary=False,
        )
    return "t"


MAKERS: dict[str, Callable[[Path], str]] = {
    "tfrecord": make_tfrecord,
    "tfrecord.gz": make_gzip_tfrecord,
    "jsonl.gz": make_gzip_lines,
    "mds": make_mds,
    "parquet": make_parquet,
}


def text_of(x: Any) -> str:
    return x.decode() if isinstance(x, bytes) else str(x)


@pytest.fixture(params=list(MAKERS))
def flipped(request: pytest.FixtureRequest, buckets: Path, s3: simulator.Server) -> tuple[str, str]:
    """URL and text column of a dataset."""
    root = buckets / "b" / request.param
    root.mkdir()
    return f"s3://b/{request.param}", MAKERS[request.param](root)


@pytest.mark.parametrize("mode", ["raise", "replace"])
def test_the_loader_delivers_every_sample(flipped: tuple[str, str], s3: simulator.Server, mode: str) -> None:
    url, column = flipped
    dataset = hr.Dataset(url, memory="64MiB", block_bytes="64KiB")
    s3.set_behaviour(corrupt_rate=0.2)
    options = {"rank": 0, "world_size": 1, "seed": 1, "memory": "64MiB", "keep_in_memory": False}
    with hr.Loader(dataset, batch_size=10, on_bad_sample=mode, workers=1, **options) as loader:
        seen = []
        for _ in range(8):
            for batch in loader:
                assert not batch.replaced
                for i, text in zip(batch.ids, batch[column], strict=True):
                    assert text_of(text) == value(int(i))
                seen += [int(i) for i, mask in zip(batch.ids, batch.mask, strict=True) if mask]
        assert sorted(seen) == sorted(list(range(COUNT)) * 8)
        assert loader.stats()["loader.second_reads"] > 0
        assert loader.stats()["store.fresh_requests"] > 0
        assert loader.stats()["loader.bad_samples"] == 0


def test_a_dataset_reads_every_sample(flipped: tuple[str, str], s3: simulator.Server) -> None:
    url, column = flipped
    dataset = hr.Dataset(url, memory="64MiB", block_bytes="64KiB")
    s3.set_behaviour(corrupt_rate=0.1)
    for start in range(0, COUNT, 40):
        read = dataset.read(list(range(start, start + 40)))
        assert [text_of(sample[column]) for sample in read] == [value(i) for i in range(start, start + 40)]
    for i in range(0, COUNT, 7):
        assert text_of(dataset[i][column]) == value(i)


def test_verify_finds_nothing_wrong(flipped: tuple[str, str], s3: simulator.Server) -> None:
    url, _ = flipped
    with hr.Dataset(url, memory="64MiB", block_bytes="64KiB") as dataset:
        s3.set_behaviour(corrupt_rate=0.1)
        second_reads = 0
        for _ in range(8):
            found = _native.verify_dataset(
                dataset._native, dataset._store, workers=1, most_problems=9, progress=None
            )
            assert found["problems"] == []
            assert found["sample_count"] == COUNT
            second_reads += found["second_read_count"]
    assert second_reads > 0


@pytest.mark.parametrize("make", [make_tfrecord, make_gzip_lines])
def test_opening_finds_nothing_wrong(
    buckets: Path, s3: simulator.Server, make: Callable[[Path], str]
) -> None:
    """Formats whose scan notices every bit that matters."""
    (buckets / "b" / "d").mkdir()
    make(buckets / "b" / "d")
    s3.set_behaviour(corrupt_rate=0.05)
    for _ in range(10):
        with hr.Dataset("s3://b/d", index_cache="") as dataset:
            assert len(dataset) == COUNT


def test_converting_writes_the_right_samples(buckets: Path, s3: simulator.Server, tmp_path: Path) -> None:
    (buckets / "b" / "tf").mkdir()
    make_tfrecord(buckets / "b" / "tf")
    hr.Dataset("s3://b/tf", block_bytes="64KiB").write_index()
    s3.set_behaviour(corrupt_rate=0.05)
    convert("s3://b/tf", tmp_path / "out", format="mds", workers=1)
    with hr.Dataset(tmp_path / "out") as out:
        column = next(iter(out.schema))
        assert [text_of(sample[column]) for sample in out.read(range(COUNT))] == [
            value(i) for i in range(COUNT)
        ]
