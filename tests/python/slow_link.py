"""A slow link to a server: a proxy that gives all connections together so many bytes a second, each way."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

PIECE_BYTES = 16 << 10


class _Link:
    def __init__(self, address: str, bytes_per_s: float) -> None:
        self._host, _, self._port = address.partition(":")
        self._rate = bytes_per_s
        self._free_at = time.monotonic()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(PIECE_BYTES):
                now = time.monotonic()
                self._free_at = max(self._free_at, now) + len(piece) / self._rate
                await asyncio.sleep(self._free_at - now)
                target.write(piece)
                await target.drain()
        target.close()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, int(self._port), limit=PIECE_BYTES)
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))


@contextlib.contextmanager
def slow_link(endpoint: str, bytes_per_s: float) -> Iterator[str]:
    """Yields the endpoint of the proxy."""
    loop = asyncio.new_event_loop()
    link = _Link(endpoint.partition("://")[2], bytes_per_s)
    server = loop.run_until_complete(asyncio.start_server(link.connect, "127.0.0.1", 0, limit=PIECE_BYTES))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
