"""headrace.jax: arrays of JAX, of one process and of several, against batches of headrace.Loader."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_numbers
from other_venv import need_tensorflow, package_alone
from PIL import Image

import headrace as hr

PROGRAM = Path(__file__).with_name("jax_ways.py")
SAMPLES = 100
OPTIONS: dict[str, Any] = {"batch_size": 8, "memory": "64MiB", "block_bytes": "64KiB", "seed": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_numbers(tmp_path_factory.mktemp("numbers") / "data", SAMPLES, per_shard=20)


class Asker:
    """Runs ways of jax_ways.py on CPU devices."""

    def __init__(self, data: Path, directory: Path) -> None:
        self.python, self.data = need_tensorflow(), data
        self._environment = os.environ | package_alone(directory)

    def begin(self, way: str, devices: int = 1, **job: Any) -> subprocess.Popen[str]:
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
        given = json.dumps({"way": way, "data": str(self.data), "options": OPTIONS, **job})
        command = [str(self.python), str(PROGRAM), given]
        return subprocess.Popen(
            command, env=self._environment | flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self, program: subprocess.Popen[str]) -> Any:
        out, err = program.communicate(timeout=200)
        assert program.returncode == 0, err
        return json.loads(out.splitlines()[-1])

    def __call__(self, way: str, devices: int = 1, **job: Any) -> Any:
        return self.end(self.begin(way, devices, **job))


@pytest.fixture
def ask(data: Path, tmp_path: Path) -> Asker:
    return Asker(data, tmp_path)


def planned(data: Path, epochs: int = 1, **options: Any) -> list[list[int]]:
    with hr.Loader(data, **{**OPTIONS, **options}) as loader:
        return [ids.tolist() for epoch in range(epochs) for ids in loader.sample_ids(epoch)]


def test_batches_hold_arrays_of_jax(ask: Asker, data: Path) -> None:
    found = ask("alone")
    assert [batch["ids"] for batch in found["batches"]] == planned(data, 2)
    assert found["length"] == 13
    for batch in found["batches"]:
        assert batch["values"] == [7 * i + 1 for i in batch["ids"]]
        assert (batch["dtype"], batch["is_jax"], batch["kept"]) == ("int32", True, "list")
    assert [sum(batch["mask"]) for batch in found["batches"][:13]] == 12 * [8] + [4]


def test_it_resumes_at_the_next_batch(ask: Asker, data: Path) -> None:
    for stop in (1, 12, 13):
        assert ask("resumed", stop=stop) == planned(data, 2)


def test_functions_get_numpy_and_their_results_are_arrays(ask: Asker, data: Path) -> None:
    for batch in ask("mapped"):
        assert batch["values"] == [2 * (7 * i + 1) for i in batch["ids"]]
        assert (batch["is_jax"], batch["kept"]) == (True, "list")


def test_a_pickled_loader_goes_on_where_it_stood(ask: Asker) -> None:
    rest, of_copy = ask("pickled")
    assert len(rest) == 12
    assert rest == of_copy


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_batch_that_cannot_be_made_comes_again(ask: Asker, data: Path, is_mapped: bool) -> None:
    assert ask("failed", is_mapped=is_mapped) == [planned(data), 2]


def test_numbers_that_do_not_fit_are_an_error(ask: Asker, tmp_path: Path) -> None:
    ask.data = tmp_path / "wide"
    ask.data.mkdir()
    (ask.data / "a.bin").write_bytes(np.array([1, 1 << 40], "<i8").tobytes())
    options = {"format": "raw", "batch_size": 1, "memory": "16MiB"}
    assert "do not fit into int32" in ask("error_of", of="decoded", dtype="int64", shape=2, options=options)


def test_unsigned_numbers_stay_so_and_index(ask: Asker, tmp_path: Path) -> None:
    ask.data = tmp_path / "tokens"
    ask.data.mkdir()
    (ask.data / "a.bin").write_bytes(np.array([1, 65535], "<u2").tobytes())
    options = {"format": "raw", "batch_size": 1, "memory": "16MiB"}
    (batch,) = ask("decoded", dtype="uint16", shape=2, options=options)
    assert (batch["dtype"], batch["values"]) == ("uint16", [[1, 65535]])
    assert ask("looked_up", dtype="uint16", shape=2, options=options) == [[2, 131070]]


def test_bfloat16_is_its_own_dtype(ask: Asker, tmp_path: Path) -> None:
    ask.data = tmp_path / "images"
    ask.data.mkdir()
    Image.new("L", (4, 4), 51).save(ask.data / "a.png")
    options = {"format": "raw", "batch_size": 1, "memory": "16MiB"}
    (batch,) = ask("decoded", image="bfloat16", options=options)
    assert batch["dtype"] == "bfloat16"
    assert np.allclose(batch["values"], 0.2, rtol=2**-8)


@pytest.mark.parametrize("workers", [0, 1])
def test_functions_see_bfloat16_as_numbers(ask: Asker, tmp_path: Path, workers: int) -> None:
    ask.data = tmp_path / "images"
    ask.data.mkdir()
    Image.new("L", (4, 4), 51).save(ask.data / "a.png")
    options = {"format": "raw", "batch_size": 1, "memory": "16MiB"}
    ((half, same),) = ask("mapped_decoded", image="bfloat16", workers=workers, options=options)
    assert (half["dtype"], same["dtype"]) == ("bfloat16", "bfloat16")
    assert np.allclose(same["values"], 0.2, rtol=2**-8)
    assert np.array_equal(np.array(half["values"]) * 2, same["values"])


@pytest.mark.parametrize(
    ("mesh", "spec", "shards"),
    [([4, 1], ["data"], 4), ([2, 2], ["data"], 2), ([2, 2], [["data", "model"]], 4), ([1, 4], [None], 1)],
)
def test_a_sharding_splits_the_batch_over_devices(
    ask: Asker, data: Path, mesh: list[int], spec: list[Any], shards: int
) -> None:
    found = ask("sharded", 4, mesh=mesh, spec=spec)
    assert found["rank"] == [0, 1]
    assert [batch["ids"] for batch in found["batches"]] == planned(data)
    for batch in found["batches"]:
        values = [7 * i + 1 for i in batch["ids"]]
        assert (batch["shape"], batch["mask"], batch["sum"]) == ([8], [8], sum(values))
        assert len({tuple(rows) for rows, _ in batch["shards"]}) == shards
        for (begin, end), rows in batch["shards"]:
            assert rows == values[begin:end]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize(("mesh", "parts"), [([4, 1], 2), ([2, 2], 2), ([1, 4], 1)])
def test_processes_have_their_part_of_global_arrays(
    ask: Asker, data: Path, mesh: list[int], parts: int
) -> None:
    """Two processes of two devices. Where the mesh gives both the same rows, both read them."""
    job = {"mesh": mesh, "coordinator": f"127.0.0.1:{free_port()}", "processes": 2}
    started = [ask.begin("sharded", 2, process=process, **job) for process in range(2)]
    found = [ask.end(program) for program in started]
    whole = planned(data, batch_size=8 * parts)  # Of one process, in the order of the global batch.
    for process, result in enumerate(found):
        assert result["rank"] == [process if parts == 2 else 0, parts]
        assert result["state"] == found[0]["state"]
        assert len(result["batches"]) == len(whole)
        for batch, ids in zip(result["batches"], whole, strict=True):
            assert batch["shape"] == [8 * parts]
            for (begin, end), rows in batch["shards"]:
                assert rows == [7 * i + 1 for i in ids[begin:end]]


@pytest.mark.parametrize(
    ("job", "line"),
    [
        ({"mesh": [4, 1], "spec": ["data", "model"]}, "only the first axis"),
        ({"mesh": [4, 1], "options": {**OPTIONS, "batch_size": 6}}, "no multiple of the 4 shards"),
        ({"mesh": [4, 1], "options": {**OPTIONS, "epoch_end": "uneven"}}, 'epoch_end="pad"'),
        ({"mesh": [4, 1], "options": {**OPTIONS, "rank": 1, "world_size": 2}}, "leave them out"),
    ],
)
def test_shardings_that_cannot_be_are_refused(ask: Asker, job: dict[str, Any], line: str) -> None:
    assert line in ask("error_of", 4, of="sharded", **job)


def test_a_mesh_that_deals_rows_to_processes_in_turn_is_refused(ask: Asker) -> None:
    job = {
        "mesh": [4, 1],
        "device_order": [0, 2, 1, 3],
        "coordinator": f"127.0.0.1:{free_port()}",
        "processes": 2,
    }
    started = [ask.begin("error_of", 2, of="sharded", process=process, **job) for process in range(2)]
    for program in started:
        assert "order the mesh's devices by process" in ask.end(program)
