"""What hr.Store makes of servers that answer as few do: names that do not resolve, answers that come too
early or name another checksum, credentials that may only write."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from scripted_http import Seen, answer, serving

import headrace as hr
from headrace.checkpoint import Checkpointer

KEYS: dict[str, Any] = {"access_key": "a", "secret_key": "b", "region": "us-east-1"}
BEGUN = b"<InitiateMultipartUploadResult><UploadId>U</UploadId></InitiateMultipartUploadResult>"
COMPLETED = b'<CompleteMultipartUploadResult><ETag>"x-2"</ETag></CompleteMultipartUploadResult>'


def store(url: str, **options: Any) -> hr.Store:
    return hr.Store("s3://bucket", endpoint=url, **{**KEYS, **options})


def test_an_unknown_host_says_of_nothing_that_it_is_not_there() -> None:
    options = {**KEYS, "endpoint": "http://no-such-host.invalid:9000"}
    with hr.Store("s3://bucket", **options) as there:
        for ask in (there.exists, there.head, there.get):
            with pytest.raises(hr.UnavailableError, match="cannot resolve host"):
                ask("k")
    with pytest.raises(hr.UnavailableError, match="cannot resolve host"):
        Checkpointer("s3://bucket/run", **options).latest()


def test_etags_without_quotes_are_the_same_versions() -> None:
    data, etag = b"0123456789", hashlib.md5(b"").hexdigest()

    def reply(seen: Seen) -> bytes:
        if seen.method == "HEAD":
            return answer(200, {"ETag": etag, "Content-Length": str(len(data))})
        fields = {"ETag": etag, "Content-Range": f"bytes 0-9/{len(data)}"}
        return answer(206, fields, data)

    with serving(reply) as server, store(server.url) as there:
        version = there.head("k").etag
        assert version == f'"{etag}"'
        assert bytes(there.get_range("k", 0, 10, etag=version)) == data


def test_an_answer_that_comes_before_the_body_is_no_success() -> None:
    def reply(seen: Seen) -> bytes | None:
        seen.connection.recv(1000)
        seen.connection.sendall(answer(200, {"ETag": '"e"'}))
        ended.wait()
        return None

    ended = threading.Event()
    with serving(reply) as server, store(server.url) as there:
        with pytest.raises(hr.CorruptError, match="before what it is about had been sent"):
            there.put("k", bytes(8 << 20))
        ended.set()


def test_another_checksum_than_was_sent_is_no_success() -> None:
    def reply(seen: Seen) -> bytes:
        seen.body()
        told = seen.fields["x-amz-checksum-crc32c"] if seen.target.endswith("good") else "AAAAAA=="
        return answer(200, {"ETag": '"e"', "x-amz-checksum-crc32c": told})

    with serving(reply) as server, store(server.url) as there:
        assert there.put("good", b"hello").size == 5
        with pytest.raises(hr.CorruptError, match="checksum of what it wrote"):
            there.put("k", b"hello")


def write_only(seen: Seen) -> bytes:
    body = seen.body()
    if seen.method == "HEAD":
        return answer(403)
    if seen.method == "POST":
        return answer(200, {}, BEGUN if seen.target.endswith("uploads=") else COMPLETED)
    return answer(200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'})


def test_who_may_only_write_writes_large_objects_too() -> None:
    with serving(write_only) as server, store(server.url) as there:
        done = there.put("k", bytes(40 << 20))
        assert (done.size, done.etag) == (40 << 20, '"x-2"')
        assert all(each.method != "DELETE" for each in server.seen)


@pytest.mark.parametrize("is_reused", [False, True])
def test_a_condition_that_ones_own_lost_write_breaks_says_so(is_reused: bool) -> None:
    written = []

    def reply(seen: Seen) -> bytes | None:
        if seen.method == "HEAD":
            return answer(404)
        seen.body()
        if written:
            return answer(412, {}, b"<Error><Code>PreconditionFailed</Code></Error>")
        written.append(seen.target)
        return None

    with serving(reply) as server, store(server.url) as there:
        if is_reused:
            assert not there.exists("other")
        with pytest.raises(hr.ChangedError, match="perhaps by an earlier attempt"):
            there.put("lock", b"me", if_absent=True)


def test_an_empty_object_behind_a_url_signed_for_get() -> None:
    def reply(seen: Seen) -> bytes:
        if seen.method == "HEAD":
            return answer(403)
        return answer(416, {"Content-Range": "bytes */0"}, b"<Error><Code>InvalidRange</Code></Error>")

    with serving(reply) as server, hr.Store(f"{server.url}/bucket/?X-Amz-Signature=abc") as there:
        assert there.head("empty").size == 0
        assert there.get("empty") == b""


def test_chunked_objects_arrive_whole() -> None:
    data = os.urandom((1 << 20) + 17)

    def reply(seen: Seen) -> bytes:
        first, last = map(int, seen.fields["range"][6:].split("-"))
        part = data[first : last + 1]
        head = (
            'HTTP/1.1 206 X\r\nETag: "e"\r\nContent-Range: bytes '
            f"{first}-{first + len(part) - 1}/{len(data)}\r\n"
        )
        pieces = [part[at : at + 70_001] for at in range(0, len(part), 70_001)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in pieces)
        return head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"

    with serving(reply) as server, hr.Store(server.url) as there:
        assert there.get("k") == data
        assert bytes(there.get_range("k", 5, 300_000)) == data[5:300_005]


def test_a_conditional_write_larger_than_memory_says_what_to_raise() -> None:
    with (
        store("http://127.0.0.1:1", memory="64MiB") as there,
        pytest.raises(hr.InvalidArgumentError, match=r"s3://bucket/k: with if_absent=True .* raise it"),
    ):
        there.put("k", bytes(100 << 20), if_absent=True)


def test_an_interrupted_upload_does_not_wait_for_a_silent_server(tmp_path: Path) -> None:
    def reply(seen: Seen) -> bytes | None:
        if seen.method == "POST":
            return answer(200, {}, BEGUN)
        if seen.method == "GET":
            return answer(200, {}, b"<ListMultipartUploadsResult/>")
        asked.set()
        ended.wait()
        return None

    asked, ended = threading.Event(), threading.Event()
    program = (
        "import sys, time, headrace as hr\n"
        "there = hr.Store('s3://bucket', endpoint=sys.argv[1], access_key='a', secret_key='b', region='r')\n"
        "try:\n"
        "    there.put('k', bytes(64 << 20))\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    with serving(reply) as server:
        command = [sys.executable, "-c", program, server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert asked.wait(60)
            process.send_signal(signal.SIGINT)
            # Its own clean-up gives up after 5 s; it was a minute.
            said, _ = process.communicate(timeout=30)
        assert said.strip() == "interrupted"
        ended.set()
