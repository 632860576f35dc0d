"""Very many deletions and copies by the server, of a store that refuses some."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from conftest import in_threads

import headrace as hr
from headrace import sim as simulator

COUNT = 300


def _refusals(server: simulator.Server) -> int:
    return sum(statuses.get("503", 0) for statuses in server.stats()["requests"].values())


def test_refusals_of_copies_depend_on_nothing_but_the_objects(
    cli: Any, s3: simulator.Server, buckets: Path
) -> None:
    """What a request meets follows from what it asks for and how often: as many refusals whatever the
    concurrency, so nothing is asked for twice, and all of it arrives."""
    counts = []
    for concurrency in (1, 128):
        source = buckets / "b" / "source"
        source.mkdir()
        for i in range(COUNT):
            (source / f"{i:03}").write_bytes(str(i).encode())
        with simulator.Server(buckets, behaviour={"throttle_rate": 0.1}, seed=7) as server:
            where = ("--endpoint", server.endpoint, "--concurrency", str(concurrency))
            done = cli("cp", "-r", "s3://b/source/", "s3://b/target/", *where, "--json").json()
            counts.append(_refusals(server))
        assert done["objects"] == COUNT
        target = buckets / "b" / "target"
        assert {p.name: p.read_bytes() for p in target.iterdir()} == {
            f"{i:03}": str(i).encode() for i in range(COUNT)
        }
        shutil.rmtree(source)
        shutil.rmtree(target)
    assert counts[0] > COUNT // 10
    assert counts[0] == counts[1]


def test_refused_deletions_by_many_threads_all_happen(sim: simulator.Server, buckets: Path) -> None:
    for i in range(COUNT):
        (buckets / "b" / str(i)).write_bytes(b"x")
    keys = [str(i) for i in range(COUNT)]
    with (
        simulator.Server(buckets, behaviour={"throttle_rate": 0.2}, seed=7) as server,
        hr.Store(
            "s3://b",
            endpoint=server.endpoint,
            access_key=server.access_key,
            secret_key=server.secret_key,
            control_directory="",
        ) as store,
    ):

        def work() -> None:
            while keys:
                assert store.delete_many([keys.pop()]) == []

        in_threads(32, work)
        assert store.stats()["store.throttles"] == _refusals(server) > 0
    assert not any((buckets / "b").iterdir())


def test_rm_takes_a_ceiling(cli: Any, s3: simulator.Server, buckets: Path) -> None:
    for i in range(COUNT):
        (buckets / "b" / str(i)).write_bytes(b"x")
    done = cli("rm", "-r", "s3://b", "--yes", "--concurrency", "2", "--json")
    assert done.json() == {"deleted": COUNT}
    assert cli("rm", "s3://b/x", "--concurrency", "0").code == 2
