"""Filling the cache on purpose: copy, lazy and warm deliver the same batches and fetch each byte once; pins
hold."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done, where
from test_cache import SAMPLES, batches, extents, on_ranks, pack, samples

import headrace as hr
from headrace import sim as simulator
from headrace.store.tiers import parse_tiers


@pytest.fixture
def root(tmp_path: Path) -> Path:
    pack(tmp_path / "root" / "b")
    return tmp_path / "root"


def fetched(server: simulator.Server) -> int:
    """Bytes of shards that the store has given."""
    objects = server.stats()["objects"]
    return sum(row["bytes"] for name, row in objects.items() if name.endswith((".mds", ".zstd")))


def shard_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / "b").glob("*.mds*"))


@pytest.mark.parametrize("mode", ["none", "cache", "copy", "lazy"])
@pytest.mark.parametrize("order", ["headrace", "mosaic:py1s"])
def test_batches_are_the_same_in_every_mode(root: Path, tmp_path: Path, mode: str, order: str) -> None:
    options: dict[str, Any] = {"batch_size": 32, "seed": 5, "order": order}
    with simulator.Server(str(root)) as server:
        with hr.Loader("s3://b", **options, **where(server)) as plain:
            expected = batches(plain, 3)
        with hr.Loader(
            "s3://b", cache=tmp_path / "cache", cache_mode=mode, **options, **where(server)
        ) as loader:
            assert batches(loader, 3) == expected
    assert (tmp_path / "cache").exists() == (mode != "none")


def test_a_copy_is_complete_before_the_first_batch(root: Path, tmp_path: Path) -> None:
    with simulator.Server(str(root)) as server:
        with hr.Loader(
            "s3://b", batch_size=32, cache=tmp_path / "cache", cache_mode="copy", **where(server)
        ) as loader:
            assert hr.Cache(tmp_path / "cache").usage().data_bytes >= SAMPLES * 400
            before = fetched(server)
            assert samples(batches(loader, 2)) == set(range(SAMPLES))
            assert fetched(server) == before
        # The next job copies nothing, and reads nothing to find that out.
        with hr.Dataset("s3://b", cache=tmp_path / "cache", cache_mode="copy", **where(server)) as dataset:
            assert int(dataset[17]["x"]) == 17
        assert fetched(server) == before


def test_a_copy_that_does_not_fit_says_both_numbers(root: Path, tmp_path: Path) -> None:
    with simulator.Server(str(root)) as server:
        with pytest.raises(
            hr.ExhaustedError, match=r"takes \d+ bytes of files.* has room for 300000 "
        ) as caught:
            hr.Loader(
                "s3://b",
                batch_size=32,
                cache=tmp_path / "cache",
                cache_limit=300_000,
                cache_mode="copy",
                **where(server),
            )
        needed = int(str(caught.value).split(" takes ")[1].split()[0])
        assert needed > SAMPLES * 400
        assert fetched(server) < 100_000  # Headers of shards, to make the index.


def lazy_loader(server: simulator.Server, cache: Path, **options: Any) -> hr.Loader:
    return hr.Loader(
        "s3://b", batch_size=32, memory="16MiB", cache=cache, cache_mode="lazy", **options, **where(server)
    )


def filled(loader: hr.Loader) -> dict[str, int]:
    """What the filling of a lazy cache says at its end."""
    fill = loader._filling._native
    assert fill is not None
    while not fill.is_over:
        os.sched_yield()
    fill.check()
    return fill.report()


def test_lazy_brings_the_rest_while_the_loop_trains(root: Path, tmp_path: Path) -> None:
    with simulator.Server(str(root)) as server, lazy_loader(server, tmp_path / "cache") as loader:
        iterator = iter(loader)
        first = next(iterator)
        # The loop is busy with its first batch: meanwhile everything comes.
        assert filled(loader)["missing_bytes"] == 0
        hr.Cache(tmp_path / "cache")._native.flush()
        before = fetched(server)
        rest = [batch["x"].tolist() for batch in iterator]
        assert samples([first["x"].tolist(), *rest]) == set(range(SAMPLES))
        batches(loader)
        assert fetched(server) == before


def test_lazy_fills_what_fits(root: Path, tmp_path: Path) -> None:
    with (
        simulator.Server(str(root)) as server,
        lazy_loader(server, tmp_path / "cache", cache_limit="600kB") as loader,
    ):
        iterator = iter(loader)
        next(iterator)
        assert filled(loader)["missing_bytes"] > 0
        assert hr.Cache(tmp_path / "cache").usage().file_bytes <= 600_000
        assert len(list(iterator)) > 0


def _copy(url: str, rank: int, ranks: int, options: dict[str, Any], out: Any) -> None:
    os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks))
    with hr.Loader(url, batch_size=8, rank=rank, world_size=ranks, cache_mode="copy", **options) as loader:
        out.put(sorted(samples(batches(loader))))


def test_ranks_copy_each_byte_once(root: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"cache": str(tmp_path / "cache"), "memory": "64MiB"}
    with simulator.Server(str(root)) as server:
        # The index, which each would make by itself.
        hr.Dataset("s3://b", **where(server)).close()
        before = fetched(server)
        seen = on_ranks(_copy, 4, {**options, **where(server)})
        assert fetched(server) - before <= 1.02 * shard_bytes(root)
    assert samples(seen) == set(range(SAMPLES))


WARM = """
import sys, headrace as hr
options = dict(zip(("endpoint", "access_key", "secret_key"), sys.argv[3:]))
hr.Cache(sys.argv[2], create=True).warm(sys.argv[1], max_in_flight=2, hedge_fraction=0.0, **options)
"""


def test_a_copy_that_was_killed_goes_on(tmp_path: Path) -> None:
    root, cache = tmp_path / "root", tmp_path / "cache"
    pack(root / "b", data_bytes=4000)
    slow = {"first_byte_p50_ms": 100, "first_byte_p99_ms": 101}
    with simulator.Server(str(root), profile="s3-standard", behaviour=slow) as server:
        options = where(server)
        hr.Dataset("s3://b", **options).close()
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                WARM,
                "s3://b",
                str(cache),
                options["endpoint"],
                options["access_key"],
                options["secret_key"],
            ]
        )
        while len(extents(cache)) < 5:
            assert process.poll() is None, "it is over before it was killed"
            os.sched_yield()
        process.send_signal(signal.SIGKILL)
        process.wait()
        there = sum(extent.length for extent in hr.Cache(cache).extents() if extent.url.endswith(".mds"))
        assert there < shard_bytes(root), "it was done before it was killed"
        before = fetched(server)
        report = hr.Cache(cache).warm("s3://b", hedge_fraction=0.0, **options)
        assert report.held_bytes >= there
        assert report.fetched_bytes == report.total_bytes - report.held_bytes
        # What was on its way to the process that was killed may be counted late.
        assert report.fetched_bytes <= fetched(server) - before <= report.fetched_bytes + 2 * 66_000
        assert report.missing_bytes == 0
        assert hr.Cache(cache).verify().broken == 0


def test_modes_that_make_no_sense_say_so(root: Path, tmp_path: Path) -> None:
    for mode in ("copy", "lazy"):
        with pytest.raises(hr.InvalidArgumentError, match="cache="):
            hr.Loader(root / "b", batch_size=4, cache_mode=mode)
    with pytest.raises(hr.InvalidArgumentError, match="none, cache, copy, lazy"):
        hr.Loader(root / "b", batch_size=4, cache_mode="fast")
    with pytest.raises(hr.InvalidArgumentError, match="Loader"):
        hr.Dataset(root / "b", cache=tmp_path / "c", cache_mode="lazy")
    with hr.Dataset(root / "b", cache=tmp_path / "c") as dataset:
        with pytest.raises(hr.InvalidArgumentError, match="open it without"):
            hr.Loader(dataset, batch_size=4, cache_mode="none")
        with hr.Loader(dataset, batch_size=4, cache_mode="copy"):
            assert hr.Cache(tmp_path / "c").usage().data_bytes >= SAMPLES * 400
    with (
        hr.Dataset(root / "b", cache=tmp_path / "d") as other,
        hr.Dataset(root / "b", cache=tmp_path / "c") as dataset,
        pytest.raises(hr.InvalidArgumentError, match="several caches"),
    ):
        hr.Loader([dataset, other], batch_size=4, cache_mode="copy")


def test_a_mixture_is_copied(root: Path, tmp_path: Path) -> None:
    pack(root / "c", data_bytes=300)
    with simulator.Server(str(root)) as server:
        options = {"cache": str(tmp_path / "cache"), **where(server)}
        mixture = hr.Mixture({"b": ("s3://b", 1.0), "c": ("s3://c", 2.0)}, **options)
        with hr.Loader(mixture, batch_size=30, cache_mode="copy") as loader:
            before = fetched(server)
            batches(loader, 2)
            assert fetched(server) == before


def test_warm_in_the_order_of_a_run(root: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with simulator.Server(str(root)) as server:
        with hr.Loader("s3://b", batch_size=30, seed=4, **where(server)) as plain:
            expected = batches(plain)
        report = hr.Cache(cache, create=True, limit="800kB").warm(
            "s3://b", batch_size=30, seed=4, epochs=1, **where(server)
        )
        assert 0 < report.missing_bytes < report.total_bytes
        before = fetched(server)
        with hr.Loader(
            "s3://b", batch_size=30, seed=4, memory="16MiB", cache=cache, cache_limit="800kB", **where(server)
        ) as loader:
            iterator = iter(loader)
            ahead = [next(iterator)["x"].tolist() for _ in range(3)]
            hits = loader.stats()["cache.hits"]
            assert hits > 0
            assert ahead + [batch["x"].tolist() for batch in iterator] == expected
        assert fetched(server) - before < 0.7 * shard_bytes(root)


def test_the_command_line_warms_and_pins(root: Path, tmp_path: Path, cli: Callable[..., Done]) -> None:
    cache = str(tmp_path / "cache")
    pack(root / "c", data_bytes=300)
    with simulator.Server(str(root)) as server:
        options = where(server)
        store = ("--endpoint", options["endpoint"])
        os.environ.update(
            AWS_ACCESS_KEY_ID=options["access_key"], AWS_SECRET_ACCESS_KEY=options["secret_key"]
        )
        try:
            done = cli("cache", "warm", "s3://b", "--cache", cache, "--json", *store)
            assert done.code == 0, done.err
            assert done.json()["fetched_bytes"] == done.json()["total_bytes"] > SAMPLES * 400
            again = cli("cache", "warm", "s3://b", "--cache", cache, "--batch-size", "8", "--json", *store)
            assert again.json()["fetched_bytes"] == 0
            assert "100%" in cli("cache", "warm", "s3://b", "--cache", cache, *store).out
        finally:
            del os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    assert cli("cache", "pin", cache, "s3://b/").code == 0
    assert cli("cache", "stat", cache, "--json").json()["pins"] == ["s3://b/"]
    assert "pinned" in cli("cache", "ls", cache).out
    assert cli("cache", "gc", cache, "--limit", "1kB").code == 0
    assert cli("cache", "stat", cache, "--json").json()["data_bytes"] > SAMPLES * 400
    assert cli("cache", "pin", cache, "s3://c/", "--remove").code == 1
    assert cli("cache", "pin", cache, "s3://b/", "--remove").code == 0
    assert cli("cache", "gc", cache, "--limit", "1kB").code == 0
    assert cli("cache", "stat", cache, "--json").json()["extents"] == 0


def test_pins_are_what_objects_are_called(tmp_path: Path) -> None:
    cache = hr.Cache(tmp_path / "cache", create=True)
    for given, kept in (
        ("S3://Bucket//x/", "s3://Bucket/x/"),
        ("s3://b//train", "s3://b/train"),
        ("https://me:topsecret@h/data?sig=abc", "https://h/data"),
        ("HTTP://h//d/", "http://h//d/"),
        ("s3://b", "s3://b"),
    ):
        cache.pin(given)
        assert cache.pins() == [kept]
        assert cache.unpin(given)
    for of_before in ("S3://b//x", "https://me:topsecret@h/data?sig=abc"):
        cache._native.pin(of_before)
        assert cache.unpin(of_before)
        assert cache.pins() == []


def test_warming_pins_the_dataset_and_nothing_beside_it(
    root: Path, tmp_path: Path, cli: Callable[..., Done]
) -> None:
    pack(root / "b-old", data_bytes=300)
    cache = tmp_path / "cache"
    with simulator.Server(str(root)) as server:
        with pytest.raises(hr.NotFoundError):
            hr.Cache(cache, create=True).warm("s3://nothing", pin=True, **where(server))
        assert hr.Cache(cache).pins() == []
        hr.Cache(cache).warm("S3://b", pin=True, **where(server))
        assert hr.Cache(cache).pins() == ["s3://b/"]
        shard = min(path.name for path in (root / "b").glob("*.mds"))
        hr.Cache(cache).warm(f"s3://b/{shard}", pin=True, format="raw", **where(server))
        assert hr.Cache(cache).pins() == ["s3://b/", f"s3://b/{shard}"]


@pytest.mark.parametrize(
    ("given", "limit"), [("2TB", 2 * 10**12), ("1.5GiB", 3 << 29), ("1000000000000", 10**12)]
)
def test_a_limit_behind_a_directory(given: str, limit: int) -> None:
    found = parse_tiers(f"/nvme/headrace:{given}")
    assert (found.directory, found.limit_bytes) == ("/nvme/headrace", limit)


@pytest.mark.parametrize("given", ["2T", "500G", "1.2.3GB", "10XB"])
def test_what_looks_like_a_limit_is_one_or_an_error(given: str) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="limit of the cache"):
        parse_tiers(f"/nvme/headrace:{given}")
    assert parse_tiers({"directory": f"/nvme/headrace:{given}"}).directory.endswith(given)
    assert parse_tiers("/nvme/headrace:2024").directory == "/nvme/headrace:2024"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("s3:/q", "s3://q"),
        ("s3//q", "s3://q"),
        ("S3:/q/prefix:2TB", "s3://q/prefix:2TB"),
        ("gs//q/a//b", "gs://q/a//b"),
        ("memcached:/h1,h2", "memcached://h1,h2"),
        ("file:/nvme/headrace", "file:///nvme/headrace"),
        ("s3:/name:hidden@q", "s3://***@q"),
    ],
)
def test_a_mistyped_url_is_no_directory(
    given: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for cache in (given, ["/nvme", given]):
        with pytest.raises(hr.InvalidArgumentError, match=r"begin with \./ if that is meant") as caught:
            parse_tiers(cache)
        assert f'did you mean "{meant}"?' in str(caught.value)
    with pytest.raises(hr.InvalidArgumentError, match="did you mean"):
        hr.Dataset(tmp_path, cache=given)
    assert not list(tmp_path.iterdir())
    expected = os.path.abspath(given)
    for cache in ({"directory": f"./{given}"}, tmp_path / given):
        assert parse_tiers(cache).directory == expected
    assert parse_tiers(f"./{given}").directory == expected.removesuffix(":2TB")
    # Of "s3//" a directory "s3" makes a path, and nothing of "s3:/".
    (tmp_path / given.partition("/")[0]).mkdir()
    if ":/" in given:
        with pytest.raises(hr.InvalidArgumentError, match="did you mean"):
            parse_tiers(given)
    else:
        assert parse_tiers(given).directory == os.path.abspath(given)


@pytest.mark.parametrize("given", ["./s3:/q", "s3", "s3/q", "s3:q", "data:/q", "a//b", "s3/q//r"])
def test_what_only_looks_like_a_url_is_a_directory(given: str) -> None:
    assert parse_tiers(given).directory == os.path.abspath(given)


def _read_all(url: str, options: dict[str, Any]) -> None:
    with hr.Loader(url, batch_size=32, **options) as loader:
        batches(loader, 2)


def test_pins_hold_against_another_process(root: Path, tmp_path: Path) -> None:
    pack(root / "c", data_bytes=800)
    cache = str(tmp_path / "cache")
    with simulator.Server(str(root)) as server:
        options: dict[str, Any] = {"cache": cache, "cache_limit": "2MB", **where(server)}
        with hr.Loader("s3://b", batch_size=32, cache_mode="copy", **options):
            pass
        hr.Cache(cache).pin("s3://b/")
        assert hr.Cache(cache).pins() == ["s3://b/"]
        pinned = hr.Cache(cache).usage().data_bytes
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=_read_all, args=("s3://c", options))
        process.start()
        process.join()
        assert process.exitcode == 0
        held: dict[str, int] = {}
        for extent in hr.Cache(cache).extents():
            bucket = extent.url.split("/")[2]
            held[bucket] = held.get(bucket, 0) + extent.length
        assert held["b"] == pinned
        assert held["c"] > 0
        assert hr.Cache(cache).usage().file_bytes <= 2_000_000
        before = fetched(server)
        with hr.Loader("s3://b", batch_size=32, **options) as loader:
            batches(loader)
        assert fetched(server) == before


def test_a_cache_full_of_pins_says_so_once(root: Path, tmp_path: Path) -> None:
    pack(root / "c", data_bytes=800)
    options: dict[str, Any] = {"cache": tmp_path / "cache", "cache_limit": "1.6MB"}
    with simulator.Server(str(root)) as server:
        with hr.Loader("s3://b", batch_size=32, cache_mode="copy", **options, **where(server)):
            hr.Cache(tmp_path / "cache").pin("s3://b")
        with hr.Loader("s3://c", batch_size=8, **options, **where(server)) as loader:
            with pytest.warns(RuntimeWarning, match="pinned") as told:
                batches(loader, 3)
            assert len([w for w in told if "pinned" in str(w.message)]) == 1
            assert loader.stats()["cache.pin_refusals"] > 0


@pytest.mark.parametrize("memory", ["2MiB", "4MiB", "8MiB"])
def test_the_order_does_not_depend_on_the_cache(tmp_path: Path, memory: str) -> None:
    """Its buffers take a part of the memory that lanes are chosen for."""
    pack(tmp_path / "b", data_bytes=4000)
    options: dict[str, Any] = {"batch_size": 64, "memory": memory, "block_bytes": "64KiB"}
    with hr.Loader(tmp_path / "b", **options) as plain:
        spec, expected = plain.order_spec, batches(plain)
    with hr.Loader(tmp_path / "b", cache=tmp_path / "cache", **options) as loader:
        assert loader.order_spec == spec
        assert batches(loader) == expected
