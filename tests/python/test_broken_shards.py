"""Broken shards: what cannot be indexed is named, all of it, and left out only where that was asked for."""

from __future__ import annotations

import gzip
import io
import json
import logging
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_tokens_numpy import write_megatron

import headrace as hr
from headrace import prepare
from headrace import sim as simulator

SHARDS = 5
EACH = 20
BROKEN = (1, 3)
BLAMED = (hr.CorruptError, hr.UnsupportedError)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *map(str, arguments)], capture_output=True, text=True
    )


def rows(shard: int) -> list[dict[str, Any]]:
    return [{"x": 1000 * shard + i, "t": f"text {i} " * 9} for i in range(EACH)]


def write_tar(path: Path, shard: int) -> None:
    with tarfile.open(path, "w") as tar:
        for row in rows(shard):
            data = json.dumps(row).encode()
            info = tarfile.TarInfo(f"{row['x']:06d}.json")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def write_lines(path: Path, shard: int) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(shard)))


def write_parquet(path: Path, shard: int) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(rows(shard)), path)


def write_arrow(path: Path, shard: int) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.Table.from_pylist(rows(shard))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write_records(path: Path, shard: int) -> None:
    made = path.with_suffix(".made")
    prepare.write(rows(shard), made, format="tfrecord")
    next(made.glob("*.tfrecord*")).rename(path)
    for rest in [*made.rglob("*")]:
        if rest.is_file():
            rest.unlink()
    for folder in sorted((p for p in made.rglob("*")), reverse=True):
        folder.rmdir()
    made.rmdir()


def write_gzip_table(path: Path, shard: int) -> None:
    lines = ["x,t\n", *(f"{row['x']},{row['t']}\n" for row in rows(shard))]
    path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def write_gzip_lines(path: Path, shard: int) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows(shard)).encode(), mtime=0))


def write_array_records(path: Path, shard: int) -> None:
    module = pytest.importorskip("array_record.python.array_record_module")
    writer = module.ArrayRecordWriter(str(path), "group_size:1")
    for row in rows(shard):
        writer.write(json.dumps(row).encode())
    writer.close()


def write_arrays(path: Path, shard: int) -> None:
    np.savez(path, x=np.array([row["x"] for row in rows(shard)]))


WRITERS: dict[str, tuple[Callable[[Path, int], None], str]] = {
    "webdataset": (write_tar, "tar"),
    "text": (write_lines, "jsonl"),
    "parquet": (write_parquet, "parquet"),
    "arrow": (write_arrow, "arrow"),
    "tfrecord": (write_records, "tfrecord"),
    "csv": (write_gzip_table, "csv.gz"),
    "zipped lines": (write_gzip_lines, "jsonl.gz"),
    "arrayrecord": (write_array_records, "array_record"),
    "npz": (write_arrays, "npz"),
}


