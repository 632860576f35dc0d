#!/usr/bin/env python3
"""What the first pass of `Store.get_ranges` costs, at defaults, against the raw floor on the same server.

    bench/cold_ranges.py --programs build/release/bench [--rounds 5] [--server nginx|sim] [--memory 2GiB]
                         [--json]

Each run is a fresh process that reads 2 GiB (1 GiB, twice) in ranges of 8 or 1 MiB: memory is touched for the
first time, connections are opened, the limit is found. CPU seconds per GB of the reading alone, imports
apart. The floor is bench/fetch_floor with 16 in flight, which touches what it holds once.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

from builds import environment
from fetch_ratio import make_parser, run, served

READ = """
import json, resource, sys
import headrace as hr
def used():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime
part, memory = int(sys.argv[1]), sys.argv[2]
options = {"memory": memory} if memory else {}
with hr.Store("s3://bkt", control_directory="", **options) as store:
    sizes = {f"obj{i}.bin": 256 << 20 for i in range(4)}
    begin, count = used(), 0
    once = [(key, at, part) for key, size in sizes.items() for at in range(0, size, part)]
    for result in store.get_ranges(2 * once):
        count += len(result.data)
    cpu = used() - begin
    peak = store.stats()["pool.peak_bytes"]
print(json.dumps({"cpu_s_per_GB": cpu / (count / 1e9), "peak": peak}))
"""


def main() -> None:
    parser = make_parser(__doc__, "/dev/shm/cold_ranges")
    parser.add_argument("--memory", default="", help="default: the store's own")
    args = parser.parse_args()
    with served(args.server, args.directory) as (port, _):
        for part in (8 << 20, 1 << 20):
            ratios, costs, peaks = [], [], []
            for _ in range(args.rounds):
                words = ["--port", port, "--part", part, "--in-flight", 16, "--pattern", "sequential"]
                floor = run([str(args.programs / "fetch_floor"), *map(str, words), "--total-mib", "2048"])
                done = subprocess.run(
                    [sys.executable, "-c", READ, str(part), args.memory],
                    env=environment("", port),
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                answer = json.loads(done.stdout)
                ratios.append(answer["cpu_s_per_GB"] / floor)
                costs.append(answer["cpu_s_per_GB"])
                peaks.append(answer["peak"])
            row = {
                "part": part,
                "cpu_s_per_gb": round(statistics.median(costs), 3),
                "ratio": round(statistics.median(ratios), 2),
                "ratio_spread": f"{min(ratios):.2f}..{max(ratios):.2f}",
                "peak_mib": round(statistics.median(peaks)) >> 20,
            }
            print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


if __name__ == "__main__":
    main()
