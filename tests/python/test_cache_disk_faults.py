"""Whole epochs through a cache on a disk that is full, fails, or turns read-only: the batches of a loader
without."""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import where

import headrace as hr
from headrace import prepare
from headrace import sim as simulator

HERE = Path(__file__).parent
EPOCHS = 4
SAMPLES = 2000

# tests/cache/disk_faults.h: shares of 1,000 calls, the clock, how many faults there were.
FIELDS = (
    "read_eio",
    "write_eio",
    "no_space",
    "short_count",
    "is_read_only",
    "no_tmpfile",
    "no_links",
    "clock",
)
CONTROL = struct.Struct("=7I4xqQ")

WEATHERS = {
    "full": {"no_space": 1000},
    "nearly full": {"no_space": 300},
    "unreadable": {"read_eio": 1000},
    "failing": {"read_eio": 100, "write_eio": 100, "short_count": 100},
    "read-only": {"is_read_only": 1},
    "in another year": {"clock": -1_000_000_000, "no_tmpfile": 1},
}


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library to preload."""
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = HERE.parent / "cache" / "disk_faults.cc"
    command = [
        "c++",
        "-std=c++20",
        "-shared",
        "-fPIC",
        "-O1",
        f"-I{HERE.parent}",
        "-o",
        library,
        source,
        "-ldl",
    ]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data") / "root"
    rng = np.random.default_rng(1)
    rows = ({"x": i, "data": rng.bytes(2000)} for i in range(SAMPLES))
    prepare.write(rows, str(root / "b"), format="mds", shard_bytes="400KiB")
    return root


def content(batch: Any) -> list[Any]:
    """Its samples, and a digest of their bytes."""
    return [batch["x"].tolist(), hashlib.sha1(b"".join(map(bytes, batch["data"]))).hexdigest()]


def read_in_weather(task: dict[str, Any]) -> None:
    """In the middle of the first epoch the weather comes, and with the last it goes."""
    with Path(task["control"]).open("r+b") as file:
        control = mmap.mmap(file.fileno(), CONTROL.size)

    def change(faults: dict[str, int]) -> None:
        given = CONTROL.unpack(control[:])[-1]
        control[:] = CONTROL.pack(*(faults.get(name, 0) for name in FIELDS), given)

    seen = []
    with hr.Loader("s3://b", cache=task["cache"], **task["options"]) as loader:
        for epoch in range(EPOCHS):
            if epoch == EPOCHS - 1:
                change({})
            for number, batch in enumerate(loader):
                seen.append(content(batch))
                if epoch == 0 and number == 30:
                    hr.Cache(task["cache"])._native.flush()  # Something is there to be read.
                    change(task["faults"])
        hits = loader.stats()["cache.hits"]
    print(json.dumps({"seen": seen, "hits": hits, "given": CONTROL.unpack(control[:])[-1]}))


@pytest.mark.parametrize("order", ["headrace", "mosaic:py1s"])
@pytest.mark.parametrize("weather", WEATHERS)
def test_batches_are_the_same_in_every_weather(
    root: Path, tmp_path: Path, faults: Path, weather: str, order: str
) -> None:
    cache, control = tmp_path / "cache", tmp_path / "control"
    control.write_bytes(bytes(CONTROL.size))
    options = {"batch_size": 32, "seed": 7, "order": order, "memory": "64MiB"}
    with simulator.Server(str(root)) as server:
        with hr.Loader("s3://b", **options, **where(server)) as plain:
            expected = [content(batch) for _ in range(EPOCHS) for batch in plain]
        task = {
            "cache": str(cache),
            "control": str(control),
            "faults": WEATHERS[weather],
            "options": {**options, **where(server)},
        }
        done = subprocess.run(
            [sys.executable, "-c", f"import test_cache_disk_faults as t; t.read_in_weather({task!r})"],
            env=os.environ
            | {
                "LD_PRELOAD": str(faults),
                "HEADRACE_FAULT_ROOT": str(cache),
                "HEADRACE_FAULT_CONTROL": str(control),
            },
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["seen"] == expected
    assert said["hits"] > 0, "the disk was read while it was well"
    if "clock" not in WEATHERS[weather]:
        assert said["given"] > 0, "nothing failed"
