#!/usr/bin/env python3
"""How much of a store's pipe a Loader fills at default settings.

    bench/pipe.py [--profiles s3-standard,gcs,...] [--cases mds,mds-in-order,...] [--mib 1024] [--epochs 3]
                  [--memory 4GiB] [--builds DIR,DIR] [--json]

Sets of 4 KiB samples behind `headrace sim` are read for some epochs, each by a fresh process that sets nothing but
the memory and what the case names: mds (uint16 tokens, shuffled), mds-in-order, mds-py1e (Mosaic's order), tar,
tfrecord, litdata, parquet. A rate is GB of samples a second in one epoch; the first has the ramp in it. The knee is
the best of `headrace bench fetch` on the same store in the same run, with reads of 1 and 8 MiB. Client and simulator
share the machine's cores: of two, the knee leaves none idle. `--builds`: directories of `pip install --target`,
measured in turn; default: the package that is installed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from builds import SAMPLE, environment, make_tars, pack, simulator

BAR = 40
"""Characters of a bar that reaches the knee."""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mds": ("mds", {}),
    "mds-in-order": ("mds", {"shuffle": False}),
    "mds-py1e": ("mds", {"order": "mosaic:py1e"}),
    "tar": ("tar", {"ragged": "arrow"}),
    "tfrecord": ("tfrecord", {"ragged": "arrow"}),
    "litdata": ("litdata", {"ragged": "arrow"}),
    "parquet": ("parquet", {"ragged": "arrow"}),
}
LOAD = """
import json, resource, sys, time
import headrace as hr
options = json.loads(sys.argv[1])
url, epochs, size = options.pop("url"), options.pop("epochs"), options.pop("sample_bytes")
rates, begin = [], resource.getrusage(resource.RUSAGE_SELF)
with hr.Loader(url, batch_size=256, **options) as loader:
    for _ in range(epochs):
        count, start = 0, time.perf_counter()
        for batch in loader:
            count += len(batch.ids)
        rates.append(count * size / (time.perf_counter() - start) / 1e9)
    stats = loader.stats()
end = resource.getrusage(resource.RUSAGE_SELF)
cpu = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
print(json.dumps({"rates": rates, "cpu_s_per_gb": cpu / (count * epochs * size / 1e9),
                  "rss_bytes": end.ru_maxrss << 10, "peak_bytes": stats["pool.peak_bytes"],
                  "stalls": stats["stall_seconds"]}))
"""


def make_data(bucket: Path, cases: list[str], mib: int, build: str) -> None:
    wanted = {CASES[case][0] for case in cases}
    if "mds" in wanted:
        files = bucket.parent / "files"
        files.mkdir()
        for i in range(max(1, mib // 128)):  # A byte becomes a uint16.
            (files / f"{i}").write_bytes(random.Random(i).randbytes(64 << 20))
        pack(files, bucket / "mds", build, "--tokens", str(SAMPLE // 2))
    if wanted - {"mds"}:
        make_tars(bucket, mib)
    for name in wanted - {"mds", "tar"}:
        pack(bucket / "tar", bucket / name, build, "--format", name)


def run(code: list[str], env: dict[str, str]) -> Any:
    done = subprocess.run([sys.executable, *code], env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def knee(name: str, env: dict[str, str]) -> float:
    words = ["bench", "fetch", f"s3://bucket/{name}/", "--part-bytes", "1MiB,8MiB", "--json"]
    return max(float(row["gb_per_s"]) for row in run(["-m", "headrace.cli", *words], env)["rows"])


def show(row: dict[str, Any]) -> None:
    rates = " ".join(f"{rate:.2f}" for rate in row["rates"])
    best = row["rates"][-1] / row["knee"]
    print(
        f"{row['profile']:12} {row['case']:13} {row['build'] or 'installed':14} {rates} of {row['knee']:.2f} GB/s, "
        f"{row['cpu_s_per_gb']:.2f} CPU s/GB, {row['rss_bytes'] >> 20} MiB resident\n"
        f"    {'#' * round(BAR * best):{BAR}}| {best:.2f}",
        flush=True,
    )


def measure(case: str, profile: str, builds: list[str], port: int, options: argparse.Namespace) -> None:
    name, more = CASES[case]
    most = knee(name, environment(builds[-1], port))
    for build in builds:
        given = {
            "url": f"s3://bucket/{name}",
            "epochs": options.epochs,
            "sample_bytes": SAMPLE,
            "memory": options.memory,
            "control_directory": "",
            **more,
        }
        row = run(["-c", LOAD, json.dumps(given)], environment(build, port))
        row |= {"profile": profile, "case": case, "build": build, "knee": most}
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            show(row)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", default="s3-standard")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--builds", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    builds, cases = options.builds.split(","), options.cases.split(",")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        bucket = Path(directory) / "bucket"
        bucket.mkdir()
        make_data(bucket, cases, options.mib, builds[-1])
        for profile in options.profiles.split(","):
            with simulator(
                Path(directory), builds[-1], "--profile", profile, "--seed", "5", "--unsigned"
            ) as port:
                for case in cases:
                    measure(case, profile, builds, port, options)


if __name__ == "__main__":
    main()
