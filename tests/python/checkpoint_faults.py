"""Checkpoints that meet faults: runs of them, and what must be true after each.

A run saves step 1 undisturbed, then step 2 (or step 1 anew) with a fault at one point of it. Whatever the
fault: a save that says it is there is there, whole and proved; where none says so, what was saved before is
loaded with its old values, or the new ones, whole; no manifest names what is not there; and the next job goes
on.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import warnings
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from checkpoint_fault_proxy import REQUEST_FAULTS, FaultProxy

from headrace.checkpoint import Checkpointer
from headrace.errors import CorruptError

__all__ = [
    "CALL_FAULTS",
    "FILE_FAULTS",
    "OTHERS",
    "PLACES",
    "REQUEST_FAULTS",
    "UNREAD_FAULTS",
    "Cell",
    "Outcome",
    "Runner",
    "Shape",
    "state_of",
]

PLACES = ("file", "nvme", "s3")
"""A directory; a directory and S3 behind it; S3."""

CALL_FAULTS = (
    "kill one",
    "kill all",
    "slow rank",
    "coordinator lost",
    "clock jump",
    "two writers",
    "error",
)
FILE_FAULTS = ("kill", "disk full", "eio for ever", "eio", "short write", "dropped write", "flipped write")
"""In the order of checkpoint_fault_calls.c. What a disk has not written, or otherwise than it was told, is
read back (``check="read"``)."""

UNREAD_FAULTS = {"dropped write unread": "dropped write", "flipped write unread": "flipped write"}
"""The same as nobody reads it back: the default on disks."""

OTHERS = 99
"""Number of the state that another job saves under the same step."""

HERE = Path(__file__).parent


class Cell(NamedTuple):
    """Of the matrix."""

    place: str
    fault: str

    def __str__(self) -> str:
        return f"{self.place}-{self.fault.replace(' ', '-')}"


class Shape(NamedTuple):
    """What else there is to a run."""

    world: int
    rank: int
    """That meets the fault."""
    overwrites: bool
    """The second save is of the same step."""
    large: bool
    """Several parts."""
    differential: bool
    """The second save refers to the first."""
    keeps_one: bool
    """What was saved before goes when the second save is there."""
    compressed: bool

    @classmethod
    def drawn(cls, cell: Cell, seed: int) -> Shape:
        chosen = random.Random(f"{cell} {seed}")
        world = 1 if chosen.random() < 0.5 and cell.fault not in ("kill one", "slow rank") else 2
        large = cell.fault == "lost part" or (
            cell.fault in ("corrupt", "cut", "dropped") and chosen.random() < 0.5
        )
        drawn = cls(world, chosen.randrange(world), chosen.random() < 0.3, large, False, False, False)
        return drawn._replace(
            differential=chosen.random() < 0.5,
            keeps_one=chosen.random() < 0.3,
            compressed=chosen.random() < 0.4,
        )


class Outcome(NamedTuple):
    """How a run ended."""

    said: str
    """The furthest level that a rank's handle told, or ""."""
    errors: list[str]
    points: int
    """At which the fault might have come."""


