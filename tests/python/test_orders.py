"""Orders of mosaicml-streaming and litdata, compared with the installed packages on random configurations
(skipped without them).

``HEADRACE_LONG_TESTS=1``: 1,000 configurations of each instead of 50. ``HEADRACE_TEST_SEED`` sets the seed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import _native
from headrace.errors import InvalidArgumentError

LONG = os.environ.get("HEADRACE_LONG_TESTS") == "1"
CONFIGURATIONS = 1000 if LONG else 50
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "20261121"))


# mosaicml-streaming: its own functions over an object with the attributes that they read.


def random_weights(r: random.Random, count: int) -> tuple[list[dict[str, Any]], int | None]:
    mode = r.choice(["none", "proportion", "proportion", "repeat", "choose", "epoch", "mixed"])
    if mode == "proportion":
        return [{"proportion": r.choice([1, 2, 0.3, 0.77, 5, 1 / 3])} for _ in range(count)], r.choice(
            [None, r.randint(20, 260)]
        )
    if mode == "repeat":
        return [{"repeat": r.choice([0.5, 1, 1.37, 2.9])} for _ in range(count)], None
    if mode == "choose":
        return [{"choose": r.randint(5, 120)} for _ in range(count)], None
    if mode == "mixed":
        return [r.choice([{}, {"repeat": 1.25}, {"choose": 31}]) for _ in range(count)], None
    return [{} for _ in range(count)], r.randint(20, 260) if mode == "epoch" else None


def random_mosaic(r: random.Random) -> dict[str, Any]:
    count = r.randint(1, 12 if r.random() < 0.1 else 4)
    world = (r.choice([1, 1, 2, 3, 4]), r.choice([1, 2, 4]), r.choice([1, 2, 3]), r.choice([1, 2, 3, 4]))
    weights, epoch_size = random_weights(r, count)
    global_batch = world[0] * world[1] * world[3]
    return {
        "streams": [
            [
                r.randint(1, 60 if r.random() < 0.2 else 25)
                for _ in range(r.randint(1, 20 if r.random() < 0.2 else 6))
            ]
            for _ in range(count)
        ],
        "weights": weights,
        "epoch_size": epoch_size,
        "world": world,
        "shuffle": r.random() < 0.85,
        "shuffle_algo": r.choice(["py1e", "py1e", "py1br", "py1s", "py2s", "naive"]),
        "shuffle_seed": r.choice([9176, 0, r.getrandbits(35)]),
        "shuffle_block_size": r.choice([1, 2, 8, 20, 64, 1000, 1 << 18]),
        "sampling_method": r.choice(["balanced", "balanced", "fixed"]),
        "sampling_granularity": r.choice([1, 1, 2, 7]),
        "partition_algo": r.choice(["relaxed", "relaxed", "orig"]),
        "batching_method": r.choice(["random", "random", "stratified", "per_stream", "device_per_stream"]),
        "num_canonical_nodes": world[0] * r.choice([1, 1, 2, 3])
        if r.random() < 0.8
        else r.choice([1, 2, 3, 4, 6]),
        "initial_physical_nodes": r.choice([None, None, 1, 2]),
        "epoch": r.choice([0, 0, 1, 5]),
        "sample_in_epoch": r.choice([0, 0, global_batch * r.randint(0, 3), r.randint(0, 40)]),
    }


def mosaic_work(case: dict[str, Any]) -> np.ndarray | None:
    """The epoch's array by the package; None when it refuses the configuration."""
    from streaming.base.batching import generate_work
    from streaming.base.dataset import StreamingDataset
    from streaming.base.stream import Stream
    from streaming.base.world import World

    class Dataset:
        resample_streams = StreamingDataset.resample_streams

    data: Any = Dataset()
    data.streams = []
    for weights in case["weights"]:
        stream = Stream.__new__(Stream)
        for name, value in weights.items():
            setattr(stream, name, value)
        data.streams.append(stream)
    streams = case["streams"]
    data.num_streams = len(streams)
    data.samples_per_shard = np.array([n for shards in streams for n in shards], np.int64)
    data.sample_offset_per_shard = data.samples_per_shard.cumsum() - data.samples_per_shard
    data.shards_per_stream = np.array([len(shards) for shards in streams], np.int64)
    data.shard_offset_per_stream = data.shards_per_stream.cumsum() - data.shards_per_stream
    data.samples_per_stream = np.array([sum(shards) for shards in streams], np.int64)
    for name in (
        "shuffle",
        "shuffle_algo",
        "shuffle_seed",
        "shuffle_block_size",
        "sampling_method",
        "sampling_granularity",
    ):
        setattr(data, name, case[name])
    for name in ("partition_algo", "num_canonical_nodes", "initial_physical_nodes"):
        setattr(data, name, case[name])
    nodes, ranks, workers, data.batch_size = case["world"]
    data.epoch_seed_change = case["shuffle"] and case["sampling_method"] == "balanced"
    try:
        data.epoch_size = Stream.apply_weights(
            data.streams, data.samples_per_stream, case["epoch_size"], case["shuffle_seed"]
        )
        return generate_work(
            case["batching_method"],
            data,
            World(nodes, ranks, workers, 0),
            case["epoch"],
            case["sample_in_epoch"],
        )
    except (ValueError, IndexError, ZeroDivisionError, AssertionError):
        return None