def cut_off(path: Path) -> None:
    """As an upload that was killed leaves it."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3 + 1])


def write_set(root: Path, format: str) -> list[Path]:
    root.mkdir()
    write, ending = WRITERS[format]
    paths = [root / f"{i}.{ending}" for i in range(SHARDS)]
    for i, path in enumerate(paths):
        write(path, i)
    return paths


def x_of(sample: Any) -> int:
    found = next(sample[name] for name in ("x", "json", "record") if name in sample)
    if isinstance(found, (bytes, str)):
        found = json.loads(found)
    if isinstance(found, dict):
        found = found["x"]
    return int(found[0] if hasattr(found, "__len__") else found)


def xs_of(batch: Any) -> list[int]:
    column = next(batch[name] for name in ("x", "json", "record") if name in batch)
    return [x_of({"x": value}) for value in column]


WHOLE = [1000 * s + i for s in range(SHARDS) for i in range(EACH)]
LEFT = [1000 * s + i for s in range(SHARDS) if s not in BROKEN for i in range(EACH)]


@pytest.fixture(params=list(WRITERS))
def broken_set(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, list[Path]]:
    paths = write_set(tmp_path / "set", request.param)
    for i in BROKEN:
        cut_off(paths[i])
    return request.param, tmp_path / "set", paths


def test_the_error_names_every_broken_shard_and_what_to_do(broken_set: Any) -> None:
    _, root, paths = broken_set
    with pytest.raises(BLAMED) as caught:
        hr.Dataset(root, index_cache="")
    text = str(caught.value)
    for i, path in enumerate(paths):
        assert (path.name in text) == (i in BROKEN)
    assert 'on_bad_sample="replace"' in text
    assert "--quarantine" in text
    assert "2 of 5" in text


def test_a_set_goes_on_without_them_as_another_set(
    broken_set: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    format, root, paths = broken_set
    whole = write_set(tmp_path / "whole", format)[0].parent
    with caplog.at_level(logging.WARNING, "headrace"):
        dataset = hr.Dataset(root, index_cache="", on_broken_shard="leave_out")
    with dataset:
        assert [x_of(s) for s in dataset] == LEFT
        assert [(s.key, s.size, s.sample_count) for s in dataset.broken_shards] == [
            (paths[i].name, paths[i].stat().st_size, 0) for i in BROKEN
        ]
        (record,) = caplog.records
        assert all(paths[i].name in record.getMessage() for i in BROKEN)
        with hr.Dataset(whole, index_cache="") as all_of_it:
            assert all_of_it.broken_shards == []
            assert dataset.fingerprint != all_of_it.fingerprint
        for i in BROKEN:
            paths[i].unlink()
        # Those that are whole, alone, are another set, too: nobody left anything out of it.
        with hr.Dataset(root, index_cache="") as alone:
            assert [x_of(s) for s in alone] == LEFT
            assert dataset.fingerprint != alone.fingerprint


def test_loaders_replace_and_states_do_not_cross(broken_set: Any, tmp_path: Path) -> None:
    format, root, _ = broken_set
    whole = write_set(tmp_path / "whole", format)[0].parent
    with pytest.raises(BLAMED):
        hr.Loader(root, batch_size=4, index_cache="", memory="64MiB")
    options: dict[str, Any] = {"batch_size": 4, "index_cache": "", "memory": "64MiB", "seed": 3}
    with (
        hr.Loader(root, on_bad_sample="replace", **options) as loader,
        hr.Loader(whole, on_bad_sample="replace", **options) as all_of_it,
    ):
        assert loader.stats()["loader.broken_shards"] == 2
        assert all_of_it.stats()["loader.broken_shards"] == 0
        seen = []
        batches = iter(loader)
        for _ in range(5):
            batch = next(batches)
            seen += xs_of(batch)
        state = loader.state_dict()
        assert state["broken_shards"] == 2
        assert len(json.dumps(state)) < 1024
        next(iter(all_of_it))
        with pytest.raises(hr.InvalidArgumentError, match="without 2 broken shards, this one is without 0"):
            all_of_it.load_state_dict(state)
        with pytest.raises(hr.InvalidArgumentError, match="without 0 broken shards, this one is without 2"):
            loader.load_state_dict(all_of_it.state_dict())
    with hr.Loader(root, on_bad_sample="replace", rank=0, world_size=1, **options) as again:
        again.load_state_dict(state)
        for batch in again:
            seen += xs_of(batch)
    assert sorted(seen) == LEFT


def test_verify_names_each_and_its_list_is_what_loaders_go_on_with(broken_set: Any, tmp_path: Path) -> None:
    _, root, paths = broken_set
    listed = tmp_path / "bad.jsonl"
    done = run("verify", root, "--quarantine", listed)
    assert done.returncode == 1
    out = done.stdout.replace("\n", " ")
    for i in BROKEN:
        assert f"{paths[i].name}: " in out
    assert "60 of 60 samples good" in out
    assert [json.loads(line)["key"] for line in listed.read_text().splitlines()] == [
        paths[i].name for i in BROKEN
    ]
    options: dict[str, Any] = {"batch_size": 4, "index_cache": "", "memory": "64MiB"}
    with hr.Loader(root, quarantine=listed, **options) as loader:
        assert len(list(loader)) == 15
    cut_off(paths[4])
    with pytest.raises(
        hr.CorruptError, match=rf"1 broken shard that quarantine= does not name: {paths[4].name}"
    ):
        hr.Loader(root, quarantine=listed, **options)


def test_a_repaired_shard_is_back(broken_set: Any, tmp_path: Path) -> None:
    format, root, paths = broken_set
    cache = tmp_path / "cache"
    for _ in range(2):
        with hr.Dataset(root, index_cache=cache, on_broken_shard="leave_out") as dataset:
            assert len(dataset) == len(LEFT)
    # The index of the reduced set is not that of whoever wants the whole.
    with pytest.raises(BLAMED):
        hr.Dataset(root, index_cache=cache)
    hr.data.index.write_index(root, index_cache="", on_broken_shard="leave_out")
    with pytest.raises(BLAMED):
        hr.Dataset(root, index_cache="")
    with hr.Dataset(root, index_cache="", on_broken_shard="leave_out") as dataset:
        assert len(dataset) == len(LEFT)
    for i in BROKEN:
        WRITERS[format][0](paths[i], i)
    for how in ("leave_out", "raise"):
        with hr.Dataset(root, index_cache=cache, on_broken_shard=how) as dataset:
            assert [x_of(s) for s in dataset] == WHOLE
            assert dataset.broken_shards == []


def test_where_nothing_is_whole_it_is_an_error(broken_set: Any) -> None:
    _, root, paths = broken_set
    for i in set(range(SHARDS)) - set(BROKEN):
        cut_off(paths[i])
    for how in ("raise", "leave_out"):
        with pytest.raises(hr.HeadraceError, match="no other was found whole"):
            hr.Dataset(root, index_cache="", on_broken_shard=how)


def test_inspect_says_what_is_missing(tmp_path: Path) -> None:
    paths = write_set(tmp_path / "set", "webdataset")
    cut_off(paths[2])
    done = run("inspect", tmp_path / "set", "--json")
    assert done.returncode == 0, done.stderr
    (broken,) = json.loads(done.stdout)["broken_shards"]
    assert (broken["key"], broken["code"]) == ("2.tar", "corrupt")
    assert "2.tar" in run("inspect", tmp_path / "set").stdout


def test_an_empty_shard_is_a_broken_one(tmp_path: Path) -> None:
    paths = write_set(tmp_path / "set", "webdataset")
    paths[0].write_bytes(b"")
    with hr.Dataset(tmp_path / "set", index_cache="", on_broken_shard="leave_out") as dataset:
        assert [s.key for s in dataset.broken_shards] == ["0.tar"]
        assert len(dataset) == 80


@pytest.mark.parametrize("format", ["mds", "litdata"])
@pytest.mark.parametrize("damage", ["cut", "table"])
def test_shards_of_a_manifest_keep_their_positions(
    tmp_path: Path, format: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "set"
    made = [row for s in range(SHARDS) for row in rows(s)]
    prepare.write(made, root, format=format, shard_bytes=2048)
    with hr.Dataset(root, index_cache="") as dataset:
        shard = dataset.shards[1]
        count = len(dataset.shards)
        whole = dataset.fingerprint
    assert count > 3
    path = root / shard.key
    if damage == "cut":
        cut_off(path)
    else:
        data = bytearray(path.read_bytes())
        data[4:8] = b"\xff\xff\xff\x7f"
        path.write_bytes(data)
    with pytest.raises(hr.CorruptError, match=f"{shard.key}.*broken: 1 of {count}"):
        hr.Dataset(root, index_cache="")
    bad = range(shard.first_sample, shard.first_sample + shard.sample_count)
    with hr.Dataset(root, index_cache="", on_broken_shard="leave_out") as dataset:
        assert len(dataset) == len(made)
        assert dataset.fingerprint != whole
        (broken,) = dataset.broken_shards
        assert (broken.key, broken.first_sample, broken.sample_count) == (shard.key, bad.start, len(bad))
        good = [i for i in range(len(made)) if i not in bad]
        assert [int(s["x"]) for s in dataset.read(good)] == [made[i]["x"] for i in good]
        with pytest.raises(hr.CorruptError, match="its shard is broken"):
            dataset[bad.start]
    report = hr.verify(root)
    assert [(p.key, p.position, p.samples) for p in report.problems] == [(shard.key, bad.start, len(bad))]
    assert report.samples_ok == len(good)
    assert f"samples {bad.start} to {bad.stop - 1}: " in run("verify", root).stdout.replace("\n", " ")
    with hr.Loader(
        root, batch_size=4, index_cache="", on_bad_sample="replace", memory="64MiB", epoch_end="uneven"
    ) as loader:
        ids, planned = [], 0
        for batch in loader:
            ids += batch.ids.tolist()
            planned += len(batch.replaced)
        assert len(ids) == len(made)
        assert planned == len(bad)
        assert not set(ids) & set(bad)
        assert set(good) <= set(ids)
        assert loader.bad_samples == []
        assert loader.state_dict()["broken_shards"] == 1


def test_files_of_a_folder_are_never_broken(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"{i}.bin").write_bytes(b"" if i == 2 else b"x" * i)
    with hr.Dataset(tmp_path, index_cache="", on_broken_shard="leave_out") as dataset:
        assert len(dataset) == 4
        assert dataset.broken_shards == []


def test_what_a_store_does_makes_no_shard_broken(buckets: Path, s3: simulator.Server) -> None:
    write_set(buckets / "b" / "set", "webdataset")
    s3.set_behaviour(error_rate=1.0)
    with pytest.raises(hr.HeadraceError) as caught:
        hr.Dataset("s3://b/set", on_broken_shard="leave_out", index_cache="", timeout=2.0)
    assert not isinstance(caught.value, (hr.CorruptError, hr.UnsupportedError))


def test_a_list_of_positions_without_a_shard_is_refused_elsewhere(tmp_path: Path) -> None:
    paths = write_set(tmp_path / "set", "tfrecord")
    cut_off(paths[0])
    data = bytearray(paths[2].read_bytes())
    data[-20] ^= 1
    paths[2].write_bytes(data)
    listed = tmp_path / "bad.jsonl"
    assert run("verify", tmp_path / "set", "--quarantine", listed).returncode == 1
    lines = [json.loads(line) for line in listed.read_text().splitlines()]
    assert {line["key"] for line in lines} == {"0.tfrecord", "2.tfrecord"}
    with hr.Dataset(tmp_path / "set", index_cache="", on_broken_shard="leave_out") as dataset:
        fingerprint = dataset.fingerprint
    row = {"key": "", "position": 3, "samples": 1, "code": "corrupt", "fingerprint": fingerprint}
    listed.write_text(json.dumps(row) + "\n")
    options: dict[str, Any] = {"batch_size": 2, "index_cache": "", "memory": "64MiB"}
    with hr.Loader(tmp_path / "set", on_bad_sample="replace", quarantine=listed, **options) as loader:
        assert loader.stats()["loader.broken_shards"] == 2
    write_records(paths[0], 0)
    write_records(paths[2], 2)
    with pytest.raises(hr.InvalidArgumentError, match="lacked broken shards"):
        hr.Loader(tmp_path / "set", on_bad_sample="replace", quarantine=listed, **options)


def test_a_flip_on_the_wire_breaks_nothing(buckets: Path, s3: simulator.Server, tmp_path: Path) -> None:
    paths = write_set(buckets / "b" / "set", "tfrecord")
    cache = tmp_path / "cache"
    options: dict[str, Any] = {"on_broken_shard": "leave_out", "memory": "64MiB"}
    s3.set_behaviour(corrupt_rate=0.2)
    for index_cache in ["", "", "", "", cache, cache]:
        with hr.Dataset("s3://b/set", index_cache=index_cache, **options) as dataset:
            assert dataset.broken_shards == []
            assert [x_of(s) for s in dataset] == WHOLE
    cut_off(paths[2])
    for index_cache in ["", "", "", "", cache, cache]:
        with hr.Dataset("s3://b/set", index_cache=index_cache, **options) as dataset:
            assert [s.key for s in dataset.broken_shards] == ["2.tfrecord"]
            assert len(dataset) == len(WHOLE) - EACH


def test_token_files_go_on_without_the_first(tmp_path: Path) -> None:
    for i in range(3):
        write_megatron(tmp_path / f"{i}", [np.arange(4 + k, dtype=np.uint16) + 100 * i for k in range(6)])
    (tmp_path / "0.idx").write_bytes((tmp_path / "0.idx").read_bytes()[:40])
    with pytest.raises(hr.CorruptError, match="broken: 1 of 3"):
        hr.Dataset(tmp_path, index_cache="")
    with hr.Dataset(tmp_path, index_cache="", on_broken_shard="leave_out") as dataset:
        assert [s.key for s in dataset.broken_shards] == ["0.bin"]
        assert [s["tokens"].tolist() for s in dataset] == [
            (np.arange(4 + k) + 100 * i).tolist() for i in (1, 2) for k in range(6)
        ]


@pytest.mark.parametrize("form", ["fixed", "zstd"])
def test_mds_of_other_forms_keep_their_positions(tmp_path: Path, form: str) -> None:
    made = [{"x": i} if form == "fixed" else {"x": i, "t": f"text {i}" * 9} for i in range(200)]
    prepare.write(made, tmp_path, shard_bytes=512, compression="" if form == "fixed" else "zstd")
    with hr.Dataset(tmp_path, index_cache="") as dataset:
        shard = dataset.shards[0]
    cut_off(tmp_path / shard.key)
    with hr.Loader(tmp_path, batch_size=5, index_cache="", on_bad_sample="replace", memory="64MiB") as loader:
        ids = [i for batch in loader for i in batch.ids.tolist()]
    assert len(ids) == 200
    assert min(ids) == shard.sample_count


def test_lenient_says_what_it_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tars, records = write_set(tmp_path / "tars", "webdataset"), write_set(tmp_path / "records", "tfrecord")
    tars[3].write_bytes(tars[3].read_bytes() + b"more")
    records[1].write_bytes(records[1].read_bytes()[:-7])
    for root, keys in ((tmp_path / "tars", ["3.tar"]), (tmp_path / "records", ["1.tfrecord"])):
        with caplog.at_level(logging.WARNING, "headrace"):
            caplog.clear()
            with hr.Dataset(root, lenient=True, index_cache="") as dataset:
                assert [end.key for end in dataset.cut_ends] == keys
                cut = dataset.cut_ends[0].bytes
                assert dataset.broken_shards == []
            assert f"{cut:,} of {keys[0]}" in caplog.text
        assert cut == 4 if root.name == "tars" else 7 < cut < 400
        done = run("verify", root, "--lenient")
        assert f"{keys[0]}: its last {cut} bytes were passed over" in done.stdout.replace("\n", " ")
        assert done.returncode == 0
    with hr.Dataset(tmp_path / "tars", lenient=True, index_cache="") as dataset:
        assert len(dataset) == len(WHOLE)


def test_a_list_holds_for_an_index_from_before_the_damage(tmp_path: Path) -> None:
    root = tmp_path / "set"
    made = [row for s in range(SHARDS) for row in rows(s)]
    prepare.write(made, root, shard_bytes=2048)
    hr.data.index.write_index(root)
    options: dict[str, Any] = {"batch_size": 4, "index_cache": "", "memory": "64MiB", "seed": 1}
    with hr.Loader(root, **options) as loader:
        batches = iter(loader)
        ids = [i for _ in range(5) for i in next(batches).ids.tolist()]
        state = loader.state_dict()
    with hr.Dataset(root, index_cache="") as dataset:
        shard = dataset.shards[1]
    cut_off(root / shard.key)
    listed = tmp_path / "bad.jsonl"
    assert run("verify", root, "--quarantine", listed).returncode == 1
    with hr.Loader(root, quarantine=listed, **options) as loader:  # By the index beside it: the whole.
        assert loader.stats()["loader.broken_shards"] == 0
        loader.load_state_dict(state)
        for batch in loader:
            ids += batch.ids.tolist()
    bad = set(range(shard.first_sample, shard.first_sample + shard.sample_count))
    assert len(ids) == len(made)
    assert set(range(len(made))) - bad <= set(ids)
    (root / "index.hri").unlink()  # And without: the positions are the same.
    with hr.Loader(root, quarantine=listed, **options) as loader:
        assert loader.stats()["loader.broken_shards"] == 1
        assert not bad & {i for batch in loader for i in batch.ids.tolist()}
