"""One reader of the access log tests: reads an epoch, prints the bytes it received, then waits to be killed.

argv: URL LOG RANK WORLD_SIZE
"""

from __future__ import annotations

import sys

import headrace as hr


def main() -> None:
    url, log, rank, world_size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    loader = hr.Loader(url, batch_size=8, rank=rank, world_size=world_size, memory="64MiB", access_log=log)
    for _ in loader:
        pass
    print(int(loader.stats()["store.received_bytes"]), flush=True)
    sys.stdin.read()


main()