def our_work(case: dict[str, Any]) -> np.ndarray | None:
    rows = [
        (shards, w.get("proportion"), w.get("repeat"), w.get("choose"))
        for shards, w in zip(case["streams"], case["weights"], strict=True)
    ]
    spec = {
        name: value
        for name, value in case.items()
        if name not in ("streams", "weights", "world", "epoch", "sample_in_epoch")
    }
    state = {
        "epoch": case["epoch"],
        "sample_in_epoch": case["sample_in_epoch"],
        "initial_physical_nodes": case["initial_physical_nodes"],
    }
    try:
        slots = _native.MosaicEpoch(spec, rows, case["world"], state).open("", 2)
    except InvalidArgumentError:
        return None
    nodes, ranks, workers, batch = case["world"]
    ids = slots.read(0, slots.size)
    return ids.reshape(-1, workers, nodes, ranks, batch).transpose(2, 3, 1, 0, 4)


def has_tie(case: dict[str, Any]) -> bool:
    """Stratified batches whose left-over slot goes to one of equal streams: numpy's sort decides, by the
    CPU."""
    if case["batching_method"] != "stratified":
        return False
    rows = [
        (shards, w.get("proportion"), w.get("repeat"), w.get("choose"))
        for shards, w in zip(case["streams"], case["weights"], strict=True)
    ]
    try:
        proportion = np.array(
            _native.apply_mosaic_weights(rows, case["epoch_size"] or 0, case["shuffle_seed"])[1]
        )
    except InvalidArgumentError:
        return False
    nodes, ranks, _, batch = case["world"]
    left = proportion * (nodes * ranks * batch)
    left -= left.astype(np.int64)
    return len(np.unique(left)) < len(left)


def test_mosaic_orders_equal_the_package() -> None:
    pytest.importorskip("streaming")
    r = random.Random(SEED)
    served = refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while served < CONFIGURATIONS:
            case = random_mosaic(r)
            if has_tie(case):
                continue
            expected, actual = mosaic_work(case), our_work(case)
            assert (expected is None) == (actual is None), case
            if expected is None or actual is None:
                refused += 1
                continue
            assert expected.shape == actual.shape, case
            assert np.array_equal(expected, actual), case
            served += 1
    assert refused > 0


