"""Caches that nodes share: real memcached servers and a hot bucket in front of a simulated store."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import real_servers
from conftest import sent_bytes, where

import headrace as hr
from headrace import prepare
from headrace import sim as simulator

ANSWER_SECONDS = 120  # A guard against hangs: a slow disk stops memcached for long.
SAMPLES = 3000
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
                return socket.create_connection(("127.0.0.1", self.port), ANSWER_SECONDS)
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


def pack(path: Path, samples: int = SAMPLES, data_bytes: int = 400) -> None:
    rng = np.random.default_rng(1)
    rows = ({"x": i, "data": rng.bytes(data_bytes)} for i in range(samples))
    prepare.write(rows, str(path), format="mds", shard_bytes="64KiB")


def url_of(*servers: Memcached) -> str:
    return f"memcached://{','.join(server.name for server in servers)}?{PATIENT}"


def counted(stats: dict[str, Any], name: str, kind: str = "memcached") -> int:
    return int(stats[f"cache.{kind}_{name}"])


def settle(stats: Callable[[], dict[str, Any]], kind: str = "memcached") -> dict[str, Any]:
    """Waits until everything that was fetched has been kept, or left out. Returns the counters."""
    while True:
        now = stats()
        done = counted(now, "written_bytes", kind) + counted(now, "skipped_bytes", kind)
        if done >= counted(now, "miss_bytes", kind):
            return now


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
            assert sent_bytes(sim) == len(blob)
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


def test_a_node_that_is_killed_in_mid_epoch_costs_misses_only(
    tmp_path: Path, memcached: Callable[..., Memcached]
) -> None:
    pack(tmp_path / "root" / "b")
    servers = [memcached() for _ in range(3)]
    with simulator.Server(str(tmp_path / "root")) as sim:
        with hr.Loader("s3://b", batch_size=32, **where(sim)) as plain:
            expected = [batch["x"].tolist() for _ in range(3) for batch in plain]
        epoch = len(expected) // 3
        options = {"batch_size": 32, "memory": "64MiB", "keep_in_memory": False, **where(sim)}
        with hr.Loader("s3://b", cache=url_of(*servers), **options) as loader:
            seen = [batch["x"].tolist() for batch in loader]
            stats = settle(loader.stats)
            assert counted(stats, "failures") == counted(stats, "hits") == 0
            shares = [int(server.stats()["curr_items"]) for server in servers]
            for number, batch in enumerate(loader):
                seen.append(batch["x"].tolist())
                if number == epoch // 2:
                    servers[shares.index(max(shares))].kill()
            before = counted(loader.stats(), "hits")
            assert before > 0
            seen += [batch["x"].tolist() for batch in loader]
            after = loader.stats()
        assert seen == expected
        assert counted(after, "hits") > before, "the others go on"
        assert counted(after, "corrupt") == 0
        assert counted(after, "misses") > counted(stats, "misses")


def test_servers_that_are_not_there_cost_nothing_but_their_use(sim: simulator.Server, blob: bytes) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"memcached://127.0.0.1:{unused.getsockname()[1]}"
        with hr.Store("s3://b", cache=nobody, **where(sim)) as store:
            assert read_blob(store, len(blob)) == blob
            stats = store.stats()
    assert counted(stats, "failures") >= 1
    assert counted(stats, "hits") == 0


def test_memcached_on_flash(
    sim: simulator.Server, blob: bytes, tmp_path: Path, memcached: Callable[..., Memcached]
) -> None:
    tmp_path.chmod(0o777)
    file = tmp_path / "flash"
    file.touch()
    file.chmod(0o666)
    for parent in (tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(0o755)  # memcached runs as nobody.
    options = "ext_page_size=2,ext_wbuf_size=2,ext_threads=1,ext_item_age=0,ext_item_size=512"
    # Less memory, and 1.6.18 has none to read flash into, and breaks its own protocol.
    server = memcached("-m", "48", "-I", "1m", "-o", f"{options},ext_path={file}:256m")
    data = os.urandom(60_000_000)
    (tmp_path / "buckets" / "b" / "blob").write_bytes(data)
    for _ in range(2):
        with hr.Store("s3://b", cache=url_of(server), **where(sim)) as store:
            assert read_blob(store, len(data)) == data
            stats = settle(store.stats)
            assert counted(stats, "corrupt") == 0
    assert int(server.stats()["extstore_objects_read"]) > 0
    assert counted(stats, "hits") > 0


def test_items_are_as_small_as_the_servers_want_them(
    sim: simulator.Server, blob: bytes, memcached: Callable[..., Memcached]
) -> None:
    small = memcached("-I", "512k")
    with hr.Store("s3://b", cache=url_of(small), **where(sim)) as store:
        assert read_blob(store, len(blob), 1_000_000) == blob
        stats = settle(store.stats)
        assert counted(stats, "failures") == 5, "items of 1 MiB are refused"
        assert counted(stats, "skipped_bytes") == len(blob)
    for turn in range(2):
        with hr.Store("s3://b", cache=f"{url_of(small)}&item_size=512KiB", **where(sim)) as store:
            assert read_blob(store, len(blob), 1_000_000) == blob
            stats = settle(store.stats)
            assert counted(stats, "failures") == 0
            assert counted(stats, "hits") == 5 * turn
    assert int(small.stats()["curr_items"]) == 5 * 2


def test_a_directory_in_front_of_memcached_in_front_of_the_store(
    sim: simulator.Server, blob: bytes, tmp_path: Path, memcached: Callable[..., Memcached]
) -> None:
    server = memcached()

    def read(directory: str) -> dict[str, Any]:
        cache = [tmp_path / directory, url_of(server)]
        with hr.Store("s3://b", cache=cache, **where(sim)) as store:
            assert read_blob(store, len(blob)) == blob
            hr.Cache(tmp_path / directory)._native.flush()
            return settle(store.stats)

    first = read("one")
    assert first["cache.misses"] == counted(first, "misses") == 8
    other_node = read("two")
    assert other_node["cache.misses"] == counted(other_node, "hits") == 8
    same_node = read("two")
    assert same_node["cache.hits"] >= 8
    assert counted(same_node, "hits") == counted(same_node, "misses") == 0
    assert sent_bytes(sim) == len(blob)


@pytest.fixture
def hot(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A bucket of a real S3 server, as an entry of ``cache=``."""
    place = {
        "url": f"s3://{real_servers.server('S3_BUCKET')}/hot-{tmp_path.name}-{os.getpid()}",
        "endpoint": real_servers.server("S3_ENDPOINT"),
        "access_key": real_servers.server("S3_ACCESS_KEY"),
        "secret_key": real_servers.server("S3_SECRET_KEY"),
    }
    yield {**place, "timeout": 20}
    with hr.Store(**place) as store:
        for info in list(store.list()):
            store.delete(info.key)


