"""Copies over a slow link: what an interruption leaves."""

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

from headrace import sim as simulator

RATE = 3e6


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
