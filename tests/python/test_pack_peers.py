"""Packed datasets as other packages read them."""

from __future__ import annotations

import json
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace import prepare
from headrace.cli import app


def pack(*arguments: object) -> None:
    result = CliRunner().invoke(app, ["pack", *map(str, arguments)])
    assert result.exit_code == 0, result.output


@pytest.fixture
def files(tmp_path: Path) -> dict[str, bytes]:
    """Files of assorted names and sizes below ``tmp_path / "source"``, by key in byte order."""
    rng = random.Random(5)
    names = [f"d{i % 3}/file{i}.bin" for i in range(40)] + [
        "Makefile",
        "d1/a.jpg",
        "d1/a.cls",
        "d1/long" + "x" * 150,
        "é/ü.txt",
    ]
    content = {name: rng.randbytes(rng.choice([0, 1, 100, 5000])) for name in names}
    for name, data in content.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return dict(sorted(content.items(), key=lambda item: item[0].encode()))


def read_mds(path: Path) -> Any:
    streaming = pytest.importorskip("streaming")
    return streaming.StreamingDataset(local=str(path), shuffle=False, batch_size=1, validate_hash=None)


@pytest.mark.parametrize("hashes", [[], ["sha1"], ["xxh64"]])
def test_mds_is_byte_for_byte_that_of_the_reference_writer(
    tmp_path: Path, files: dict[str, bytes], hashes: list[str]
) -> None:
    streaming = pytest.importorskip("streaming")
    columns = {"data": "bytes", "key": "str"}
    with streaming.MDSWriter(
        out=str(tmp_path / "reference"), columns=columns, size_limit=16384, hashes=hashes
    ) as writer:
        for key, data in files.items():
            writer.write({"data": data, "key": key})
    pack(
        tmp_path / "source",
        tmp_path / "ours",
        "--shard-bytes",
        "16384",
        *[a for name in hashes for a in ("--hash", name)],
    )
    reference = {p.name: p.read_bytes() for p in (tmp_path / "reference").iterdir()}
    ours = {p.name: p.read_bytes() for p in (tmp_path / "ours").iterdir() if not p.name.startswith(".")}
    assert len(reference) > 3
    assert ours == reference


def test_images_of_a_program_are_those_of_the_reference_writer(tmp_path: Path) -> None:
    streaming, image = pytest.importorskip("streaming"), pytest.importorskip("PIL.Image")
    pixels = np.arange(16 * 9 * 3, dtype=np.uint8).reshape(9, 16, 3)
    image.fromarray(pixels).save(tmp_path / "opened.jpg", quality=30)
    columns = {"a": "jpeg", "b": "jpeg", "c": "png", "d": "pil", "e": "ndarray"}
    with image.open(tmp_path / "opened.jpg") as opened:
        sample = {
            "a": opened,
            "b": image.fromarray(pixels),
            "c": opened,
            "d": image.fromarray(pixels[:, :, 0]),
            "e": pixels,
        }
        with streaming.MDSWriter(out=str(tmp_path / "reference"), columns=columns) as writer:
            writer.write(sample)
        prepare.write([sample], tmp_path / "ours", columns=columns)
    for name in ("index.json", "shard.00000.mds"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "reference" / name).read_bytes()


@pytest.mark.parametrize("compression", ["", "zstd", "zstd:9"])
def test_mosaic_reads_every_file(tmp_path: Path, files: dict[str, bytes], compression: str) -> None:
    pack(
        tmp_path / "source",
        tmp_path / "ours",
        "--shard-bytes",
        "16384",
        "--compression",
        compression,
        "--hash",
        "sha256",
    )
    assert {s["key"]: s["data"] for s in read_mds(tmp_path / "ours")} == files


def test_mosaic_reads_the_tokens(tmp_path: Path, files: dict[str, bytes]) -> None:
    pack(tmp_path / "source", tmp_path / "ours", "--shard-bytes", "16384", "--tokens", "100")
    stream = [token for data in files.values() for token in [*data, 256]]
    samples = [list(s["tokens"]) for s in read_mds(tmp_path / "ours")]
    assert samples == [stream[i : i + 100] for i in range(0, len(stream) - 99, 100)]


def test_webdataset_reads_one_sample_a_file(tmp_path: Path, files: dict[str, bytes]) -> None:
    wds = pytest.importorskip("webdataset")
    pack(tmp_path / "source", tmp_path / "ours", "--shard-bytes", "65536", "--format", "webdataset")
    urls = sorted(map(str, (tmp_path / "ours").glob("shard-*.tar")))
    assert len(urls) > 1
    samples = list(wds.WebDataset(urls, shardshuffle=False))
    assert [(s["key.txt"].decode(), s["data"]) for s in samples] == list(files.items())


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_webdataset_reads_pairs_as_samples(tmp_path: Path, compression: str) -> None:
    wds = pytest.importorskip("webdataset")
    (tmp_path / "source" / "d").mkdir(parents=True)
    for i in range(50):
        (tmp_path / "source" / "d" / f"x{i:02d}.jpg").write_bytes(bytes([i]) * 3000)
        (tmp_path / "source" / "d" / f"x{i:02d}.json").write_text(json.dumps({"label": i}))
    pack(
        tmp_path / "source",
        tmp_path / "ours",
        "--shard-bytes",
        "20000",
        "--format",
        "webdataset",
        "--compression",
        compression,
    )
    urls = sorted(map(str, (tmp_path / "ours").glob("shard-*.tar*")))
    assert len(urls) > 1
    samples = [
        (s["__key__"], s["jpg"], json.loads(s["json"])) for s in wds.WebDataset(urls, shardshuffle=False)
    ]
    assert samples == [(f"d/x{i:02d}", bytes([i]) * 3000, {"label": i}) for i in range(50)]
    with hr.Dataset(tmp_path / "ours") as dataset:
        assert [(s["__key__"], s["jpg"]) for s in dataset] == [(key, jpg) for key, jpg, _ in samples]


@pytest.mark.parametrize(
    ("name", "member"), [("image", "image.jpg"), ("jpg", "jpg"), ("thumb.jpeg", "thumb.jpeg")]
)
def test_webdataset_decodes_images_of_a_dataset(tmp_path: Path, name: str, member: str) -> None:
    wds = pytest.importorskip("webdataset")
    image = pytest.importorskip("PIL.Image")
    pixels = np.full((8, 8, 3), 128, np.uint8)
    prepare.write([{name: image.fromarray(pixels)}] * 3, tmp_path / "mds", columns={name: "jpeg"})
    prepare.convert(tmp_path / "mds", tmp_path / "tars", format="webdataset")
    url = str(next((tmp_path / "tars").glob("*.tar")))
    samples = list(wds.WebDataset(url, shardshuffle=False).decode("rgb8"))
    assert [s[member].shape for s in samples] == [(8, 8, 3)] * 3


def test_webdataset_keeps_names_that_group_one_to_one(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")
    long_name = "/".join(["directory" * 6] * 6) + "/picture.jpg"
    for name in ["a/1.jpg", "a/2.JPG", long_name]:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(name.encode())
    pack(tmp_path / "source", tmp_path / "ours", "--format", "webdataset")
    shard = tmp_path / "ours" / "shard-000000.tar"
    with tarfile.open(shard) as tar:
        assert tar.getnames() == ["a/1.jpg", "a/2.JPG", long_name]
    samples = list(wds.WebDataset(str(shard), shardshuffle=False))
    assert [s["jpg"].decode() for s in samples] == ["a/1.jpg", "a/2.JPG", long_name]
