"""Checkpoints of JAX, with a real one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from other_venv import need_tensorflow, package_alone

PROGRAM = Path(__file__).with_name("checkpoint_jax.py")


def test_sharded_arrays_of_jax_come_back_however_they_are_sharded_then(tmp_path: Path) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    run = subprocess.run(
        [need_tensorflow(), PROGRAM, tmp_path / "run"],
        env=os.environ | package_alone(tmp_path) | flags,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
