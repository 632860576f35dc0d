"""hr.Loader: exactly once, same batches, state, columns."""

from __future__ import annotations

import gc
import itertools
import json
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import in_threads, write_mds, write_numbers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import sim as simulator


def real_ids(batch: hr.Batch) -> list[int]:
    return [int(i) for i, real in zip(batch.ids, batch.mask, strict=True) if real]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of 211 samples in 9 shards: a prime, so that nothing divides it."""
    return write_numbers(tmp_path_factory.mktemp("data") / "small", 211, per_shard=25)


@pytest.fixture(scope="module")
def many_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4,000 samples in 160 blocks: enough for 64 lanes."""
    return write_numbers(tmp_path_factory.mktemp("data") / "many", 4000, per_shard=25)


OPTIONS: dict[str, Any] = {"memory": "16MiB", "block_bytes": "64KiB", "index_cache": "", "seed": 5}


def open_ranks(
    path: Path, world_size: int, batch_size: int, state: dict[str, Any] | None, **options: Any
) -> list[hr.Loader]:
    loaders = [
        hr.Loader(path, batch_size=batch_size, rank=r, world_size=world_size, **OPTIONS, **options)
        for r in range(world_size)
    ]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    return loaders


def run_segment(
    path: Path, world_size: int, batch_size: int, state: dict[str, Any] | None, steps: int | None
) -> tuple[list[list[int]], dict[str, Any]]:
    """Global batches (ids of all ranks in rank order) of up to `steps` steps, and the state after them."""
    loaders = open_ranks(path, world_size, batch_size, state)
    try:
        batches = []
        streams = [iter(loader) for loader in loaders]
        while steps is None or len(batches) < steps:
            parts = [next(stream, None) for stream in streams]
            assert len({part is None for part in parts}) == 1, "ranks disagree on the end of the epoch"
            if parts[0] is None:
                break
            for part in parts:
                assert part is not None
                assert part["x"].tolist() == [7 * int(i) + 1 for i in part.ids]
                assert part["t"] == [f"s{i}" for i in part.ids]
            batches.append([i for part in parts if part is not None for i in real_ids(part)])
        states = [loader.state_dict() for loader in loaders]
        assert all(s == states[0] for s in states), "ranks disagree on the state"
        return batches, states[0]
    finally:
        for loader in loaders:
            loader.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    segments=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(0, 12)), min_size=1, max_size=4
    )
)
def test_any_sequence_of_stops_and_sizes_delivers_each_sample_once(
    small: Path, segments: list[tuple[int, int, int]]
) -> None:
    state: dict[str, Any] | None = None
    delivered: list[int] = []
    for world_size, batch_size, steps in segments:
        before = state
        batches, state = run_segment(small, world_size, batch_size, state, steps)
        delivered += [i for batch in batches for i in batch]
        if before is not None and not batches and steps:
            break
        if len(delivered) == 211:
            break
    if len(delivered) < 211:
        batches, state = run_segment(small, segments[-1][0], segments[-1][1], state, None)
        delivered += [i for batch in batches for i in batch]
    assert sorted(delivered) == list(range(211))


