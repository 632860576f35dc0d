"""ArrayRecord files that array_record itself wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.cli import main


@pytest.fixture(scope="module")
def module() -> Any:
    return pytest.importorskip("array_record.python.array_record_module")


def write(module: Any, path: Path, records: list[bytes], options: str) -> None:
    writer = module.ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()


OPTIONS = [
    "",
    "group_size:1",
    "group_size:1,uncompressed",
    "group_size:7",
    "group_size:7,brotli:4",
    "group_size:7,snappy",
    "group_size:50,uncompressed",
    "group_size:3,pad_to_block_boundary:true",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_reads_what_array_record_writes(module: Any, tmp_path: Path, options: str) -> None:
    records = [bytes([i % 251]) * (i * 37 % 9000) + str(i).encode() for i in range(300)]
    write(module, tmp_path / "a.array_record", records[:200], options)
    write(module, tmp_path / "b.array_record", records[200:], options)
    with hr.Dataset(tmp_path, index_cache="", block_bytes="64KiB") as dataset:
        assert dataset.format == "arrayrecord"
        assert [s["record"] for s in dataset] == records
        assert [s["record"] for s in dataset.read([299, 0, 150])] == [records[299], records[0], records[150]]


def test_an_empty_record_and_an_empty_file(module: Any, tmp_path: Path) -> None:
    write(module, tmp_path / "a.array_record", [b"", b"x", b""], "group_size:2")
    write(module, tmp_path / "b.array_record", [], "")
    with hr.Dataset(tmp_path, index_cache="") as dataset:
        assert [s["record"] for s in dataset] == [b"", b"x", b""]


def test_refuses_transposed_files_and_says_what_to_do(module: Any, tmp_path: Path) -> None:
    write(module, tmp_path / "a.array_record", [b"x" * 100] * 10, "group_size:4,transpose:true")
    with pytest.raises(hr.UnsupportedError, match="transpose:false"):
        hr.Dataset(tmp_path, index_cache="")


def test_reports_damage(module: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.array_record"
    write(module, path, [b"x" * 1000 for _ in range(10)], "group_size:1,uncompressed")
    content = bytearray(path.read_bytes())
    content[3000] ^= 1
    path.write_bytes(content)
    with (
        hr.Dataset(tmp_path, index_cache="") as dataset,
        pytest.raises(hr.CorruptError, match=r"a\.array_record"),
    ):
        list(dataset)


@pytest.mark.parametrize("name", ["a.array_record", "a.array_record-00000-of-00001", "train-00000-of-00001"])
def test_pack_takes_a_folder_of_array_records_for_a_dataset(module: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    write(module, tmp_path / "in" / name, [b"x", b"yz"], "group_size:2")
    with pytest.raises(SystemExit) as done:
        main(["pack", str(tmp_path / "in"), str(tmp_path / "out"), "--format", "mds"])
    assert done.value.code == 0
    with hr.Dataset(tmp_path / "out") as dataset:
        assert [sample["record"] for sample in dataset] == [b"x", b"yz"]
