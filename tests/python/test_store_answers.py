"""What hr.Store makes of answers of web servers that leave something out, or add something."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import headrace as hr

PART = 8 << 20


class Answers(BaseHTTPRequestHandler):
    """Serves one object, by ranges, without telling its total length."""

    protocol_version = "HTTP/1.1"
    url = ""
    data = b""
    etag = head_etag = '"1"'
    encoding = ""

    def reply(self, status: int, etag: str, body: bytes, length: int, fields: dict[str, str]) -> None:
        self.send_response(status)
        if self.encoding:
            fields["Content-Encoding"] = self.encoding
        for name, value in {"ETag": etag, "Content-Length": str(length), **fields}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.reply(200, self.head_etag, b"", len(self.data), {})

    def do_GET(self) -> None:
        first, last = self.headers["Range"].removeprefix("bytes=").split("-")
        # An answer that stops before what was asked for has to say that the object does.
        total = str(len(self.data)) if int(last) >= len(self.data) else "*"
        body = self.data[int(first) : int(last) + 1]
        fields = {"Content-Range": f"bytes {first}-{int(first) + len(body) - 1}/{total}"}
        self.reply(206, self.etag, body, len(body), fields)

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def answers() -> Iterator[type[Answers]]:
    class Own(Answers):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        Own.url = f"http://127.0.0.1:{server.server_port}/data"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Own
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("size", [5, PART - 1, PART, PART + 1, 20 << 20])
def test_an_object_whose_size_is_not_told_is_read_to_its_end(answers: type[Answers], size: int) -> None:
    answers.data = bytes(range(1, 252)) * (size // 251) + b"\0" * (size % 251)
    with hr.Store(answers.url) as store:
        assert store.head("x").size == size
        assert store.get("x") == answers.data


def test_an_object_that_changes_while_its_size_is_asked_for_is_an_error(answers: type[Answers]) -> None:
    answers.data = b"x" * (PART + 1)
    answers.head_etag = '"2"'
    with hr.Store(answers.url) as store, pytest.raises(hr.ChangedError, match="/data/x"):
        store.get("x")


def test_packed_bytes_are_not_the_objects(answers: type[Answers]) -> None:
    answers.data = b"x" * 100
    answers.encoding = "gzip"
    with hr.Store(answers.url) as store:
        for read in (store.head, store.get, lambda key: store.get_range(key, 0, 10)):
            with pytest.raises(hr.UnsupportedError, match="Content-Encoding"):
                read("x")
