"""What reads through fsspec reads through Headrace: pandas, pyarrow, DuckDB, datasets, zarr, dask's way."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec_world import fs

import headrace as hr
import headrace.fsspec
from headrace import sim as simulator

__all__ = ["fs"]

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")


@pytest.fixture
def s3_is_ours(s3: simulator.Server) -> Iterator[None]:
    """``s3://`` and the entry point's ``hr+s3://`` for packages that take URLs alone."""
    registry = sys.modules["fsspec.registry"]
    before = dict(registry._registry)
    headrace.fsspec.register(["s3", "hr+s3"])
    yield
    for made in headrace.fsspec.S3FileSystem._cache.copy().values():
        made.close()
    registry._registry.clear()
    registry._registry.update(before)


TABLE = {
    "n": np.arange(20_000, dtype=np.int64),
    "x": np.sqrt(np.arange(20_000)),
    "t": [f"t{i % 97}" for i in range(20_000)],
}


@pytest.mark.usefixtures("s3_is_ours")
@pytest.mark.parametrize("scheme", ["s3", "hr+s3"])
def test_pandas(scheme: str, s3: simulator.Server) -> None:
    options = {"memory": "32MiB", "client_kwargs": {"endpoint_url": s3.endpoint}}
    frame = pd.DataFrame(TABLE)
    for name, write, read in (
        ("csv", frame.to_csv, pd.read_csv),
        ("parquet", frame.to_parquet, pd.read_parquet),
        ("json.gz", frame.to_json, pd.read_json),
        ("csv.zst", frame.to_csv, pd.read_csv),
    ):
        url = f"{scheme}://b/pandas/table.{name}"
        index = {"index": False} if "csv" in name else {}
        write(url, storage_options=options, **index)
        back = read(url, storage_options=options)
        pd.testing.assert_frame_equal(back, frame, check_dtype=False, rtol=1e-9)


def test_pyarrow_dataset(fs: Any) -> None:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    table = pa.table(TABLE).append_column("part", pa.array([i % 3 for i in range(20_000)]))
    ds.write_dataset(
        table,
        "b/arrow",
        filesystem=fs,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("part", pa.int64())]), flavor="hive"),
        existing_data_behavior="overwrite_or_ignore",
    )
    assert len(fs.find("b/arrow")) == 3
    found = ds.dataset("b/arrow", filesystem=fs, format="parquet", partitioning="hive")
    assert found.count_rows() == 20_000
    few = found.to_table(columns=["n", "t"], filter=ds.field("part") == 2).sort_by("n")
    assert few["n"].to_pylist() == list(range(2, 20_000, 3))
    one = pq.read_table(fs.find("b/arrow")[0], filesystem=fs, columns=["x"])
    assert one.num_rows > 0


def test_duckdb(fs: Any) -> None:
    duckdb = pytest.importorskip("duckdb")
    for part in range(3):
        with fs.open(f"b/duck/{part}.parquet", "wb") as file:
            pd.DataFrame({"n": range(part * 1000, part * 1000 + 1000)}).to_parquet(file)
    with duckdb.connect() as connection:
        connection.register_filesystem(fs)
        query = "select count(*), sum(n) from read_parquet('hr+s3://b/duck/*.parquet')"
        assert connection.execute(query).fetchall() == [(3000, sum(range(3000)))]
        connection.execute("copy (select 42 as x) to 'hr+s3://b/duck/out.csv' (format csv)")
        assert fs.cat_file("b/duck/out.csv").split() == [b"x", b"42"]


@pytest.mark.usefixtures("s3_is_ours")
@pytest.mark.parametrize("streaming", [False, True])
def test_datasets(s3: simulator.Server, streaming: bool, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    options = {"memory": "32MiB", "endpoint": s3.endpoint}
    fs = hr.fs("s3://b", **options)
    for part in range(2):
        lines = "".join(f'{{"n": {part * 100 + i}}}\n' for i in range(100))
        fs.pipe_file(f"b/hf/{part}.jsonl", lines.encode())
    found = datasets.load_dataset(
        "json",
        data_files="hr+s3://b/hf/*.jsonl",
        split="train",
        streaming=streaming,
        storage_options=dict(options),  # which it writes to
        cache_dir=str(tmp_path / "hf"),
    )
    assert sorted(row["n"] for row in found) == list(range(200))
    if not streaming:
        found.save_to_disk("hr+s3://b/saved", storage_options=options)
        again = datasets.load_from_disk("hr+s3://b/saved", storage_options=options)
        assert sorted(again["n"]) == list(range(200))


def test_zarr(s3: simulator.Server) -> None:
    zarr = pytest.importorskip("zarr")
    fs = hr.fs("s3://b", asynchronous=True, memory="32MiB", endpoint=s3.endpoint)
    store = zarr.storage.FsspecStore(fs, path="b/zarr")
    values = np.random.default_rng(3).normal(size=(300, 200))
    array = zarr.create_array(store=store, name="x", shape=values.shape, chunks=(64, 50), dtype="float64")
    array[:] = values
    group = zarr.open_group(store=store, mode="r")
    assert np.array_equal(group["x"][:], values)
    assert np.array_equal(group["x"][37:205, ::7], values[37:205, ::7])


def test_fsspecs_own_parquet_reader_and_mapper(fs: Any) -> None:
    from fsspec.parquet import open_parquet_file

    fs.pipe_file("b/table.parquet", b"")
    with fs.open("b/table.parquet", "wb") as file:
        pd.DataFrame(TABLE).to_parquet(file)
    with open_parquet_file("b/table.parquet", fs=fs, columns=["n"], engine="pyarrow") as file:
        assert pd.read_parquet(file, columns=["n"])["n"].tolist() == list(range(20_000))
    mapper = fs.get_mapper("b/mapped")
    mapper["a/b"] = b"1"
    mapper.setitems({"c": b"2", "d": b"3"})
    assert dict(mapper) == {"a/b": b"1", "c": b"2", "d": b"3"}
    assert mapper.getitems(["c", "nothing"], on_error="omit") == {"c": b"2"}
    del mapper["c"]
    assert sorted(mapper) == ["a/b", "d"]


@pytest.mark.usefixtures("s3_is_ours")
def test_the_examples_of_the_documentation(s3: simulator.Server, buckets: Path, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    (buckets / "bucket").mkdir()
    text = (Path(__file__).resolve().parents[2] / "docs" / "fsspec.md").read_text()
    code = "".join(re.findall(r"```python\n(.*?)```", text, re.S))
    names: dict[str, Any] = {}
    exec(code.replace("/nvme", str(tmp_path)).replace("500GB", "5GB"), names)
    assert names["fs"].cat_file("bucket/data/c.txt") == b"text"
    assert names["duckdb"].sql("select sum(n) from 'hr+s3://bucket/table/*.parquet'").fetchall() == [
        (499500,)
    ]
    names["duckdb"].unregister_filesystem("hr+s3")
    names["fs"].close()
