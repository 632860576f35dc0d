"""Tokens and NumPy arrays, as numpy itself writes them, through Dataset and Loader, local and over S3."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr


def test_a_file_without_a_length_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.arange(10, dtype=np.uint16).tofile(tmp_path / "train.bin")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(hr.InvalidArgumentError, match=r"train\.bin: a file of tokens without \.idx"):
        hr.Dataset("train.bin", format="tokens")


def test_flat_tokens_are_cut_in_samples(tmp_path: Path, open_loader: Any) -> None:
    tokens = np.arange(1003, dtype=np.uint16)
    (tmp_path / "d").mkdir()
    tokens.tofile(tmp_path / "d" / "a.bin")
    with hr.Dataset(tmp_path / "d", format="tokens", tokens_per_sample=10) as dataset:
        assert len(dataset) == 100
        assert np.array_equal(dataset[7]["tokens"], tokens[70:80])
        seen = np.concatenate([batch["tokens"] for batch in open_loader(dataset, batch_size=10)])
    assert seen.dtype == np.uint16
    assert np.array_equal(np.sort(seen.ravel()), tokens[:1000])


def test_flat_tokens_have_a_dtype(tmp_path: Path) -> None:
    tokens = np.arange(64, dtype=np.uint32) * 70_000
    (tmp_path / "d").mkdir()
    tokens.tofile(tmp_path / "d" / "a.bin")
    with hr.Dataset(tmp_path / "d", format="tokens", tokens_per_sample=8, token_dtype="uint32") as dataset:
        assert np.array_equal(dataset[1]["tokens"], tokens[8:16])
    with pytest.raises(hr.InvalidArgumentError, match="tokens_per_sample"):
        hr.Dataset(tmp_path / "d", format="tokens")


def write_megatron(prefix: Path, documents: list[np.ndarray]) -> None:
    """As Megatron's IndexedDatasetBuilder writes one sequence a document."""
    codes = {
        "uint8": 1,
        "int8": 2,
        "int16": 3,
        "int32": 4,
        "int64": 5,
        "float64": 6,
        "float32": 7,
        "uint16": 8,
    }
    dtype = documents[0].dtype
    prefix.parent.mkdir(parents=True, exist_ok=True)
    prefix.with_suffix(".bin").write_bytes(b"".join(document.tobytes() for document in documents))
    lengths = np.array([len(document) for document in documents], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(lengths[:-1].astype(np.int64) * dtype.itemsize)]).astype(
        np.int64
    )
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, codes[str(dtype)], len(documents), len(documents) + 1)
    bounds = np.arange(len(documents) + 1, dtype=np.int64)
    prefix.with_suffix(".idx").write_bytes(head + lengths.tobytes() + pointers.tobytes() + bounds.tobytes())


@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64"])
def test_megatron_documents_are_samples(dtype: str, tmp_path: Path) -> None:
    documents = [np.arange(n, dtype=dtype) for n in (5, 1, 0, 9)]
    write_megatron(tmp_path / "d" / "text_document", documents)
    with hr.Dataset(tmp_path / "d", format="tokens") as dataset:
        assert [column.encoding for column in dataset.schema.values()] == [f"array:{dtype}"]
        for sample, document in zip(dataset.read(range(4)), documents, strict=True):
            assert sample["tokens"].dtype == document.dtype
            assert np.array_equal(sample["tokens"], document)
    with hr.Dataset(tmp_path / "d", format="tokens", tokens_per_sample=5) as dataset:
        stream = np.concatenate(documents)
        assert [list(sample["tokens"]) for sample in dataset.read(range(3))] == stream.reshape(3, 5).tolist()


DTYPES = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "bool",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_npy_are_samples(dtype: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    shards = [(np.arange(24).reshape(4, 2, 3) + shift).astype(dtype) for shift in (0, 50)]
    for i, shard in enumerate(shards):
        np.save(tmp_path / "d" / f"{i}.npy", shard)
    with hr.Dataset(tmp_path / "d", format="numpy") as dataset:
        assert len(dataset) == 8
        for row, sample in zip(np.concatenate(shards), dataset.read(range(8)), strict=True):
            assert sample["data"].dtype == row.dtype
            assert np.array_equal(sample["data"], row)


def test_npz_columns_come_in_batches(tmp_path: Path, open_loader: Any) -> None:
    (tmp_path / "d").mkdir()
    for i in range(3):
        x = np.arange(100, dtype=np.float32).reshape(50, 2) + 1000 * i
        np.savez(tmp_path / "d" / f"{i}.npz", x=x, label=np.arange(50) + 100 * i, flag=np.arange(50) % 2 == 0)
    with hr.Dataset(tmp_path / "d", format="numpy") as dataset:
        assert len(dataset) == 150
        sample = dataset[60]
        assert np.array_equal(sample["x"], [1020.0, 1021.0])
        assert sample["label"] == 110
        assert bool(sample["flag"])
        seen = 0
        for batch in open_loader(dataset, batch_size=25, seed=1):
            shard, row = batch["label"] // 100, batch["label"] % 100
            assert np.array_equal(batch["x"][:, 0], shard * 1000 + row * 2)
            assert np.array_equal(batch["flag"], row % 2 == 0)
            seen += len(batch["label"])
    assert seen == 150


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([{}]), "pickle"),
        (np.array(["a"]), "numbers"),
        (np.asfortranarray(np.zeros((2, 2))), "Fortran"),
        (np.zeros(2, dtype=">f4"), "big-endian"),
        (np.zeros(2, dtype=[("a", "i4")]), "structured"),
        (np.float32(1), "axes"),
    ],
)
def test_npy_refusals_name_the_reason(array: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    np.save(tmp_path / "d" / "a.npy", array)
    with pytest.raises(hr.UnsupportedError, match=message):
        hr.Dataset(tmp_path / "d", format="numpy")


def test_arrays_are_read_over_s3(buckets: Path, s3: Any) -> None:
    (buckets / "b" / "n").mkdir()
    np.savez(buckets / "b" / "n" / "a.npz", x=np.arange(20, dtype=np.int16).reshape(10, 2), y=np.arange(10))
    (buckets / "b" / "t").mkdir()
    np.arange(100, dtype=np.uint16).tofile(buckets / "b" / "t" / "a.bin")
    with hr.Dataset("s3://b/n", format="numpy") as dataset:
        assert [int(sample["y"]) for sample in dataset.read(range(10))] == list(range(10))
        assert dataset[3]["x"].tolist() == [6, 7]
    with hr.Dataset("s3://b/t", format="tokens", tokens_per_sample=4) as dataset:
        assert dataset[5]["tokens"].tolist() == [20, 21, 22, 23]
