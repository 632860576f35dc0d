"""Copies of shards that headrace.compat.streaming keeps in ``local``: right bytes, whole files, the limit,
several processes, kill -9."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from torch.utils.data import DataLoader

from headrace.compat.streaming import (
    CSVWriter,
    JSONWriter,
    MDSWriter,
    Stream,
    StreamingDataset,
    TSVWriter,
    XSVWriter,
)
from headrace.compat.streaming.base.distributed import all_gather_object, get_rank, get_world_size
from headrace.compat.streaming.base.stream import streams_registry
from headrace.compat.streaming.base.util import clean_stale_shared_memory, merge_index
from headrace.errors import CorruptError

SHARD = "shard.00002.mds"


def write(path: Path, count: int = 100, tag: int = 0, **options: Any) -> Path:
    with MDSWriter(out=str(path), columns={"id": "int", "text": "str"}, size_limit=500, **options) as out:
        for i in range(count):
            out.write({"id": tag + i, "text": f"sample {i}"})
    return path


def open_both(remote: Path, local: Path, **options: Any) -> StreamingDataset:
    return StreamingDataset(remote=str(remote), local=str(local), **{"batch_size": 4, **options})


def ids(dataset: Any) -> list[int]:
    return [int(sample["id"]) for sample in dataset]


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


@pytest.mark.parametrize(
    ("compression", "keep_zip"),
    [(None, False), ("zstd:7", False), ("br:3", True), ("gz", False), ("bz2", True), ("snappy", False)],
)
def test_copies_serve_again_without_the_remote(
    tmp_path: Path, compression: str | None, keep_zip: bool
) -> None:
    remote, local = write(tmp_path / "remote", compression=compression), tmp_path / "local"
    assert ids(open_both(remote, local, keep_zip=keep_zip)) == list(range(100))
    raw = {
        name.removesuffix(f".{compression.partition(':')[0]}") if compression else name
        for name in names(remote)
    }
    assert set(names(local)) == raw | (set(names(remote)) if keep_zip else set())
    shutil.rmtree(remote)
    again = open_both(remote, local, keep_zip=keep_zip)
    assert ids(again) == list(range(100))
    assert again.cache_usage == sum(file.stat().st_size for file in local.iterdir())


@pytest.mark.parametrize("writer", [CSVWriter, TSVWriter, XSVWriter, JSONWriter])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_text_shards_are_copied_too(tmp_path: Path, writer: Any, compression: str | None) -> None:
    options = {"separator": "|"} if writer is XSVWriter else {}
    with writer(
        out=str(tmp_path / "remote"),
        columns={"a": "int", "b": "str", "c": "float"},
        compression=compression,
        size_limit=200,
        **options,
    ) as out:
        for i in range(40):
            out.write({"a": i, "b": f"ß{i}", "c": i / 3})
    in_place = list(StreamingDataset(local=str(tmp_path / "remote"), batch_size=1))
    assert list(open_both(tmp_path / "remote", tmp_path / "local", batch_size=1)) == in_place
    assert len(in_place) == 40


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b) and a.flags.writeable == b.flags.writeable
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a == b
    return type(a) is type(b) and (a.tobytes() == b.tobytes() if hasattr(a, "tobytes") else a == b)


def test_every_encoding_is_read_as_in_its_place(tmp_path: Path) -> None:
    pytest.importorskip("streaming")
    from test_compat_streaming import every_encoding, image

    columns = {name: encoding for name, encoding in every_encoding(0)[0].items() if encoding != "pkl"}
    image("L", (8, 8), 1).save(tmp_path / "a.jpg")
    jpeg = (tmp_path / "a.jpg").read_bytes()
    arrays = {name: [jpeg, jpeg] for name, encoding in columns.items() if encoding == "jpeg_array"}
    with MDSWriter(out=str(tmp_path / "remote"), columns=columns, size_limit=20_000) as out:
        for i in range(12):
            out.write(every_encoding(i)[1] | arrays)
    in_place = StreamingDataset(local=str(tmp_path / "remote"), batch_size=1)
    copied = open_both(tmp_path / "remote", tmp_path / "local")
    for i in range(12):
        ours, theirs = copied[i], in_place[i]
        assert list(ours) == list(theirs)
        assert [columns[name] for name in ours if not same(ours[name], theirs[name])] == []


def test_pickles_are_read_only_when_allowed(tmp_path: Path) -> None:
    with MDSWriter(out=str(tmp_path / "remote"), columns={"a": "pkl"}) as out:
        out.write({"a": {1: (2, 3)}})
    with pytest.raises(ValueError, match="contains an unsafe type: `pkl`"):
        open_both(tmp_path / "remote", tmp_path / "local")
    assert open_both(tmp_path / "remote", tmp_path / "local", allow_unsafe_types=True)[0] == {
        "a": {1: (2, 3)}
    }


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_damaged_shard_is_no_copy(tmp_path: Path, compression: str | None) -> None:
    """Compared with the index's hashes without being asked to."""
    remote = write(tmp_path / "remote", hashes=["sha1"], compression=compression)
    file = next(path for path in remote.iterdir() if path.name.startswith(SHARD))
    data = bytearray(file.read_bytes())
    data[-3] ^= 4
    file.write_bytes(data)
    dataset = open_both(remote, tmp_path / "local", shuffle=False)
    with pytest.raises(ValueError, match=f"Checksum failure: .*{SHARD}"):
        ids(dataset)
    assert not [name for name in names(tmp_path / "local") if name.startswith(SHARD)]
    with pytest.raises(ValueError, match=r"Hash algorithm `md5` chosen .*\['sha1'\]"):
        ids(open_both(remote, tmp_path / "other", validate_hash="md5"))


