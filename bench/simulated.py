"""The simulator in a process of its own: what it costs is not what a benchmark measures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["simulated", "store_options"]


@contextmanager
def simulated(
    buckets: Path, *options: str, environment: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """The variables by which clients find it.

    :param options: of ``headrace sim``.
    :param environment: of its process; None: that of this one.
    """
    command = [sys.executable, "-m", "headrace.cli", "sim", str(buckets), "--port", "0", "--json", *options]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            yield json.loads(server.stdout.readline())["environment"]
        finally:
            server.terminate()


def store_options(variables: Mapping[str, str]) -> dict[str, str]:
    """What `simulated` gives, as arguments of a Store."""
    return {
        "endpoint": variables["AWS_ENDPOINT_URL_S3"],
        "access_key": variables["AWS_ACCESS_KEY_ID"],
        "secret_key": variables["AWS_SECRET_ACCESS_KEY"],
    }
