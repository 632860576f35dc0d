"""Runs training loops of other frameworks on one or two ranks: forks them from one process that has imported
the framework once.

A program defines ways to train (functions of a Job that return JSON) and calls main() with them; run_jobs()
starts it with a list of jobs and gives their results, one a rank.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import headrace as hr

LONG = os.environ.get("HEADRACE_LONG_TESTS") == "1"
HANG_SECONDS = 120  # What a rank may take that waits for one that failed.
SAMPLES = 333
BATCH = 8
EPOCHS = 3
LOADER: dict[str, Any] = {"batch_size": BATCH, "memory": "64MiB", "block_bytes": "64KiB", "seed": 3}


class Job(NamedTuple):
    """One run of a way to train: all of it, or from a checkpoint on, or up to a step where it saves one and
    ends."""

    way: str
    data: str
    world: int = 1
    directory: str = ""
    stop: int | None = None
    """Optimizer steps, over all epochs, after which the run saves and ends."""
    resumes: bool = False
    options: dict[str, Any] = {}  # noqa: RUF012 (nobody changes it)


def batches_an_epoch(world: int) -> int:
    return -(-SAMPLES // (BATCH * world))


def planned(data: Path, world: int, epochs: int = EPOCHS, **options: Any) -> list[list[list[int]]]:
    """Ids of each batch of all epochs, by rank."""
    out = []
    for rank in range(world):
        with hr.Loader(data, rank=rank, world_size=world, **LOADER, **options) as loader:
            out.append([ids.tolist() for epoch in range(epochs) for ids in loader.sample_ids(epoch)])
    return out


def stops(world: int, steps: int | None = None) -> list[int]:
    """Steps to stop at: a random one of each epoch and the end of the first, or with HEADRACE_LONG_TESTS all.
    Default: a step a batch."""
    count = steps or batches_an_epoch(world)
    if LONG:
        return list(range(1, EPOCHS * count))
    seed = os.environ.get("HEADRACE_TEST_SEED") or str(random.randrange(1 << 32))
    print(f"HEADRACE_TEST_SEED={seed}")
    chosen = random.Random(int(seed))
    return [epoch * count + chosen.randrange(1, count) for epoch in range(EPOCHS)] + [count]


def run_jobs(program: Path, jobs: Iterable[Job], packages: Path | None = None) -> list[list[Any]]:
    """What each rank of each job returned; its traceback where it raised. ``packages`` come before the
    venv's."""
    with tempfile.TemporaryDirectory() as directory:
        given, made = Path(directory, "jobs.json"), Path(directory, "results.json")
        given.write_text(json.dumps(list(jobs)))
        path = os.pathsep.join(filter(None, [str(packages or ""), os.environ.get("PYTHONPATH", "")]))
        environment = os.environ | ({"PYTHONPATH": path} if path else {})
        command = [sys.executable, str(program), str(given), str(made)]
        run = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=3600 if LONG else 280
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return json.loads(made.read_text())  # type: ignore[no-any-return]


def run_without_errors(program: Path, jobs: Iterable[Job], failing: str = "") -> list[list[Any]]:
    """As run_jobs(), of ways that raise nothing but for the one named ``failing``."""
    given = list(jobs)
    out = run_jobs(program, given)
    for job, ranks in zip(given, out, strict=True):
        for result in ranks:
            if isinstance(result, dict) and "error" in result and job.way != failing:
                raise AssertionError(f"{job}: {result['error']}")
    return out


def _environment(rank: int, world: int, port: int) -> dict[str, str]:
    """As torchrun sets it; but by the port of a store that is there already."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _child(way: Callable[[Job], Any], job: Job, environment: dict[str, str], report: Path) -> None:
    with report.open("w") as hang:
        faulthandler.dump_traceback_later(HANG_SECONDS, file=hang)
        signal.alarm(HANG_SECONDS + 5)
        _write_result(way, job, environment, report)
    _end_workers()
    os._exit(0)


def _end_workers() -> None:
    """Ends what multiprocessing would end at a normal exit: workers of a DataLoader that an error has left. A
    worker that starts after its parent has gone waits for ever, and with it who reads this program's
    output."""
    for worker in multiprocessing.active_children():
        worker.kill()
        worker.join()


def _write_result(way: Callable[[Job], Any], job: Job, environment: dict[str, str], report: Path) -> None:
    try:
        os.environ.update(environment)
        os.environ["OMP_NUM_THREADS"] = "1"
        result = way(job)
    except BaseException:
        result = {"error": traceback.format_exc()}
    report.write_text(json.dumps(result))


def _run(way: Callable[[Job], Any], job: Job) -> list[Any]:
    from torch.distributed import TCPStore

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as reports:
        children = []
        for rank in range(job.world):
            environment = _environment(rank, job.world, port) if job.world > 1 else {}
            pid = os.fork()
            if pid == 0:
                listener.close()
                _child(way, job, environment, Path(reports, str(rank)))
            children.append(pid)
        # Not before: its thread holds locks of the C library now and then, which a child would have for ever.
        store = TCPStore(
            "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        ends = [os.waitpid(pid, 0)[1] for pid in children]
        del store
        texts = [Path(reports, str(rank)).read_text() for rank in range(job.world)]
        return [
            json.loads(text) if end == 0 else {"error": "it hung:\n" + text}
            for end, text in zip(ends, texts, strict=True)
        ]


def main(ways: dict[str, Callable[[Job], Any]], imports: Iterable[str] = ()) -> None:
    """Runs the jobs that a file lists, and writes their results into another. ``imports``: what the framework
    imports while it trains."""
    given, made = map(Path, sys.argv[1:])
    for module in (
        "torch._dynamo",
        "torch._inductor",
        "torch.onnx",
        *imports,
    ):  # Optimizers import these at their first step.
        importlib.import_module(module)
    gc.freeze()  # Ranks that collect garbage would copy all of it.
    jobs = [Job(*row) for row in json.loads(given.read_text())]
    made.write_text(json.dumps([_run(ways[job.way], job) for job in jobs]))