def hot_store(hot: dict[str, Any]) -> hr.Store:
    return hr.Store(**{name: value for name, value in hot.items() if name != "timeout"})


def test_a_second_loader_reads_from_the_hot_bucket_alone(tmp_path: Path, hot: dict[str, Any]) -> None:
    pack(tmp_path / "root" / "b")
    with simulator.Server(str(tmp_path / "root")) as sim:
        options = {"batch_size": 32, "memory": "128MiB", "cache": [hot], **where(sim)}
        runs = []
        for _ in range(2):
            with hr.Loader("s3://b", **options) as loader:
                runs.append([batch["x"].tolist() for batch in loader])
                stats = settle(loader.stats, "store")
        assert runs[0] == runs[1]
        assert counted(stats, "misses", "store") == counted(stats, "corrupt", "store") == 0
        assert counted(stats, "hits", "store") > 0
        assert counted(stats, "failures", "store") == 0


def test_a_hot_bucket_serves_no_old_versions_and_no_damage(
    sim: simulator.Server, blob: bytes, hot: dict[str, Any]
) -> None:
    def read(expected: bytes) -> dict[str, Any]:
        with hr.Store("s3://b", cache=hot, **where(sim)) as store:
            assert read_blob(store, len(expected)) == expected
            return settle(store.stats, "store")

    assert counted(read(blob), "hits", "store") == 0
    fetched = sent_bytes(sim)
    assert counted(read(blob), "hits", "store") == 8
    assert sent_bytes(sim) == fetched == len(blob)
    with hot_store(hot) as store:
        keys = [info.key for info in store.list()]
        assert len(keys) == 8
        whole = {key: store.get(key) for key in keys}
        store.put(keys[0], whole[keys[0]][:-1])
        store.put(keys[1], whole[keys[1]] + b"x")
        store.put(keys[2], whole[keys[3]])
        store.put(keys[4], whole[keys[4]][:-1] + bytes([whole[keys[4]][-1] ^ 1]))
        store.delete(keys[5])
    stats = read(blob)
    assert counted(stats, "corrupt", "store") == 4
    assert counted(stats, "hits", "store") == 3
    assert counted(read(blob), "hits", "store") == 8, "what was broken has been replaced"
    new = os.urandom(len(blob))
    with hr.Store("s3://b", **where(sim)) as store:
        store.put("blob", new)
    assert counted(read(new), "hits", "store") == 0


