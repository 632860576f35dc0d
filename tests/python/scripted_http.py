"""An HTTP server of plain sockets, for answers that no server of the standard library would give."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

__all__ = ["Seen", "answer", "serving"]


class Seen(NamedTuple):
    """A request. ``body``: read from the connection when it is called."""

    method: str
    target: str
    fields: dict[str, str]
    body: Callable[[], bytes]
    connection: socket.socket


def answer(status: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    """With a Content-Length unless ``fields`` has one."""
    lines = {"Content-Length": str(len(body)), **(fields or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body


class _Server:
    def __init__(self, reply: Callable[[Seen], bytes | None]) -> None:
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen: list[Seen] = []

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                method, target, _ = line.decode().split(" ", 2)
                fields = {}
                while (line := stream.readline()) not in (b"\r\n", b""):
                    name, _, value = line.decode().partition(":")
                    fields[name.lower()] = value.strip()
                length = int(fields.get("content-length", "0"))
                seen = Seen(method, target, fields, lambda length=length: stream.read(length), connection)
                self.seen.append(seen)
                reply = self._reply(seen)
                if reply is None:  # The connection ends.
                    return
                connection.sendall(reply)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


@contextlib.contextmanager
def serving(reply: Callable[[Seen], bytes | None]) -> Iterator[_Server]:
    """Answers each request with what ``reply`` makes of it; with None the connection is closed."""
    server = _Server(reply)
    try:
        yield server
    finally:
        server.close()
