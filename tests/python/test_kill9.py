"""Promise 7 and 1: kill -9 at any moment, again and again; every restart works without clean-up, nothing is
left behind.

HEADRACE_KILLS sets the number of kills (default 200).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

KILLS = int(os.environ.get("HEADRACE_KILLS", "200"))
SAMPLES = 20_000
GLOBAL_BATCH = 24
RANK_PROGRAM = Path(__file__).with_name("kill9_rank.py")


def leftovers(scratch: Path) -> set[str]:
    """Files in the shared-memory directory and in the run's own TMPDIR."""
    return {str(p) for p in Path("/dev/shm").glob("*headrace*")} | {str(p) for p in scratch.iterdir()}


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A simulator in a process of its own with one dataset, and the variables that lead there."""
    streaming = pytest.importorskip("streaming")
    bucket = tmp_path / "buckets" / "b"
    with streaming.MDSWriter(out=str(bucket / "ds"), columns={"x": "int"}, size_limit=1 << 14) as writer:
        for i in range(SAMPLES):
            writer.write({"x": i * 7 + 1})
    command = [sys.executable, "-m", "headrace.cli", "sim", str(tmp_path / "buckets"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    endpoint = json.loads(process.stdout.readline())["endpoint"]
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    yield os.environ | {
        "AWS_ENDPOINT_URL_S3": endpoint,
        "AWS_ACCESS_KEY_ID": "headrace",
        "AWS_SECRET_ACCESS_KEY": "headrace-secret",
        "TMPDIR": str(scratch),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    process.terminate()
    process.wait()


class Run:
    """A training run that is killed and restarted, and the record of what it received."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory, self.environment = directory, environment
        self.delivered: list[list[int]] = []  # by global batch

    def start(self, world_size: int) -> list[subprocess.Popen[bytes]]:
        def command(rank: int) -> list[str]:
            return [
                sys.executable,
                str(RANK_PROGRAM),
                "s3://b/ds",
                str(rank),
                str(world_size),
                str(GLOBAL_BATCH // world_size),
                str(self.directory),
            ]

        return [
            subprocess.Popen(command(r), env=self.environment, stdout=subprocess.PIPE)
            for r in range(world_size)
        ]

    def collect(self, world_size: int) -> None:
        """Takes over the batches that *all* ranks received, and makes that the point to go on from: what a
        checkpoint does."""
        logs = []
        for rank in range(world_size):
            path = self.directory / f"log-{rank}.jsonl"
            lines = path.read_text().split("\n")[:-1] if path.exists() else []
            logs.append([json.loads(line) for line in lines])
            path.unlink(missing_ok=True)
        common = min(len(log) for log in logs)
        for k in range(common):
            assert all(log[k]["right"] for log in logs), "a sample's bytes are wrong"
            self.delivered.append([i for log in logs for i in log[k]["ids"]])
        if common:
            assert all(log[common - 1]["state"] == logs[0][common - 1]["state"] for log in logs), (
                "ranks disagree on the state"
            )
            (self.directory / "state.json").write_text(json.dumps(logs[0][common - 1]["state"]))


@pytest.mark.timeout(1200)
def test_kill9_loop_delivers_each_sample_exactly_once(tmp_path: Path, environment: dict[str, str]) -> None:
    scratch = Path(environment["TMPDIR"])
    seed = int(os.environ.get("HEADRACE_TEST_SEED", random.randrange(1 << 30)))
    print(f"HEADRACE_TEST_SEED={seed}")
    chance = random.Random(seed)
    before = leftovers(scratch)
    kills, epochs = 0, 0
    while kills < KILLS:
        directory = tmp_path / f"epoch-{epochs}"
        directory.mkdir()
        run = Run(directory, environment)
        while True:
            ranks = run.start(2)
            progress = ranks[chance.randrange(2)].stdout
            assert progress is not None
            # Kill after a random number of batches of a random rank, some before the first: also while it is
            # starting.
            wanted = chance.choice([0, 1, 2, 5, 20, 60, 120]) if kills < KILLS else SAMPLES
            if len(progress.read(wanted)) == wanted:
                for rank in chance.sample(ranks, 2):
                    rank.send_signal(signal.SIGKILL)
                kills += 1
            codes = [rank.wait() for rank in ranks]
            for rank in ranks:
                assert rank.stdout is not None
                rank.stdout.close()
            assert all(code in (0, -signal.SIGKILL) for code in codes), f"a rank failed with {codes}"
            run.collect(2)
            if sum(map(len, run.delivered)) >= SAMPLES:  # the kill may have come after the last batch
                break
        delivered = [i for batch in run.delivered for i in batch]
        assert sorted(delivered) == list(range(SAMPLES))
        epochs += 1
    assert leftovers(scratch) == before
