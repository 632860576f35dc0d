"""An HTTP proxy before an S3 server that harms one request of a checkpoint's, or all from one on."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
import zlib
from typing import Any

__all__ = ["REQUEST_FAULTS", "FaultProxy"]

REQUEST_FAULTS = (
    "kill before",
    "kill after",
    "throttled",
    "throttled for ever",
    "unavailable for ever",
    "reset",
    "answer lost",
    "stuck",
    "stuck answer",
    "expired credentials",
    "corrupt",
    "cut",
    "dropped",
    "lost part",
)
"""What happens to request number ``at``; with "for ever" and expired credentials to all from it on.

kill before, after: the client is killed before the server has the request, or before the answer. stuck: the
server never has it; stuck answer: it has. corrupt, cut: the server is given other bytes, and no checksum by
which it would see that. dropped: an upload is answered as if it were there. lost part: completing an upload
leaves one out.
"""

_ERROR = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>a fault of the test</Message></Error>'


class FaultProxy:
    """Threads: one a connection. Requests are counted from ``GET /_arm?pid=...`` on, by which the client says
    who it is."""

    def __init__(self, server: tuple[str, int], fault: str, at: int) -> None:
        self._server, self._fault, self._at = server, fault, at
        self._lock = threading.Lock()
        self._pid = 0
        self._is_over = threading.Event()
        self.count = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._is_over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), client, socket.create_connection(self._server) as server:
            from_client, from_server = client.makefile("rb"), server.makefile("rb")
            while True:
                head, body = _read(from_client)
                if b" /_arm?pid=" in head:
                    with self._lock:
                        self._pid = int(head.split(b"pid=")[1].split()[0])
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    return
                if not self._exchange(client, server, from_server, head, body):
                    return

    def _number(self, method: str, head: bytes) -> int:
        """Of a request that the fault can meet, from 0 on; -1: it cannot, or is not armed."""
        with self._lock:
            if not self._pid or not _can_meet(self._fault, method, head):
                return -1
            self.count += 1
            return self.count - 1

    def _exchange(
        self, client: socket.socket, server: socket.socket, from_server: Any, head: bytes, body: bytes
    ) -> bool:
        """Passes one request on, or harms it. False: the connection is over."""
        method = head.split(b" ", 1)[0].decode()
        number = self._number(method, head)
        is_now = number == self._at or (_lasts(self._fault) and number > self._at)
        fault = self._fault if is_now and number >= 0 and self._at >= 0 else ""
        if fault == "kill before":
            os.kill(self._pid, signal.SIGKILL)
            return False
        if fault == "reset":
            return False
        if fault == "stuck":
            self._is_over.wait()
            return False
        if fault.startswith("throttled"):
            return _refuse(client, method, 503, "SlowDown")
        if fault == "unavailable for ever":
            return _refuse(client, method, 503, "ServiceUnavailable")
        if fault == "expired credentials":
            return _refuse(client, method, 400, "ExpiredToken")
        if fault == "dropped":
            tag = f"{zlib.crc32(body):032x}"
            client.sendall(f'HTTP/1.1 200 OK\r\nETag: "{tag}"\r\nContent-Length: 0\r\n\r\n'.encode())
            return True
        if fault in ("corrupt", "cut"):
            head, body = _harmed(head, body, fault)
        if fault == "lost part":
            head, body = _resized(head, re.sub(rb"<Part>.*?</Part>", b"", body, count=1, flags=re.S))
        server.sendall(head + body)
        answer_head, answer_body = _read(from_server, is_head=method == "HEAD")
        if fault == "kill after":
            os.kill(self._pid, signal.SIGKILL)
            return False
        if fault == "answer lost":
            return False
        if fault == "stuck answer":
            self._is_over.wait()
            return False
        client.sendall(answer_head + answer_body)
        return b"connection: close" not in answer_head.lower()


def _can_meet(fault: str, method: str, head: bytes) -> bool:
    if fault == "lost part":
        return method == "POST" and b"uploadId=" in head.split(b"\r\n")[0]
    return method == "PUT" if fault in ("corrupt", "cut", "dropped") else True


def _lasts(fault: str) -> bool:
    return fault.endswith("for ever") or fault == "expired credentials"


def _refuse(client: socket.socket, method: str, status: int, code: str) -> bool:
    body = b"" if method == "HEAD" else _ERROR.format(code=code).encode()
    client.sendall(f"HTTP/1.1 {status} {code}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    return True


def _read(source: Any, is_head: bool = False) -> tuple[bytes, bytes]:
    """A request or an answer: (head, body as it was sent). Raises EOFError."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = source.readline()
        if not line:
            raise EOFError
        head += line
    if is_head or b" 204 " in head.split(b"\r\n")[0] or b" 304 " in head.split(b"\r\n")[0]:
        return head, b""
    length = _field(head, b"content-length")
    if length is not None:
        body = source.read(int(length))
        if len(body) < int(length):
            raise EOFError
        return head, body
    body = b""
    if (_field(head, b"transfer-encoding") or b"").lower() == b"chunked":
        while True:
            line = source.readline()
            chunk = source.read(int(line, 16) + 2)
            body += line + chunk
            if int(line, 16) == 0:
                break
    return head, body


def _field(head: bytes, name: bytes) -> bytes | None:
    found = re.search(rb"(?i)\r\n" + name + rb":[ \t]*([^\r]*)\r\n", head)
    return found[1] if found else None


def _resized(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    return re.sub(rb"(?i)(\r\ncontent-length:)[^\r]*", rb"\g<1> %d" % len(body), head), body


def _harmed(head: bytes, body: bytes, fault: str) -> tuple[bytes, bytes]:
    """The upload with other bytes, and without the checksums by which a server would see it."""
    head = re.sub(rb"(?i)\r\n(x-amz-checksum-[^:]*|x-amz-sdk-checksum[^:]*|content-md5):[^\r]*", b"", head)
    head = re.sub(rb"(?i)(\r\nx-amz-content-sha256:)[^\r]*", rb"\1 UNSIGNED-PAYLOAD", head)
    if fault == "cut" or not body:
        return _resized(head, body[: len(body) // 2])
    middle = len(body) // 2
    return head, body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