def test_a_hot_bucket_that_is_not_there_costs_nothing_but_its_use(
    sim: simulator.Server, blob: bytes, hot: dict[str, Any]
) -> None:
    for wrong in (
        {"secret_key": "wrong"},
        {"url": "s3://no-such-bucket"},
        {"endpoint": "http://127.0.0.1:9"},
    ):
        with hr.Store("s3://b", cache={**hot, **wrong}, **where(sim)) as store:
            assert read_blob(store, len(blob)) == blob
            assert counted(store.stats(), "hits", "store") == 0


def read_rank(rank: int, options: dict[str, Any], out: Any) -> None:
    with hr.Loader("s3://b", rank=rank, world_size=4, batch_size=8, memory="64MiB", **options) as loader:
        epochs = []
        for _ in range(2):
            epochs.append([batch["x"].tolist() for batch in loader])
            if options["cache"]:
                settle(loader.stats)
        out.put((rank, epochs))


def test_nodes_share_what_they_have_read(tmp_path: Path, memcached: Callable[..., Memcached]) -> None:
    """Four processes without a directory in common, as four nodes are."""
    pack(tmp_path / "root" / "b", 10_000, 2_000)
    servers = [memcached() for _ in range(3)]
    context = multiprocessing.get_context("spawn")
    with simulator.Server(str(tmp_path / "root")) as sim:

        def run(cache: str | None) -> tuple[dict[int, Any], int]:
            """What each rank saw, and the bytes that the store gave."""
            before = sent_bytes(sim)
            out = context.Queue()
            ranks = [
                context.Process(target=read_rank, args=(rank, {"cache": cache, **where(sim)}, out))
                for rank in range(4)
            ]
            for process in ranks:
                process.start()
            seen = dict(out.get() for _ in ranks)
            for process in ranks:
                process.join()
            return seen, sent_bytes(sim) - before

        alone, fetched_alone = run(None)
        shared, fetched_first = run(url_of(*servers))
        again, fetched_next = run(url_of(*servers))
    print(
        f"two epochs of 4 nodes: {fetched_alone} bytes alone, {fetched_first} shared, {fetched_next} next job"
    )
    assert alone == shared == again
    assert fetched_first < 0.8 * fetched_alone
    assert fetched_next < 0.1 * fetched_alone


def read_epochs(rank: int, epochs: int, turn: Any, options: dict[str, Any], out: Any) -> None:
    seen = []
    with hr.Loader("s3://b", rank=rank, world_size=4, batch_size=8, memory="256MiB", **options) as loader:
        for _ in range(epochs):
            turn.wait()
            seen.append([batch["x"].tolist() for batch in loader])
            settle(loader.stats)
            turn.wait()
        out.put((rank, seen, loader.stats()))


