#!/usr/bin/env python3
"""CPU seconds a GB of the digests that MDS shards may have, over one buffer out of the cache.

Usage: .venv/bin/python bench/digests.py [MIB=8] [ROUNDS=7]

Prints a Markdown table; the best round counts. The engine uses the same libraries (OpenSSL, xxHash).
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import xxhash

LOADER_S_PER_GB = 0.45
"""Of a Loader over tokens (docs/performance.md)."""
DIGESTS: dict[str, Callable[[bytes], Any]] = {
    **{
        f"xxhash {name}": getattr(xxhash, name)
        for name in ("xxh3_64", "xxh3_128", "xxh64", "xxh128", "xxh32")
    },
    **{
        name: getattr(hashlib, name)
        for name in ("sha1", "sha256", "md5", "blake2b", "sha512", "sha3_256", "blake2s")
    },
}


def cpu_seconds_per_gb(make: Callable[[bytes], Any], data: bytes, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(4):
            make(data).digest()
        best = min(best, time.process_time() - begin)
    return best / (4 * len(data) / 1e9)


def main() -> None:
    mebibytes = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    data = os.urandom(mebibytes << 20)
    print("| digest | CPU s/GB | of a Loader |\n|---|---|---|")
    costs = {name: cpu_seconds_per_gb(make, data, rounds) for name, make in DIGESTS.items()}
    for name, cost in sorted(costs.items(), key=lambda row: row[1]):
        print(f"| {name} | {cost:.3f} | {cost / LOADER_S_PER_GB:.0%} |")


if __name__ == "__main__":
    main()
