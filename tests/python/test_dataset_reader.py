"""Random access to compressed datasets: blocks are inflated once and kept within the memory limit."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
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
