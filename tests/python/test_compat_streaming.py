"""headrace.compat.streaming against mosaicml-streaming itself, over MDS files that its MDSWriter writes
(skipped without it)."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

streaming = pytest.importorskip("streaming")
torch = pytest.importorskip("torch")

from headrace.compat import streaming as compat  # noqa: E402
from headrace.compat.streaming._reader import StreamReader  # noqa: E402

BATCH = 4


@pytest.fixture(autouse=True)
def _own_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("HEADRACE_ORDER_CACHE", str(tmp_path / "orders"))
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    streaming.base.util.clean_stale_shared_memory()


def write(path: Path, count: int, tag: int, writer: Any = None) -> str:
    with (writer or streaming.MDSWriter)(
        out=str(path), columns={"id": "int", "text": "str", "row": "ndarray:int16"}, size_limit=700
    ) as out:
        for i in range(count):
            out.write(
                {
                    "id": tag * 1000 + i,
                    "text": f"sample {tag}.{i}",
                    "row": np.arange(1 + i % 5, dtype=np.int16),
                }
            )
    return str(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("mds")
    return [
        write(root / name, count, tag) for tag, (name, count) in enumerate([("a", 101), ("b", 57), ("c", 30)])
    ]


def build(package: Any, sources: list[str], weights: list[dict[str, Any]], **options: Any) -> Any:
    options = {"batch_size": BATCH, "shuffle": True, "shuffle_block_size": 40} | options
    if package is streaming:
        streaming.base.util.clean_stale_shared_memory()
    if len(sources) == 1 and not weights:
        return package.StreamingDataset(local=sources[0], **options)
    streams = [
        package.Stream(local=source, **weight)
        for source, weight in itertools.zip_longest(sources, weights, fillvalue={})
    ]
    return package.StreamingDataset(streams=streams, **options)


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[name], theirs[name]) for name in theirs)
    if isinstance(theirs, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    return type(ours) is type(theirs) and ours == theirs


CONFIGURATIONS: list[tuple[int, list[dict[str, Any]], dict[str, Any]]] = [
    (1, [], {}),
    (1, [], {"shuffle": False}),
    (1, [], {"shuffle_algo": "py1s"}),
    (1, [], {"shuffle_algo": "py2s", "num_canonical_nodes": 4}),
    (1, [], {"shuffle_algo": "py1br", "shuffle_seed": 5}),
    (1, [], {"shuffle_algo": "naive", "sampling_method": "fixed"}),
    (1, [], {"epoch_size": 77}),
    (2, [], {}),
    (2, [{"proportion": 0.3}, {"proportion": 0.7}], {"epoch_size": "0.12k"}),
    (3, [{"repeat": 1.5}, {"choose": 20}, {}], {"num_canonical_nodes": 2}),
    (2, [{"proportion": 1}, {"proportion": 2}], {"batching_method": "stratified", "sampling_granularity": 3}),
    (3, [], {"batching_method": "per_stream"}),
    (2, [{"repeat": 2}, {}], {"batching_method": "device_per_stream"}),
]


@pytest.mark.parametrize(("count", "weights", "options"), CONFIGURATIONS)
def test_two_epochs_are_served_alike(
    data: list[str], count: int, weights: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    theirs = build(streaming, data[:count], weights, **options)
    expected = [list(theirs) for _ in range(2)]
    ours = build(compat, data[:count], weights, **options)
    assert (len(ours), ours.size, ours.epoch_size) == (len(theirs), theirs.size, theirs.epoch_size)
    for epoch in range(2):
        ids = ours.sample_ids()
        served = list(ours)
        assert len(served) == len(expected[epoch])
        assert all(same(a, b) for a, b in zip(served, expected[epoch], strict=True))
        assert [ours[int(i)]["id"] for i in ids] == [sample["id"] for sample in served]
    del theirs


def only_ids(samples: list[dict[str, Any]]) -> dict[str, list[int]]:
    return {"id": [sample["id"] for sample in samples]}


def batches(dataset: Any, package: Any, workers: int, **options: Any) -> Any:
    return package.StreamingDataLoader(
        dataset, batch_size=BATCH, num_workers=workers, collate_fn=only_ids, **options
    )


def ids_of(batch: dict[str, list[int]]) -> list[int]:
    return batch["id"]


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_workers_serve_alike(data: list[str], workers: int) -> None:
    theirs = batches(build(streaming, data[:2], []), streaming, workers)
    expected = [[ids_of(batch) for batch in theirs] for _ in range(2)]
    del theirs
    ours = batches(build(compat, data[:2], []), compat, workers)
    assert [[ids_of(batch) for batch in ours] for _ in range(2)] == expected


def test_persistent_workers_keep_count_of_epochs(data: list[str]) -> None:
    plain = build(compat, data[:1], [])
    expected = [[sample["id"] for sample in plain] for _ in range(3)]
    dataset = build(compat, data[:1], [])
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=BATCH, num_workers=2, collate_fn=only_ids, persistent_workers=True
    )
    for epoch in expected:
        assert [i for batch in loader for i in ids_of(batch)] == epoch
    assert dataset.next_epoch == 3


def test_spawned_workers_share_the_count_of_epochs(data: list[str]) -> None:
    dataset = build(compat, data[2:], [])
    dataset.next_epoch = 4
    expected = dataset.sample_ids().tolist()
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=BATCH, num_workers=1, collate_fn=only_ids, multiprocessing_context="spawn"
    )
    assert [i - 2000 for batch in loader for i in ids_of(batch)] == expected
    assert dataset.next_epoch == 5


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("first", "second"), [(streaming, compat), (compat, streaming), (compat, compat)])
@pytest.mark.parametrize(
    "options", [{}, {"shuffle_algo": "py1s", "num_canonical_nodes": 4}, {"batching_method": "per_stream"}]
)
def test_each_goes_on_from_the_others_state(
    data: list[str], workers: int, first: Any, second: Any, options: dict[str, Any]
) -> None:
    whole = batches(build(streaming, data[:2], [], **options), streaming, workers)
    epochs = [[ids_of(batch) for batch in whole] for _ in range(3)]
    del whole

    begun = batches(build(first, data[:2], [], **options), first, workers)
    assert [ids_of(batch) for batch in begun] == epochs[0]
    served = [ids_of(batch) for batch in itertools.islice(begun, 7)]
    state = begun.state_dict()
    del begun
    assert served == epochs[1][:7]
    assert state["epoch"] == 1
    assert state["sample_in_epoch"] == 7 * BATCH

    resumed = batches(build(second, data[:2], [], **options), second, workers)
    resumed.load_state_dict(state)
    rest = [ids_of(batch) for batch in resumed]
    # Which worker has the next batch after a resume is not part of Mosaic's state; with the padding of uneven
    # workers batches may come in another sequence, but never with other samples.
    assert sorted(itertools.chain(*rest)) == sorted(itertools.chain(*epochs[1][7:]))
    if workers == 0:
        assert rest == epochs[1][7:]
    assert [ids_of(batch) for batch in resumed] == epochs[2]
    del resumed


def test_resumed_sample_ids_are_the_rest(data: list[str]) -> None:
    begun = batches(build(compat, data[:1], []), compat, 0)
    whole = begun.dataset.sample_ids()
    list(itertools.islice(begun, 5))
    resumed = build(compat, data[:1], [])
    resumed.load_state_dict(begun.state_dict())
    assert resumed.sample_ids().tolist() == whole[5 * BATCH :].tolist()
    assert [sample["id"] for sample in resumed] == whole[5 * BATCH :].tolist()
    assert resumed.sample_ids().tolist() == build_epoch(data, 1)


def build_epoch(data: list[str], epoch: int) -> list[int]:
    dataset = build(compat, data[:1], [])
    dataset.next_epoch = epoch
    ids: list[int] = dataset.sample_ids().tolist()
    return ids


def test_large_samples_are_not_read_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in memory until the loop comes to them."""
    with compat.MDSWriter(
        out=str(tmp_path / "l"), columns={"id": "int", "x": "bytes"}, compression="zstd:1", size_limit="8mb"
    ) as out:
        for i in range(280):
            out.write({"id": i, "x": bytes(1 << 20)})
    lots, read = [], StreamReader.read

    def noting(self: StreamReader, positions: Any) -> Any:
        lots.append(len(positions))
        return read(self, positions)

    monkeypatch.setattr(StreamReader, "read", noting)
    large = compat.StreamingDataset(local=str(tmp_path / "l"), batch_size=64)
    assert [sample["id"] for sample in large] == list(range(280))
    assert lots == [255, 25]
    lots.clear()
    streams = [
        compat.Stream(local=str(tmp_path / "l")),
        compat.Stream(remote=str(tmp_path / "l"), local=str(tmp_path / "copies")),
    ]
    both = compat.StreamingDataset(streams=streams, batch_size=64)
    assert [sample["id"] for sample in both] == [*range(280), *range(280)]
    assert lots == [255, 25]


