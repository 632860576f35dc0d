"""The scripts of examples/: they run as their first lines say, their loss falls, and a run that was stopped goes
on with exactly the samples that were left."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from framework_ranks import LONG
from other_venv import need_tensorflow, package_alone

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COUNT = 128
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def run(script: str, *arguments: str | Path, ranks: int = 0, home: Path | None = None) -> str:
    """What it prints; with ``home``, on TensorFlow's venv."""
    start = [str(need_tensorflow() if home else sys.executable)]
    if ranks:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [*start, str(EXAMPLES / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=250,
        env=os.environ | QUIET | (package_alone(home) if home else {}),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("examples") / "images"
    run("make_data.py", "images", root, "--count", str(COUNT))
    return root


def ids(output: str) -> list[int]:
    """Of all batches; ranks may print into each other's lines."""
    return [i for found in re.findall(r'"ids": (\[[^\]]*\])', output) for i in json.loads(found)]


def losses(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"""(?<!_)loss["']?:? ([0-9.]+)""", output)]


def test_images(images: Path) -> None:
    found = losses(run("images.py", images, "--epochs", "4"))
    assert len(found) == 4
    assert found[-1] < 0.8 * found[0]


def test_tokens(tmp_path: Path) -> None:
    run("make_data.py", "tokens", tmp_path / "tokens", "--count", "1024")
    found = losses(run("tokens.py", tmp_path / "tokens", "--epochs", "2"))
    assert found[1] < 0.95 * found[0]


@pytest.mark.parametrize(
    ("script", "ranks", "resumed"),
    [
        ("pytorch_ddp.py", 2, 1),
        ("fsdp2.py", 1, 1),
        ("lightning_fit.py", 0, 0),
        ("hf_trainer.py", 0, 0),
        ("accelerate_loop.py", 0, 0),
    ],
)
def test_a_run_that_was_stopped_goes_on(
    images: Path, tmp_path: Path, script: str, ranks: int, resumed: int
) -> None:
    check_resumed(
        run(script, images, "--checkpoint", tmp_path / "run", "--stop", "3", ranks=ranks),
        run(script, images, "--checkpoint", tmp_path / "run", "--resume", ranks=resumed),
    )


@pytest.mark.parametrize("script", ["keras_loop.py", "jax_loop.py"])
def test_a_run_without_torch_goes_on(images: Path, tmp_path: Path, script: str) -> None:
    check_resumed(
        run(script, images, "--checkpoint", tmp_path / "run", "--stop", "3", home=tmp_path),
        run(script, images, "--checkpoint", tmp_path / "run", "--resume", home=tmp_path),
    )


def check_resumed(first: str, rest: str) -> None:
    assert 0 < len(ids(first)) <= COUNT
    assert sorted(ids(first) + ids(rest)) == sorted(2 * list(range(COUNT))), (
        "two epochs, each sample once in each"
    )
    found = losses(first) + losses(rest)
    assert found[-1] < found[0]


@pytest.mark.skipif(not LONG, reason="two starts of Ray cost as much as all others together")
def test_ray(images: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    storage = ("--storage", tmp_path / "runs")
    check_resumed(
        run("ray_train.py", images, *storage, "--epochs", "1"),
        run("ray_train.py", images, *storage, "--epochs", "2"),
    )


def test_every_script_is_listed() -> None:
    said = (EXAMPLES / "README.md").read_text()
    assert not [path.name for path in EXAMPLES.glob("*.py") if path.name not in said]
