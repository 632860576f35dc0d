"""Caches that nodes share: real memcached servers and a hot bucket in front of a simulated store."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import where

import headrace as hr
from headrace import sim as simulator

START_SECONDS = 20
PATIENT = "timeout=20"  # No answer of a machine under load is late.


class Memcached:
    """A memcached server of its own."""

    def __init__(self, *options: str) -> None:
        binary = shutil.which("memcached") or "/usr/bin/memcached"
        assert Path(binary).exists(), "memcached is missing: run tools/setup test"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        arguments = [*user, "-l", "127.0.0.1", "-p", str(self.port), "-m", "64", "-t", "2", *options]
        self.process = subprocess.Popen([binary, *arguments])
        self.name = f"127.0.0.1:{self.port}"
        self.stats()  # Waits until it answers.

    def stats(self) -> dict[str, str]:
        with self._connect() as connection:
            connection.sendall(b"stats\r\n")
            text = b""
            while not text.endswith(b"END\r\n"):
                text += connection.recv(65536)
        rows = (line.split() for line in text.decode().splitlines())
        return {row[1]: row[2] for row in rows if len(row) == 3}

    def _connect(self) -> socket.socket:
        while self.process.poll() is None:
            try:
                return socket.create_connection(("127.0.0.1", self.port), START_SECONDS)
            except ConnectionRefusedError:
                continue
        raise AssertionError(f"memcached ended with {self.process.returncode}")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def memcached() -> Iterator[Callable[..., Memcached]]:
    """Starts servers."""
    servers: list[Memcached] = []

    def start(*options: str) -> Memcached:
        servers.append(Memcached(*options))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def url_of(*servers: Memcached) -> str:
    return f"memcached://{','.join(server.name for server in servers)}?{PATIENT}"


def counted(stats: dict[str, Any], name: str, kind: str = "memcached") -> int:
    return int(stats[f"cache.{kind}.{name}"])


def settle(stats: Callable[[], dict[str, Any]], kind: str = "memcached") -> dict[str, Any]:
    """Waits until everything that was fetched has been kept, or left out. Returns the counters."""
    while True:
        now = stats()
        done = counted(now, "written_bytes", kind) + counted(now, "skipped_bytes", kind)
        if done >= counted(now, "miss_bytes", kind):
            return now


def sent(server: simulator.Server) -> int:
    """Bytes of objects that the store has given."""
    return int(server.stats()["bytes"].get("get_object", {}).get("sent", 0))


@pytest.fixture
def blob(buckets: Path) -> bytes:
    """The object ``s3://b/blob``."""
    data = os.urandom(5_000_000)
    (buckets / "b" / "blob").write_bytes(data)
    return data


def read_blob(store: hr.Store, size: int, step: int = 700_000) -> bytes:
    etag = store.head("blob").etag
    ranges = [("blob", at, min(step, size - at), etag) for at in range(0, size, step)]
    parts = {part.offset: bytes(part.data) for part in store.get_ranges(ranges)}
    return b"".join(parts[at] for at in sorted(parts))


def test_what_one_store_has_read_another_reads_from_memcached(
    sim: simulator.Server, blob: bytes, memcached: Callable[..., Memcached]
) -> None:
    servers = [memcached() for _ in range(3)]
    for turn in range(2):
        with hr.Store("s3://b", cache=url_of(*servers), **where(sim)) as store:
            assert read_blob(store, len(blob), 1_300_000) == blob
            stats = settle(store.stats)
            assert counted(stats, "hits") == 4 * turn
            assert counted(stats, "failures") == counted(stats, "corrupt") == 0
            assert sent(sim) == len(blob)
    assert sum(int(server.stats()["curr_items"]) for server in servers) == 3 * 2 + 2


def test_an_object_that_was_overwritten_is_read_anew(
    sim: simulator.Server, blob: bytes, buckets: Path, memcached: Callable[..., Memcached]
) -> None:
    server = memcached()
    with hr.Store("s3://b", cache=url_of(server), **where(sim)) as store:
        assert read_blob(store, len(blob)) == blob
        settle(store.stats)
        new = os.urandom(len(blob))
        store.put("blob", new)
        assert store.get("blob") == new
        assert read_blob(store, len(blob)) == new