def test_ranks_share_an_epoch(data: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    ids = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        dataset = build(compat, data[:1], [])
        assert len(dataset) == 26
        ids += [sample["id"] for sample in dataset]
    assert set(ids) == set(range(101))
    assert len(ids) == 104  # repeats fill up the ranks
    monkeypatch.setenv("RANK", "3")
    pair = build(compat, data[:1], [], replication=2)
    monkeypatch.setenv("RANK", "2")
    assert pair.sample_ids().tolist() == build(compat, data[:1], [], replication=2).sample_ids().tolist()


def test_items_by_index(data: list[str]) -> None:
    theirs, ours = build(streaming, data[:2], []), build(compat, data[:2], [])
    assert ours.size == 158
    for at in (
        0,
        100,
        101,
        157,
        -1,
        np.int64(3),
        slice(5, 9),
        slice(-3, None),
        [1, [2, 3]],
        np.array([4, 120]),
    ):
        a, b = ours[at], theirs[at]
        assert str(a) == str(b)
    with pytest.raises(IndexError):
        ours[158]
    with pytest.raises(ValueError, match="Unsupported argument"):
        ours["x"]


def test_a_subclass_decides_what_a_sample_is(data: list[str]) -> None:
    class Doubled(compat.StreamingDataset):
        def __getitem__(self, at: Any) -> Any:
            return super().__getitem__(at)["id"] * 2

    dataset = Doubled(local=data[0], batch_size=BATCH)
    assert list(dataset) == [2 * i for i in range(101)]


def test_arguments_that_mosaic_refuses(data: list[str]) -> None:
    for options in (
        {"sampling_method": "odd"},
        {"sampling_granularity": 0},
        {"batching_method": "odd"},
        {"shuffle_seed": -1},
        {"replication": 3},
        {"epoch_size": "many"},
        {"streams": [compat.Stream(local=data[0])]},
    ):
        with pytest.raises(ValueError, match=r"."):
            compat.StreamingDataset(local=data[0], batch_size=BATCH, **options)
    with pytest.raises(ValueError, match=r"."):
        compat.StreamingDataset(batch_size=BATCH)
    with pytest.raises(ValueError, match=r"."):
        compat.Stream(local=data[0], repeat=1, choose=1)
    with pytest.raises(ValueError, match=r"."):
        compat.Stream(local=data[0], repeat=-1)
    with pytest.raises(ValueError, match="batch_size"):
        next(iter(compat.StreamingDataset(local=data[0])))
    with pytest.raises(ValueError, match="py1b"):
        next(
            iter(compat.StreamingDataset(local=data[0], batch_size=BATCH, shuffle=True, shuffle_algo="py1b"))
        )
    with pytest.raises(ValueError, match="epoch"):
        compat.StreamingDataset(local=data[0], batch_size=BATCH).load_state_dict({"epoch": 1})


SCRIPT = """
    import sys, time
    import torch
    from PACKAGE import StreamingDataset, StreamingDataLoader

    dataset = StreamingDataset(local=sys.argv[1], batch_size=4, shuffle=True)
    loader = StreamingDataLoader(dataset, batch_size=4, num_workers=2)
    for epoch in range(2):
        for batch in loader:
            print(*batch["id"].tolist(), flush=True)
            if "hang" in sys.argv:
                time.sleep(1000)
"""


def run_script(package: str, root: Path, source: str, *arguments: str) -> subprocess.Popen[str]:
    path = root / "train.py"
    path.write_text(textwrap.dedent(SCRIPT).replace("PACKAGE", package))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, str(path), source, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )


