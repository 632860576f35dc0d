"""The part of ceph/s3-tests that the simulator claims: only where HEADRACE_S3_TESTS names a checkout (it is
on no package index)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = os.environ.get("HEADRACE_S3_TESTS", "")
RUNNER = Path(__file__).parents[1] / "peers" / "s3_tests.py"


@pytest.mark.skipif(not CHECKOUT, reason="HEADRACE_S3_TESTS names no checkout of ceph/s3-tests")
@pytest.mark.timeout(1800)
def test_all_of_the_claim_passes() -> None:
    done = subprocess.run([sys.executable, RUNNER, CHECKOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
