"""A simulated cache against a real one, and what the command line makes of it."""

from __future__ import annotations

import xml.etree.ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done, where
from test_cache import batches, pack

import headrace as hr
from headrace import sim as simulator
from headrace.caching.simulation import Machine

EPOCHS = 3


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulate") / "root"
    pack(path / "b", data_bytes=4000)
    pack(path / "c", data_bytes=4000, compression="zstd")
    return path


def options_of(order: str) -> dict[str, Any]:
    return {"batch_size": 10, "order": order, "block_bytes": "64KiB", "memory": "2MiB"}


def rows(found: Any, policy: str) -> list[Any]:
    return [row for row in found.rows if row.policy == policy]


@pytest.mark.parametrize(
    ("name", "order"), [("b", "headrace"), ("b", "mosaic:py1s"), ("b", "sequential"), ("c", "headrace")]
)
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_a_simulated_run_fetches_what_a_real_one_does(
    root: Path, tmp_path: Path, name: str, order: str, share: float
) -> None:
    options = options_of(order)
    slow = {"first_byte_p50_ms": 5, "first_byte_p99_ms": 6}
    with simulator.Server(str(root), behaviour=slow) as server:
        url = f"s3://{name}"
        size = hr.Cache.simulate(url, epochs=1, sizes=[0], **options, **where(server)).file_bytes
        limit = int(size * share)
        found = hr.Cache.simulate(url, epochs=EPOCHS, sizes=[0, limit], **options, **where(server))
        with hr.Loader(
            url,
            cache=tmp_path / "cache",
            cache_limit=limit,
            epochs=EPOCHS,
            max_in_flight=4,
            hedge_fraction=0.0,
            **options,
            **where(server),
        ) as loader:
            start = loader.stats()["store.received_bytes"]
            written = hr.Cache(tmp_path / "cache")
            for _ in range(EPOCHS):
                for _ in loader:
                    written._native.flush()  # The simulation takes for granted that writing keeps up.
            fetched = loader.stats()["store.received_bytes"] - start
        # Without a cache the simulation counts every reading, as if memory kept no block between epochs.
        nothing_kept = {"keep_in_memory": False, "hedge_fraction": 0.0}
        with hr.Loader(url, epochs=EPOCHS, **nothing_kept, **options, **where(server)) as plain:
            start = plain.stats()["store.received_bytes"]
            batches(plain, EPOCHS)
            received = plain.stats()["store.received_bytes"] - start
    none, cached = rows(found, "next_use")
    # What is read singly, of which lists have more, depends on what has come by then.
    near = 0.08 if order.startswith("mosaic") else 0.04
    assert none.fetched_bytes == pytest.approx(received, rel=near)
    # What was read ahead of a batch may have found no room to wait for being written.
    assert cached.fetched_bytes == pytest.approx(fetched, rel=0.1)
    assert sum(cached.epoch_fetched_bytes) == cached.fetched_bytes


def test_curves_rise_and_ours_is_above_lru(root: Path) -> None:
    found = hr.Cache.simulate(root / "b", epochs=EPOCHS, **options_of("headrace"))
    ours, lru = rows(found, "next_use"), rows(found, "lru")
    assert len(ours) == len(lru) == 11
    assert ours[0].limit_bytes == 0
    assert ours[0].hit_rate == lru[0].hit_rate == 0
    hits = [row.hit_rate for row in ours]
    assert hits == sorted(hits)
    assert hits[-1] == pytest.approx(1 - 1 / EPOCHS, abs=0.02)
    for row, other in zip(ours[1:-2], lru[1:-2], strict=True):
        assert row.hit_rate > other.hit_rate + 0.02
        assert row.stall_seconds <= other.stall_seconds + 1e-9
    half = ours[5]
    # With a header of 4 KiB an extent it has room for a little less than half of the data.
    assert half.epoch_fetched_bytes[2] / half.epoch_fetched_bytes[0] < 0.55
    assert lru[5].epoch_fetched_bytes[2] / lru[5].epoch_fetched_bytes[0] > 0.6


def test_ranks_share_and_machines_differ(root: Path) -> None:
    options: dict[str, Any] = {**options_of("headrace"), "epochs": 2}
    one = hr.Cache.simulate(root / "c", sizes=["1GB"], world_size=4, ranks_per_node=1, **options)
    four = hr.Cache.simulate(root / "c", sizes=["1GB"], world_size=4, **options)
    assert one.rows[0].fetched_bytes < four.rows[0].fetched_bytes
    # Compressed shards that ranks share are fetched once.
    assert four.rows[0].fetched_bytes == pytest.approx(four.data_bytes, rel=0.01)
    slow = hr.Cache.simulate(
        root / "c", sizes=["0"], world_size=4, machine=Machine(bandwidth=1e6, step=0.001), **options
    )
    assert slow.rows[0].stall_seconds == pytest.approx(slow.rows[0].fetched_bytes / 1e6, rel=0.1)
    for bad in ({"ranks_per_node": 5}, {"epochs": 0}):
        with pytest.raises(hr.InvalidArgumentError, match="nothing to simulate"):
            hr.Cache.simulate(root / "b", world_size=4, **{**options, **bad})
    with pytest.raises(hr.InvalidArgumentError, match="cache_limit="):
        hr.Cache.simulate(root / "b", cache_limit="1GB", **options)


def test_a_mixture_is_simulated(root: Path) -> None:
    mixture = hr.Mixture({"b": (root / "b", 1.0), "c": (root / "c", 2.0)}, block_bytes="64KiB")
    found = hr.Cache.simulate(mixture, batch_size=12, epochs=2, memory="64MiB")
    ours, lru = rows(found, "next_use"), rows(found, "lru")
    # What is read again within an epoch is a hit, too.
    assert lru[5].hit_rate + 0.2 < ours[5].hit_rate < ours[-1].hit_rate


def test_the_command_line_draws_it(root: Path, tmp_path: Path, cli: Callable[..., Done]) -> None:
    pytest.importorskip("matplotlib")
    png, page = tmp_path / "curve.png", tmp_path / "curve.html"
    told = ("--batch-size", "10", "--block-bytes", "64KiB", "--memory", "16MiB")
    done = cli(
        "cache", "simulate", str(root / "b"), *told, "--plot", str(png), "--html", str(page), "--step", "5ms"
    )
    assert done.code == 0, done.err
    assert "LRU" in done.out
    assert png.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert "<script" not in text
    xml.etree.ElementTree.fromstring(
        text.split("<!doctype html>")[1]
        .replace('<meta charset="utf-8">', "")
        .replace('<meta name="viewport" content="width=device-width">', "")
    )
    found = cli(
        "cache", "simulate", str(root / "b"), *told, "--sizes", "0,5MB", "--epochs", "2", "--json"
    ).json()
    assert [row["limit_bytes"] for row in found["rows"]] == [0, 5_000_000, 0, 5_000_000]
    assert found["rows"][1]["hit_rate"] > 0.1
    assert cli("cache", "simulate", str(root / "b")).code == 1
