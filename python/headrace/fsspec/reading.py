"""Reading ahead: what an open file has under way before it is asked for."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from operator import itemgetter

import fsspec.caching

from headrace.errors import InvalidArgumentError
from headrace.fsspec.threads import THREADS, result_of

# Small enough for many connections to share a file, large enough for a connection to be worth it
# (docs/design/0039-read-ahead-room.md).
BLOCK_BYTES = 4 << 20
LEAST_READ_BYTES = 64 << 10
FIRST_WINDOW_BYTES = 1 << 20
MOST_WINDOW_BYTES = 64 << 20


class Room:
    """Bytes that all open files of a file system may hold before they are asked for. Any thread."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._left = self._limit
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        if self._pid != os.getpid():  # what the parent holds is not held here
            self._reset()
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._left += size


class Block:
    """Bytes ``[begin, end)`` of a file, fetched on another thread. Its room is given back once; in a child of
    ``fork()`` it is nobody's."""

    def __init__(self, begin: int, end: int, fetch: Callable[[int, int], bytes], room: Room) -> None:
        self._pid = os.getpid()
        self.begin, self.end = begin, end
        self._fetch = fetch
        self._room: Room | None = room
        self._future: Future[bytes] = THREADS.submit(self._run)

    def _run(self) -> bytes:
        return self._fetch(self.begin, self.end)

    def data(self) -> bytes:
        if not self._future.cancelled():
            data = result_of(self._future, self._run)
            if self._future.cancelled():  # run here
                self._future = Future()
                self._future.set_result(data)
            return data
        raise RuntimeError("a block was asked for after it was dropped")

    def drop(self) -> None:
        if self._pid != os.getpid():
            return
        self._future.cancel()
        room, self._room = self._room, None
        if room is not None:
            room.give_back(self.end - self.begin)

    def __del__(self) -> None:
        self.drop()


