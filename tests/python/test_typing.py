"""What a type checker says about programs of users."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr

PROGRAM = """
import headrace as hr
import headrace.torch

loader = headrace.torch.Loader("d", batch_size=8, shuffle=False, memory="1GiB", device="cuda", unsigned="keep")
left: int = loader.map(lambda sample: sample).batches_left
plain = hr.Loader("d", batch_size=8, rank=0, world_size=1, epoch_end="drop", anonymous=True)
for batch in plain.epoch_from_start():
    print(batch["x"])
"""  # noqa: E501

MISTAKES = {
    'headrace.torch.Loader("d", batch_szie=8)': 'Unexpected keyword argument "batch_szie"',
    'headrace.torch.Loader("d", batch_size=8, num_workers=2)': 'Unexpected keyword argument "num_workers"',
    'headrace.torch.Loader("d", batch_size="8")': 'Argument "batch_size"',
    'headrace.torch.Loader("d", batch_size=8, unsigned="wide")': 'Argument "unsigned"',
    'headrace.torch.Loader("d", batch_size=8, shuffle="yes")': 'Argument "shuffle"',
    'headrace.torch.Loader("d", batch_size=8).batches_lfet': '"Loader" has no attribute "batches_lfet"',
    'headrace.torch.Loader("d", batch_size=8).reset("0")': 'Argument 1 to "reset"',
    'hr.Loader("d", batch_size=8, transform=print)': 'Unexpected keyword argument "transform"',
}


def check(directory: Path, program: str) -> str:
    pytest.importorskip("mypy")
    pytest.importorskip("torch")
    path = directory / "program.py"
    path.write_text(program)
    place = Path(hr.__file__).parents[1]
    environment = {**os.environ} if place.name == "site-packages" else {**os.environ, "MYPYPATH": str(place)}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent", str(path)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_a_program_and_its_mistakes(tmp_path: Path) -> None:
    """In one run, which takes long enough: only the mistakes are found, each in its line."""
    lines = check(tmp_path, PROGRAM + "\n".join(MISTAKES)).splitlines()
    first = PROGRAM.count("\n") + 1
    for number, (mistake, said) in enumerate(MISTAKES.items()):
        found = [line for line in lines if line.startswith(f"program.py:{first + number}:")]
        assert any(said in line for line in found), (mistake, found)
    others = [line for line in lines if line.startswith("program.py:") and int(line.split(":")[1]) < first]
    assert others == []
