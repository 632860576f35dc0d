"""The demo's training, in torch's deterministic mode: killed in a save, it goes on as if it had not been."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import where

from headrace import sim as simulator
from headrace.checkpoint import Checkpointer

ROOT = Path(__file__).resolve().parents[2]
KILL_IN_SAVE_OF_STEP = 8


def start(data: Path, directory: Path, options: dict[str, Any], run: str) -> subprocess.Popen[str]:
    directory.mkdir(exist_ok=True)
    command = [sys.executable, ROOT / "demo" / "train.py", data, "--run-dir", directory, "--run", run]
    command += ["--checkpoints", f"s3://bucket/{directory.name}", "--checkpoint-every", "2"]
    environment = {
        "AWS_ENDPOINT_URL_S3": options["endpoint"],
        "AWS_ACCESS_KEY_ID": options["access_key"],
        "AWS_SECRET_ACCESS_KEY": options["secret_key"],
        "AWS_REGION": "us-east-1",
    }
    return subprocess.Popen(
        [*map(str, command), "--global-batch", "4"],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    out, _ = process.communicate(timeout=250)
    assert process.returncode == 0, out


def log(directory: Path, run: str) -> list[Any]:
    lines = (directory / f"log-{run}-0.jsonl").read_text().split("\n")[:-1]  # The last may be cut off.
    return [json.loads(line) for line in lines]


def test_it_goes_on_bit_by_bit_when_it_is_killed_in_a_save(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    files, data = tmp_path / "files", tmp_path / "data"
    files.mkdir()
    rng = np.random.default_rng(1)
    (files / "a.txt").write_bytes(rng.integers(0, 256, 56 * 1025, np.uint8).tobytes())
    pack = [sys.executable, "-m", "headrace.cli", "pack", files, data, "--format", "mds", "--tokens", "1025"]
    subprocess.run([*map(str, pack), "--json"], check=True, capture_output=True)
    (tmp_path / "buckets" / "bucket").mkdir(parents=True)
    with simulator.Server(str(tmp_path / "buckets")) as server:
        options = where(server)
        whole, cut = tmp_path / "whole", tmp_path / "cut"
        end(start(data, whole, options, "run"))
        first = start(data, cut, options, "first")
        saves = tmp_path / "buckets" / "bucket" / "cut" / "saves"
        while not any(saves.glob(f"*-{KILL_IN_SAVE_OF_STEP:012}-*/*")):
            assert first.poll() is None, first.communicate()[0]
            time.sleep(0.001)
        first.kill()  # The save may be over already: it goes on exactly all the same.
        first.communicate()
        end(start(data, cut, options, "second"))

        expected, before, after = log(whole, "run"), log(cut, "first"), log(cut, "second")
        resumed = after[0]["step"]
        assert resumed in (KILL_IN_SAVE_OF_STEP - 2, KILL_IN_SAVE_OF_STEP)
        assert before[:resumed] + after == expected, "ids, bytes and loss of each step"
        states = []
        for run in ("whole", "cut"):
            with Checkpointer(f"s3://bucket/{run}", **options) as checkpointer:
                states.append(checkpointer.load())
        assert states[0]["step"] == states[1]["step"] == len(expected) == 14
        for part in ("model", "optimizer"):
            assert leaves(states[0][part]) == leaves(states[1][part]), part


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """Bytes of arrays, and values."""
    if isinstance(tree, dict):
        return {k: v for key, each in tree.items() for k, v in leaves(each, f"{path}.{key}").items()}
    if isinstance(tree, (list, tuple)):
        return leaves(dict(enumerate(tree)), path)
    return {path: tree.numpy().tobytes() if hasattr(tree, "numpy") else tree}
