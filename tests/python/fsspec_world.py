"""What the tests of the fsspec file system share."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import headrace as hr
from headrace import sim as simulator

MIB = 1 << 20


@pytest.fixture
def fs(s3: simulator.Server) -> Iterator[Any]:
    opened = hr.fs("s3://b", memory="64MiB", endpoint=s3.endpoint)
    yield opened
    opened.close()


@pytest.fixture
def data() -> bytes:
    return os.urandom(10 * MIB + 12345)


def requests(server: simulator.Server) -> dict[str, int]:
    """Those so far, by kind. Asked for over HTTP: the server's one thread has then counted what it answered
    before."""
    with urllib.request.urlopen(f"{server.endpoint}/_headrace/stats") as answer:
        found = json.load(answer)["requests"]
    return {kind: sum(by_status.values()) for kind, by_status in found.items()}


def count(server: simulator.Server, kind: str) -> int:
    return requests(server).get(kind, 0)


def reads(server: simulator.Server) -> int:
    return count(server, "get_object")


def uploads(server: simulator.Server) -> dict[str, int]:
    names = ("put_object", "create_upload", "upload_part", "complete_upload", "abort_upload")
    return {name: count(server, name) for name in names}