@pytest.mark.parametrize(("world_size", "batch_size"), [(2, 6), (3, 4), (4, 3), (12, 1)])
def test_the_same_state_gives_the_same_batches_on_any_world(
    small: Path, world_size: int, batch_size: int
) -> None:
    with hr.Loader(small, batch_size=6, rank=0, world_size=2, **OPTIONS) as first:
        start = first.state_dict()
    assert (
        run_segment(small, world_size, batch_size, start, None)[0]
        == run_segment(small, 1, 12, start, None)[0]
    )


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_fresh_runs_give_the_same_batches_on_any_world(many_blocks: Path, world_size: int) -> None:
    with hr.Loader(many_blocks, batch_size=64, **OPTIONS) as loader:
        assert loader.order_spec["lane_count"] >= 32
    assert (
        run_segment(many_blocks, world_size, 64 // world_size, None, 20)[0]
        == run_segment(many_blocks, 1, 64, None, 20)[0]
    )


def test_resuming_continues_the_same_epoch_exactly(small: Path) -> None:
    whole, _ = run_segment(small, 1, 10, None, None)
    for stop in (0, 1, 7, len(whole)):
        first, state = run_segment(small, 1, 10, None, stop)
        if stop == len(whole):
            assert first == whole
            break
        rest, _ = run_segment(small, 1, 10, json.loads(json.dumps(state)), None)
        assert first + rest == whole
        assert len(json.dumps(state)) < 1024


def test_each_loop_is_one_epoch_and_epochs_differ(small: Path, open_loader: Any) -> None:
    loader = open_loader(small, batch_size=20)
    assert loader.epoch == 0
    first = [real_ids(batch) for batch in loader]
    second = [real_ids(batch) for batch in loader]
    assert len(first) == len(second) == len(loader) == 11
    assert (
        sorted(i for batch in first for i in batch)
        == sorted(i for batch in second for i in batch)
        == list(range(211))
    )
    assert first != second
    assert loader.epoch == 2


def test_epochs_reads_the_next_before_it_begins_and_changes_nothing(many_blocks: Path) -> None:
    def run(epoch_bytes: float, **options: Any) -> tuple[list[Any], float]:
        """What was delivered, and the bytes that were read."""
        seen: list[Any] = []
        with hr.Loader(many_blocks, batch_size=16, rank=0, world_size=1, **OPTIONS, **options) as loader:
            opening = loader.stats()["store.received_bytes"]
            for epoch in range(3):
                loader.set_epoch(epoch)
                for batch in loader:
                    seen.append((batch.epoch, batch.ids.tolist()))
                    seen.append(loader.state_dict())
                # Nothing but reading on brings half of the next epoch.
                wanted = opening + (epoch + 1.5) * epoch_bytes if epoch < 2 else 0
                deadline = time.monotonic() + 60
                while epoch_bytes and loader.stats()["store.received_bytes"] < wanted:
                    assert time.monotonic() < deadline
            return seen, loader.stats()["store.received_bytes"] - opening

    plain, plain_bytes = run(0)
    read_on, read_on_bytes = run(plain_bytes / 3, epochs=3)
    assert read_on == plain
    assert read_on_bytes <= 1.02 * plain_bytes


def test_taking_all_batches_without_asking_for_the_end_is_an_epoch(small: Path, open_loader: Any) -> None:
    loader = open_loader(small, batch_size=20)
    for epoch in range(3):
        ids = [i for batch in itertools.islice(loader, len(loader)) for i in real_ids(batch)]
        assert sorted(ids) == list(range(211))
        assert loader.epoch == loader.state_dict()["epoch"] == epoch + 1


def test_a_batch_that_cannot_be_decoded_is_not_counted(tmp_path: Path, open_loader: Any) -> None:
    values = [b"fine" if i != 33 else b"\xff\xfe" for i in range(60)]
    root = write_mds(tmp_path / "ds", {"t": ("str", None)}, [{"t": value} for value in values])
    loader = open_loader(root, batch_size=10, shuffle=False)
    stream = iter(loader)
    received = [i for _ in range(3) for i in real_ids(next(stream))]
    with pytest.raises(hr.CorruptError):
        next(stream)
    assert received == list(range(30))
    assert loader.state_dict()["t"] == 30
    with pytest.raises(hr.CorruptError):
        next(iter(loader))


def test_the_length_of_an_uneven_epoch_is_the_ranks_own(many_blocks: Path) -> None:
    for world_size in (3, 7):
        for loader in open_ranks(many_blocks, world_size, 9, None, epoch_end="uneven"):
            with loader:
                assert len(loader) == sum(1 for _ in loader)


def test_the_same_lanes_make_the_same_order_whatever_the_memory(many_blocks: Path) -> None:
    orders = []
    for memory in ("2MiB", "64MiB"):
        with hr.Loader(many_blocks, batch_size=64, lanes=32, **(OPTIONS | {"memory": memory})) as loader:
            orders.append([ids.tolist() for ids in itertools.islice(loader.sample_ids(epoch=0), 5)])
    assert orders[0] == orders[1]


def test_leaving_a_loop_keeps_the_position(small: Path, open_loader: Any) -> None:
    loader = open_loader(small, batch_size=20)
    seen = []
    for batch in loader:
        seen += real_ids(batch)
        if len(seen) >= 60:
            break
    assert loader.batches_left == 8
    for batch in loader:
        seen += real_ids(batch)
    assert sorted(seen) == list(range(211))


@pytest.mark.parametrize("epoch_end", ["pad", "drop", "uneven"])
def test_epoch_end_policies(small: Path, epoch_end: str) -> None:
    loaders = open_ranks(small, 3, 16, None, epoch_end=epoch_end)
    try:
        parts = [list(loader) for loader in loaders]
    finally:
        for loader in loaders:
            loader.close()
    ids = sorted(i for rank in parts for batch in rank for i in real_ids(batch))
    sizes = {len(batch.ids) for rank in parts for batch in rank[:-1]}
    assert sizes == {16}
    if epoch_end == "drop":
        assert all(len(rank) == 4 for rank in parts)
        assert len(ids) == len(set(ids)) == 192
    else:
        assert ids == list(range(211))
        last = [len(rank[-1].ids) for rank in parts]
        assert last == [16, 16, 16] if epoch_end == "pad" else max(last) - min(last) <= 1
    if epoch_end == "pad":
        repeats = [
            int(i) for rank in parts for i, real in zip(rank[-1].ids, rank[-1].mask, strict=True) if not real
        ]
        assert len(repeats) == 5 * 48 - 211


def test_sequential_order_is_the_dataset_order(small: Path, open_loader: Any) -> None:
    loader = open_loader(small, batch_size=10, shuffle=False)
    assert [i for batch in loader for i in real_ids(batch)] == list(range(211))
    assert loader.order_spec["id"] == "sequential"


def test_sample_ids_tell_the_batches_in_advance(small: Path, open_loader: Any) -> None:
    loader = open_loader(small, batch_size=9, rank=1, world_size=2)
    promised = [ids.tolist() for ids in loader.sample_ids(0)]
    assert [batch.ids.tolist() for batch in loader] == promised
    assert [ids.tolist() for ids in loader.sample_ids(1)] == [batch.ids.tolist() for batch in loader]
    assert next(loader.sample_ids(0)).dtype == np.int64


def test_columns_view_the_batch_memory_and_outlive_the_loader(small: Path, open_loader: Any) -> None:
    loader = open_loader(small, batch_size=32)
    batch = next(iter(loader))
    x, ids = batch["x"], batch.ids
    assert not x.flags.owndata
    assert x.flags.writeable
    assert (x.dtype, x.shape, ids.dtype, batch.mask.dtype) == (np.int64, (32,), np.int64, np.bool_)
    assert (batch.epoch, batch.index) == (0, 0)
    loader.close()
    del batch, loader
    gc.collect()
    assert x.tolist() == [7 * int(i) + 1 for i in ids]


def test_batch_is_a_dict_with_a_short_repr(small: Path, open_loader: Any) -> None:
    batch = next(iter(open_loader(small, batch_size=4)))
    assert isinstance(batch, dict)
    assert set(batch) == {"x", "t"}
    assert repr(batch) == "Batch(epoch=0, index=0, samples=4, {t: list of str, x: int64[4]})"


def test_columns_can_be_chosen(small: Path, open_loader: Any) -> None:
    assert list(next(iter(open_loader(small, columns=["x"])))) == ["x"]
    assert list(next(iter(open_loader(small, columns="t")))) == ["t"]
    with pytest.raises(hr.InvalidArgumentError, match="nope"):
        open_loader(small, columns=["nope"])


def test_a_dataset_can_be_shared(small: Path, open_loader: Any) -> None:
    with hr.Dataset(small, block_bytes="64KiB", index_cache="") as dataset:
        loaders = [hr.Loader(dataset, batch_size=10, memory="16MiB", rank=r, world_size=2) for r in range(2)]
        seen = sorted(i for loader in loaders for batch in loader for i in real_ids(batch))
        assert seen == list(range(211))
        with pytest.raises(hr.InvalidArgumentError, match="endpoint="):
            hr.Loader(dataset, batch_size=10, endpoint="http://127.0.0.1:1")


def test_a_state_of_another_run_is_refused_and_changes_nothing(
    small: Path, tmp_path: Path, open_loader: Any
) -> None:
    loader = open_loader(small, batch_size=10)
    stream = iter(loader)
    next(stream)
    state = loader.state_dict()
    other_data = open_loader(write_numbers(tmp_path / "other", 212), batch_size=10)
    with pytest.raises(hr.InvalidArgumentError, match="fingerprint"):
        other_data.load_state_dict(state)
    with pytest.raises(hr.InvalidArgumentError, match="seed"):
        open_loader(small, batch_size=10, seed=6).load_state_dict(state)
    with pytest.raises(hr.InvalidArgumentError, match="order"):
        open_loader(small, batch_size=10, shuffle=False).load_state_dict(state)
    for broken in ({}, {"version": 99}, {**state, "epoch": "one"}):
        with pytest.raises(hr.InvalidArgumentError):
            loader.load_state_dict(broken)
    assert loader.state_dict() == state


def test_rank_and_world_size_come_from_the_environment(
    small: Path, open_loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    loader = open_loader(small)
    assert (loader.rank, loader.world_size) == (2, 3)
    monkeypatch.setenv("RANK", "two")
    with pytest.raises(hr.InvalidArgumentError, match="RANK"):
        open_loader(small)
    assert open_loader(small, rank=0, world_size=1).rank == 0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": 0}, "world_size"),
        ({"epoch_end": "stop"}, "epoch_end"),
        ({"order": "mosaic:py9"}, "mosaic:py1e"),
        ({"order": "mosaic"}, "order"),
        ({"order": "mosaic:py1e", "lanes": 2}, "lanes"),
        ({"order": "mosaic:py1e", "order_options": {"window": 2}}, "window"),
        ({"order": "mosaic:py1e", "order_options": {"num_workers": -1}}, "num_workers"),
        ({"order": "mosaic:py1e", "order_options": {"partition_algo": 3}}, "partition_algo'\\]=3"),
        (
            {"order": "mosaic:py1e", "order_options": {"num_canonical_nodes": "x"}},
            "num_canonical_nodes'\\]='x': expected a whole number",
        ),
        ({"order": "mosaic:py1e", "order_options": {"num_canonical_nodes": 2**32}}, "num_canonical_nodes"),
        ({"order": "mosaic:py1e", "order_options": {"epoch_size": 2.5}}, "epoch_size"),
        (
            {"order": "mosaic:py1e", "order_options": {"streams": [{"shard_samples": ["x"]}]}},
            "shard_samples='x'",
        ),
        (
            {"order": "mosaic:py1e", "order_options": {"streams": [{"shard_samples": [1], "repeat": "x"}]}},
            "repeat='x'",
        ),
        ({"order": "mosaic:py1e", "order_options": {"streams": 5}}, "streams'\\]=5: expected a list"),
        ({"order": "mosaic:py1e", "order_options": {"streams": [{"shard_samples": 5}]}}, "shard_samples"),
        ({"order": "litdata", "order_options": {"drop_last": 1}}, "drop_last'\\]=1: expected True or False"),
        ({"order": "litdata", "order_options": {"window": -1}}, "window"),
        ({"order": "litdata", "seed": 2**40}, "seed=1099511627776"),
        ({"order": "mosaic:py1e", "order_options": {"partition_algo": "x"}}, "partition"),
        ({"order": "mosaic:py1e", "order_options": {"streams": [{}]}}, "shard_samples"),
        ({"order": "mosaic:py1e", "order_options": {"streams": [{"shard_samples": [1]}]}}, "shard"),
        (
            {"order": "litdata", "order_options": {"shuffle": "all"}},
            "shuffle'\\]='all': expected True, False or one of none, full, window",
        ),
        ({"order": "litdata", "order_options": {"shuffle": 1}}, "shuffle'\\]=1: expected True"),
        ({"order": "mosaic:py1e", "seed": 2**63}, f"seed={2**63}: expected .* 2\\*\\*63 - 1"),
        ({"order_options": {"num_workers": 2}}, "order_options"),
        ({"order": "headrace", "shuffle": False}, "order"),
        ({"prefetch": 0}, "prefetch"),
        ({"prefetch": 1025}, "prefetch"),
        ({"prefetch": -1}, "prefetch=-1"),
        ({"workers": 1025}, "worker"),
        ({"lanes": 2.5}, "lanes=2.5"),
        ({"rank": 0, "world_size": 0}, "world_size"),
        ({"order": "mosaic:py1e", "rank": 0, "world_size": 0}, "world_size"),
        ({"order": "litdata", "rank": 0, "world_size": 0}, "world_size"),
        ({"order": "mosaic:py1e", "batch_size": 0}, "batch_size"),
        ({"order": "litdata", "batch_size": 0}, "batch_size"),
        ({"memory": "64"}, "memory|limit"),
        ({"format": "hdf5"}, "format"),
    ],
)
def test_wrong_arguments_name_themselves(
    small: Path, open_loader: Any, arguments: dict[str, Any], match: str
) -> None:
    with pytest.raises((hr.InvalidArgumentError, hr.UnsupportedError), match=match):
        open_loader(small, **arguments)