def test_mosaic_shuffles_equal_the_package_on_wide_nodes() -> None:
    """py1e with samples enough for several threads and buckets."""
    shuffles = pytest.importorskip("streaming.base.shuffle")
    r = random.Random(SEED)
    for algo in ("py1e", "py1br", "py1s", "py2s", "naive"):
        sizes = [r.randint(1, 9000) for _ in range(300)]
        case = {
            "streams": [sizes],
            "weights": [{}],
            "epoch_size": None,
            "world": (1, 1, 1, 1),
            "shuffle": True,
            "shuffle_algo": algo,
        }
        case |= {
            "shuffle_seed": r.getrandbits(20),
            "shuffle_block_size": 40_000,
            "num_canonical_nodes": r.choice([1, 2, 5]),
        }
        case |= {"epoch": 3, "sample_in_epoch": 0, "initial_physical_nodes": None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = shuffles.get_shuffle(
                algo, np.array(sizes), case["num_canonical_nodes"], case["shuffle_seed"], 3, 40_000
            )
        spec = {
            name: value
            for name, value in case.items()
            if name not in ("streams", "weights", "world", "epoch", "sample_in_epoch")
        }
        row = (sizes, None, None, None)
        # One canonical row, so that slot t is place t of the shuffle.
        slots = _native.MosaicEpoch(spec, [row], (case["num_canonical_nodes"], 1, 1, 1), {"epoch": 3}).open(
            "", 3
        )
        ids = slots.read(0, slots.size).reshape(-1, case["num_canonical_nodes"])
        length = len(ids)
        for node in range(case["num_canonical_nodes"]):
            begin = node * len(expected) // case["num_canonical_nodes"]
            end = (node + 1) * len(expected) // case["num_canonical_nodes"]
            assert np.array_equal(ids[: end - begin, node], expected[begin:end]), (
                algo,
                case["num_canonical_nodes"],
                length,
            )


def test_tables_are_shared_through_a_directory(tmp_path: Any) -> None:
    epoch = _native.MosaicEpoch({"shuffle": True}, [([50_000] * 10, None, None, None)], (1, 1, 1, 8), {})
    assert epoch.table_bytes == 2_000_000
    first = epoch.open(str(tmp_path))
    assert [path.suffix for path in tmp_path.iterdir()] == [".order"]
    again = epoch.open(str(tmp_path))
    assert np.array_equal(first.read(0, 1000), again.read(0, 1000))
    assert np.array_equal(np.sort(first.read(0, first.size)), np.arange(500_000))


# litdata: its shuffle, association and elastic functions, and a DataLoader's round robin.


def random_litdata(r: random.Random) -> dict[str, Any]:
    intervals, begin = [], 0
    subsampled = r.random() < 0.2
    for _ in range(r.randint(1, 14)):
        size = r.choice([r.randint(1, 40), r.randint(1, 40), r.randint(250, 600)])
        first = r.randint(0, size - 1) if subsampled else 0
        last = r.randint(first + 1, size) if subsampled else size
        intervals.append((begin, begin + first, begin + last, begin + size))
        begin += size
    nodes = r.choice([1, 1, 1, 2, 3])
    return {
        "intervals": intervals,
        "shuffle": r.choice(["full", "full", "none", "window"]),
        "world": (nodes * r.choice([1, 1, 2, 4]), nodes, r.choice([1, 1, 2, 3, 4]), r.choice([1, 2, 4, 7])),
        "epoch": r.randint(1, 4),
        "drop_last": r.random() < 0.4,
        "seed": r.choice([42, r.getrandbits(31)]),
        "chunk_bytes": [r.randint(100, 1000) for _ in intervals],
        "max_cache_size": r.choice([0, 10**9, 1]),
        "item_window": r.choice([0, 256, 16]),
    }


def litdata_sequences(case: dict[str, Any], world: tuple[int, int, int, int]) -> list[list[tuple[int, int]]]:
    """(chunk, item) of each worker, by the package."""
    from litdata.streaming.item_loader import Interval
    from litdata.streaming.shuffle import FullShuffle, NoShuffle, WindowShuffle
    from litdata.utilities.env import _DistributedEnv

    intervals = [Interval(*row) for row in case["intervals"]]

    class Cache:
        def __init__(self) -> None:
            config = type("Config", (), {"_chunks": [{"chunk_bytes": n} for n in case["chunk_bytes"]]})()
            self._reader = type(
                "Reader", (), {"_config": config, "_max_cache_size": case["max_cache_size"]}
            )()

        def get_chunk_intervals(self) -> Any:
            return intervals

    cache: Any = Cache()
    if case["shuffle"] == "none":
        shuffler: Any = NoShuffle(cache, case["seed"], case["drop_last"])
    elif case["shuffle"] == "window":
        shuffler = WindowShuffle(
            cache, case["seed"], case["drop_last"], window=16, item_window=case["item_window"]
        )
    else:
        shuffler = FullShuffle(cache, case["seed"], case["drop_last"], item_window=case["item_window"])
    ranks, nodes, workers, batch = world
    chunks, parts = shuffler.get_chunks_and_intervals_per_workers(
        _DistributedEnv(ranks, 0, nodes), workers, batch, case["epoch"]
    )
    out = []
    for worker_chunks, worker_parts in zip(chunks, parts, strict=True):
        items: list[tuple[int, int]] = []
        for chunk, part in zip(worker_chunks, worker_parts, strict=True):
            served = shuffler(np.arange(part[1], part[2]), len(intervals), case["epoch"], int(chunk))
            items += [(int(chunk), int(item)) for item in served]
        out.append(items)
    return out


def round_robin(sequences: list[list[int]], world: tuple[int, int, int, int]) -> list[list[list[int]]]:
    """Batches of each rank as torch's DataLoader yields them."""
    ranks, _, workers, batch = world
    out = []
    for rank in range(ranks):
        left = [list(sequence) for sequence in sequences[rank * workers : (rank + 1) * workers]]
        batches = []
        while any(left):
            for w in range(workers):
                if left[w]:
                    batches.append(left[w][:batch])
                    left[w] = left[w][batch:]
        out.append(batches)
    return out


def our_batches(
    case: dict[str, Any], world: tuple[int, int, int, int], state: dict[str, Any]
) -> list[list[list[int]]]:
    spec = {name: case[name] for name in ("shuffle", "seed", "drop_last", "max_cache_size")} | {
        "item_shuffle_window": case["item_window"]
    }
    chunks = [(*row, size) for row, size in zip(case["intervals"], case["chunk_bytes"], strict=True)]
    slots = _native.litdata_list(spec, chunks, world, state)
    ranks, _, _, batch = world
    ids = slots.read(0, slots.size).reshape(-1, ranks, batch)
    rows = [[row[row >= 0].tolist() for row in ids[:, rank]] for rank in range(ranks)]
    return [[row for row in batches if row] for batches in rows]


def test_litdata_orders_equal_the_package() -> None:
    elastic = pytest.importorskip("litdata.streaming.elastic")
    r = random.Random(SEED)
    for _ in range(CONFIGURATIONS):
        case = random_litdata(r)
        world = case["world"]
        sequences = litdata_sequences(case, world)
        expected = round_robin([[item for _, item in items] for items in sequences], world)
        assert our_batches(case, world, {"epoch": case["epoch"]}) == expected, case

        # Resumed on another world.
        nodes = r.choice([1, 2])
        other = (nodes * r.choice([1, 2]), nodes, r.choice([1, 2, 3]), r.choice([1, 3, 4]))
        done = r.randint(0, sum(map(len, sequences)) + 5)
        stream = elastic.lockstep_stream_from_worker_seqs(
            sequences, world_size=world[0], num_workers=world[2], batch_size=world[3]
        )
        plans = elastic.restripe_items(
            stream,
            world_size=other[0],
            num_workers=other[2],
            batch_size=other[3],
            drop_first=done,
            drop_last=case["drop_last"],
            granularity="chunk" if case["shuffle"] == "window" else "item",
        )
        rest = [[item for _, items in plan for item in items] for plan in plans]
        same_grid = (other[0], other[2], other[3]) == (world[0], world[2], world[3])
        state = {
            "epoch": case["epoch"],
            "sample_in_epoch": done,
            "saved_by": world,
            "initial": world,
            "is_elastic": same_grid,
        }
        assert our_batches(case, other, state) == round_robin(rest, other), (case, other, done)


def test_litdata_combined_equals_the_package() -> None:
    combined = pytest.importorskip("litdata.streaming.combined")
    r = random.Random(SEED)
    for i in range(CONFIGURATIONS):
        lengths = [r.randint(3, 60) for _ in range(r.randint(2, 5))]
        over_all = i % 2 == 0
        raw = lengths if over_all else [r.choice([1, 2, 0.5, 0.3]) for _ in lengths]
        weights = [w / sum(raw) for w in raw]
        method, batch = r.choice(["stratified", "per_stream"]), r.choice([1, 4, 5])
        skip = r.choice([None, None, [r.randint(0, 2) for _ in lengths]])
        seed = r.choice([42, r.getrandbits(20), r.getrandbits(40)])
        data = [[d] * n for d, n in enumerate(lengths)]
        expected = list(
            combined._CombinedDatasetIterator(data, seed, list(weights), False, skip, batch, method, over_all)
        )
        spec = {
            "weights": weights,
            "seed": seed,
            "iterate_over_all": over_all,
            "is_per_stream": method == "per_stream",
            "batch_size": batch,
        }
        assert _native.combine_litdata(spec, lengths, sum(skip or [])).tolist() == expected, (spec, lengths)


# headrace order --prove


def numbers(path: Path, count: int) -> str:
    """A small MDS data set, made by hand."""
    path.mkdir()
    shards = []
    names = {"column_encodings": ["int"], "column_names": ["x"], "column_sizes": [8]}
    config = {**names, "compression": None, "format": "mds", "hashes": [], "size_limit": None, "version": 2}
    text = json.dumps(config, sort_keys=True).encode()
    for shard, first in enumerate(range(0, count, 40)):
        size = min(40, count - first)
        begin = 8 + 4 * size + len(text)
        data = (
            np.uint32(size).tobytes()
            + (begin + 8 * np.arange(size + 1)).astype(np.uint32).tobytes()
            + text
            + np.arange(first, first + size).tobytes()
        )
        (path / f"shard.{shard:05}.mds").write_bytes(data)
        info = {"basename": f"shard.{shard:05}.mds", "bytes": len(data), "hashes": {}}
        shards.append({**config, "samples": size, "raw_data": info, "zip_data": None})
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return str(path)


def prove(source: str, *arguments: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "headrace.cli",
        "order",
        source,
        "--batch-size",
        "4",
        "--prove",
        "--json",
        *arguments,
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "HEADRACE_ORDER_CACHE": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_stopped_run_delivers_each_sample_once(tmp_path: Path) -> None:
    source = numbers(tmp_path / "n", 403)
    worlds = ["--stops", "10,25", "--world-sizes", "4,2,8"]
    for order in ("headrace", "sequential"):
        verified = prove(source, "--order", order, *worlds)["verified"]
        assert verified["exactly_once"], order
        assert verified["world_sizes"] == [4, 2, 8]
    # Mosaic keeps the global batch: worlds that change it would move its place in the epoch.
    report = prove(
        source,
        "--order",
        "mosaic:py1s",
        "--stops",
        "10",
        "--world-sizes",
        "4,4",
        "--order-option",
        "num_canonical_nodes=1",
    )
    assert report["verified"]["missing"] == 0
    assert report["verified"]["repeated"] <= 4  # fills up the ranks
    report = prove(source, "--order", "litdata", *worlds)
    assert report["verified"]["missing"] <= 32
    assert report["verified"]["repeated"] <= 32
    assert prove(source, "--order", "litdata", "--world-size", "2")["verified"]["exactly_once"]
