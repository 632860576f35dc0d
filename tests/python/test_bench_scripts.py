"""The programs in bench/ that no other test runs: they begin, and say what is wrong at once."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("script", ["compression.py", "differential.py", "shared_loads.py"])
def test_a_missing_directory_is_named(script: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run(script, tmp_path / "missing", "--bytes", "1MB")
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith(f"error: {tmp_path / 'missing'} is no directory\n")


def test_shared_loads_need_no_limit(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    small = ("--bytes", "1MB", "--ranks", "1", "--rounds", "1", "--profile", "none", "--json")
    done = run("shared_loads.py", tmp_path, *small)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["1"]) == {
        f"{layout}, {share}" for layout in ("replicas", "columns") for share in ("never", "auto")
    }


def test_checkpoints_are_set_beside_what_a_machine_can_do(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    small = ("--directory", tmp_path, "--mib", 16, "--rounds", 1, "--warm")
    done = run("peers/checkpoints.py", *small, "--only", "state,put", "--ways", "floor,headrace")
    assert done.returncode == 0, done.stderr
    for said in (
        r"^headrace +blocked [\d.]+ x the memcpy the first time, then [\d.]+ x; sums are \d+ % of its CPU$",
        r"^save: \d+ % of the rate of put in parts$",
        r"^load: \d+ % of the rate of gets of 16 MiB$",
    ):
        assert re.search(said, done.stdout, re.MULTILINE), done.stdout