def without_arrays(path: Path) -> str:
    """torch's default collation takes equal shapes only."""
    with streaming.MDSWriter(out=str(path), columns={"id": "int"}, size_limit=500) as out:
        for i in range(60):
            out.write({"id": i})
    return str(path)


def test_a_training_script_runs_after_changing_its_import(tmp_path: Path) -> None:
    source = without_arrays(tmp_path / "ids")
    theirs, _ = run_script("streaming", tmp_path, source).communicate(timeout=120)
    ours, _ = run_script("headrace.compat.streaming", tmp_path, source).communicate(timeout=120)
    assert len(ours.splitlines()) == 30
    assert ours == theirs


def test_a_killed_script_leaves_no_shared_memory(tmp_path: Path) -> None:
    source = without_arrays(tmp_path / "ids")
    before = set(os.listdir("/dev/shm"))
    script = run_script("headrace.compat.streaming", tmp_path, source, "hang")
    assert script.stdout is not None
    assert script.stdout.readline()
    named = {name for name in set(os.listdir("/dev/shm")) - before if "headrace" in name}
    script.send_signal(signal.SIGKILL)
    script.wait(timeout=60)
    assert not named
    again = run_script("headrace.compat.streaming", tmp_path, source)
    assert len(again.communicate(timeout=120)[0].splitlines()) == 30


