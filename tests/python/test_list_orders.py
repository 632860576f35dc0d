"""Loaders in the sequence of other loaders, against those loaders."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import write_mds, write_numbers

import headrace as hr
from headrace import _native

COUNT = 700


@pytest.fixture(scope="module")
def mds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [{"i": i.to_bytes(8, "little"), "t": b"x" * (i % 90)} for i in range(COUNT)]
    return write_mds(
        tmp_path_factory.mktemp("list_orders") / "mds", {"i": ("int", 8), "t": ("bytes", None)}, samples, 50
    )


def drain(loader: hr.Loader, batches: int | None = None) -> list[int]:
    ids: list[int] = []
    for number, batch in enumerate(loader, 1):
        assert batch["i"].tolist() == batch.ids.tolist()
        ids += batch.ids.tolist()
        if number == batches:
            break
    return ids


def mosaic_dataset(root: Path, **options: Any) -> Any:
    streaming = pytest.importorskip("streaming")
    streaming.base.util.clean_stale_shared_memory()
    return streaming.StreamingDataset(
        local=str(root), remote=None, batch_size=10, shuffle=True, shuffle_seed=5, **options
    )


def stop(dataset: Any) -> None:
    """Its shared memory stays behind otherwise."""
    del dataset


@pytest.mark.parametrize("algorithm", ["py1e", "py1s", "py1br", "py2s", "naive"])
def test_a_mosaic_order_is_mosaics(mds: Path, open_loader: Any, algorithm: str) -> None:
    options = {"num_canonical_nodes": 2, "shuffle_block_size": 100}
    theirs = mosaic_dataset(mds, shuffle_algo=algorithm, **options)
    loader = open_loader(mds, order=f"mosaic:{algorithm}", seed=5, order_options=options)
    for _ in range(2):
        assert drain(loader) == [int(sample["i"]) for sample in theirs]
    stop(theirs)


def test_goes_on_from_mosaics_state_and_says_it(mds: Path, open_loader: Any) -> None:
    options = {"num_canonical_nodes": 2, "shuffle_block_size": 100}
    theirs = mosaic_dataset(mds, **options)
    loader = open_loader(mds, order="mosaic:py1e", seed=5, order_options=options)
    begun = drain(loader, 20)
    state = loader.state_dict()
    assert {
        name: state[name] for name in ("epoch", "sample_in_epoch", "num_canonical_nodes", "shuffle_seed")
    } == {
        "epoch": 0,
        "sample_in_epoch": 200,
        "num_canonical_nodes": 2,
        "shuffle_seed": 5,
    }
    # Mosaic goes on from our state, and we from Mosaic's.
    theirs.load_state_dict(state)
    rest = [int(sample["i"]) for sample in theirs]
    assert sorted(begun + rest) == list(range(COUNT))
    resumed = open_loader(mds, order="mosaic:py1e", seed=77, order_options=options)
    resumed.load_state_dict(
        {
            name: state[name]
            for name in (
                "epoch",
                "sample_in_epoch",
                "num_canonical_nodes",
                "shuffle_seed",
                "initial_physical_nodes",
            )
        }
    )
    assert drain(resumed) == rest
    loader.load_state_dict(state)
    assert drain(loader) == rest
    stop(theirs)


def test_ranks_of_a_mosaic_order_share_the_epoch(mds: Path, open_loader: Any) -> None:
    ids: list[int] = []
    for rank in range(4):
        loader = open_loader(
            mds,
            order="mosaic:py1e",
            rank=rank,
            world_size=4,
            order_options={"ranks_per_node": 2, "num_workers": 3},
        )
        mine = drain(loader)
        assert [i for batch in loader.sample_ids(0) for i in batch.tolist()] == mine
        assert len(loader) >= len(mine) // 10
        ids += mine
    assert set(ids) == set(range(COUNT))


def test_mosaic_takes_the_state_of_a_run_that_began_here(mds: Path, open_loader: Any) -> None:
    for begun in (0, 20):
        loader = open_loader(mds, order="mosaic:py1e", seed=5)
        drain(loader, begun) if begun else None
        state = loader.state_dict()
        theirs = mosaic_dataset(mds)
        assert state["initial_physical_nodes"] == theirs.state_dict(0, True)["initial_physical_nodes"] == 1
        theirs.load_state_dict(state)
        assert [int(sample["i"]) for sample in theirs] == drain(loader)
        stop(theirs)


def test_a_mosaic_order_goes_on_with_other_nodes(mds: Path, open_loader: Any) -> None:
    """partition_algo "relaxed", which is the default: three nodes go on with two canonical ones."""
    partition = pytest.importorskip("streaming.base.partition")
    expected = partition.get_partitions(
        "relaxed", COUNT, 2, 3, 2, 1, 2, 120, 2
    )  # (nodes, ranks, workers, batches, samples)

    def open_rank(rank: int, ranks: int, batch_size: int) -> hr.Loader:
        options = {"ranks_per_node": 2}
        return open_loader(
            mds,
            order="mosaic:py1e",
            shuffle=False,
            rank=rank,
            world_size=ranks,
            batch_size=batch_size,
            order_options=options,
        )

    begun = [open_rank(rank, 4, 3) for rank in range(4)]
    for loader in begun:
        drain(loader, 10)
    for rank in range(6):
        loader = open_rank(rank, 6, 2)
        loader.load_state_dict(begun[0].state_dict())
        of_rank = expected[rank // 2, rank % 2].reshape(-1)
        assert drain(loader) == of_rank[of_rank >= 0].tolist()


def test_a_mosaic_order_goes_on_behind_its_samples(tmp_path: Path, open_loader: Any) -> None:
    """Canonical nodes that do not divide the samples leave some for slots behind the last."""
    root = write_mds(
        tmp_path / "mds", {"i": ("int", 8)}, [{"i": i.to_bytes(8, "little")} for i in range(27)], 10
    )
    theirs = mosaic_dataset(root, num_canonical_nodes=4)
    state = {
        "epoch": 0,
        "sample_in_epoch": 27,
        "num_canonical_nodes": 4,
        "shuffle_seed": 5,
        "initial_physical_nodes": 1,
    }
    theirs.load_state_dict(state)
    expected = [int(sample["i"]) for sample in theirs]
    assert len(expected) == 1
    loader = open_loader(
        root, order="mosaic:py1e", seed=5, batch_size=1, order_options={"num_canonical_nodes": 4}
    )
    loader.load_state_dict(state)
    assert drain(loader) == expected
    stop(theirs)


def test_a_mosaic_order_refuses_ranks_that_fill_no_nodes(mds: Path, open_loader: Any) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="ranks_per_node"):
        open_loader(mds, order="mosaic:py1e", rank=0, world_size=3, order_options={"ranks_per_node": 2})


def test_a_litdata_order_goes_on_where_it_stopped(mds: Path, open_loader: Any) -> None:
    options: dict[str, Any] = {"order": "litdata", "order_options": {"num_workers": 2}}
    loader = open_loader(mds, **options)
    whole = [i for batch in loader.sample_ids(0) for i in batch.tolist()]
    assert sorted(whole) == list(range(COUNT))
    begun = drain(loader, 30)
    resumed = open_loader(mds, **options)
    resumed.load_state_dict(loader.state_dict())
    assert begun + drain(resumed) == whole
    assert resumed.epoch == 1


def test_shuffle_of_a_litdata_order_is_litdatas_flag_too(mds: Path, open_loader: Any) -> None:
    for flag, name in ((True, "full"), (False, "none")):
        by_flag, by_name = (
            open_loader(mds, order="litdata", order_options={"shuffle": value}) for value in (flag, name)
        )
        assert drain(by_flag) == drain(by_name)


@pytest.mark.parametrize("begun_epochs", [0, 1])
@pytest.mark.parametrize(("before", "after"), [(8, 4), (4, 2), (4, 8), (2, 4)])
def test_a_litdata_order_goes_on_with_other_ranks(
    tmp_path: Path, open_loader: Any, before: int, after: int, begun_epochs: int
) -> None:
    """The ranks are one node of each world, as without options."""
    samples = [{"i": i.to_bytes(8, "little")} for i in range(96)]
    root = write_mds(tmp_path / "mds", {"i": ("int", 8)}, samples, 7)

    def open_ranks(count: int) -> list[hr.Loader]:
        return [
            open_loader(root, order="litdata", rank=rank, world_size=count, batch_size=8 // count)
            for rank in range(count)
        ]

    ranks = open_ranks(before)
    for _ in range(begun_epochs):
        assert sorted(i for loader in ranks for i in drain(loader)) == list(range(96))
    ids = [i for loader in ranks for i in drain(loader, 4)]
    resumed = open_ranks(after)
    for loader in resumed:
        loader.load_state_dict(ranks[0].state_dict())
    ids += [i for loader in resumed for i in drain(loader)]
    assert sorted(ids) == list(range(96))
    assert sorted(i for loader in resumed for i in drain(loader)) == list(range(96))


@pytest.fixture(scope="module")
def litdata_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache_module = pytest.importorskip("litdata.streaming.cache")
    root = tmp_path_factory.mktemp("litdata") / "data"
    root.mkdir()
    cache = cache_module.Cache(str(root), chunk_size=16)
    for i in range(COUNT):
        cache[i] = {"i": i}
    cache.done()
    cache.merge()
    return root


def litdata_loader(root: Path, workers: int, batch_size: int = 10) -> Any:
    litdata = pytest.importorskip("litdata")
    return litdata.StreamingDataLoader(
        litdata.StreamingDataset(str(root), shuffle=True), batch_size=batch_size, num_workers=workers
    )


def litdata_ids(batches: Any) -> list[int]:
    return [i for batch in batches for i in batch["i"].tolist()]


@pytest.mark.parametrize("part", ["loader", "dataset"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_litdata_order_goes_on_from_litdatas_state(
    litdata_root: Path, open_loader: Any, workers: int, part: str
) -> None:
    theirs = litdata_loader(litdata_root, workers)
    litdata_ids(theirs)
    litdata_ids(itertools.islice(theirs, 23))
    state = json.loads(json.dumps(theirs.state_dict()))
    assert state["dataset"]["current_epoch"] == 2
    resumed = litdata_loader(litdata_root, workers)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    expected = litdata_ids(resumed)
    following = litdata_ids(resumed)
    loader = open_loader(litdata_root, order="litdata", order_options={"num_workers": max(workers, 1)})
    loader.load_state_dict(state if part == "loader" else state["dataset"])
    assert loader.epoch == 1
    begun = drain(loader, 5)
    again = open_loader(litdata_root, order="litdata", order_options={"num_workers": max(workers, 1)})
    again.load_state_dict(loader.state_dict())
    assert begun + drain(again) == expected
    assert drain(again) == following


def test_a_litdata_order_deals_out_what_litdata_left(litdata_root: Path, open_loader: Any) -> None:
    """Other workers and another batch size than LitData's run."""
    theirs = litdata_loader(litdata_root, 2)
    begun = litdata_ids(itertools.islice(theirs, 24))
    state = theirs.state_dict()
    resumed = litdata_loader(litdata_root, 0, 8)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    expected = litdata_ids(resumed)
    loader = open_loader(litdata_root, order="litdata", batch_size=8)
    loader.load_state_dict(state)
    assert drain(loader) == expected
    assert sorted(begun + expected) == list(range(COUNT))


