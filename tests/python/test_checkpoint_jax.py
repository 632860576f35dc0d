"""Checkpoints of JAX, with a real one."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from other_venv import need_tensorflow, package_alone

from headrace.checkpoint import Checkpointer

HERE = Path(__file__).parent
NOT_THERE = 77
DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
"""Of each process."""


def run(tmp_path: Path, program: str, *arguments: str | Path) -> None:
    done = subprocess.run(
        [need_tensorflow(), HERE / program, *arguments],
        env=os.environ | package_alone(tmp_path) | DEVICES,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode == NOT_THERE:
        pytest.skip(f"{arguments[0]} is not installed beside JAX")
    assert done.returncode == 0, done.stdout + done.stderr


def test_sharded_arrays_of_jax_come_back_however_they_are_sharded_then(tmp_path: Path) -> None:
    run(tmp_path, "checkpoint_jax.py", tmp_path / "run")


def test_processes_of_jax_save_and_load_together(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program = [need_tensorflow(), HERE / "checkpoint_jax_ranks.py", tmp_path / "run", port]
    environment = os.environ | package_alone(tmp_path) | DEVICES
    ranks = [
        subprocess.Popen(
            [*program, str(rank), "2"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=200)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
    run(tmp_path, "checkpoint_jax_ranks.py", tmp_path / "run", port, "0", "1")


@pytest.mark.parametrize("part", ["registered", "optax", "flax", "equinox"])
def test_trees_of_others_classes_come_back(tmp_path: Path, part: str) -> None:
    run(tmp_path, "checkpoint_pytrees.py", part, tmp_path / "run")


def test_what_torch_has_saved_loads_into_jax_and_back(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    saved = {
        "rows": torch.arange(48.0).reshape(8, 6),
        "half": torch.arange(16).bfloat16(),
        "numbers": torch.arange(5),
        "step": 1,
    }
    into = {name: value * 0 for name, value in saved.items()}
    with Checkpointer(tmp_path / "run") as checkpointer:
        checkpointer.save(1, saved).result()
        run(tmp_path, "checkpoint_pytrees.py", "from_torch", tmp_path / "run")
        got = checkpointer.load(2, into=into)
        assert got.pop("step") == 1
        for name, value in got.items():
            assert torch.equal(value, saved[name]), name
