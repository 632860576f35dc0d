"""Presigned URLs of Azure and Google: fetched from real servers, and compared with the vendors' own
libraries."""

from __future__ import annotations

import base64
import datetime
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from real_servers import make_container, server

import headrace as hr

KEYS = ("a b+c%d/ä=1&2?.bin", "plain.txt")


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty prefix."""
    monkeypatch.setenv("AZURE_STORAGE_KEY", server("AZURE_KEY"))
    monkeypatch.setenv("AZURE_STORAGE_BLOB_ENDPOINT", server("AZURE_ENDPOINT"))
    make_container()
    return f"az://{server('AZURE_ACCOUNT')}/{server('AZURE_CONTAINER')}/{uuid.uuid4().hex}"


def fetch(url: str, data: bytes | None = None, **headers: str) -> bytes:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, fields, method="GET" if data is None else "PUT")
    with urllib.request.urlopen(request, timeout=20) as answer:
        body: bytes = answer.read()
    return body


def refused(url: str, data: bytes | None = None, **headers: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as error:
        fetch(url, data, **headers)
    error.value.close()
    return error.value.code


def test_azure_gives_what_a_signed_url_names(cli: Any, azure: str) -> None:
    with hr.Store(azure) as store:
        for key in KEYS:
            store.put(key, key.encode())
            url = store.presign(key, lifetime=60)
            assert fetch(url) == key.encode()
            curl = shutil.which("curl")
            if curl:
                done = subprocess.run([curl, "-sSf", url], capture_output=True, check=True)
                assert done.stdout == key.encode()
            assert refused(url.replace("sp=r", "sp=rw")) == 403
            assert refused(url, b"other", x_ms_blob_type="BlockBlob") == 403
            assert refused(url.replace(urllib.parse.quote(key), "other")) == 403
        expired = re.sub(r"se=[^&]*", "se=2020-01-01T00%3A00%3A00Z", url)
        assert refused(expired) == 403
    done = cli("presign", f"{azure}/plain.txt", "--expires", "5m", "--json").json()
    assert fetch(done["url"]) == b"plain.txt"


def test_azure_takes_what_a_signed_url_lets_write(cli: Any, azure: str) -> None:
    done = cli("presign", "--method", "PUT", f"{azure}/new")
    assert "x-ms-blob-type: BlockBlob" in done.err
    url = done.out.strip()
    fetch(url, b"written", x_ms_blob_type="BlockBlob")
    assert cli("cat", f"{azure}/new").out == "written"
    assert refused(url) == 403  # to write, not to read
    told = cli("presign", "--method", "PUT", f"{azure}/new", "--json").json()
    fetch(told["url"], b"again", **told["headers"])
    assert cli("cat", f"{azure}/new").out == "again"


WAYS = [("GET", None), ("PUT", None), ("GET", "2024-01-02T03:04:05.1234567Z")]
"""Methods and versions."""


@pytest.mark.parametrize(("method", "version"), WAYS)
def test_azure_signs_as_its_own_library(
    monkeypatch: pytest.MonkeyPatch, method: str, version: str | None
) -> None:
    signing = pytest.importorskip("azure.storage.blob._shared_access_signature")
    account_key = base64.b64encode(bytes(range(64))).decode()
    monkeypatch.setenv("AZURE_STORAGE_KEY", account_key)
    monkeypatch.delenv("AZURE_STORAGE_BLOB_ENDPOINT", raising=False)
    with hr.Store("az://account/container/prefix") as store:
        for key in KEYS:
            url = urllib.parse.urlsplit(store.presign(key, method=method, lifetime=3600, version_id=version))
            assert (url.scheme, url.netloc) == ("https", "account.blob.core.windows.net")
            assert url.path == "/container/prefix/" + urllib.parse.quote(key, safe="/")
            ours = dict(urllib.parse.parse_qsl(url.query, strict_parsing=True))
            monkeypatch.setattr(signing, "X_MS_VERSION", ours["sv"])
            theirs = signing.BlobSharedAccessSignature("account", account_key).generate_blob(
                "container",
                f"prefix/{key}",
                version_id=version,
                permission="r" if method == "GET" else "cw",
                expiry=ours["se"],
                protocol="https",
            )
            expected = dict(urllib.parse.parse_qsl(theirs, strict_parsing=True))
            if version:  # which its callers add themselves
                expected["versionid"] = version
            assert ours == expected


@pytest.mark.parametrize("credentials", ["sas", "anonymous"])
def test_what_cannot_sign_says_so(cli: Any, monkeypatch: pytest.MonkeyPatch, credentials: str) -> None:
    for name in ("KEY", "ACCOUNT_KEY", "ACCESS_KEY", "CONNECTION_STRING"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2021-01-01&sig=x")
    words = ["--anonymous"] if credentials == "anonymous" else []
    done = cli("presign", "az://account/container/x", *words)
    assert (done.code, "signed URLs take an account key" in done.err) == (1, True), done.err


@pytest.mark.parametrize(("method", "version"), [*WAYS[:2], ("GET", "1700000000000017")])
def test_google_signs_as_its_own_library(google_key: Path, method: str, version: str | None) -> None:
    signing = pytest.importorskip("google.cloud.storage._signing")
    accounts = pytest.importorskip("google.oauth2.service_account")
    credentials = accounts.Credentials.from_service_account_file(str(google_key))
    with hr.Store("gs://some-bucket/prefix") as store:
        for key in KEYS:
            ours = store.presign(key, method=method, lifetime=900, version_id=version)
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(ours).query, strict_parsing=True))
            theirs = signing.generate_signed_url_v4(
                credentials,
                "/some-bucket/prefix/" + urllib.parse.quote(key, safe="/~"),
                datetime.timedelta(seconds=900),
                method=method,
                generation=version,
                _request_timestamp=query["X-Goog-Date"],
            )
            split, expected = urllib.parse.urlsplit(ours), urllib.parse.urlsplit(theirs)
            assert (split.scheme, split.netloc, split.path) == expected[:3]
            assert query == dict(urllib.parse.parse_qsl(expected.query, strict_parsing=True))


def test_google_gives_what_a_signed_url_names(google_key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fake-gcs-server looks at no signature: this is about the address alone."""
    bucket, endpoint, prefix = server("GCS_BUCKET"), server("GCS_ENDPOINT"), uuid.uuid4().hex
    with monkeypatch.context() as patch, hr.Store(f"gs://{bucket}/{prefix}", endpoint=endpoint) as store:
        patch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        with hr.Store(f"gs://{bucket}/{prefix}") as emulated:
            for key in KEYS:
                emulated.put(key, key.encode())
                assert fetch(store.presign(key)) == key.encode()
            with pytest.raises(hr.UnsupportedError, match="no presigned URLs"):
                emulated.presign("x")