def test_a_shard_of_another_length_is_no_copy(tmp_path: Path) -> None:
    remote = write(tmp_path / "remote")
    with (remote / SHARD).open("ab") as file:
        file.write(b"more")
    with pytest.raises(CorruptError, match=f"{SHARD} has .* bytes, but index.json says"):
        ids(open_both(remote, tmp_path / "local"))
    assert SHARD not in names(tmp_path / "local")


def test_a_truncated_copy_is_made_again(tmp_path: Path) -> None:
    remote, local = write(tmp_path / "remote"), tmp_path / "local"
    dataset = open_both(remote, local)
    ids(dataset)
    os.truncate(local / SHARD, 100)
    first = int(dataset.sample_offset_per_shard[2])
    assert dataset[first]["id"] == first
    assert ids(dataset) == list(range(100))
    assert (local / SHARD).read_bytes() == (remote / SHARD).read_bytes()


def test_copies_are_not_mixed_with_another_version(tmp_path: Path) -> None:
    remote, local = write(tmp_path / "remote", hashes=["md5"]), tmp_path / "local"
    open_both(remote, local).prepare_shard(0)
    shutil.rmtree(remote)
    write(remote, tag=500, hashes=["md5"])
    with pytest.raises(ValueError, match=r"of another version of the data set.*Delete"):
        ids(open_both(remote, local))


def test_files_outside_of_the_directory_are_refused(tmp_path: Path) -> None:
    remote = write(tmp_path / "remote")
    for name in ("/etc/passwd", "../x", ""):
        index = json.loads((remote / "index.json").read_text())
        index["shards"][1]["raw_data"]["basename"] = name
        (remote / "index.json").write_text(json.dumps(index))
        with pytest.raises(ValueError, match="not below its directory"):
            open_both(remote, tmp_path / "local")
        shutil.rmtree(tmp_path / "local")


class Watched(StreamingDataset):
    """Looks at the limit before each sample."""

    def get_item(self, sample_id: int, retry: int = 7) -> Any:
        assert isinstance(self.cache_limit, int)
        assert self.cache_usage <= self.cache_limit
        return super().get_item(sample_id, retry)


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(("compression", "keep_zip"), [(None, False), ("zstd", True)])
def test_the_limit_holds_in_all_processes(
    tmp_path: Path, workers: int, compression: str | None, keep_zip: bool
) -> None:
    remote, local = write(tmp_path / "remote", 400, compression=compression), tmp_path / "local"
    index_bytes = (remote / "index.json").stat().st_size
    limit = index_bytes + 9 * 600
    dataset = Watched(
        remote=str(remote), local=str(local), batch_size=1, shuffle=True, cache_limit=limit, keep_zip=keep_zip
    )
    for _ in range(2):
        seen = [
            int(sample)
            for sample in DataLoader(
                dataset, batch_size=None, num_workers=workers, collate_fn=lambda sample: sample["id"]
            )
        ]
        assert sorted(seen) == list(range(400))
    assert 0 < dataset.cache_usage <= limit
    assert not [name for name in names(local) if name.endswith(".tmp")]


def test_a_shard_that_gets_its_name_during_the_count_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_both(write(tmp_path / "remote"), tmp_path / "local", cache_limit="1mb")
    dataset.prepare_shard(2)
    used, path = dataset.cache_usage, tmp_path / "local" / SHARD
    partial, list_names = path.with_name(f"{SHARD}.tmp"), os.listdir
    path.rename(partial)

    def list_and_go_on(directory: str) -> list[str]:
        found = list_names(directory)
        partial.rename(path)
        partial.touch()  # by another process, which did not see the name yet
        return found

    monkeypatch.setattr(os, "listdir", list_and_go_on)
    assert dataset.cache_usage == used


