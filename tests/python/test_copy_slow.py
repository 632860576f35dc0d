"""Copies over a slow link: what an interruption leaves, and what is shown meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from slow_link import slow_link

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.cli.bar import Moved
from headrace.cli.plan import Job

RATE = 3e6


class _SeenError(Exception):
    pass


@pytest.mark.parametrize("is_upload", [False, True])
def test_an_interruption_keeps_most_of_what_came(
    s3: simulator.Server, buckets: Path, tmp_path: Path, is_upload: bool
) -> None:
    data = os.urandom(100 << 20)
    here, there = tmp_path / "here", buckets / "b" / "there"
    (here if is_upload else there).write_bytes(data)
    urls = [str(here), "s3://b/there"]
    # S3 takes parts of 5 MiB or more.
    part = "5MiB" if is_upload else "1MiB"
    command = [sys.executable, "-m", "headrace.cli", "cp", "--json", "--part-size", part]
    command += urls if is_upload else urls[::-1]
    seconds = 9 if is_upload else 6
    with slow_link(s3.endpoint, RATE) as endpoint:
        env = {**os.environ, "AWS_ENDPOINT_URL_S3": endpoint}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert process.stderr is not None
            assert "finished parts of large objects are kept" in process.stderr.read()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    totals = json.loads(done.stdout.splitlines()[-1])
    assert totals["resumed_bytes"] >= (5 << 20 if is_upload else 4 << 20), totals
    assert totals["bytes"] == len(data)
    assert (there if is_upload else here).read_bytes() == data


@pytest.mark.parametrize("is_upload", [False, True])
def test_progress_moves_before_a_part_has_arrived(
    s3: simulator.Server, buckets: Path, tmp_path: Path, is_upload: bool
) -> None:
    size = 64 << 20
    (tmp_path / "x" if is_upload else buckets / "b" / "x").write_bytes(bytes(size))
    with (
        slow_link(s3.endpoint, RATE) as endpoint,
        hr.Store("s3://b", endpoint=endpoint) as remote,
        hr.Store(str(tmp_path)) as local,
    ):
        job = Job(*((local, remote) if is_upload else (remote, local)), [("x", "y", False, 0, "")])
        native = _native.CopyJob(job.source._native, job.target._native, job.tasks, {})
        moved, last, deadline = Moved(job), 0, time.monotonic() + 20

        def tick() -> None:
            nonlocal last
            now = native.progress()
            shown = moved.bytes(now)
            assert last <= shown <= size
            last = shown
            assert now["done_bytes"] == 0, "too late"
            assert time.monotonic() < deadline
            if shown > 2 << 20:
                raise _SeenError

        with pytest.raises(_SeenError):
            native.run(tick)
