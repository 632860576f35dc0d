"""Compressed tars, URL lists and wids indexes through Dataset; tars that webdataset itself wrote."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "wds"


def open_dataset(path: Path | str, **options: Any) -> hr.Dataset:
    return hr.Dataset(path, index_cache="", **options)


def make_tar(samples: dict[str, dict[str, bytes]], format: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for key, fields in samples.items():
            for name, data in fields.items():
                info = tarfile.TarInfo(f"{key}.{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def numbered(begin: int, end: int) -> dict[str, dict[str, bytes]]:
    return {
        f"s{i:04d}": {"cls": str(i).encode(), "bin": bytes([i % 256]) * (i * 7)} for i in range(begin, end)
    }


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compression_is_found_from_the_content(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    for shard in range(2):
        (tmp_path / f"{shard}.tar").write_bytes(compress(make_tar(numbered(50 * shard, 50 * shard + 50))))
    with open_dataset(tmp_path) as dataset:
        assert dataset.format == "webdataset"
        assert [s["cls"] for s in dataset] == [str(i).encode() for i in range(100)]
        assert dataset[77]["bin"] == bytes([77]) * 539
    with hr.Loader(tmp_path, batch_size=10, index_cache="") as loader:
        seen = sorted(int(c) for batch in loader for c in batch["cls"])
    assert seen == list(range(100))


def test_reads_reference_tars_of_every_compression() -> None:
    if not REFERENCE.is_dir():
        pytest.skip("no reference cases here")
    expected = json.loads((REFERENCE / "expected.json").read_text())["files"]
    for name in ("groups.tar.gz", "groups.tar.bz2", "groups.tar.xz", "written-gz-00.tar.gz", "long-pax.tar"):
        with open_dataset(f"{REFERENCE}/{name}") as dataset:
            samples = list(dataset)
        assert [s["__key__"] for s in samples] == [s["key"] for s in expected[name]["samples"]]
        for sample, wanted in zip(samples, expected[name]["samples"], strict=True):
            found = {
                c: hashlib.sha256(v).hexdigest()
                for c, v in sample.items()
                if c != "__key__" and v is not None
            }
            assert found == {c: v["sha256"] for c, v in wanted["fields"].items()}


def test_opens_patterns_and_lists(tmp_path: Path) -> None:
    for shard in range(4):
        (tmp_path / f"a-{shard:03d}.tar").write_bytes(make_tar(numbered(10 * shard, 10 * shard + 10)))
    with open_dataset(f"{tmp_path}/a-{{003..001..2}}.tar") as dataset:
        assert [int(s["cls"]) for s in dataset] == [*range(30, 40), *range(10, 20)]
    with open_dataset(f"{tmp_path}/a-002.tar::{tmp_path}/a-{{000,001}}.tar") as dataset:
        assert [s.key for s in dataset.shards] == ["a-002.tar", "a-000.tar", "a-001.tar"]
    with pytest.raises(hr.NotFoundError):
        open_dataset(f"{tmp_path}/a-{{003..004}}.tar")
    with pytest.raises(hr.UnsupportedError, match="shell"):
        open_dataset("pipe:cat x.tar")


def test_opens_a_wids_index(tmp_path: Path) -> None:
    for shard in range(3):
        (tmp_path / f"{shard}.tar").write_bytes(make_tar(numbered(10 * shard, 10 * shard + 10)))
    index = {
        "__kind__": "wids-shard-index-v1",
        "wids_version": 1,
        "shardlist": [{"url": f"{i}.tar", "nsamples": 10} for i in (2, 0)],
    }
    (tmp_path / "wids.json").write_text(json.dumps(index))
    with open_dataset(tmp_path / "wids.json") as dataset:
        assert [s.key for s in dataset.shards] == ["2.tar", "0.tar"]
        assert len(dataset) == 20


def test_reads_what_webdataset_writes(tmp_path: Path) -> None:
    writer_of = pytest.importorskip("webdataset").TarWriter
    for name in ("a.tar", "b.tar.gz"):
        with writer_of(str(tmp_path / name)) as writer:
            for i in range(20):
                writer.write(
                    {"__key__": f"dir/{name}{i:03d}".replace(".", "_"), "txt": f"text {i}", "cls": i}
                )
    with open_dataset(tmp_path) as dataset:
        assert len(dataset) == 40
        assert [s["txt"] for s in dataset] == [f"text {i}".encode() for i in range(20)] * 2


def test_reports_a_compressed_tar_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(make_tar(numbered(0, 50)))[:-20])
    with pytest.raises(hr.CorruptError, match=r"a\.tar\.gz"):
        open_dataset(tmp_path)


def test_lenient_ends_a_shard_where_webdataset_does(tmp_path: Path) -> None:
    tar = make_tar(numbered(0, 3))
    (tmp_path / "a.tar").write_bytes(tar[: 2 * 512 + 512] + b"x" * 512 + tar[4 * 512 :])
    with pytest.raises(hr.CorruptError, match=r"a\.tar"):
        open_dataset(tmp_path)
    with open_dataset(tmp_path, lenient=True) as dataset:
        assert len(dataset) == 1


def write_energon(folder: Path, counts: list[int]) -> None:
    """Tars with what ``energon prepare`` leaves beside them: where samples begin, and the parts of the
    dataset."""
    begin = 0
    for i, count in enumerate(counts):
        content = make_tar(numbered(begin, begin + count), tarfile.PAX_FORMAT)
        (folder / f"{i}.tar").write_bytes(content)
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            # Members of a sample are neighbours; after them tar.offset is where the end mark begins.
            offsets = [member.offset for member in tar if member.name.endswith(".cls")]
            (folder / f"{i}.tar.idx").write_bytes(struct.pack(f"={count + 1}Q", *offsets, tar.offset))
        begin += count
    meta = folder / ".nv-meta"
    meta.mkdir()
    (meta / ".info.json").write_text(
        json.dumps({"shard_counts": {f"{i}.tar": count for i, count in enumerate(counts)}})
    )
    (meta / "split.yaml").write_text(
        "exclude:\n- 3.tar\nsplit_parts:\n  train:\n  - 2.tar\n  - '{0,3}.tar'\n  val:\n  - 1.tar\n  test: "
        "[]\n"
    )


def test_the_indexes_of_energon_spare_the_scan(tmp_path: Path) -> None:
    write_energon(tmp_path, [20, 30, 10, 5])
    with open_dataset(tmp_path) as dataset:
        assert [s["cls"] for s in dataset] == [str(i).encode() for i in range(65)]
        assert dataset[64]["bin"] == bytes([64]) * 448
        fingerprint = dataset.fingerprint
    for index in tmp_path.glob("*.idx"):
        index.unlink()
    with open_dataset(tmp_path) as dataset:
        assert dataset.fingerprint == fingerprint


def test_splits_of_energon(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    write_energon(tmp_path, [20, 30, 10, 5])
    with open_dataset(tmp_path, split="train") as dataset:
        assert [s["cls"] for s in dataset] == [str(i).encode() for i in [*range(50, 60), *range(20)]]
    with hr.Loader(tmp_path, batch_size=30, split="val", index_cache="") as loader:
        assert sorted(int(c) for batch in loader for c in batch["cls"]) == list(range(20, 50))
    with pytest.raises(hr.InvalidArgumentError, match="no tars in split 'test'"):
        open_dataset(tmp_path, split="test")
    with pytest.raises(hr.InvalidArgumentError, match="it has train, val, test"):
        open_dataset(tmp_path, split="dev")
    with pytest.raises(hr.NotFoundError, match="no split 'val'"):
        open_dataset(tmp_path, split="val", keys=["1.tar"])
    parts = {"split_parts": {"train": ["1.tar"]}, "exclude": ["1.tar/7"]}
    (tmp_path / ".nv-meta" / "split.yaml").unlink()
    with pytest.raises(hr.NotFoundError, match="no split 'train'"):
        open_dataset(tmp_path, split="train")
    for outside in ("../1.tar", "/etc/passwd", "file:///etc/passwd"):
        (tmp_path / ".nv-meta" / "split.json").write_text(json.dumps({"split_parts": {"train": [outside]}}))
        with pytest.raises(hr.InvalidArgumentError, match="outside"):
            open_dataset(tmp_path, split="train")
    (tmp_path / ".nv-meta" / "split.json").write_text(json.dumps(parts))
    with pytest.raises(hr.UnsupportedError, match="excludes single samples"):
        open_dataset(tmp_path, split="train")


def test_global_pax_headers_are_read_as_tarfile_reads_them(tmp_path: Path) -> None:
    def write(
        members: list[tuple[str, bytes, dict[str, str]]], pax_headers: dict[str, str]
    ) -> dict[str, bytes]:
        with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT, pax_headers=pax_headers) as tar:
            for name, data, own in members:
                info = tarfile.TarInfo(name)
                info.size, info.pax_headers = len(data), own
                tar.addfile(info, io.BytesIO(data))
        with tarfile.open(tmp_path / "a.tar") as tar:
            return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]

    for members, pax_headers in [
        ([("a.bin", b"1", {}), ("b.bin", b"22", {})], {"comment": "nothing that matters"}),
        ([("a.bin", b"1", {})], {"path": "other.bin"}),
        ([("a.bin", b"1", {"path": "x.bin"}), ("b.bin", b"22", {"path": "y.bin"})], {"path": "other.bin"}),
    ]:
        expected = write(members, pax_headers)
        with open_dataset(tmp_path) as dataset:
            assert {s["__key__"] + ".bin": s["bin"] for s in dataset} == expected
    write([("a.bin", b"1", {}), ("b.bin", b"22", {})], {"path": "other.bin"})
    with pytest.raises(hr.UnsupportedError, match="the path of this member is in a global pax header"):
        open_dataset(tmp_path)