@pytest.mark.parametrize(
    "opening",
    [
        {"block_bytes": "1MiB"},
        {"format": "mds"},
        {"index_cache": ""},
        {"use_stored_index": False},
        {"endpoint": "http://x"},
    ],
)
def test_options_that_open_a_dataset_are_refused_with_an_open_one(
    small: Path, open_loader: Any, opening: dict[str, Any]
) -> None:
    name = next(iter(opening))
    with hr.Dataset(small) as dataset:
        with pytest.raises(
            hr.InvalidArgumentError, match=f"{name}= belongs to the Dataset that was passed in"
        ):
            open_loader(dataset, **opening)
        mixture = hr.Mixture({"a": (dataset, 1)})
        with pytest.raises(
            hr.InvalidArgumentError, match=f"{name}= belongs to the Mixture that was passed in"
        ):
            open_loader(mixture, **opening)
        mixture.close()
        assert open_loader(dataset, format="auto", use_stored_index=True).batch_size == 10
    if name != "endpoint":
        assert len(open_loader([small], **opening)) > 0


def test_a_closed_loader_says_so(small: Path, open_loader: Any) -> None:
    loader = open_loader(small)
    stream = iter(loader)
    next(stream)
    loader.close()
    loader.close()
    assert loader.closed
    for call in (lambda: next(stream), lambda: iter(loader), loader.state_dict, loader.stats):
        with pytest.raises(hr.InvalidArgumentError, match="closed"):
            call()


