"""Fixtures: a simulator in this process, and small datasets."""

from __future__ import annotations

import gc
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import sim as simulator
from headrace.cli import main

REFERENCE = Path(__file__).parents[1] / "data" / "mds"


def pytest_sessionstart() -> None:
    """A cache adds nothing to a disk with little free, so tests of it would fail: see docs/cache.md."""
    with (
        tempfile.TemporaryDirectory() as directory,
        hr.Store("memory://of-the-cache", cache=directory) as store,
    ):
        floor = next(m.value for m in store.metrics() if m.name == "cache.free_floor_bytes")
    disk = shutil.disk_usage(tempfile.gettempdir())
    needed = int(floor) + (2 << 30)
    if disk.free < needed:
        pytest.exit(
            f"{tempfile.gettempdir()} has {disk.free >> 20} MiB free; the tests need {needed >> 20} MiB", 2
        )


@pytest.fixture(autouse=True, scope="module")
def _little_garbage() -> None:
    """What frameworks and earlier modules have left is looked through no more: each collection of a process
    that has all of them loaded takes a second."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _isolated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials, config files or caches of the machine reach a test."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "RANK",
        "WORLD_SIZE",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in os.environ:
        if name.startswith(("OMPI_COMM_", "PMI_", "PMIX_", "SLURM_", "MASTER_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HEADRACE_INDEX_CACHE", str(tmp_path / "index-cache"))
    if boto3 := sys.modules.get("boto3"):  # its default session keeps the first credentials it has found
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)


def in_threads(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def where(server: simulator.Server) -> dict[str, Any]:
    """Options that name a server beside that of the environment."""
    return {
        "endpoint": server.endpoint,
        "access_key": server.access_key,
        "secret_key": server.secret_key,
    }


def sent_bytes(server: simulator.Server) -> int:
    """Bytes of objects that it has given so far."""
    return int(server.stats()["bytes"].get("get_object", {}).get("sent", 0))


class Done(NamedTuple):
    """How a command line ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Its last line."""
        assert self.code == 0, self.err
        return json.loads(self.out.splitlines()[-1])


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process."""

    def run(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, *capfd.readouterr())

    return run


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def buckets(tmp_path: Path) -> Path:
    """Directory of the simulator's buckets, with the empty bucket ``b``."""
    (tmp_path / "buckets" / "b").mkdir(parents=True)
    return tmp_path / "buckets"


@pytest.fixture
def sim(buckets: Path) -> Iterator[simulator.Server]:
    """A well-behaved S3 server that checks signatures."""
    with simulator.Server(buckets) as server:
        yield server


@pytest.fixture
def s3(sim: simulator.Server, monkeypatch: pytest.MonkeyPatch) -> simulator.Server:
    """The server, with its endpoint and credentials in the environment, as a user would have them."""
    for name, value in sim.environment().items():
        monkeypatch.setenv(name, value)
    return sim


def write_mds(
    root: Path,
    columns: dict[str, tuple[str, int | None]],
    samples: list[dict[str, bytes]],
    per_shard: int = 100,
) -> Path:
    """MDS by hand: ``columns`` maps names to (encoding, fixed size or None), ``samples`` hold encoded
    bytes."""
    names = sorted(columns)
    config = {
        "column_encodings": [columns[n][0] for n in names],
        "column_names": names,
        "column_sizes": [columns[n][1] for n in names],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 1 << 26,
        "version": 2,
    }
    text = json.dumps(config, sort_keys=True).encode()
    root.mkdir(parents=True, exist_ok=True)
    entries = []
    for shard, start in enumerate(range(0, len(samples), per_shard)):
        rows = []
        for sample in samples[start : start + per_shard]:
            sizes = b"".join(struct.pack("<I", len(sample[n])) for n in names if columns[n][1] is None)
            rows.append(sizes + b"".join(sample[n] for n in names))
        offsets = [4 + 4 * (len(rows) + 1) + len(text)]
        for row in rows:
            offsets.append(offsets[-1] + len(row))
        data = struct.pack(f"<{len(rows) + 2}I", len(rows), *offsets) + text + b"".join(rows)
        name = f"shard.{shard:05d}.mds"
        (root / name).write_bytes(data)
        entries.append(
            config
            | {
                "samples": len(rows),
                "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "zip_data": None,
            }
        )
    (root / "index.json").write_text(json.dumps({"version": 2, "shards": entries}, sort_keys=True))
    return root


def write_numbers(root: Path, count: int, per_shard: int = 100) -> Path:
    """Samples with ``x`` (int, 7i + 1) and ``t`` (str, ``"s<i>"``)."""
    samples = [{"x": struct.pack("<q", 7 * i + 1), "t": f"s{i}".encode()} for i in range(count)]
    return write_mds(root, {"x": ("int", 8), "t": ("str", None)}, samples, per_shard)


@pytest.fixture
def numbers(buckets: Path) -> Path:
    """1,000 samples in 10 shards, as the local directory behind s3://b/numbers."""
    return write_numbers(buckets / "b" / "numbers", 1000)


@pytest.fixture(scope="session")
def few_numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """211 samples in 9 shards, as a local directory; not to be written to."""
    return write_numbers(tmp_path_factory.mktemp("data") / "few", 211, per_shard=25)


@pytest.fixture
def open_loader() -> Iterator[Any]:
    """hr.Loader that is closed with the test; small memory, small blocks."""
    loaders: list[hr.Loader] = []

    def make(dataset: Any, **arguments: Any) -> hr.Loader:
        opening = {} if isinstance(dataset, hr.Dataset | hr.Mixture) else {"block_bytes": "64KiB"}
        options: dict[str, Any] = {"batch_size": 10, "memory": "64MiB", **opening, **arguments}
        loaders.append(hr.Loader(dataset, **options))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


@pytest.fixture
def google_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key file of a service account."""
    pem = tmp_path / "key.pem"
    make = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(pem)]
    subprocess.run(make, check=True, capture_output=True)
    path = tmp_path / "account.json"
    account = {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": pem.read_text(),
        "client_email": "signer@project.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    path.write_text(json.dumps(account))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    return path