@pytest.mark.parametrize("order", ["headrace", "mosaic:py1e"])
@pytest.mark.parametrize("compression", ["", "zstd"])
def test_four_nodes_fetch_each_byte_once(
    tmp_path: Path, memcached: Callable[..., Memcached], order: str, compression: str
) -> None:
    """Each with a directory of its own. In orders of others every node reads every compressed shard, and all
    at once."""
    rng = np.random.default_rng(1)
    rows = ({"x": i, "data": rng.bytes(2000)} for i in range(5000))
    shards = tmp_path / "root" / "b"
    prepare.write(rows, str(shards), format="mds", shard_bytes="256KiB", compression=compression)
    unique = sum(path.stat().st_size for path in shards.iterdir())
    tier = url_of(*(memcached() for _ in range(3)))
    context = multiprocessing.get_context("spawn")
    turn, out = context.Barrier(5), context.Queue()
    with simulator.Server(str(tmp_path / "root"), profile="s3-standard") as sim:
        nodes = []
        for rank in range(4):
            options = {"order": order, "cache": [str(tmp_path / f"nvme-{rank}"), tier], **where(sim)}
            nodes.append(context.Process(target=read_epochs, args=(rank, 2, turn, options, out)))
        for process in nodes:
            process.start()
        fetched = [0]
        for _ in range(2):
            turn.wait(120)
            turn.wait(120)
            fetched.append(sent_bytes(sim))
        ends = [out.get(timeout=120) for _ in nodes]
        for process in nodes:
            process.join()
    first, second = fetched[1] / unique, (fetched[2] - fetched[1]) / unique
    print(f"{order}, {compression}: {first:.4f} x the data, then {second:.4f} x")
    for epoch in range(2):
        assert {x for _, seen, _ in ends for batch in seen[epoch] for x in batch} == set(range(5000))
    assert first <= 1.02
    assert second <= 1.02
    if compression:
        assert second == 0, "whole shards are extents, which are the same in each epoch"
    for _, _, stats in ends:
        assert counted(stats, "failures") == counted(stats, "corrupt") == 0


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        ("memcached://", "no server"),
        ("memcached://h:0", "no server"),
        ("memcached://h,h", "named twice"),
        ("memcached://h/path", "only servers"),
        ("memcached://h?item=1", "no option item"),
        ("memcached://h?item_size=1KiB", "16KiB"),
        ("memcached://h?timeout=soon", "expected a number"),
        ("memcached://h?timeout=0", "seconds above 0"),
        ("redis://h", "expected a directory"),
        ("s3://hot?access_key=a&secret_key=b", "would be seen"),
        ({"url": "s3://hot", "access_key": "a"}, "go together"),
        ({"url": "s3://hot", "colour": "blue"}, "no option colour"),
        ({"endpoint": "http://h"}, "names a directory"),
        ({"directory": "/nvme", "size": 3}, "no option size"),
        (["memcached://h", "/nvme"], "first"),
        (["/nvme", "/disk"], "two directories"),
        (["memcached://h", "memcached://i"], "one of this kind"),
        (["/nvme", ""], "expected a directory"),
        (["/nvme", 3], "expected a directory"),
        (7, "expected a directory"),
        ("/nvme:2PB", "limit of the cache"),
    ],
)
def test_caches_that_make_no_sense(sim: simulator.Server, cache: Any, words: str) -> None:
    with pytest.raises(hr.InvalidArgumentError, match=words):
        hr.Store("s3://b", cache=cache, **where(sim))


def test_limits_of_the_directory(sim: simulator.Server, tmp_path: Path) -> None:
    with hr.Store("s3://b", cache=[f"{tmp_path}/c:64kB"], **where(sim)):
        assert (tmp_path / "c" / "v1").is_dir()
    with pytest.raises(hr.InvalidArgumentError, match="keep one"):
        hr.Store("s3://b", cache=f"{tmp_path}/c:64kB", cache_limit="1MB", **where(sim))
    with pytest.raises(hr.InvalidArgumentError, match="name its directory"):
        hr.Store("s3://b", cache="memcached://h", cache_limit="1MB", **where(sim))


def test_stores_that_cannot_have_one(tmp_path: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="only this process"):
        hr.Store("memory://x", cache="memcached://h")
    options = {"endpoint": "http://127.0.0.1:1", "access_key": "a", "secret_key": "b"}
    for hot in ("s3://b", "s3://b/data/hot"):
        with pytest.raises(hr.InvalidArgumentError, match="lies inside"):
            hr.Store("s3://b/data" if "data" in hot else "s3://b", cache={"url": hot, **options}, **options)
    hr.Store("s3://b/data", cache={"url": "s3://b/data-hot", **options}, **options).close()


def test_command_line(
    s3: simulator.Server, cli: Any, tmp_path: Path, memcached: Callable[..., Memcached]
) -> None:
    pack(tmp_path / "buckets" / "b")
    server = memcached()
    for _ in range(2):
        done = cli("verify", "s3://b", "--cache", str(tmp_path / "nvme"), "--cache", url_of(server))
        assert done.code == 0, done.err
    assert (tmp_path / "nvme" / "v1").is_dir()
    assert int(server.stats()["curr_items"]) > 0
