"""Checkpoints of JAX, with a real one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from other_venv import need_tensorflow, package_alone

HERE = Path(__file__).parent
NOT_THERE = 77


def run(tmp_path: Path, program: str, *arguments: str | Path) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [need_tensorflow(), HERE / program, *arguments],
        env=os.environ | package_alone(tmp_path) | flags,
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


@pytest.mark.parametrize("part", ["registered", "optax", "flax", "equinox"])
def test_trees_of_others_classes_come_back(tmp_path: Path, part: str) -> None:
    run(tmp_path, "checkpoint_pytrees.py", part, tmp_path / "run")
