#!/usr/bin/env python3
"""Promise 4 on a large dataset: streams URL with memory=LIMIT and reports the engine's own peak and the
growth of RSS.

bench/memory.py s3://bench/mds [--memory 256MiB] [--json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import headrace as hr


def rss_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--memory", default="256MiB")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    before, peak, read = rss_bytes(), 0, 0
    with hr.Loader(args.url, batch_size=args.batch_size, shuffle=True, seed=1, memory=args.memory) as loader:
        for index, batch in enumerate(loader):
            read += sum(getattr(column, "nbytes", 0) for column in batch.values())
            if index % 50 == 0:
                peak = max(peak, rss_bytes())
        stats = loader.stats()
    result = {
        "memory": args.memory,
        "delivered_bytes": read,
        "pool_limit_bytes": stats["pool.limit_bytes"],
        "pool_peak_bytes": stats["pool.peak_bytes"],
        "rss_growth_bytes": peak - before,
    }
    print(
        json.dumps(result)
        if args.json
        else "\n".join(
            f"{k:18} {v:>16,}" if isinstance(v, (int, float)) else f"{k:18} {v:>16}"
            for k, v in result.items()
        )
    )


if __name__ == "__main__":
    main()
