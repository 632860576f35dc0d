"""What a relay and its workers say to each other: small JSON packets over a socket. Data goes by shared
memory."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Sequence
from typing import Any

from headrace.loader.mapping.failure import Failure

__all__ = ["failure_of", "message_of", "pair", "receive", "send"]

_MOST_BYTES = (
    1 << 17
)  # A packet must fit into the socket's buffer, which has 208 KiB where nobody changed it.
_MOST_OF_ERROR = 1 << 14


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends that keep packets apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(connection: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Raises OSError where the other side has gone."""
    socket.send_fds(connection, [json.dumps(message).encode()], list(fds))


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A packet and the file descriptors that came with it, for the receiver to close. Raises EOFError where
    the other side has gone."""
    try:
        data, fds, _, _ = socket.recv_fds(connection, _MOST_BYTES, 1)
    except OSError:
        data, fds = b"", []
    if not data:
        raise EOFError
    message: dict[str, Any] = json.loads(data)
    return message, fds


def message_of(error: Exception) -> dict[str, Any]:
    """An error as a message. What is too long of it is left out."""
    pickled, summary, traceback, _, _ = Failure.sent(error)
    fitting = pickled if isinstance(pickled, bytes) and len(pickled) <= _MOST_OF_ERROR else b""
    return {
        "error": base64.b64encode(fitting).decode(),
        "summary": summary[:_MOST_OF_ERROR],
        "traceback": traceback[-_MOST_OF_ERROR:],
    }


def failure_of(message: dict[str, Any]) -> Failure:
    """What :func:`message_of` was given."""
    pickled = base64.b64decode(message["error"]) or None
    return Failure(pickled, message["summary"], message["traceback"], None, None)
