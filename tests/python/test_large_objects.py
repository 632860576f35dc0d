"""Objects above 16 MiB that are samples: they come in parts, and are compared with the sum of the whole."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace import sim as simulator

PARTS = 5
SIZE = (16 << 20) + 12345


@pytest.fixture
def objects(s3: simulator.Server) -> list[bytes]:
    """Written as S3 has them: each with the sum of the whole."""
    rng = np.random.default_rng(5)
    made = [rng.bytes(SIZE), rng.bytes(SIZE), rng.bytes(1000)]
    with hr.Store("s3://b") as store:
        for i, value in enumerate(made):
            store.put(f"d/{i}.dat", value)
    return made


def count(s3: simulator.Server, *, since: dict[str, dict[str, int]]) -> dict[str, int]:
    """Requests by kind."""
    now = s3.stats()["requests"]
    return {
        kind: sum(now.get(kind, {}).values()) - sum(since.get(kind, {}).values())
        for kind in ("get_object", "head_object")
    }


def read_epoch(dataset: hr.Dataset, **options: object) -> dict[int, bytes]:
    with hr.Loader(dataset, batch_size=1, rank=0, world_size=1, memory="256MiB", **options) as loader:
        return {int(batch.ids[0]): bytes(batch["data"][0]) for batch in loader}


def test_they_come_in_parts_and_the_sum_costs_one_request(s3: simulator.Server, objects: list[bytes]) -> None:
    dataset = hr.Dataset("s3://b/d", memory="256MiB")
    before = s3.stats()["requests"]
    assert read_epoch(dataset) == dict(enumerate(objects))
    assert count(s3, since=before) == {"get_object": 2 * PARTS + 1, "head_object": 2}


def test_a_bit_that_flips_in_a_part_is_found(s3: simulator.Server, objects: list[bytes]) -> None:
    dataset = hr.Dataset("s3://b/d", memory="256MiB")
    s3.set_behaviour(corrupt_rate=0.1)
    second_reads = 0.0
    for epoch in range(4):
        with hr.Loader(
            dataset, batch_size=1, rank=0, world_size=1, memory="256MiB", seed=epoch, on_bad_sample="replace"
        ) as loader:
            assert {int(batch.ids[0]): bytes(batch["data"][0]) for batch in loader} == dict(
                enumerate(objects)
            )
            second_reads += loader.stats()["loader.second_reads"]
            assert loader.stats()["loader.bad_samples"] == 0
    assert second_reads > 0
    for i, value in enumerate(objects):
        assert bytes(dataset[i]["data"]) == value


def test_bits_that_rot_in_the_store_are_an_error(
    s3: simulator.Server, objects: list[bytes], buckets: Path
) -> None:
    dataset = hr.Dataset("s3://b/d", memory="256MiB")
    path = buckets / "b" / "d" / "0.dat"
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(SIZE - 100)
        file.write(bytes([objects[0][SIZE - 100] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # The same version, by all it says.
    with pytest.raises(hr.CorruptError, match=r"0\.dat: its bytes, read in parts, do not match the checksum"):
        read_epoch(dataset)
    with pytest.raises(hr.CorruptError, match=r"0\.dat: its bytes, read in parts, do not match the checksum"):
        dataset[0]
    assert bytes(dataset[1]["data"]) == objects[1]


def test_without_checks_nobody_asks(s3: simulator.Server, objects: list[bytes], buckets: Path) -> None:
    dataset = hr.Dataset("s3://b/d", memory="256MiB", verify_checksums=False)
    before = s3.stats()["requests"]
    assert read_epoch(dataset) == dict(enumerate(objects))
    assert count(s3, since=before) == {"get_object": 2 * PARTS + 1, "head_object": 0}
