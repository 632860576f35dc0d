"""hr.Dataset: schema, shards, random access, the index."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_mds, write_numbers

import headrace as hr
from headrace import prepare
from headrace import sim as simulator
from headrace.data.rows import Block, runs


@pytest.fixture(params=["file", "s3"])
def dataset(request: pytest.FixtureRequest, numbers: Path) -> Any:
    if request.param == "s3":
        request.getfixturevalue("s3")
    with hr.Dataset("s3://b/numbers" if request.param == "s3" else numbers, block_bytes="64KiB") as opened:
        yield opened


def test_samples_are_found_by_position(dataset: hr.Dataset) -> None:
    assert len(dataset) == 1000
    assert dataset[0] == {"x": 1, "t": "s0"}
    assert dataset[-1] == {"x": 7 * 999 + 1, "t": "s999"}
    assert [s["x"] for s in dataset[10:13]] == [71, 78, 85]
    positions = [999, 0, 500, 500, 7]
    assert [s["t"] for s in dataset.read(positions)] == [f"s{p}" for p in positions]
    assert dataset.read([]) == []


def test_numpy_integers_are_positions(dataset: hr.Dataset) -> None:
    assert dataset[np.int64(5)]["x"] == 36  # type: ignore[call-overload]
    assert [s["x"] for s in dataset.read(np.array([5, 6]))] == [36, 43]  # type: ignore[arg-type]


def test_iteration_goes_through_all_samples(dataset: hr.Dataset) -> None:
    assert [s["x"] for s in dataset] == [7 * i + 1 for i in range(1000)]


def lengths_of_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of the lists that hr.Dataset.read() gives from here on."""
    lengths, read = [], hr.Dataset.read

    def noting(self: hr.Dataset, positions: Any, **more: Any) -> Any:
        lengths.append(len(positions))
        return read(self, positions, **more)

    monkeypatch.setattr(hr.Dataset, "read", noting)
    return lengths