def state_of(number: int, run: dict[str, Any]) -> dict[str, Any]:
    """Arrays that several ranks share among them; no two numbers alike, but for what is frozen."""
    rng = np.random.default_rng(number)
    count = 700_000 if run["large"] else 700  # Three parts, or one.
    names = "abc"[: 3 if run["world"] > 1 else 2]
    frozen = {f"frozen {name}": np.arange(float(count // 2)) + i for i, name in enumerate(names)}
    return {
        "n": number,
        **{name: rng.random(count) for name in names},
        **(frozen if run["differential"] else {}),
    }


def number_of(state: dict[str, Any], run: dict[str, Any]) -> int:
    """Which state that is; the whole of it."""
    expected = state_of(state["n"], run)
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(state[name], value), f"{name} of state {state['n']} has other values"
    return int(state["n"])


class Runner:
    """Runs many at once: one process of checkpoint_fault_worker.py, which forks. Threads: any.

    :param folder: with the directory of the server's buckets, ``buckets``.
    """

    def __init__(self, folder: Path, server: Any) -> None:
        self._folder, self._server = folder, server
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._points: dict[tuple[Cell, Shape], int] = {}
        self.ended: Counter[str] = Counter()
        """Runs with a fault, by the furthest level that a rank's handle told ("none")."""
        library = folder / "faults.so"
        source = HERE / "checkpoint_fault_calls.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "checkpoint_fault_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"},
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            with self._lock:
                future = self._waiting.pop(said["id"])
            future.set_result(said["ranks"])
        with self._lock:
            for future in self._waiting.values():
                future.set_exception(RuntimeError("the worker has ended"))

    def points(self, cell: Cell, shape: Shape) -> int:
        """At how many the fault may come."""
        with self._lock:
            found = self._points.get((cell, shape))
        if found is None:
            found = self.run(cell, shape, -1, 0).points
            assert found > 0, (cell, shape)
            with self._lock:
                self._points[cell, shape] = found
        return found

    def run(self, cell: Cell, shape: Shape, at: int, seed: int) -> Outcome:
        """One run, with all that must be true after it. ``at`` < 0: without the fault, to count its
        points."""
        number = next(self._numbers)
        folder = self._folder / f"run{number}"
        folder.mkdir()
        local = str(folder / "disk") if cell.place == "nvme" else ""
        is_request = cell.fault in REQUEST_FAULTS
        run: dict[str, Any] = {
            "id": number,
            "folder": str(folder),
            "url": str(folder / "disk") if cell.place == "file" else f"s3://b/run{number}",
            "local": local,
            "disk": str(folder / "disk"),
            "fault": UNREAD_FAULTS.get(cell.fault, cell.fault),
            "at": at,
            "seed": seed,
            "rank": shape.rank,
            "world": shape.world,
            "step": 1 if shape.overwrites else 2,
            "large": shape.large,
            "differential": shape.differential,
            "compression": "zstd" if shape.compressed else None,
            "keep": 1 if shape.keeps_one else None,
            "check": "read" if cell.fault in ("dropped write", "flipped write") else "auto",
            "options": {},
        }
        proxy = None
        if cell.place != "file":
            run["options"] = {
                "endpoint": self._server.endpoint,
                "access_key": self._server.access_key,
                "secret_key": self._server.secret_key,
            }
        try:
            if is_request:
                proxy = FaultProxy(("127.0.0.1", self._server.port), cell.fault, at)
                run["proxied"] = self._server.endpoint
                run["options"] |= {
                    "endpoint": proxy.endpoint,
                    "timeout": 3.0,
                    "first_byte_timeout": 0.5,
                    "progress_timeout": 0.5,
                    "max_attempts": 3,
                }
            ranks = self._ask(run)
        finally:
            if proxy is not None:
                proxy.close()
        assert not any(each.get("broken") for each in ranks), (run, ranks)
        assert all(each.get("killed", 9) == 9 for each in ranks), (run, ranks)
        said = max((level for each in ranks for level in each["levels"]), default="")  # "local" < "remote"
        points = proxy.count if proxy is not None else max(each["count"] for each in ranks)
        try:
            (self._check_unread if cell.fault in UNREAD_FAULTS else self._check)(run, said)
        except Exception as error:
            raise AssertionError(
                f"{cell}, at={at}, seed={seed}: {error!r}; run: {run}; ranks: {ranks}"
            ) from error
        with self._lock:
            self.ended[said or "none"] += at >= 0
        for each in (folder, self._folder / "buckets" / "b" / f"run{number}"):
            shutil.rmtree(each, ignore_errors=True)
        return Outcome(said, [each["error"] for each in ranks], points)

    def _ask(self, run: dict[str, Any]) -> list[dict[str, Any]]:
        future: Future[Any] = Future()
        assert self._process.stdin is not None
        with self._lock:
            self._waiting[run["id"]] = future
            self._process.stdin.write(json.dumps(run) + "\n")
            self._process.stdin.flush()
        return future.result(240)

    def _arguments(self, run: dict[str, Any]) -> dict[str, Any]:
        """Of the next job."""
        options = dict(run["options"]) | ({"endpoint": self._server.endpoint} if run["options"] else {})
        return {"memory": "48MiB", "part_bytes": 5 << 20, **options}

    def _check_unread(self, run: dict[str, Any], said: str) -> None:
        """What a save says that nobody has read back may not be there: loading finds it, and takes the one
        before where that was kept. Never are values others than those that were saved, and what was brought
        to S3 is there."""
        arguments = self._arguments(run)
        if said == "remote" and run["local"]:
            with Checkpointer(run["url"], **arguments) as far:
                assert number_of(far.load(run["step"]), run) == 2
        near = {"local": run["local"]} if run["local"] else {}
        with Checkpointer(run["url"], **near, **arguments) as next_job:
            found = _number_loaded(next_job, run)
            rejected = [each.step for each in next_job.rejected]
            assert rejected == ([run["step"]] if said and found != 2 else [])
            if run["step"] == 2 and run["keep"] is None:
                assert found in {1, 2}
                assert number_of(next_job.load(1), run) == 1
            next_job.save(3, state_of(3, run)).result()
            assert number_of(next_job.load(), run) == 3

    def _check(self, run: dict[str, Any], said: str) -> None:
        """What must be true, as the next job sees it."""
        arguments = self._arguments(run)
        other = Path(run["folder"], "other").exists()
        new = {OTHERS} if other else set()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Checkpointer(run["url"], **arguments) as far:
                _check_all(far, run)
                if said == "remote":
                    assert number_of(far.load(run["step"]), run) in {2, *new}
                elif not run["local"]:
                    assert number_of(far.load(), run) in {1, 2, *new}
            near = {"local": run["local"]} if run["local"] else {}
            with Checkpointer(run["url"], **near, **arguments) as next_job:
                if not run["local"]:
                    _check_all(next_job, run)
                allowed = {2, *new} if said else {1, 2, *new}
                assert number_of(next_job.load(), run) in allowed
                if run["step"] == 2 and (run["keep"] is None or 1 in next_job.steps()):
                    assert number_of(next_job.load(1), run) == 1
                next_job.save(3, state_of(3, run)).result()
                assert number_of(next_job.load(), run) == 3


def _number_loaded(checkpointer: Checkpointer, run: dict[str, Any]) -> int | None:
    """Of the state that load() gives; None: it says that there is none that can be proved."""
    try:
        return number_of(checkpointer.load(), run)
    except CorruptError:
        return None


def _check_all(checkpointer: Checkpointer, run: dict[str, Any]) -> None:
    """No manifest names what is not there."""
    for step in checkpointer.steps():
        checkpointer.verify(step)
        number_of(checkpointer.load(step), run)
