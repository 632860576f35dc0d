"""Petastorm, the package itself: it reads what we write, we read what its codecs write. It lives in a venv of
its own (tools/setup)."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import prepare

PYTHON = (
    Path(os.environ.get("HEADRACE_CACHE", Path.home() / ".cache" / "headrace"))
    / "petastorm"
    / "bin"
    / "python"
)
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="tools/setup test makes the venv of petastorm")


def peer(*arguments: str | Path) -> Any:
    script = Path(__file__).parent / "petastorm_peer.py"
    done = subprocess.run([PYTHON, script, *map(str, arguments)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    # It prints remarks of its own before.
    return json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_we_read_what_its_codecs_write(tmp_path: Path, seed: int) -> None:
    peer("write", tmp_path / "d", str(seed))
    expected = np.load(tmp_path / "expected.npz")
    with hr.Dataset(tmp_path / "d") as dataset:
        assert set(dataset.schema) == {"id", *expected.files}
        read = list(dataset)
    theirs = peer("rows", tmp_path / "d")
    assert len(read) == len(theirs) == len(expected[expected.files[0]])
    for i, row in enumerate(read):
        assert int(row["id"]) == i
        for name in expected.files:
            assert row[name].dtype == expected[name].dtype
            assert np.array_equal(row[name], expected[name][i])
    assert sorted(theirs, key=lambda row: row["id"]) == [
        {name: value if name == "id" else value.tolist() for name, value in row.items()} for row in read
    ]


def test_it_reads_what_we_write(tmp_path: Path) -> None:
    """Lists of one length: it takes no others in a column."""
    rng = random.Random(4)
    samples = [
        {
            "id": i,
            "x": rng.random(),
            "text": "é" * rng.randrange(5),
            "blob": rng.randbytes(rng.randrange(9)).hex(),
            "ids": np.arange(i, i + 4),
        }
        for i in range(300)
    ]
    columns = {"id": "int", "x": "float64", "text": "str", "blob": "str", "ids": "ndarray:int64"}
    prepare.write(samples, tmp_path / "out", format="parquet", columns=columns)
    theirs = peer("read", tmp_path / "out")
    for name in ("id", "x", "text", "blob"):
        assert theirs[name] == [sample[name] for sample in samples]
    assert theirs["ids"] == [sample["ids"].tolist() for sample in samples]
