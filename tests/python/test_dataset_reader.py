"""Random access to compressed datasets: blocks are inflated once and kept within the memory limit."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from conftest import where

import headrace as hr
from headrace import sim
from headrace.compat.streaming import MDSWriter


@pytest.fixture
def compressed(tmp_path: Path) -> Path:
    root = tmp_path / "compressed"
    with MDSWriter(
        out=str(root), columns={"i": "int", "t": "bytes"}, compression="zstd", size_limit=20_000
    ) as writer:
        for i in range(200):
            writer.write({"i": i, "t": b"%d," % i * 200})
    return root


def remove_shards(root: Path) -> None:
    for shard in root.glob("*.zstd"):
        shard.unlink()


def test_blocks_in_use_are_not_read_twice(compressed: Path) -> None:
    with hr.Dataset(compressed) as dataset:
        places = [0, 70, 150]
        assert len({block.shard for block in dataset.blocks}) > 3
        assert [dataset[i]["i"] for i in places] == places
        remove_shards(compressed)
        assert [dataset[i + 1]["i"] for i in places] == [i + 1 for i in places]
        with pytest.raises(hr.NotFoundError):
            dataset[110]


def test_kept_blocks_give_way_to_others(compressed: Path) -> None:
    with hr.Dataset(compressed, memory="128KiB") as dataset:
        assert [sample["i"] for sample in dataset] == list(range(200))
        assert [sample["i"] for sample in dataset.read(range(199, -1, -7))] == list(range(199, -1, -7))


def test_samples_of_one_call_come_in_the_order_asked_for(compressed: Path) -> None:
    positions = [150, 3, 151, 70, 3, 199]
    with hr.Dataset(compressed) as dataset:
        assert [sample["i"] for sample in dataset.read(positions)] == positions
        assert dataset.read([5], columns=["t"]) == [{"t": b"5," * 200}]


def test_samples_without_bytes_need_no_memory_beside_reads_in_flight(tmp_path: Path) -> None:
    values = [b"" if i % 10 == 5 else bytes([i]) * 16384 for i in range(60)]
    for i, value in enumerate(values):
        (tmp_path / f"{i:02d}.bin").write_bytes(value)
    with hr.Dataset(tmp_path, format="raw", memory="128KiB") as dataset:
        assert [sample["data"] for sample in dataset.read(range(60))] == values


def test_blocks_of_one_call_are_on_their_way_together(compressed: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    late = {"first_byte_p50_ms": 50.0, "first_byte_p99_ms": 50.0}
    with (
        sim.Server(tmp_path, behaviour=late) as server,
        hr.Dataset(f"s3://{compressed.name}", access_log=str(log), **where(server)) as dataset,
    ):
        count = len({block.shard for block in dataset.blocks})
        assert count > 3
        assert [sample["i"] for sample in dataset.read(range(200))] == list(range(200))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    gets = [line for line in lines if line["object"].endswith(".zstd") and line["operation"] == "get"]
    gets = gets[-count:]  # After those of opening.
    ends = [datetime.fromisoformat(line["time"].rstrip("Z")).timestamp() for line in gets]
    durations = [line["duration_us"] / 1e6 for line in gets]
    begin = min(end - duration for end, duration in zip(ends, durations, strict=True))
    # One after the other they would take as long as all of them together.
    assert max(ends) - begin < sum(durations)
