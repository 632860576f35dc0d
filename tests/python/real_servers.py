"""What tests/with_servers has started."""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import urllib.error
import urllib.request
from email.utils import formatdate

import pytest

__all__ = ["make_container", "server"]


def server(name: str) -> str:
    """A variable of tests/with_servers; skips the test where it is not set."""
    value = os.environ.get(f"HEADRACE_TEST_{name}", "")
    if not value:
        pytest.skip("run under tests/with_servers")
    return value


def make_container() -> None:
    """Signed as Microsoft's documentation of Shared Key says; one that exists is fine."""
    account, container = server("AZURE_ACCOUNT"), server("AZURE_CONTAINER")
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02", "Content-Length": "0"}
    signed = "".join(f"{name}:{headers[name]}\n" for name in ("x-ms-date", "x-ms-version"))
    text = "PUT" + "\n" * 12 + signed + f"/{account}/{account}/{container}\nrestype:container"
    key = base64.b64decode(server("AZURE_KEY"))
    signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    url = f"{server('AZURE_ENDPOINT')}/{container}?restype=container"
    headers["Authorization"] = f"SharedKey {account}:{signature}"
    with contextlib.suppress(urllib.error.HTTPError):  # 409; anything else is seen by the tests
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()