# MDSWriter.


def image(mode: str, size: tuple[int, int], seed: int) -> Any:
    from PIL import Image

    channels = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], channels), dtype=np.uint8)
    return Image.fromarray(pixels.squeeze(), mode)


def every_encoding(i: int) -> tuple[dict[str, str], dict[str, Any]]:
    columns: dict[str, str] = {}
    sample: dict[str, Any] = {}

    def add(encoding: str, value: Any) -> None:
        name = f"c{len(columns):02}"
        columns[name], sample[name] = encoding, value

    add("bytes", b"b" * i)
    add("str", "straße" * (i + 1))
    add("int", i - 3)
    for name in (
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    ):
        add(name, i + 1)
        add(f"ndarray:{name}", np.full((2, i + 1), i, name))
        add(f"ndarray:{name}:2,3", np.full((2, 3), i, name))
    add("ndarray", np.arange(300 + i, dtype=np.int32).reshape(1, -1))
    add("str_int", 10**30 + i)
    add("str_float", 0.1 * i)
    add("str_decimal", Decimal("3.14") * i)
    add("pil", image("RGB", (4, 3), i))
    add("jpeg", image("L", (8, 8), i))
    add("png", image("RGB", (5, 2), i))
    add("list[pil]", [image("RGB", (2, 2), k) for k in range(i % 3)])
    add("list[jpeg]", [image("RGB", (8, 8), k) for k in range(i % 3)])
    add("list[png]", [image("L", (3, 3), k) for k in range(i % 3)])
    add("jpeg_array", [b"one", b"three"])
    add("json", {"a": [i, None, "ß"]})
    add("pkl", {"x": (i, "y")})
    return columns, sample


def write_both(
    root: Path, columns: dict[str, str], samples: list[dict[str, Any]], **options: Any
) -> tuple[Path, Path]:
    for name, package in (("theirs", streaming), ("ours", compat)):
        with package.MDSWriter(out=str(root / name), columns=columns, **options) as out:
            for sample in samples:
                out.write(sample)
    return root / "theirs", root / "ours"


def assert_same_files(theirs: Path, ours: Path) -> None:
    names = sorted(path.name for path in theirs.iterdir())
    assert names == sorted(path.name for path in ours.iterdir())
    for name in names:
        assert (theirs / name).read_bytes() == (ours / name).read_bytes(), name


def test_every_encoding_is_written_alike(tmp_path: Path) -> None:
    columns = every_encoding(0)[0]
    samples = [every_encoding(i)[1] for i in range(12)]
    assert_same_files(*write_both(tmp_path, columns, samples, size_limit=20_000, hashes=["sha1", "xxh64"]))


@pytest.mark.parametrize("compression", ["br", "br:3", "bz2", "bz2:1", "snappy", "zstd", "zstd:19"])
def test_every_compression_is_written_alike(tmp_path: Path, compression: str) -> None:
    samples = [{"x": i, "t": "word " * i} for i in range(80)]
    theirs, ours = write_both(
        tmp_path, {"t": "str", "x": "int"}, samples, size_limit="4kb", compression=compression, hashes=["md5"]
    )
    assert_same_files(theirs, ours)
    read = compat.StreamingDataset(local=str(ours), batch_size=1)
    assert [sample["x"] for sample in read] == list(range(80))


WRITERS: dict[str, dict[str, Any]] = {
    "XSVWriter": {"separator": "|", "newline": "\r\n"},
    "CSVWriter": {},
    "TSVWriter": {},
    "JSONWriter": {},
}


