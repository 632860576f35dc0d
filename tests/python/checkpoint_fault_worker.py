"""Saves checkpoints that meet a fault; run by checkpoint_faults.py, one process for many runs.

Each line of the input is a run, as JSON; each line of the output what came of one, in any order. A run's
ranks are forked from here, where nothing but modules has been loaded: save step 1 undisturbed, then the
second save with the fault armed. A rank reports what its handle said.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpoint_faults import CALL_FAULTS, FILE_FAULTS, OTHERS, state_of

import headrace as hr
from headrace import _native
from headrace.checkpoint import Checkpointer
from headrace.checkpoint.group import Group

# A rank that is dead says nothing for so long; whoever is only slow under load fails a save as well.
RANK_TIMEOUT = 0.7
UNDISTURBED = 120.0


class FolderValues:
    """The job's key-value store, as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / key.replace("/", "+")

    def set(self, key: str, value: str) -> None:
        path = self._path(key)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(value)
        temporary.rename(path)

    def get(self, key: str) -> bytes:
        return self._path(key).read_bytes()

    def check(self, keys: list[str]) -> bool:
        return all(self._path(key).exists() for key in keys)

    def delete_key(self, key: str) -> bool:
        self._path(key).unlink(missing_ok=True)
        return True


class CallFault:
    """A fault at the nth call that the second save makes, of those that reach beyond this process: the store,
    the data file and the other ranks."""

    def __init__(self, run: dict[str, Any], rank: int) -> None:
        self._run, self._rank = run, rank
        self._lock = threading.Lock()
        self._is_armed = False
        self.count = 0
        for owner, name in (
            (_native, "checkpoint_write_small"),
            (_native, "checkpoint_copy_file"),
            (_native.CheckpointWriter, "stage"),
            (_native.CheckpointWriter, "finish"),
            (hr.Store, "get"),
            (hr.Store, "get_range"),
            (hr.Store, "head"),
            (hr.Store, "list"),
            (hr.Store, "delete"),
            (hr.Store, "delete_many"),
            (FolderValues, "set"),
            (FolderValues, "get"),
        ):
            setattr(owner, name, self._counted(owner, name))

    def arm(self) -> None:
        with self._lock:
            self.count, self._is_armed = 0, True

    def _counted(self, owner: Any, name: str) -> Callable[..., Any]:
        function = getattr(owner, name)

        def call(*arguments: Any, **more: Any) -> Any:
            with self._lock:
                number, is_armed = self.count, self._is_armed
                self.count += is_armed
            if is_armed and self._run["at"] >= 0:
                self._meet(number, owner is FolderValues)
            return function(*arguments, **more)

        return call

    def _meet(self, number: int, is_values: bool) -> None:
        fault, here = self._run["fault"], number == self._run["at"]
        if fault in ("kill one", "kill all") and here:
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "slow rank" and here:
            # Longer than the others wait: they have given up when this one goes on.
            time.sleep(1.5 * RANK_TIMEOUT)
        elif fault == "coordinator lost" and number >= self._run["at"] and is_values:
            raise ConnectionError("the job's key-value store does not answer")
        elif fault == "error" and here and not is_values:
            raise hr.UnavailableError("a fault of the test")
        elif fault == "clock jump" and here:
            jumped = time.time() + 3e8 * (1 - 2 * (self._run["seed"] % 2))
            time.time = lambda: jumped
        elif fault == "two writers" and here:
            with self._lock:
                self._is_armed = False
            arguments = arguments_of(self._run, clean=True)
            # Whether it wins or not, its word counts as any other's.
            with Checkpointer(**arguments, group=Group()) as other, contextlib.suppress(hr.HeadraceError):
                state = state_of(OTHERS, self._run)
                other.save(self._run["step"], state, overwrite=self._run["step"] == 1).result()
                Path(self._run["folder"], "other").write_text("saved")


def arguments_of(run: dict[str, Any], clean: bool = False) -> dict[str, Any]:
    arguments = {"url": run["url"], "memory": "48MiB", "part_bytes": 5 << 20, "check": run["check"]}
    arguments |= {name: run[name] for name in ("differential", "keep", "compression")}
    if run["local"] and not clean:
        arguments["local"] = run["local"]
    options = dict(run["options"])
    if clean and "proxied" in run:
        options["endpoint"] = run["proxied"]
    return arguments | options


def run_rank(run: dict[str, Any], rank: int) -> dict[str, Any]:
    folder, world = Path(run["folder"]), run["world"]
    group = Group(rank, world, FolderValues(folder / "values") if world > 1 else None, UNDISTURBED)
    calls = CallFault(run, rank) if run["fault"] in (*CALL_FAULTS, "none") else None
    said: dict[str, Any] = {"error": "", "levels": [], "count": 0}
    checkpointer = Checkpointer(**arguments_of(run), group=group)
    checkpointer.save(1, state_of(1, run)).result()
    group.gather("ready", 0)
    group.timeout = RANK_TIMEOUT
    is_mine = rank == run["rank"]
    if is_mine:
        if calls is not None:
            calls.arm()
        if "proxied" in run:
            ask = f"{run['options']['endpoint']}/_arm?pid={os.getpid()}"
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(ask).read()
        else:
            kind = FILE_FAULTS.index(run["fault"]) + 1 if run["fault"] in FILE_FAULTS else 0
            ctypes.CDLL(None).fault_arm(run["disk"].encode(), kind, run["at"])
    try:
        handle = checkpointer.save(run["step"], state_of(2, run), overwrite=run["step"] == 1)
        for level in ("local", "remote"):
            handle.wait(level)
            said["levels"].append(level)
    except Exception as error:
        said["error"] = f"{type(error).__name__}: {error}"
    with contextlib.suppress(Exception):
        checkpointer.close()
    if is_mine:
        said["count"] = calls.count if calls is not None else ctypes.CDLL(None).fault_count()
    return said


def manage(run: dict[str, Any]) -> dict[str, Any]:
    """Runs the ranks of a run, each in a process."""
    pids = {}
    for rank in range(run["world"]):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                Path(run["folder"], f"rank{rank}.json").write_text(json.dumps(run_rank(run, rank)))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        pids[pid] = rank
    said: list[dict[str, Any]] = [{} for _ in pids]
    while pids:
        pid, status = os.wait()
        rank = pids.pop(pid)
        if os.WIFSIGNALED(status):
            said[rank] = {"killed": os.WTERMSIG(status), "error": "killed", "levels": [], "count": 0}
            if run["fault"] == "kill all":
                for other in pids:
                    os.kill(other, signal.SIGKILL)
        elif status == 0:
            said[rank] = json.loads(Path(run["folder"], f"rank{rank}.json").read_text())
        else:
            said[rank] = {"broken": status, "error": "broken", "levels": [], "count": 0}
    return {"id": run["id"], "ranks": said}


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.alarm(240)  # A run that hangs is an error of the test.
            os.write(1, (json.dumps(manage(json.loads(line))) + "\n").encode())
            os._exit(0)


if __name__ == "__main__":
    main()
