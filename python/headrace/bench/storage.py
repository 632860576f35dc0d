"""The simulator in front of a directory, as a process of its own: its CPU is not that of the training.

The process serves until its standard input ends, so it never outlives the one that started it, however that
one ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace import sim
from headrace.base import live
from headrace.base.scratch import ScratchDirectory
from headrace.errors import InternalError, InvalidArgumentError

__all__ = ["BUCKET", "SimulatedStorage"]

BUCKET = "train"
_CLOSE_SECONDS = 10


class SimulatedStorage(live.Closing):
    """Serves a directory as the bucket ``train`` with a profile of the simulator, until closed.

    :param delay: seconds added to each first byte.
    """

    def __init__(self, directory: str, *, profile: str = "none", seed: int = 0, delay: float = 0.0) -> None:
        self._root = ScratchDirectory("headrace-bench-")
        (Path(self._root.name) / BUCKET).symlink_to(os.path.abspath(directory))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.bench.storage", self._root.name, profile, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the one that started it.
        )
        try:
            self.options: dict[str, Any] = self._read()
            """How a store reaches it."""
            self.set_delay(delay)
        except BaseException:
            self._process.kill()  # It may still be starting, and would tell what it misses.
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}"

    def set_delay(self, seconds: float) -> None:
        """Adds this to each first byte from now on, instead of what was added before."""
        self._ask({"delay_ms": 1000 * seconds})

    def stats(self) -> dict[str, float]:
        """Its CPU seconds, requests and bytes sent so far."""
        return self._ask({})

    def close(self) -> None:
        """Ends the process. May be repeated."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._root.cleanup()

    def _ask(self, question: Mapping[str, float]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise InternalError("the simulator's process has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _serve(root: str, profile: str, seed: str) -> None:
    def answer(value: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.flush()

    local = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with sim.Server(root, profile=profile, seed=int(seed)) as server:
        answer(
            {
                "endpoint": server.endpoint,
                "access_key": server.access_key,
                "secret_key": server.secret_key,
                "region": server.region,
                "proxy": "none",
                "control_directory": "",
            }
        )
        for line in sys.stdin:
            question = json.loads(line)
            if "delay_ms" in question:
                body = json.dumps({"index": 0, "delay_ms": question["delay_ms"]}).encode()
                local.open(f"{server.endpoint}/_headrace/addresses", body).read()
            stats = server.stats()
            answer(
                {
                    "cpu_seconds": time.process_time(),
                    "requests": stats["request_count"],
                    "bytes_sent": stats["bytes_sent"],
                }
            )


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        try:
            _serve(*sys.argv[1:])
        except InvalidArgumentError:
            if os.path.isdir(sys.argv[1]):  # Else who started this was stopped meanwhile, and has tidied up.
                raise