def test_litdatas_state_of_other_options_is_refused(litdata_root: Path, open_loader: Any) -> None:
    theirs = litdata_loader(litdata_root, 0)
    litdata_ids(itertools.islice(theirs, 3))
    state = theirs.state_dict()
    with pytest.raises(hr.InvalidArgumentError, match="open the loader with seed=42"):
        open_loader(litdata_root, order="litdata", seed=7).load_state_dict(state)
    with pytest.raises(hr.InvalidArgumentError, match="shuffle=True"):
        open_loader(litdata_root, order="litdata", shuffle=False).load_state_dict(state)
    with pytest.raises(hr.InvalidArgumentError, match=r'LitData.*order="litdata"'):
        open_loader(litdata_root).load_state_dict(state)


def test_a_state_of_another_order_is_refused(mds: Path, open_loader: Any) -> None:
    state = open_loader(mds, order="mosaic:py1e").state_dict()
    with pytest.raises(hr.InvalidArgumentError, match="order"):
        open_loader(mds).load_state_dict(state)
    with pytest.raises(hr.InvalidArgumentError, match="order options"):
        open_loader(mds, order="mosaic:py1e", order_options={"shuffle_block_size": 1000}).load_state_dict(
            state
        )


def test_a_litdata_list_goes_on_after_what_each_worker_gave() -> None:
    world = (2, 1, 2, 3)  # ranks, nodes, workers, batch size
    chunks = [(at, at, at + 12, at + 12, 100) for at in range(0, 96, 12)]
    spec = {"shuffle": "full", "seed": 4}
    state = {"epoch": 2, "saved_by": world, "initial": world, "is_elastic": False}

    def slots(batches: int) -> list[int]:
        given = {"sample_in_epoch": 6 * batches, "num_samples_yielded": 3 * batches}
        whole = _native.litdata_list(spec, chunks, world, state | given)
        return [int(slot) for slot in whole.read(0, whole.size)]

    assert sorted(slots(0)) == list(range(96))
    for batches in (1, 2, 5):
        assert slots(batches) == slots(0)[6 * batches :]


def test_a_list_that_memory_makes_read_sample_by_sample_names_what_would_do(
    buckets: Path, s3: Any, open_loader: Any
) -> None:
    count = 40_000
    write_numbers(buckets / "b" / "many", count, per_shard=400)
    small = {"order": "mosaic:py1e", "batch_size": 20, "memory": "384KiB"}
    loader = open_loader("s3://b/many", **small)
    with pytest.warns(RuntimeWarning, match=r'read one by one.*memory="(\d+)MiB" would do') as caught:
        assert sum(len(batch.ids) for batch in loader) == count
    (told,) = [str(warning.message) for warning in caught if "would do" in str(warning.message)]
    assert loader.stats()["loader.memory_wanted_bytes"] > 0
    enough = told.partition("would do")[0].rpartition("memory=")[2].strip().strip('"')
    again = open_loader("s3://b/many", **{**small, "memory": enough})
    assert sum(len(batch.ids) for batch in again) == count
    assert again.stats()["loader.memory_wanted_bytes"] == 0
    assert again.stats()["store.requests"] < loader.stats()["store.requests"] / 4