@pytest.mark.parametrize("compression", [None, "zstd:5"])
@pytest.mark.parametrize("writer", WRITERS)
def test_text_shards_are_written_alike(tmp_path: Path, writer: str, compression: str | None) -> None:
    columns = {"n": "int", "t": "str", "f": "float"}
    for name, package in (("theirs", streaming), ("ours", compat)):
        options = {
            "out": str(tmp_path / name),
            "size_limit": "1kb",
            "compression": compression,
            "hashes": ["md5", "xxh64"],
            **WRITERS[writer],
        }
        with getattr(package, writer)(columns=columns, **options) as out:
            for i in range(90):
                out.write({"n": i, "t": f"väl {i}", "f": i / 7})
    assert_same_files(tmp_path / "theirs", tmp_path / "ours")
    read = compat.StreamingDataset(local=str(tmp_path / "ours"), batch_size=1, validate_hash="md5")
    assert [sample["n"] for sample in read] == list(range(90))


@pytest.mark.parametrize("writer", WRITERS)
def test_text_shards_refuse_what_they_cannot_hold(tmp_path: Path, writer: str) -> None:
    make = getattr(compat, writer)
    with pytest.raises(TypeError, match="column `x` has encoding `bytes`"):
        make(columns={"x": "bytes"}, out=str(tmp_path / "a"), **WRITERS[writer])
    out = make(columns={"x": "int"}, out=str(tmp_path / "b"), **WRITERS[writer])
    with pytest.raises(AttributeError, match="column `x`: data should be of type"):
        out.write({"x": "1"})
    if writer != "JSONWriter":
        out = make(columns={"x": "str"}, out=str(tmp_path / "c"), **WRITERS[writer])
        with pytest.raises(ValueError, match="separator"):
            out.write({"x": f"a{out.separator}b"})


def test_a_local_dataset_is_mosaics(data: list[str], tmp_path: Path) -> None:
    theirs, ours = streaming.LocalDataset(data[0]), compat.LocalDataset(data[0])
    assert len(ours) == ours.size == len(theirs) == 101
    for at in (0, -1, 57, slice(3, 40, 9), [5, 5, -2], np.array([[1, 2], [3, 4]])):
        assert repr(ours[at]) == repr(theirs[at])
    for package in (streaming, compat):
        with pytest.raises(IndexError):
            package.LocalDataset(data[0])[101]
        assert len(package.LocalDataset(str(Path(data[0]).parent), "a")) == 101
        with pytest.raises(FileNotFoundError):
            package.LocalDataset(str(tmp_path / "none"))
    loader = torch.utils.data.DataLoader(
        compat.LocalDataset(data[0]), batch_size=None, shuffle=True, num_workers=2
    )
    assert sorted(int(sample["id"]) for sample in loader) == list(range(101))


def test_what_is_missing_says_what_to_use() -> None:
    assert set(streaming.__all__) - set(compat.__all__) == {"text", "vision", "multimodal"}
    for name in ("text", "vision", "multimodal"):
        with pytest.raises(
            AttributeError, match=f"no '{name}'.*inherit from headrace.compat.streaming.StreamingDataset"
        ):
            getattr(compat, name)
    assert not hasattr(compat, "nothing")


def test_weights_may_be_set_as_attributes(data: list[str]) -> None:
    ids = []
    for package in (streaming, compat):
        streams = [package.Stream(local=source) for source in data[:2]]
        streams[0].repeat, streams[1].choose = 3.0, 20
        streaming.base.util.clean_stale_shared_memory()
        dataset = package.StreamingDataset(streams=streams, batch_size=BATCH)
        ids.append([sample["id"] for sample in dataset])
        assert (dataset.size, dataset.epoch_size) == (158, 323)
        assert [(s.proportion, s.repeat, s.choose) for s in streams] == [
            (303 / 323, 3.0, 303),
            (20 / 323, 20 / 57, 20),
        ]
        del dataset
    assert ids[0] == ids[1]
    # Given weights, not derived ones, hold for another data set, until they are changed.
    assert compat.StreamingDataset(streams=streams, batch_size=BATCH).epoch_size == 323
    streams[0].repeat = 2
    assert compat.StreamingDataset(streams=streams, batch_size=BATCH).epoch_size == 222
    streams[0].repeat, streams[0].choose = 5, 7
    with pytest.raises(ValueError, match="at most one"):
        compat.StreamingDataset(streams=streams, batch_size=BATCH)