class ReadAhead(fsspec.caching.BaseCache):  # type: ignore[misc]
    """fsspec's ``cache_type="headrace"``, the default of our files.

    Fetches what is asked for, 64 KiB at least; when a read begins where the last one ended, pieces of
    ``blocksize`` as well, in a window that doubles to 64 MiB. Any thread.

    :param ranges: what will be read, as ``(begin, end)`` in this order: is under way from the beginning, each
        until it has been read. Other reads are fetched as they come.
    :param room: shared by several files. Default: room for one.
    """

    name = "headrace"

    def __init__(
        self,
        blocksize: int,
        fetcher: Callable[[int, int], bytes],
        size: int,
        ranges: Iterable[tuple[int, int]] | None = None,
        room: Room | None = None,
    ) -> None:
        super().__init__(blocksize, fetcher, size)
        self._get = fetcher
        self._room = room or Room(MOST_WINDOW_BYTES)
        self._planned = None if ranges is None else deque(self._pieces(ranges))
        self._reset()
        self._top_up(0)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._blocks: list[Block] = []  # by place, apart from each other
        self._window = 0
        self._last_end = -1
        self._kept: tuple[int, bytes] = (0, b"")  # what the last read fetched, from where on

    def _pieces(self, ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Of known ranges: none empty or past the end, each asked for once, none longer than a block."""
        seen: list[tuple[int, int]] = []  # by place, apart from each other
        for begin, end in ranges:
            if begin < 0 or end < begin:
                raise InvalidArgumentError(f"ranges: ({begin}, {end}) is no range")
            at, end = begin, min(end, self.size)
            while at < end:
                i = bisect_right(seen, at, key=itemgetter(0))
                if i > 0 and at < seen[i - 1][1]:
                    at = seen[i - 1][1]
                    continue
                stop = min(end, at + self.blocksize, seen[i][0] if i < len(seen) else end)
                seen.insert(i, (at, stop))
                yield at, stop
                at = stop

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        if self._pid != os.getpid():  # the threads that fetch are the parent's
            self._reset()
        start = 0 if start is None else start
        stop = self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        with self._lock:
            if self._planned is None:
                self._look_at_pattern(start, stop)
            parts = list(self._read(start, stop))
            self._last_end = stop
            self._top_up(stop)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _look_at_pattern(self, start: int, stop: int) -> None:
        if start == self._last_end:
            grown = max(2 * self._window, 4 * (stop - start), FIRST_WINDOW_BYTES)
            self._window = min(grown, MOST_WINDOW_BYTES)
        elif self._find(start) is None:
            self._window = 0
        self._drop(lambda block: self._window == 0 or block.end <= start)

    def _read(self, start: int, stop: int) -> Iterator[bytes]:
        at = start
        while at < stop:
            block = self._find(at)
            if block is not None:
                end = min(block.end, stop)
                try:
                    data = block.data()
                except BaseException:
                    self._forget(block)
                    raise
                self.hit_count += 1
                yield data[at - block.begin : end - block.begin]
                if self._planned is not None and end == block.end:
                    self._forget(block)
                at = end
                continue
            kept_at, kept = self._kept
            if kept_at <= at < kept_at + len(kept):
                end = min(kept_at + len(kept), stop)
                yield kept[at - kept_at : end - kept_at]
                at = end
                continue
            end = self._next_block(at, stop)
            if self._planned:  # had no room yet: what is read now is not read ahead later
                self._planned = deque(p for p in self._planned if p[0] < at or end < p[1])
            yield self._fetch_now(at, end)
            at = end

    def _fetch_now(self, at: int, end: int) -> bytes:
        self.miss_count += 1
        wanted = end - at
        if wanted >= LEAST_READ_BYTES:
            self.total_requested_bytes += wanted
            return self._get(at, end)
        longest = self._next_block(at, min(self.size, at + LEAST_READ_BYTES))
        self.total_requested_bytes += longest - at
        data = self._get(at, longest)
        self._kept = (at, data)
        return data[:wanted]

    def _top_up(self, position: int) -> None:
        """Starts what is to be under way when the reader is at ``position``."""
        if self._planned is not None:
            while self._planned and self._start(*self._planned[0]):
                self._planned.popleft()
        elif self._window:
            begin = max(position, self._blocks[-1].end if self._blocks else position)
            while begin < min(self.size, position + self._window):
                # On a grid, so that readers who began elsewhere share what a cache keeps.
                end = min(self.size, (begin // self.blocksize + 1) * self.blocksize)
                if not self._start(begin, end):
                    return
                begin = end

    def _start(self, begin: int, end: int) -> bool:
        if not self._room.take(end - begin):
            return False
        self.total_requested_bytes += end - begin
        block = Block(begin, end, self._get, self._room)
        self._blocks.insert(bisect_right(self._blocks, begin, key=_begin), block)
        return True

    def _find(self, at: int) -> Block | None:
        i = bisect_right(self._blocks, at, key=_begin) - 1
        return self._blocks[i] if i >= 0 and at < self._blocks[i].end else None

    def _next_block(self, at: int, stop: int) -> int:
        """Up to where nothing is under way, ``stop`` at most."""
        i = bisect_right(self._blocks, at, key=_begin)
        return min(stop, self._blocks[i].begin) if i < len(self._blocks) else stop

    def _forget(self, block: Block) -> None:
        self._blocks.remove(block)
        block.drop()

    def _drop(self, which: Callable[[Block], bool]) -> None:
        for block in [b for b in self._blocks if which(b)]:
            self._forget(block)

    def close(self) -> None:
        """Drops what is under way."""
        if self._pid == os.getpid():
            with self._lock:
                self._planned = deque() if self._planned is not None else None
                self._window = 0
                self._drop(lambda block: True)


def _begin(block: Block) -> int:
    return block.begin


fsspec.caching.register_cache(ReadAhead, clobber=True)
