"""`ls` of buckets: of a Google project, of an Azure storage account (of S3: test_cli_options.py)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from real_servers import make_container, server


def test_of_azurite(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    account, container = server("AZURE_ACCOUNT"), server("AZURE_CONTAINER")
    monkeypatch.setenv("AZURE_STORAGE_KEY", server("AZURE_KEY"))
    monkeypatch.setenv("AZURE_STORAGE_BLOB_ENDPOINT", server("AZURE_ENDPOINT"))
    make_container()
    url = f"az://{account}/{container}"
    for owner in (f"az://{account}", f"az://{account}/"):
        assert url in [line.split()[-1] for line in cli("ls", owner).out.splitlines()]
    assert {"bucket": container, "url": url, "created": None} in [
        json.loads(line) for line in cli("ls", f"az://{account}", "--json").out.splitlines()
    ]
    assert cli("ls", url).code == 0  # as it was listed
    assert f"{url}/" in cli("__complete", "ls", f"{url[:-2]}").out.splitlines()
    nobody = cli("ls", "az://")
    assert (nobody.code, "of which storage account?" in nobody.err) == (1, True), nobody.err
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", account)
    assert url in cli("ls", "az://").out
    monkeypatch.setenv("AZURE_STORAGE_KEY", "bm90IHRoZSBrZXk=")
    assert cli("ls", "az://").code == 1
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT")
    parts = {
        "AccountName": account,
        "AccountKey": server("AZURE_KEY"),
        "BlobEndpoint": server("AZURE_ENDPOINT"),
    }
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", ";".join(map("=".join, parts.items())))
    assert url in cli("ls", "az://").out


def test_of_fake_gcs_server(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server("GCS_ENDPOINT"))
    url = f"gs://{server('GCS_BUCKET')}"
    assert url in [line.split()[-1] for line in cli("ls", "gs://").out.splitlines()]
    assert url in [json.loads(line)["url"] for line in cli("ls", "gs://", "--json").out.splitlines()]
    assert f"{url}/" in cli("__complete", "ls", url[:-2]).out.splitlines()


class _Google(BaseHTTPRequestHandler):
    """As Google answers: the JSON API in pages, by token; the XML API whole, by HMAC key."""

    seen: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/storage/v1/b":
            page = int(query.get("pageToken", "0"))
            items = [
                {"name": f"bucket-{i}", "timeCreated": "2024-05-06T07:08:09.100Z"}
                for i in range(3 * page, 3 * page + 3)
            ]
            body: dict[str, Any] = {"kind": "storage#buckets", "items": items}
            if page < 2:
                body["nextPageToken"] = str(page + 1)
            self._answer(json.dumps(body).encode())
        else:
            names = "".join(
                f"<Bucket><Name>b{i:04}</Name><CreationDate>2024-05-06T07:08:09.100Z</CreationDate></Bucket>"
                for i in range(1000 if "many" in self.headers.get("x-goog-project-id", "") else 2)
            )
            self._answer(
                f"<ListAllMyBucketsResult><Buckets>{names}</Buckets></ListAllMyBucketsResult>".encode()
            )

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def google() -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    _Google.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Google) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listener.server_port}", _Google.seen
        listener.shutdown()
        thread.join()


def test_of_google_by_pages(cli: Any, google: Any, google_key: Path) -> None:
    endpoint, seen = google
    rows = [
        json.loads(line) for line in cli("ls", "gs://", "--endpoint", endpoint, "--json").out.splitlines()
    ]
    assert [row["url"] for row in rows] == [f"gs://bucket-{i}" for i in range(9)]
    assert {row["created"] for row in rows} == {1714979289}
    assert len(seen) == 3
    for path, headers in seen:
        assert parse_qs(urlsplit(path).query)["project"] == ["project"]
        assert headers["authorization"].startswith("Bearer ")


def test_of_google_with_hmac_keys(cli: Any, google: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, seen = google
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GS_ACCESS_KEY_ID", "GOOG1EXAMPLE")
    monkeypatch.setenv("GS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "mine")
    assert [line.split()[-1] for line in cli("ls", "gs://", "--endpoint", endpoint).out.splitlines()] == [
        "gs://b0000",
        "gs://b0001",
    ]
    path, headers = seen[0]
    assert (path, headers["x-goog-project-id"]) == ("/", "mine")
    assert "x-goog-project-id" in headers["authorization"].partition("SignedHeaders=")[2]
    # What the answer cannot say is not left out in silence.
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "many")
    done = cli("ls", "gs://", "--endpoint", endpoint)
    assert (done.code, done.out, "only the first 1,000" in done.err) == (1, "", True), done.err


def test_of_no_project_and_no_owner(
    cli: Any,
    google_key: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account = json.loads(google_key.read_text())
    del account["project_id"]
    google_key.write_text(json.dumps(account))
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    done = cli("ls", "gs://")
    assert (done.code, "set GOOGLE_CLOUD_PROJECT" in done.err) == (1, True), done.err
    for url in ("memory://", "hf://", "http://", "abfs://", "nothing://"):
        done = cli("ls", url)
        assert (done.code, "buckets can be listed of s3://, gs:// and az://ACCOUNT" in done.err) == (1, True)
