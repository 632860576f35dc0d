"""The access log: what it says against what was read, and what it never says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import prepare
from headrace import sim as simulator
from headrace.cli import main

READER = Path(__file__).with_name("access_log_reader.py")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "access.jsonl"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Some shards of a few hundred bytes a sample."""
    path = tmp_path / "mds"
    prepare.write(
        ({"x": i, "data": bytes([i % 251]) * 300} for i in range(2000)),
        str(path),
        format="mds",
        shard_bytes="32KiB",
    )
    return path


def parse(text: str) -> list[dict[str, Any]]:
    assert not text or text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def lines(log: Path) -> list[dict[str, Any]]:
    return parse(log.read_text())


def read_for_ever(dataset: Path, log: str) -> None:
    with hr.Loader(str(dataset), batch_size=8, access_log=log) as loader:
        while True:
            for _ in loader:
                pass


def moved(entries: Sequence[dict[str, Any]], operation: str = "get") -> int:
    return sum(entry["bytes"] for entry in entries if entry["operation"] == operation)


def test_a_loader_records_every_byte(dataset: Path, log: Path) -> None:
    before = datetime.now(timezone.utc)
    with hr.Loader(str(dataset), batch_size=16, rank=3, world_size=4, access_log=log) as loader:
        for _ in loader:
            pass
        stats = loader.stats()
        shards = {f"{dataset}/{name}" for name in os.listdir(dataset) if name.endswith(".mds")}
    entries = lines(log)
    assert moved(entries) == stats["store.received_bytes"] > 0
    assert len(shards) > 10
    assert shards <= {entry["object"] for entry in entries if entry["operation"] == "get"}
    assert {entry["pid"] for entry in entries} == {os.getpid()}
    assert entries[-1]["rank"] == 3
    for entry in entries:
        assert (
            before
            <= datetime.strptime(entry["time"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
            <= datetime.now(timezone.utc)
        )
        assert entry["duration_us"] >= 0
        assert entry["operation"] != "get" or entry["bytes"] <= entry["length"]


def test_torch_and_dataset_take_it_too(dataset: Path, log: Path) -> None:
    with hr.Dataset(str(dataset), access_log=log) as data:
        assert data[7]["x"] == 7
    count = len(lines(log))
    assert count > 0
    torch = pytest.importorskip("headrace.torch")
    with torch.Loader(str(dataset), batch_size=16, access_log=log) as loader:
        next(iter(loader))
    assert len(lines(log)) > count


def test_a_store_records_every_call(s3: simulator.Server, log: Path) -> None:
    with hr.Store("s3://b", access_log=log) as store:
        version = store.put("k", b"12345").etag
        assert store.get("k") == b"12345"
        assert store.get_range("k", 1, 3) == b"234"
        assert not store.exists("missing")
        assert [info.key for info in store.list()] == ["k"]
        store.copy("k", "k2")
        store.delete("k2")
        assert store.delete_many(["k", "k3"]) == []
    entries = lines(log)
    assert [entry["operation"] for entry in entries] == [
        "put",
        "get",
        "get",
        "head",
        "list",
        "copy",
        "delete",
        "delete",
        "delete",
    ]
    assert entries[0]["object"] == "s3://b/k"
    assert entries[0]["version"] == entries[1]["version"] == version
    assert (entries[2]["offset"], entries[2]["length"], entries[2]["bytes"]) == (1, 3, 3)
    assert (entries[3]["object"], entries[3]["outcome"]) == ("s3://b/missing", "not_found")
    assert (entries[5]["object"], entries[5]["target"]) == ("s3://b/k", "s3://b/k2")
    assert "rank" not in entries[0]


def test_the_variable_is_the_default(
    dataset: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_ACCESS_LOG", str(log))
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with hr.Store(dataset) as store:
        store.get("index.json")
    assert [entry["rank"] for entry in lines(log)] == [5]
    with hr.Store(dataset, access_log="") as store:
        store.get("index.json")
    with hr.Store(dataset, access_log=tmp_path / "other") as store:
        store.get("index.json")
    assert len(lines(log)) == len(lines(tmp_path / "other")) == 1


def test_half_a_rank_is_not_recorded(dataset: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders refuse it where it would decide what they read; one that is given its rank does not ask."""
    monkeypatch.setenv("RANK", "5")
    with hr.Store(dataset, access_log=log) as store:
        store.get("index.json")
    assert ["rank" in entry for entry in lines(log)] == [False]
    with pytest.raises(hr.InvalidArgumentError, match="WORLD_SIZE is not"):
        hr.Loader(str(dataset), batch_size=10, access_log=log)
    with hr.Loader(str(dataset), batch_size=10, rank=1, world_size=2, access_log=log) as loader:
        next(iter(loader))
    assert {entry.get("rank") for entry in lines(log)} == {None, 1}


def test_the_rank_is_what_a_loader_would_take(
    dataset: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    with hr.Store(dataset, access_log=log) as store:
        store.get("index.json")
    assert [entry["rank"] for entry in lines(log)] == [3]


def test_mixtures_record_the_sources(dataset: Path, log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    prepare.write(({"x": i, "data": b"o"} for i in range(100)), str(other), format="mds")
    mixture = hr.Mixture({"a": (str(dataset), 0.5), "b": (str(other), 0.5)}, access_log=str(log))
    with hr.Loader(mixture, batch_size=10, rank=1, world_size=2) as loader:
        next(iter(loader))
    mixture.close()
    read = {entry["object"].rpartition("/")[0] for entry in lines(log) if entry["operation"] == "get"}
    assert {str(dataset), str(other)} <= read
    assert 1 in {entry.get("rank") for entry in lines(log)}


def test_no_signature_is_written(
    s3: simulator.Server, log: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with hr.Store("s3://b", access_log=log) as store:
        store.put("k", b"12345")
        url = store.presign("k")
    assert "X-Amz-Signature" in url
    with pytest.raises(SystemExit) as ended:
        main(["cat", url, "--access-log", str(log)])
    assert ended.value.code == 0
    assert capfdbinary.readouterr().out == b"12345"
    text = log.read_text()
    assert f'"object":"{url.partition("?")[0]}"' in text
    for secret in (
        "Signature",
        "?",
        s3.environment()["AWS_SECRET_ACCESS_KEY"],
        s3.environment()["AWS_ACCESS_KEY_ID"],
    ):
        assert secret not in text


@pytest.mark.parametrize(
    "command",
    [
        ["verify", "DATASET"],
        ["index", "DATASET", "--output", "OUT"],
        ["manifest", "create", "DATASET", "--output", "OUT"],
        ["diff", "DATASET", "DATASET"],
        ["pack", "DATASET", "OUT", "--format", "webdataset"],
        ["cat", "DATASET/index.json"],
        ["cp", "-r", "s3://b/mds", "OUT"],
        ["sync", "DATASET", "s3://b/copy"],
    ],
    ids=lambda words: words[0],
)
def test_commands_take_it(
    command: list[str], dataset: Path, log: Path, tmp_path: Path, s3: simulator.Server
) -> None:
    with hr.Store("s3://b/mds") as store:
        for path in dataset.iterdir():
            store.put(path.name, path)
    words = [word.replace("DATASET", str(dataset)).replace("OUT", str(tmp_path / "out")) for word in command]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--access-log", str(log)])
    assert ended.value.code == 0
    entries = lines(log)
    assert moved(entries, "put" if command[0] == "sync" else "get") > 0
    if command[0] in ("cp", "sync"):
        assert {entry["object"].partition("://")[0] for entry in entries} == {"s3"}
        assert moved(entries, "put" if command[0] == "sync" else "get") == sum(
            p.stat().st_size for p in dataset.iterdir()
        )


def test_a_log_that_cannot_be_written_ends_the_job(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(hr.NotFoundError, match=r"access log .*/missing/log"):
        hr.Store(dataset, access_log=tmp_path / "missing" / "log")
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("no /dev/full here")
    store = hr.Store(dataset, access_log="/dev/full")
    store.get("index.json")
    with pytest.raises(hr.ExhaustedError, match=r"access log /dev/full.*ENOSPC"):
        store.close()
    assert store.closed
    with pytest.raises(hr.ExhaustedError, match="access log /dev/full"):
        read_for_ever(dataset, "/dev/full")


def test_killed_readers_leave_whole_lines(dataset: Path, log: Path) -> None:
    """Two processes share a file and are killed when what they have read must be in it, within about a second
    and without close()."""
    hr.Dataset(str(dataset)).close()  # The index, once.
    command = [sys.executable, str(READER), str(dataset), str(log)]
    readers = [
        subprocess.Popen([*command, str(rank), "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    received = 0
    for reader in readers:
        assert reader.stdout is not None
        received += int(reader.stdout.readline())
    # One look at a time: a line may be under way.
    while (
        not (text := log.read_text() if log.exists() else "").endswith("\n") or moved(parse(text)) < received
    ):
        assert all(reader.poll() is None for reader in readers)
    for reader in readers:
        reader.kill()
        reader.communicate()
    entries = lines(log)
    assert moved(entries) == received
    assert {0, 1} <= {entry.get("rank") for entry in entries}
    with log.open("a") as file:
        file.write('{"time":"20')  # What a kill in the middle of a write leaves.
    with hr.Store(dataset, access_log=log) as store:
        store.get("index.json")
    *whole, torn, last = log.read_text().splitlines()
    assert len(whole) == len(entries)
    assert torn == '{"time":"20'
    assert json.loads(last)["operation"] == "get"


def test_neighbours_are_read_together(dataset: Path, log: Path) -> None:
    with hr.Dataset(str(dataset), access_log=log) as data:
        for positions in (range(500, 1500), range(1499, 499, -1), [7, 7, 8, 3, 4, 5, 4], range(0, 2000, 7)):
            assert [(int(s["x"]), s["data"]) for s in data.read(positions)] == [
                (i, bytes([i % 251]) * 300) for i in positions
            ]
    reads = [entry for entry in lines(log) if entry["operation"] == "get" and ".mds" in entry["object"]]
    assert max(entry["bytes"] for entry in reads) > 10_000
    log.unlink()
    with hr.Dataset(str(dataset), access_log=log) as data:
        data.read(range(500, 1500))
    reads = [entry for entry in lines(log) if entry["operation"] == "get" and ".mds" in entry["object"]]
    assert len(reads) < 100, "a request a sample"
    assert moved(reads) < 400_000


def test_a_conversion_through_python_reads_each_byte_once(dataset: Path, log: Path, tmp_path: Path) -> None:
    prepare.convert(
        dataset,
        tmp_path / "target",
        format="parquet",
        source_options={"access_log": log},
        shard_bytes="200KiB",
    )
    reads = [entry for entry in lines(log) if entry["operation"] == "get" and "shard." in entry["object"]]
    assert len(reads) < 200, "a request a sample"
    with hr.Dataset(tmp_path / "target", index_cache="") as data:
        assert [int(s["x"]) for s in data] == list(range(2000))
