"""Shared memory without a name: nothing is left behind by whoever is killed."""

from __future__ import annotations

import mmap
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Slab", "map_privately"]

_LEAST_BYTES = 1 << 16
# mmap duplicates the file descriptor, which nothing here needs, where it cannot be told not to.
_NO_COPY: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class Slab:
    """A memfd, mapped as far as it is used. Grows, never shrinks: its pages stay warm.

    Owns its file descriptor. Arrays over it stay valid after :meth:`close` and after it has grown. One thread
    at a time.
    """

    __slots__ = ("_map", "fd", "size_bytes")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size_bytes = 0
        """Of the mapping; the memfd may have grown since, by another process."""
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls) -> Slab:
        return cls(os.memfd_create("headrace-map", os.MFD_CLOEXEC))

    def reserve(self, size_bytes: int) -> None:
        """Makes at least so many bytes usable; grows the memfd where it is smaller."""
        if size_bytes <= self.size_bytes:
            return
        present = os.fstat(self.fd).st_size
        if present < size_bytes:
            present = max(_LEAST_BYTES, 1 << (size_bytes - 1).bit_length())
            os.ftruncate(self.fd, present)  # No memory is taken before it is written to.
        self._map = mmap.mmap(self.fd, present, **_NO_COPY)
        self.size_bytes = present

    def whole(self) -> npt.NDArray[np.uint8]:
        """All bytes as a new array, which lives as long as any array that is made of it: so a weak reference
        to it tells when the last of them is gone."""
        if self._map is None:
            self.reserve(1)
            assert self._map is not None
        return np.frombuffer(self._map, np.uint8)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self._map, self.size_bytes = -1, None, 0


def map_privately(fd: int, size_bytes: int) -> npt.NDArray[np.uint8]:
    """The bytes of another process's slab as an array that may be written to: pages that are become copies,
    and the slab keeps what it holds."""
    size = max(size_bytes, 1)
    return np.frombuffer(
        mmap.mmap(fd, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE, **_NO_COPY), np.uint8
    )
