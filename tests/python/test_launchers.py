"""Two processes that the real launchers start: each sample once an epoch over both, resumed at a random
step."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import write_numbers
from framework_ranks import LONG, SAMPLES, batches_an_epoch

PROGRAM = Path(__file__).with_name("launched_ways.py")
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# With `--cpu` it would want mpirun; with `--multi_gpu` it starts torchrun, and the program says cpu.
ACCELERATE = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
ACCELERATE += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
LAUNCHERS = {"torchrun": TORCHRUN, "accelerate launch": ACCELERATE}
NEEDS = {
    "alone": (),
    "accelerate": ("accelerate",),
    "fabric": ("lightning",),
    "fabric_wrapped": ("lightning",),
}
RUNS = [("torchrun", "alone"), ("torchrun", "fabric")]
if LONG:
    RUNS += [("torchrun", way) for way in ("fabric_wrapped", "accelerate")]
    RUNS += [("accelerate launch", way) for way in NEEDS]


@pytest.mark.parametrize(("launcher", "way"), RUNS)
def test_each_sample_comes_once_an_epoch(tmp_path: Path, launcher: str, way: str) -> None:
    for module in (*NEEDS[way], *(["accelerate"] if launcher == "accelerate launch" else [])):
        pytest.importorskip(module)
    data = write_numbers(tmp_path / "data", SAMPLES, per_shard=20)
    count = batches_an_epoch(2)
    seed = os.environ.get("HEADRACE_TEST_SEED") or str(random.randrange(1 << 32))
    print(f"HEADRACE_TEST_SEED={seed}")
    stop = random.Random(int(seed)).randrange(1, 2 * count)
    program = [str(PROGRAM), way, str(data), str(tmp_path), str(stop)]
    command = [sys.executable, "-m", *LAUNCHERS[launcher], *program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stdout + run.stderr
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert [rank["world_size"] for rank in ranks] == [2, 2]
    for epoch in range(2):
        seen = [i for rank in ranks for at, ids in rank["seen"] if at == epoch for i in ids]
        assert sorted(seen) == list(range(SAMPLES)), (stop, epoch)
    assert [len(rank["seen"]) for rank in ranks] == [2 * count, 2 * count]
