"""One worker of a DataLoader, seen from the process that reads for it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.loader.mapping.rows import About
from headrace.loader.mapping.slab import Slab
from headrace.loader.mapping.wire import SlabWriter, write
from headrace.loader.relay.messages import pair, receive, send

if TYPE_CHECKING:
    from headrace.data.batch import Batch

__all__ = ["Channel"]


class Channel:
    """The socket to a worker, and the shared memory that its batches go through: one slab for each batch that
    the worker has not let go of yet. One thread at a time.
    """

    def __init__(self) -> None:
        self.socket, self.other = pair()
        """Our end and the worker's, which is closed here once the worker has it."""
        self.begun = 0
        """Loops that the worker has begun."""
        self.is_closed = False
        self._slabs: dict[int, Slab] = {}
        self._free: list[int] = []
        self._known: set[int] = set()  # Slabs whose file descriptor the worker has.

    def fileno(self) -> int:
        return self.socket.fileno()

    def receive(self) -> dict[str, Any]:
        """What the worker says. Raises EOFError where it has gone."""
        message, _ = receive(self.socket)
        # A spawned worker has its own by now; as long as this is open its end is not seen.
        self.other.close()
        self._free += message.pop("free", ())
        return message

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        with contextlib.suppress(OSError):  # It has gone: receive() says so.
            send(self.socket, message, fds)

    def send_batch(self, batch: Batch, message: dict[str, Any]) -> None:
        """Puts a batch into shared memory. Nothing of the engine's is kept."""
        number = self._free.pop() if self._free else len(self._slabs)
        slab = self._slabs.get(number)
        if slab is None:
            slab = self._slabs[number] = Slab.create()
        place = write((dict(batch), *About.of(batch)), SlabWriter(slab))
        fds = [] if number in self._known else [slab.fd]
        self._known.add(number)
        self.send({**message, "slab": number, "place": place}, fds)

    def close(self) -> None:
        """May be repeated."""
        self.is_closed = True
        self.socket.close()
        self.other.close()
        for slab in self._slabs.values():
            slab.close()
