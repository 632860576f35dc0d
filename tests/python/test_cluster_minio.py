"""A real MinIO as the hot tier in front of a simulated store: filled once by all, and killed in mid-epoch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import where

import headrace as hr
from headrace import prepare
from headrace import sim as simulator

CACHE = Path(os.environ.get("HEADRACE_CACHE", Path.home() / ".cache" / "headrace"))
SAMPLES = 3000


class Minio:
    """A server of its own, with a bucket that keeps every version."""

    def __init__(self, directory: Path) -> None:
        self.binary = CACHE / "bin" / "minio"
        if not self.binary.exists():
            pytest.skip("MinIO is missing: run tools/setup slow")
        self.boto3 = pytest.importorskip("boto3")
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.start()
        self.client().create_bucket(Bucket="hot")
        self.client().put_bucket_versioning(Bucket="hot", VersioningConfiguration={"Status": "Enabled"})

    def start(self) -> None:
        keys = {"MINIO_ROOT_USER": "test", "MINIO_ROOT_PASSWORD": "testtest", "MINIO_BROWSER": "off"}
        command = [self.binary, "server", self.directory, "--address", f"127.0.0.1:{self.port}", "--quiet"]
        self.process = subprocess.Popen(
            command, env={**os.environ, **keys}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not self.is_ready():
            assert self.process.poll() is None, f"MinIO ended with {self.process.returncode}"

    def is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.endpoint}/minio/health/ready", timeout=10).close()
        except (urllib.error.URLError, OSError):
            return False
        return True

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def client(self) -> Any:
        return self.boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="testtest",
        )

    def versions(self) -> dict[str, int]:
        """How often each object was put."""
        found: dict[str, int] = {}
        for page in self.client().get_paginator("list_object_versions").paginate(Bucket="hot"):
            for version in page.get("Versions", []):
                found[version["Key"]] = found.get(version["Key"], 0) + 1
        return found

    def cache(self) -> dict[str, Any]:
        """It as an entry of ``cache=``. No answer of a machine under load is late."""
        keys = {"access_key": "test", "secret_key": "testtest"}
        return {"url": "s3://hot/tier", "endpoint": self.endpoint, **keys, "timeout": 20}


@pytest.fixture
def minio(tmp_path: Path) -> Iterator[Minio]:
    server = Minio(tmp_path / "minio")
    yield server
    server.kill()


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[simulator.Server]:
    rng = np.random.default_rng(1)
    rows = ({"x": i, "data": rng.bytes(400)} for i in range(SAMPLES))
    prepare.write(rows, str(tmp_path / "root" / "b"), format="mds", shard_bytes="64KiB")
    with simulator.Server(str(tmp_path / "root")) as server:
        yield server


def counted(stats: dict[str, Any], name: str) -> int:
    return int(stats[f"cache.store_{name}"])


def settle(loader: hr.Loader) -> dict[str, Any]:
    """Waits until everything that was fetched has been put, or left out. Returns the counters."""
    while True:
        stats = loader.stats()
        if counted(stats, "written_bytes") + counted(stats, "skipped_bytes") >= counted(stats, "miss_bytes"):
            return stats


def options_of(cold: simulator.Server, minio: Minio) -> dict[str, Any]:
    return {
        "batch_size": 32,
        "memory": "128MiB",
        "cache": minio.cache(),
        "keep_in_memory": False,
        **where(cold),
    }


def read_epoch(options: dict[str, Any], begin: Any, out: Any) -> None:
    with hr.Loader("s3://b", **options) as loader:
        begin.wait()
        seen = [batch["x"].tolist() for batch in loader]
        out.put((seen, settle(loader)))


def test_processes_that_read_the_same_fill_it_once(cold: simulator.Server, minio: Minio) -> None:
    context = multiprocessing.get_context("spawn")
    begin, out = context.Barrier(2), context.Queue()
    processes = [
        context.Process(target=read_epoch, args=(options_of(cold, minio), begin, out)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    (first, first_stats), (second, second_stats) = (out.get(timeout=300) for _ in processes)
    for process in processes:
        process.join()
    assert first == second
    assert {x for batch in first for x in batch} == set(range(SAMPLES))
    for stats in (first_stats, second_stats):
        assert counted(stats, "failures") == counted(stats, "corrupt") == 0
        assert counted(stats, "skipped_bytes") == 0
    versions = minio.versions()
    assert len(versions) > 10
    assert set(versions.values()) == {1}, "an extent that was there has been put again"
    fetched = dict(cold.stats()["objects"])
    with hr.Loader("s3://b", **options_of(cold, minio)) as loader:
        assert [batch["x"].tolist() for batch in loader] == first
        stats = settle(loader)
    assert counted(stats, "misses") == 0
    assert counted(stats, "hits") > 0
    shards = [name for name in fetched if name.endswith(".mds")]
    assert len(shards) > 10
    now = cold.stats()["objects"]
    assert all(now[name]["bytes"] == fetched[name]["bytes"] for name in shards), "the hot tier has it all"


def test_a_server_that_is_killed_in_mid_epoch_costs_misses_only(cold: simulator.Server, minio: Minio) -> None:
    with hr.Loader("s3://b", batch_size=32, **where(cold)) as plain:
        expected = [[batch["x"].tolist() for batch in plain] for _ in range(3)]
    with hr.Loader("s3://b", **options_of(cold, minio)) as loader:
        assert [batch["x"].tolist() for batch in loader] == expected[0]
        filled = settle(loader)
        assert counted(filled, "failures") == 0
        seen = []
        for number, batch in enumerate(loader):
            if number == len(expected[1]) // 2:
                minio.kill()
            seen.append(batch["x"].tolist())
        assert seen == expected[1]
        assert [batch["x"].tolist() for batch in loader] == expected[2]
        dead = loader.stats()
        assert counted(dead, "failures") > 0
        assert counted(dead, "misses") > counted(filled, "misses")
        assert counted(dead, "corrupt") == 0
        # It is tried again by itself, and has kept what was put.
        minio.start()
        while counted(loader.stats(), "hits") == counted(dead, "hits"):
            assert {x for batch in loader for x in batch["x"].tolist()} == set(range(SAMPLES))