def test_arguments_win_over_stream_config(data: list[str]) -> None:
    for package in (streaming, compat):
        config = {"local": data[1], "split": "x", "repeat": 2}
        dataset = package.StreamingDataset(local=data[0], batch_size=BATCH, stream_config=config)
        assert (dataset.size, dataset.epoch_size) == (101, 202)
        del dataset


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_hashes_of_shards_are_compared(tmp_path: Path, compression: str | None) -> None:
    with streaming.MDSWriter(
        out=str(tmp_path / "d"),
        columns={"x": "int"},
        hashes=["sha1"],
        size_limit=400,
        compression=compression,
    ) as out:
        for i in range(200):
            out.write({"x": i})
    whole = compat.StreamingDataset(local=str(tmp_path / "d"), batch_size=1, validate_hash="sha1")
    assert [sample["x"] for sample in whole] == list(range(200))
    with pytest.raises(ValueError, match=r"Hash algorithm `md5` .*sha1"):
        compat.StreamingDataset(local=str(tmp_path / "d"), batch_size=1, validate_hash="md5")[0]
    with pytest.raises(ValueError, match="Hash algorithm `crc`"):
        compat.StreamingDataset(
            streams=[compat.Stream(local=str(tmp_path / "d"), validate_hash="crc")], batch_size=1
        )[0]
    # The index says another hash than the second shard has.
    index = tmp_path / "d" / "index.json"
    report = json.loads(index.read_text())
    stored = report["shards"][1]["zip_data" if compression else "raw_data"]
    stored["hashes"]["sha1"] = "0" * 40
    index.write_text(json.dumps(report))
    for package in (streaming, compat):
        first = report["shards"][0]["samples"]
        streaming.base.util.clean_stale_shared_memory()
        # Mosaic compares what it downloads.
        checked = package.StreamingDataset(
            remote=str(tmp_path / "d"),
            local=str(tmp_path / package.__name__),
            batch_size=1,
            validate_hash="sha1",
        )
        assert checked[first - 1]["x"] == first - 1
        with pytest.raises(ValueError, match=f"Checksum failure: .*{stored['basename']}"):
            checked[first]
    with pytest.raises(ValueError, match="Checksum failure"):
        list(compat.StreamingDataset(local=str(tmp_path / "d"), batch_size=1, validate_hash="sha1"))


def test_the_writer_refuses_what_mosaics_refuses(tmp_path: Path) -> None:
    for number, options in enumerate(
        (
            {"compression": "lz4"},
            {"compression": "zstd:99"},
            {"hashes": ["sha1", "md5"]},
            {"hashes": ["crc"]},
            {"size_limit": 2**32},
            {"surprise": 1},
        )
    ):
        with pytest.raises(ValueError, match=r"."):
            compat.MDSWriter(out=str(tmp_path / str(number)), columns={"x": "int"}, **options)
    with pytest.raises(TypeError):
        compat.MDSWriter(out=str(tmp_path / "t"), columns={"x": "complex"})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(FileExistsError):
        compat.MDSWriter(out=str(tmp_path / "full"), columns={"x": "int"})
    compat.MDSWriter(out=str(tmp_path / "full"), columns={"x": "int"}, exist_ok=True).finish()
    for encoding, value in (
        ("ndarray:int16", np.zeros(2, np.int32)),
        ("ndarray:int16:2", np.zeros(3, np.int16)),
        ("ndarray", np.zeros(0, np.int16)),
        ("ndarray", np.int16(3).reshape(())),
        ("int", "x"),
    ):
        out = compat.MDSWriter(
            out=str(tmp_path / f"e{encoding}{np.size(value)}{value!r:.5}".replace("/", "")),
            columns={"x": encoding},
        )
        with pytest.raises((ValueError, AttributeError)):
            out.write({"x": value})


def test_both_read_what_the_other_wrote(tmp_path: Path) -> None:
    columns, _ = every_encoding(0)
    columns = {name: encoding for name, encoding in columns.items() if encoding not in ("pkl", "jpeg_array")}
    samples = [{name: every_encoding(i)[1][name] for name in columns} for i in range(5)]
    _, ours = write_both(tmp_path, columns, samples, size_limit=20_000)
    theirs_read = list(streaming.StreamingDataset(local=str(ours), batch_size=1, num_canonical_nodes=1))
    ours_read = list(compat.StreamingDataset(local=str(ours), batch_size=1))
    assert len(ours_read) == len(theirs_read) == 5
    for mine, other in zip(ours_read, theirs_read, strict=True):
        for name, encoding in columns.items():
            assert repr_of(mine[name]) == repr_of(other[name]), encoding


def repr_of(value: Any) -> Any:
    if hasattr(value, "tobytes") and hasattr(value, "getbands"):
        return value.mode, value.size, value.tobytes()
    if isinstance(value, list):
        return [repr_of(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype), value.shape, value.tobytes()
    return type(value), value