def test_the_shard_used_longest_ago_goes_first(tmp_path: Path) -> None:
    remote, local = write(tmp_path / "remote"), tmp_path / "local"
    dataset = open_both(remote, local, cache_limit="1mb")
    first = [int(at) for at in dataset.sample_offset_per_shard[:4]]
    for shard in range(4):
        dataset.prepare_shard(shard)
    for shard in (1, 3, 0):
        dataset[first[shard]]
    gone = []
    for _ in range(3):
        before = set(names(local))
        dataset.evict_coldest_shard()
        gone += sorted(before - set(names(local)))
    assert gone == [f"shard.{shard:05}.mds" for shard in (2, 1, 3)]
    dataset.evict_shard(0)
    assert names(local) == ["index.json"]
    assert dataset.cache_usage == (local / "index.json").stat().st_size
    with pytest.raises(ValueError, match="no copy"):
        dataset.evict_coldest_shard()


def test_the_data_itself_is_never_removed(tmp_path: Path) -> None:
    remote = write(tmp_path / "remote")
    before = names(remote)
    for options in (
        {"local": str(remote)},
        {"remote": str(remote)},
        {"remote": str(remote), "local": str(remote)},
    ):
        dataset = StreamingDataset(batch_size=4, cache_limit="1mb", **options)
        assert ids(dataset) == list(range(100))
        with pytest.raises(ValueError, match="no copy"):
            dataset.evict_shard(0)
        with pytest.raises(ValueError, match="no copy"):
            dataset.evict_coldest_shard()
        assert names(remote) == before


def test_all_processes_share_one_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    remote = write(tmp_path / "remote", 200)
    monkeypatch.setenv("HEADRACE_ACCESS_LOG", str(log))
    dataset = open_both(remote, tmp_path / "local", shuffle=True)
    seen = [
        int(sample)
        for sample in DataLoader(
            dataset, batch_size=None, num_workers=4, collate_fn=lambda sample: sample["id"]
        )
    ]
    assert sorted(seen) == list(range(200))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    read = Counter(
        line["object"] for line in lines if line["operation"] == "get" and "shard" in line["object"]
    )
    assert len(read) == len(names(remote)) - 1
    assert set(read.values()) == {1}


HALF_A_FILE = """
    import os, sys, time
    from headrace.compat.streaming._file_lock import claim
    with claim(sys.argv[1], 60) as fd:
        os.write(fd, b"half")
        print("ready", flush=True)
        time.sleep(600)
"""


def test_a_killed_copy_is_taken_over(tmp_path: Path) -> None:
    remote, local = write(tmp_path / "remote"), tmp_path / "local"
    for name in (SHARD, "index.json"):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HALF_A_FILE), str(local / name)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        process.stdout.close()
        assert (local / f"{name}.tmp").read_bytes() == b"half"
    assert ids(open_both(remote, local)) == list(range(100))
    assert names(local) == names(remote)
    assert (local / SHARD).read_bytes() == (remote / SHARD).read_bytes()
    # And where nobody asks for the file: at the next start.
    for kind in ("index.json", SHARD):
        (local / f"{kind}.tmp").write_bytes(b"half")
    open_both(remote, local)
    assert not [name for name in names(local) if name == f"{SHARD}.tmp"]


def test_a_directory_is_one_data_sets(tmp_path: Path) -> None:
    remote, local = write(tmp_path / "remote"), tmp_path / "local"
    first = open_both(remote, local)
    ids(first)
    with pytest.raises(ValueError, match=r"Reused local directory.*vs.*Provide a different one\."):
        open_both(remote, local)
    del first
    open_both(remote, local)
    streams = [Stream(remote=str(remote), local=str(local)) for _ in range(2)]
    with pytest.raises(ValueError, match="Reused local directory"):
        StreamingDataset(streams=streams, batch_size=4)


def test_streams_read_in_place_and_copied_mix(tmp_path: Path) -> None:
    places = [write(tmp_path / name, 50, tag) for name, tag in (("a", 0), ("b", 1000))]
    streams = [Stream(remote=str(places[0]), local=str(tmp_path / "local")), Stream(local=str(places[1]))]
    dataset = StreamingDataset(streams=streams, batch_size=4, shuffle=True, num_canonical_nodes=1)
    assert sorted(ids(dataset)) == [*range(50), *range(1000, 1050)]
    assert dataset.stream_per_shard.tolist() == [0] * (len(names(places[0])) - 1) + [1] * (
        len(names(places[1])) - 1
    )
    units, drawn = dataset.resample_streams(0)
    assert (units.sum(), drawn.tolist()) == (100, list(range(100)))
    assert dataset.resample_streams(0, 1)[1].tolist() == list(range(50, 100))