def test_stats_count_and_name_the_stalls(numbers: Path, s3: simulator.Server, open_loader: Any) -> None:
    loader = open_loader("s3://b/numbers", batch_size=100)
    assert sum(len(real_ids(batch)) for batch in loader) == 1000
    stats = loader.stats()
    assert stats["pool.peak_bytes"] <= stats["pool.limit_bytes"] == 64 << 20
    assert set(stats["stall_seconds"]) == {
        "memory",
        "throttled",
        "first_byte",
        "transfer",
        "cache_read",
        "decompress",
        "decode",
        "transform",
        "other",
    }
    assert all(seconds >= 0 for seconds in stats["stall_seconds"].values())


def test_memory_that_limits_is_said_once_with_a_number(
    small: Path, open_loader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"loader.memory_wanted_bytes": 0.0, "loader.memory_fill_bytes": 0.0}
    monkeypatch.setattr("headrace.loader.loader.by_name", lambda _: found)
    loader = open_loader(small, batch_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in itertools.islice(loader, 7):
            pass
    found["loader.memory_fill_bytes"] = float(3 << 30)
    with pytest.warns(RuntimeWarning, match=r'memory="3072MiB" would allow twice as much.*once'):
        next(iter(loader))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in loader:
            pass


def test_batches_held_count_against_the_memory_and_do_not_hang(small: Path, open_loader: Any) -> None:
    held = list(open_loader(small, batch_size=20))
    assert sorted(i for batch in held for i in real_ids(batch)) == list(range(211))


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_threads_may_share_a_loader(small: Path, open_loader: Any) -> None:
    loader = open_loader(small, batch_size=5)
    stream = iter(loader)
    seen: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        for batch in stream:
            with lock:
                seen.extend(real_ids(batch))

    in_threads(4, work)
    assert sorted(seen) == list(range(211))


def test_a_failed_read_names_the_object_and_repeats(
    numbers: Path, s3: simulator.Server, open_loader: Any
) -> None:
    loader = open_loader("s3://b/numbers", batch_size=10)
    (numbers / "shard.00007.mds").unlink()
    for _ in range(2):
        with pytest.raises(hr.HeadraceError, match=r"shard\.00007\.mds"):
            for _batch in loader:
                pass


def test_an_object_that_changes_during_a_run_is_an_error(
    numbers: Path, s3: simulator.Server, open_loader: Any
) -> None:
    loader = open_loader("s3://b/numbers", batch_size=10)
    shard = numbers / "shard.00002.mds"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(hr.ChangedError, match=r"shard\.00002\.mds"):
        for _batch in loader:
            pass
