"""Where a data set is, shared by the processes of a rank.

Mosaic keeps this in named shared memory, which outlives a killed process. Here it is an anonymous file
(memfd): DataLoader workers inherit it, and it goes with the last of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import struct
from collections.abc import Iterator
from multiprocessing import reduction
from typing import Any

_BYTES = 65536
_HEADER = struct.Struct("<qqqqI")  # next epoch, epoch of this pass, its key, its workers, bytes of the state
_BITMAP_BYTES = 8192  # a bit for each worker that began this pass
_STATE_AT = _HEADER.size + _BITMAP_BYTES


def _from_descriptor(duplicate: Any) -> Progress:
    return Progress(duplicate.detach())


class Progress:
    """The next epoch, and the state to resume from."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._fd = os.memfd_create("headrace-progress", os.MFD_CLOEXEC) if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self._fd, _BYTES)
        self._map = mmap.mmap(self._fd, _BYTES)

    def __reduce__(self) -> Any:
        """For DataLoader workers that are spawned."""
        return _from_descriptor, (reduction.DupFd(self._fd),)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            os.close(self._fd)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._fd, fcntl.LOCK_EX)  # of the process: the kernel frees it with its owner
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def _header(self) -> list[int]:
        return list(_HEADER.unpack_from(self._map))

    @property
    def next_epoch(self) -> int:
        return self._header()[0]

    @next_epoch.setter
    def next_epoch(self, epoch: int) -> None:
        with self._locked():
            fields = self._header()
            fields[0] = epoch
            _HEADER.pack_into(self._map, 0, *fields)

    def begin_pass(self, key: int | None, worker: int, workers: int) -> int:
        """The epoch that a pass over the data begins with, the same for all workers of one DataLoader
        iterator.

        ``key``: what they have in common (None outside of workers). A worker that asks again begins the next
        pass.
        """
        with self._locked():
            epoch, pass_epoch, pass_key, pass_workers, state_bytes = self._header()
            byte, bit = _HEADER.size + worker // 8, 1 << worker % 8
            if key is None or (key, workers) != (pass_key, pass_workers) or self._map[byte] & bit:
                pass_epoch = epoch
                self._map[_HEADER.size : _STATE_AT] = bytes(_BITMAP_BYTES)
            self._map[byte] |= bit
            # Without a key nothing joins: no DataLoader has 0 workers here.
            _HEADER.pack_into(
                self._map, 0, epoch, pass_epoch, key or 0, workers if key is not None else 0, state_bytes
            )
            return pass_epoch

    @property
    def state(self) -> dict[str, Any] | None:
        with self._locked():
            size = self._header()[4]
            return json.loads(self._map[_STATE_AT : _STATE_AT + size]) if size else None

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        data = json.dumps(state, sort_keys=True).encode()
        if len(data) > _BYTES - _STATE_AT:
            raise ValueError(f"a state of {len(data)} bytes; Mosaic's has some 150: is it one?")
        with self._locked():
            self._map[_STATE_AT : _STATE_AT + len(data)] = data
            fields = self._header()
            fields[4] = len(data)
            _HEADER.pack_into(self._map, 0, *fields)