INDEXES = {
    "missing": None,
    "empty": b"",
    "cut off": b'{"version": 2, "sha',
    "not text": b"\xff\xfe",
    "version 1": b'{"version": 1, "shards": []}',
    "no shards": b'{"version": 2, "shards": []}',
}


@pytest.mark.parametrize("damage", INDEXES)
@pytest.mark.parametrize("places", [("local",), ("remote", "local"), ("local", "remote", "equal")])
def test_a_damaged_index_raises_as_mosaic_raises(
    tmp_path: Path, damage: str, places: tuple[str, ...]
) -> None:
    streaming = pytest.importorskip("streaming")
    raised = []
    for package in (streaming, sys.modules["headrace.compat.streaming"]):
        data = write(tmp_path / package.__name__, 5)
        text = INDEXES[damage]
        (data / "index.json").unlink()
        if text is not None:
            (data / "index.json").write_bytes(text)
        options = {
            name: str(data) if name == places[0] or "equal" in places else f"{data}.copy"
            for name in places
            if name != "equal"
        }
        streaming.base.util.clean_stale_shared_memory()
        with pytest.raises(Exception) as error:  # noqa: PT011
            package.StreamingDataset(batch_size=1, **options)
        raised.append(error.value)
    assert isinstance(raised[1], type(raised[0])) or (
        damage == "not text" and isinstance(raised[1], ValueError)
    ), raised


def test_merged_indexes_name_shards_below(tmp_path: Path) -> None:
    parts = [write(tmp_path / "out" / name, 20, tag) for name, tag in (("a", 0), ("deep/b", 100))]
    merge_index(str(tmp_path / "out"))
    assert ids(StreamingDataset(local=str(tmp_path / "out"), batch_size=1)) == [*range(20), *range(100, 120)]
    merge_index([str(part / "index.json") for part in parts[::-1]], str(tmp_path / "out"))
    assert ids(open_both(tmp_path / "out", tmp_path / "local", batch_size=1)) == [
        *range(100, 120),
        *range(20),
    ]
    merge_index([str(part / "index.json") for part in parts], str(tmp_path / "out"), keep_local=False)
    assert not (tmp_path / "out" / "index.json").exists()
    assert names(parts[0])
    with pytest.raises(RuntimeError, match=r"Failed to download index\.json"):
        merge_index([str(tmp_path / "none" / "index.json")], str(tmp_path / "out"))


def test_only_left_over_memory_of_mosaic_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("headrace.compat.streaming._util._SHARED_MEMORY", tmp_path)
    for name in ("000000_locals", "000000_resume", "000001_barrier", "000000_else"):
        (tmp_path / name).touch()
    clean_stale_shared_memory()
    assert names(tmp_path) == ["000000_else"]


def test_streams_are_found_by_name(tmp_path: Path) -> None:
    class Doubled(Stream):
        def __init__(self, *, times: int, **options: Any) -> None:
            super().__init__(**options)
            self.repeat = times

    streams_registry.register("doubled", func=Doubled)
    dataset = StreamingDataset(
        local=str(write(tmp_path / "a")), batch_size=1, stream_name="doubled", stream_config={"times": 2}
    )
    assert dataset.epoch_size == 200
    with pytest.raises(LookupError, match="'none' is not registered; there are doubled, stream"):
        StreamingDataset(local=str(tmp_path / "a"), batch_size=1, stream_name="none")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE=2 is set and RANK is not"),
        ({"RANK": "0"}, "RANK=0 is set and WORLD_SIZE is not"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "expected RANK below WORLD_SIZE"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK='-1'"),
    ],
)
def test_half_a_rank_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        StreamingDataset(local=str(write(tmp_path / "a")), batch_size=1)
    with pytest.raises(ValueError, match=message):
        get_rank()


def test_ranks_are_those_that_mosaic_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under mpirun and srun without RANK, each process is a run of its own; the size alone is whatever
    WORLD_SIZE says."""
    for name, value in {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "SLURM_PROCID": "1",
        "SLURM_NTASKS": "2",
    }.items():
        monkeypatch.setenv(name, value)
    assert (get_rank(), get_world_size()) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert get_world_size() == 2
    with pytest.raises(RuntimeError, match="init_process_group"):
        all_gather_object(5)
    monkeypatch.setenv("RANK", "1")
    assert get_rank() == 1
