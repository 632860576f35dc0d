"""Names of formats and orders, and single objects that are parts of a dataset: errors say what to write."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import write_numbers
from pyarrow import feather
from pyarrow import parquet as pq
from test_tokens_numpy import write_megatron

import headrace as hr
from headrace import _native
from headrace.cli import main
from headrace.data.index import write_index


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("data") / "numbers", 40)


@pytest.mark.parametrize("order", ["random", "headrac", "mosaic:py9", "py1e", 3])
def test_an_unknown_order_names_all(data: Path, order: Any) -> None:
    with pytest.raises(hr.InvalidArgumentError) as caught:
        hr.Loader(data, batch_size=4, order=order)
    assert f"order={order!r} is unknown; there are headrace, sequential, mosaic:py1e, " in str(caught.value)
    assert "mosaic:naive, litdata" in str(caught.value)


def test_all_orders_that_are_named_exist(data: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError) as caught:
        hr.Loader(data, batch_size=4, order="?")
    named = str(caught.value).partition("there are ")[2].split(", ")
    assert len(named) == 8
    for order in named:
        with hr.Loader(data, batch_size=4, order=order, memory="16MiB") as loader:
            assert len({int(i) for batch in loader for i in batch.ids}) == 40


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Parquet", "parquet"),
        ("petastorm", "parquet"),
        ("feather", "arrow"),
        ("jsonl", "text"),
        ("MDS", "mds"),
        ("tar", "webdataset"),
        ("megatron", "tokens"),
    ],
)
def test_what_others_call_a_format_is_translated(data: Path, name: str, meant: str) -> None:
    for opening in (hr.Dataset, write_index):
        with pytest.raises(hr.InvalidArgumentError, match=f"format='{name}' is called {meant}"):
            opening(data, format=name)  # type: ignore[operator]


def test_an_unknown_format_names_all(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(hr.InvalidArgumentError) as caught:
        hr.Dataset(data, format="hdf5")
    names = [*_native.format_names(), *_native.format_kinds()]
    assert all(f" {name}" in str(caught.value) for name in names)
    assert "table (Parquet, Arrow, Feather, Lance)" in str(caught.value)
    with pytest.raises(SystemExit):
        main(["inspect", str(data), "--format", "tar"])
    assert "is called webdataset (tars)" in capsys.readouterr().err


def test_kinds_of_tables_are_names_of_formats(tmp_path: Path) -> None:
    table = pa.table({"n": list(range(30))})
    folders = {kind: tmp_path / kind for kind in ("parquet", "arrow", "lance")}
    for folder in folders.values():
        folder.mkdir()
    pq.write_table(table, folders["parquet"] / "a.parquet")
    feather.write_feather(table, folders["arrow"] / "a.arrow", compression="uncompressed")
    pytest.importorskip("lance").write_dataset(table, folders["lance"] / "t.lance")
    folders["lance"] /= "t.lance"
    assert sorted(folders) == sorted(_native.format_kinds())
    for kind, folder in folders.items():
        with hr.Dataset(folder, format=kind) as dataset:
            assert (dataset.format, len(dataset)) == ("table", 30)
        for other in folders.keys() - {kind}:
            for opening in (hr.Dataset, write_index):
                with pytest.raises(hr.InvalidArgumentError, match=f"'{other}'.* of format '{kind}'"):
                    opening(folder, format=other)
        write_index(folder, format=kind)  # found by what opens it from here on
        with pytest.raises(hr.InvalidArgumentError, match=f"{kind}: format='"):
            hr.Dataset(folder, format=next(iter(folders.keys() - {kind})))
    with pytest.raises(hr.HeadraceError):
        hr.Dataset(write_numbers(tmp_path / "mds", 4), format="parquet")


@pytest.mark.parametrize("format", ["auto", "mds"])
def test_a_shard_of_mds_alone(data: Path, format: str) -> None:
    shard = data / "shard.00000.mds"
    with pytest.raises(
        hr.InvalidArgumentError, match=f"shard.00000.mds: is a shard of MDS.*open the folder {data}"
    ):
        hr.Dataset(shard, format=format)
    with hr.Dataset(shard, format="raw") as files:
        assert files[0]["data"] == shard.read_bytes()


def test_some_shards_of_mds(data: Path) -> None:
    """As migrating.md says, a part of such a dataset is written as one of its own."""
    with pytest.raises(
        hr.InvalidArgumentError, match=r"read as a whole through its index\.json: open the folder"
    ):
        hr.Dataset(data, keys=["shard.00000.mds"])
    with hr.Dataset(data) as all_of_it:
        kept = [all_of_it[i] for i in (1, 0)]
        hr.prepare.write((all_of_it[i] for i in (1, 0)), data.parent / "part", format="mds")
    with hr.Dataset(data.parent / "part") as part:
        assert list(part) == kept


def test_what_lists_the_shards_alone(data: Path, tmp_path: Path) -> None:
    with pytest.raises(
        hr.InvalidArgumentError, match=f"index.json: lists the shards of a dataset: open the folder {data}"
    ):
        hr.Dataset(data / "index.json")
    (tmp_path / "index.json").write_text('{"a": 1}\n{"a": 2}\n')  # Lines, by an unlucky name.
    assert len(hr.Dataset(tmp_path / "index.json")) == 2


def test_an_index_of_ours_alone(tmp_path: Path) -> None:
    data = write_numbers(tmp_path / "x", 40)
    with hr.Dataset(data) as dataset:
        dataset.write_index()
    with pytest.raises(
        hr.InvalidArgumentError, match=f"is the index of the dataset beside it: open the folder {data}"
    ):
        hr.Dataset(data / "index.hri")


def test_an_idx_alone(tmp_path: Path) -> None:
    write_megatron(tmp_path / "d" / "doc", [np.arange(n, dtype="uint16") for n in (5, 9)])
    with pytest.raises(
        hr.InvalidArgumentError, match=r"doc.idx: is the index of doc.bin beside it: open the folder"
    ):
        hr.Dataset(tmp_path / "d" / "doc.idx")
    with pytest.raises(hr.InvalidArgumentError, match=r"listed in doc.idx beside it: give format='tokens'"):
        hr.Dataset(tmp_path / "d" / "doc.bin")  # Not its bytes as one sample.
    for url, format in ((tmp_path / "d", "auto"), (tmp_path / "d" / "doc.bin", "tokens")):
        with hr.Dataset(url, format=format) as documents:
            assert (documents.format, len(documents)) == ("tokens", 2)
    (tmp_path / "d" / "doc.bin").unlink()
    with pytest.raises(hr.InvalidArgumentError, match=r"doc.bin, .tar or .tfrecord\) is not beside it"):
        hr.Dataset(tmp_path / "d" / "doc.idx")


def test_a_compressed_tar_alone_is_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"text")
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "a.txt", "a.txt")
    with hr.Dataset(tmp_path / "x.tar.gz") as dataset:
        assert (dataset.format, dataset[0]["txt"]) == ("webdataset", b"text")
