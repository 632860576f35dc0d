"""Datasets whose index.json is missing, empty or damaged, and shards without bytes: errors that say so, in
Python, `verify` and `pack`."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import app, main
from headrace.data.index import rebuild_index_json
from headrace.prepare import write

ROWS = [{"id": i, "text": f"row {i} " * (1 + i % 9)} for i in range(300)]
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda index: None,
    "empty": lambda index: b"",
    "last byte gone": lambda index: index[:-1],
    "half gone": lambda index: index[: len(index) // 2],
    "a quote turned": lambda index: index.replace(b'"', b"#", 1),
    "another list": lambda index: index.replace(b'"shards"', b'"shardz"').replace(b'"chunks"', b'"chunkz"'),
    "other bytes": lambda index: bytes(len(index)),
}


def write_mosaic(
    root: Path,
    compression: str | None = None,
    hashes: list[str] | None = None,
    columns: dict[str, str] | None = None,
) -> None:
    streaming = pytest.importorskip("streaming")
    names = columns or {"id": "int", "text": "str"}
    with streaming.MDSWriter(
        out=str(root), columns=names, size_limit=1 << 12, compression=compression, hashes=hashes or []
    ) as writer:
        for row in ROWS:
            writer.write({name: row[name] for name in names})


def write_lines(root: Path) -> None:
    streaming = pytest.importorskip("streaming")
    with streaming.JSONWriter(
        out=str(root), columns={"id": "int", "text": "str"}, size_limit=1 << 12
    ) as writer:
        for row in ROWS:
            writer.write(row)


def write_litdata(root: Path, compression: str = "") -> None:
    write(ROWS, root, format="litdata", shard_bytes="4KiB", compression=compression)


SETS: dict[str, Callable[[Path], None]] = {
    "mds": write_mosaic,
    "mds fixed": lambda root: write_mosaic(root, columns={"id": "int"}),
    "mds zstd": lambda root: write_mosaic(root, "zstd"),
    "mds br": lambda root: write_mosaic(root, "br"),
    "mds lines": write_lines,
    "litdata": write_litdata,
    "litdata zstd": lambda root: write_litdata(root, "zstd"),
}


@pytest.fixture(scope="module", params=SETS)
def good(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good") / "set"
    SETS[request.param](root)
    with hr.Dataset(root, index_cache="") as dataset:
        assert len(dataset) == len(ROWS)
    return root


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_dataset_without_a_sound_index_is_an_error(good: Path, tmp_path: Path, damage: str) -> None:
    root = tmp_path / "bad"
    shutil.copytree(good, root)
    index = root / "index.json"
    damaged = DAMAGES[damage](index.read_bytes())
    index.unlink()
    if damaged is not None:
        index.write_bytes(damaged)
    for use in (lambda: hr.Dataset(root), lambda: hr.Loader(root, batch_size=4, memory="16MiB")):
        with pytest.raises((hr.NotFoundError, hr.CorruptError), match=r"index\.json"):
            use()
    for command in (
        ["verify", str(root)],
        ["inspect", str(root)],
        ["pack", str(root), str(tmp_path / "out")],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 1, command
    assert not (tmp_path / "out").exists()
    with hr.Dataset(root, format="raw") as files:
        assert files.format == "raw"


def test_verify_says_it(tmp_path: Path) -> None:
    write_mosaic(tmp_path / "set")
    (tmp_path / "set" / "index.json").write_bytes(b"")
    report = hr.verify(tmp_path / "set")
    assert [problem.code for problem in report.problems] == ["corrupt"]
    assert "is empty" in report.problems[0].message


# --- rebuilding ---


@pytest.mark.parametrize("compression", [None, "zstd:5", "gz", "bz2", "br", "snappy"])
@pytest.mark.parametrize("hashes", [[], ["sha1", "xxh3_64"]])
def test_the_index_is_made_anew_as_it_was(tmp_path: Path, compression: str | None, hashes: list[str]) -> None:
    root = tmp_path / "set"
    write_mosaic(root, compression, hashes)
    whole = (root / "index.json").read_bytes()
    (root / "index.json").unlink()
    done = CliRunner().invoke(app, ["index", "--rebuild", str(root), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["samples"] == len(ROWS)
    assert (root / "index.json").read_bytes() == whole


def test_mosaic_reads_the_index_made_anew(tmp_path: Path) -> None:
    streaming = pytest.importorskip("streaming")
    root = tmp_path / "set"
    write_mosaic(root, None, ["sha1"])
    (root / "index.json").write_bytes(b"{")
    assert CliRunner().invoke(app, ["index", "--rebuild", str(root)]).exit_code == 0
    theirs = streaming.StreamingDataset(local=str(root), shuffle=False, batch_size=1, validate_hash="sha1")
    assert [theirs[i] for i in range(len(ROWS))] == ROWS
    with hr.Dataset(root) as ours:
        assert list(ours) == ROWS


def test_a_rebuild_is_of_whole_shards_alone(tmp_path: Path) -> None:
    root = tmp_path / "set"
    write_mosaic(root)
    done = CliRunner().invoke(app, ["index", "--rebuild", str(root)])
    assert done.exit_code != 0  # A sound index is not touched.
    (root / "index.json").unlink()
    second = root / "shard.00001.mds"
    content = second.read_bytes()
    second.write_bytes(content[:-1])
    with pytest.raises(hr.CorruptError, match=r"shard\.00001\.mds"):
        rebuild_index_json(root)
    second.write_bytes(b"")
    with pytest.raises(hr.CorruptError, match=r"shard\.00001\.mds"):
        rebuild_index_json(root)
    second.unlink()
    with pytest.raises(hr.NotFoundError, match=r"shard\.00001\.mds"):
        rebuild_index_json(root)
    assert not (root / "index.json").exists()
    rest = sorted(path.name for path in root.iterdir())
    rebuild_index_json(root, keys=rest)
    assert len(json.loads((root / "index.json").read_text())["shards"]) == len(rest)
    (root / "index.json").unlink()
    (tmp_path / "above").mkdir()
    shutil.move(root, tmp_path / "above" / "set")
    with pytest.raises(hr.NotFoundError, match="above/set"):
        rebuild_index_json(tmp_path / "above")


# --- shards without bytes ---


def _arrow(path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("id", pa.int64())])) as writer:
        writer.write(pa.record_batch([pa.array(range(10))], names=["id"]))


def _parquet(path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": range(10)}), path)


def _records(path: Path) -> None:
    write(ROWS[:10], path.parent / "made", format="tfrecord")
    shutil.move(next((path.parent / "made").glob("*.tfrecord")), path)
    shutil.rmtree(path.parent / "made")


def _csv(path: Path) -> None:
    path.write_text("id,text\n1,a\n2,b\n")


FILES: dict[str, Callable[[Path], Any]] = {
    "tfrecord": _records,
    "tfrecord.gz": lambda path: (_records(path), path.write_bytes(gzip.compress(path.read_bytes()))),
    "parquet": _parquet,
    "arrow": _arrow,
    "jsonl.gz": lambda path: path.write_bytes(gzip.compress(b'{"id": 1}\n{"id": 2}\n')),
    "npy": lambda path: np.save(path, np.arange(10)),
    "csv": _csv,
}


@pytest.fixture(params=FILES)
def shards(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Path]]:
    (tmp_path / "set").mkdir()
    paths = [tmp_path / "set" / f"part-{i}.{request.param}" for i in range(3)]
    for path in paths:
        FILES[request.param](path)
    return paths


def test_a_shard_without_bytes_is_an_error_that_names_it(shards: list[Path]) -> None:
    root = shards[0].parent
    with hr.Dataset(root, index_cache="") as dataset:
        assert len(dataset) > 0
        format = dataset.format
    for path in shards:
        content = path.read_bytes()
        path.write_bytes(b"")
        for chosen in ("auto", format):
            with pytest.raises(hr.CorruptError, match=path.name):
                hr.Dataset(root, format=chosen)
        report = hr.verify(root)
        assert not report.ok
        assert report.problems[0].key == path.name
        path.write_bytes(content)
    for path in shards:
        path.write_bytes(b"")
    with pytest.raises(hr.CorruptError, match=shards[0].name):
        hr.Dataset(root)


def test_an_empty_file_of_lines_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    (tmp_path / "b.jsonl").write_text("")
    with hr.Dataset(tmp_path) as dataset:
        assert [row["id"] for row in dataset] == [1, 2]
    assert hr.verify(tmp_path).ok
