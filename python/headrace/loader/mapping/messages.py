"""What a pool and its workers say to each other: small packets over a socket; data goes by shared memory."""

from __future__ import annotations

import struct
from typing import NamedTuple

from headrace.loader.mapping.wire import Place

__all__ = ["MOST_BYTES", "MOST_PLACE_BYTES", "OF_ENGINE", "READY", "Reply", "Task"]

MOST_BYTES = 1 << 16
OF_ENGINE = (1 << 32) - 1
"""In place of a slab's number: the memory that the engine makes batches in."""
READY = b"ready"
"""First packet of a worker; any other first packet is text: why its functions cannot be loaded."""

_TASK = struct.Struct("<QIIQQQQB")
MOST_PLACE_BYTES = MOST_BYTES - _TASK.size
"""Of a batch in the engine's memory."""
_REPLY = struct.Struct("<Q?QQQQQ")


class Task(NamedTuple):
    """One batch to work on. Behind it come the file descriptors of those of its slabs that are new."""

    number: int
    source: int
    """Number of the slab that the batch lies in, as a parcel (columns, ids, mask, replaced, epoch, index); or
    OF_ENGINE."""
    target: int
    """Of the slab for what becomes of it."""
    place: Place
    """Of the parcel."""
    has_new_source: bool
    has_new_target: bool
    batch: bytes = b""
    """With OF_ENGINE: where the batch lies in the engine's memory, for BatchReader."""

    def packed(self) -> bytes:
        flags = self.has_new_source | self.has_new_target << 1
        return _TASK.pack(self.number, self.source, self.target, *self.place, flags) + self.batch

    @classmethod
    def unpacked(cls, data: bytes) -> Task:
        number, source, target, *place, flags = _TASK.unpack_from(data)
        return cls(
            number, source, target, Place(*place), bool(flags & 1), bool(flags & 2), data[_TASK.size :]
        )


class Reply(NamedTuple):
    """A batch is done: a parcel in the target slab."""

    number: int
    is_source_kept: bool
    """A function still holds parts of the source slab: it must not be written to any more."""
    busy_ns: int
    """So long the functions ran."""
    place: Place

    def packed(self) -> bytes:
        return _REPLY.pack(self.number, self.is_source_kept, self.busy_ns, *self.place)

    @classmethod
    def unpacked(cls, data: bytes) -> Reply:
        number, is_source_kept, busy_ns, begin, size, table, arrays = _REPLY.unpack(data)
        return cls(number, is_source_kept, busy_ns, Place(begin, size, table, arrays))