def test_large_samples_are_not_all_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their blocks may be small, and what is packed smaller."""
    large = bytes(1 << 20)
    for name, count in (("a", 150), ("b", 149)):
        rows = ({"x": large, "id": i} for i in range(count))
        prepare.write(rows, tmp_path / name, compression="zstd:1", shard_bytes="4MiB")
    lengths = lengths_of_reads(monkeypatch)
    with hr.Dataset(tmp_path / "a") as dataset:
        assert [sample["id"] for sample in dataset] == list(range(150))
    assert sum(lengths) == 150
    assert 32 < max(lengths) <= 64
    lengths.clear()
    assert hr.diff(tmp_path / "a", tmp_path / "b").compared == 149
    assert max(lengths) <= 64


def test_runs_go_through_all_samples() -> None:
    rng = random.Random(1)
    for _ in range(300):
        counts = [rng.randint(1, 9) for _ in range(rng.randint(0, 9))]
        firsts = [sum(counts[:i]) for i in range(len(counts))]
        sizes = [count * rng.choice([0, 1, 5, 40]) for count in counts]
        blocks = [Block(0, *row) for row in zip(firsts, counts, sizes, sizes, strict=True)]
        most = rng.randint(1, 12)
        found = list(runs(blocks, most, 20))
        assert [position for run in found for position in run] == list(range(sum(counts)))
        each = [size / count for size, count in zip(sizes, counts, strict=True) for _ in range(count)]
        for run in found:
            assert 0 < len(run) <= most
            assert sum(each[position] for position in run) <= max(20, *sizes)


def test_columns_can_be_chosen(dataset: hr.Dataset) -> None:
    assert dataset.read([3], columns=["t"]) == [{"t": "s3"}]
    with pytest.raises(hr.InvalidArgumentError, match="its columns are t, x"):
        dataset.read([3], columns=["y"])


@pytest.mark.parametrize("position", [1000, -1001, 1 << 70])
def test_positions_out_of_range_are_index_errors(dataset: hr.Dataset, position: int) -> None:
    with pytest.raises(IndexError, match="1000"):
        dataset[position]


def test_schema_shards_and_blocks_describe_the_dataset(dataset: hr.Dataset) -> None:
    assert dataset.format == "mds"
    assert dataset.schema["x"] == hr.Column("x", "int", "int64", (), 8)
    assert dataset.schema["t"] == hr.Column("t", "str", "", (), 0)
    assert len(dataset.shards) == 10
    assert dataset.shards[-1].key == "shard.00009.mds"
    assert [s.sample_count for s in dataset.shards] == [100] * 10
    assert dataset.nbytes == sum(s.size for s in dataset.shards)
    assert sum(b.sample_count for b in dataset.blocks) == 1000
    assert dataset.blocks[0].first_sample == 0
    with pytest.raises(IndexError):
        dataset.shards[10]


def test_fingerprint_follows_the_content_not_the_place(
    numbers: Path, tmp_path: Path, s3: simulator.Server
) -> None:
    elsewhere = write_numbers(tmp_path / "copy", 1000)
    other = write_numbers(tmp_path / "other", 999)
    prints = []
    for url in ("s3://b/numbers", "s3://b/numbers", other):
        with hr.Dataset(url) as dataset:
            prints.append(dataset.fingerprint)
    assert prints[0] == prints[1] != prints[2]
    assert len(prints[0]) == 32
    with hr.Dataset(elsewhere) as first, hr.Dataset(elsewhere, block_bytes="64KiB") as second:
        assert first.fingerprint == second.fingerprint


def test_the_index_is_written_beside_the_dataset_and_used(dataset: hr.Dataset, numbers: Path) -> None:
    size = dataset.write_index()
    assert (numbers / "index.hri").stat().st_size == size
    with hr.Dataset(numbers, index_cache="") as again:
        assert again.fingerprint == dataset.fingerprint or dataset.url.startswith("s3://")
        assert again[17] == dataset[17]


def test_the_index_can_go_to_a_file(dataset: hr.Dataset, tmp_path: Path) -> None:
    size = dataset.write_index(tmp_path / "out.hri")
    assert (tmp_path / "out.hri").stat().st_size == size
    assert not list(tmp_path.glob("*.partial"))


def test_fixed_arrays_keep_dtype_and_shape(tmp_path: Path) -> None:
    rows = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    root = write_mds(
        tmp_path / "ds", {"a": ("ndarray:float32:2,3", 24)}, [{"a": row.tobytes()} for row in rows]
    )
    with hr.Dataset(root) as dataset:
        value = dataset[2]["a"]
        assert dataset.schema["a"].shape == (2, 3)
    assert value.dtype == np.float32
    assert np.array_equal(value, rows[2])
    value[0, 0] = 5  # a copy, writable


@pytest.mark.parametrize(
    ("encoding", "payload"),
    [
        ("json", b"{not json"),
        ("str", b"\xff\xfe"),
        ("str_int", b"12x"),
        ("str_decimal", b"pi"),
        ("ndarray", b"\x63\x04\x01\x00"),
        ("ndarray", b""),
        ("ndarray:int16", b"\x08\x01\x05\x00\x00"),
        ("ndarray:int16", b"\xff\xff"),
    ],
)
def test_values_that_break_their_encoding_are_corrupt(tmp_path: Path, encoding: str, payload: bytes) -> None:
    root = write_mds(tmp_path / "ds", {"v": (encoding, None)}, [{"v": payload}])
    with hr.Dataset(root) as dataset, pytest.raises(hr.CorruptError, match="sample 0, column v"):
        dataset[0]


def test_a_closed_dataset_says_so(dataset: hr.Dataset) -> None:
    dataset.close()
    dataset.close()
    assert dataset.closed
    assert repr(dataset) == "Dataset(closed)"
    with pytest.raises(hr.InvalidArgumentError, match="closed"):
        dataset[0]
    with pytest.raises(hr.InvalidArgumentError, match="closed"):
        len(dataset)


def test_raw_files_and_tars_open_by_format(tmp_path: Path) -> None:
    import io
    import tarfile

    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("a.txt", "b.txt"):
        (raw / name).write_text(name * 3)
    with hr.Dataset(raw, format="raw") as dataset:
        assert [(s["key"], s["data"]) for s in dataset] == [("a.txt", b"a.txt" * 3), ("b.txt", b"b.txt" * 3)]
    wds = tmp_path / "wds"
    wds.mkdir()
    with tarfile.open(wds / "0.tar", "w") as tar:
        for i in range(3):
            for suffix, data in (("txt", f"text {i}".encode()), ("cls", str(i).encode())):
                if i == 1 and suffix == "cls":
                    continue
                info = tarfile.TarInfo(f"s{i}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    with hr.Dataset(wds) as dataset:
        assert dataset.format == "webdataset"
        assert [s["txt"] for s in dataset] == [b"text 0", b"text 1", b"text 2"]
        assert dataset[1]["cls"] is None


def test_int_columns_are_little_endian(tmp_path: Path) -> None:
    root = write_mds(tmp_path / "ds", {"v": ("uint16", 2)}, [{"v": struct.pack("<H", 513)}])
    with hr.Dataset(root) as dataset:
        assert dataset[0]["v"] == 513
        assert dataset[0]["v"].dtype == np.uint16
