#!/usr/bin/env python3
"""How much of a store's pipe a Loader fills at default settings.

    bench/pipe.py [--profiles s3-standard,...] [--orders shuffle,sequential] [--mib 1024] [--epochs 3]
                  [--memory 4GiB] [--builds DIR,DIR] [--json]

For each profile of `headrace sim` a set of 4 KiB tokens in MDS is read for some epochs by a fresh process that
sets nothing but the memory; GB of samples a second by epoch, ramp included in the first. The knee is that of
`headrace bench fetch` on the same store in the same run, with reads of the size of the Loader's blocks. `--builds`:
directories of `pip install --target`, measured in turn; default: the package that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from builds import SAMPLE, make_data
from sim_vs_nginx import free_port, wait_for

SERVER = """import sys
from headrace import sim
with sim.Server(sys.argv[1], port=int(sys.argv[2]), profile=sys.argv[3], seed=5, require_signature=False):
    sys.stdin.read()
"""
LOAD = """
import json, resource, sys, time
import headrace as hr
options = json.loads(sys.argv[1])
epochs, size = options.pop("epochs"), options.pop("sample_bytes")
rates, begin = [], resource.getrusage(resource.RUSAGE_SELF)
with hr.Loader("s3://bucket/mds", batch_size=256, **options) as loader:
    for _ in range(epochs):
        count, start = 0, time.perf_counter()
        for batch in loader:
            count += len(batch.ids)
        rates.append(count * size / (time.perf_counter() - start) / 1e9)
    stats = loader.stats()
end = resource.getrusage(resource.RUSAGE_SELF)
cpu = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
print(json.dumps({"rates": rates, "cpu_s_per_gb": cpu / (count * epochs * size / 1e9),
                  "peak_bytes": stats["pool.peak_bytes"], "stalls": stats["stall_seconds"]}))
"""


def environment(build: str, port: int) -> dict[str, str]:
    values = {
        **os.environ,
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "headrace",
        "AWS_SECRET_ACCESS_KEY": "headrace-secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    return values | ({"PYTHONPATH": build} if build else {})


def run(code: list[str], env: dict[str, str]) -> Any:
    done = subprocess.run([sys.executable, *code], env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def knee(env: dict[str, str]) -> float:
    command = [
        "-m",
        "headrace.cli",
        "bench",
        "fetch",
        "s3://bucket/mds/",
        "--part-bytes",
        "1MiB,8MiB",
        "--json",
    ]
    return max(row["gb_per_s"] for row in run(command, env)["rows"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", default="s3-standard")
    parser.add_argument("--orders", default="shuffle,sequential")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--builds", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    builds = options.builds.split(",")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        make_data(Path(directory), options.mib, builds[-1], small=False)
        for profile in options.profiles.split(","):
            port = free_port()
            server = [sys.executable, "-c", SERVER, directory, str(port), profile]
            with subprocess.Popen(server, env=environment(builds[-1], port), stdin=subprocess.PIPE):
                wait_for(port)
                measure(options, profile, builds, port)


def measure(options: argparse.Namespace, profile: str, builds: list[str], port: int) -> None:
    most = knee(environment(builds[-1], port))
    for order in options.orders.split(","):
        for build in builds:
            given = {
                "epochs": options.epochs,
                "sample_bytes": SAMPLE,
                "memory": options.memory,
                "shuffle": order == "shuffle",
                "control_directory": "",
            }
            row = run(["-c", LOAD, json.dumps(given)], environment(build, port))
            row |= {"profile": profile, "order": order, "build": build, "knee": most}
            if options.json:
                print(json.dumps(row), flush=True)
                continue
            rates = " ".join(f"{rate:.2f}" for rate in row["rates"])
            print(
                f"{profile} {order} {build}: {rates} GB/s of {most:.2f} ({row['rates'][-1] / most:.2f}); "
                f"{row['cpu_s_per_gb']:.2f} CPU s/GB, {row['peak_bytes'] / 2**20:.0f} MiB at most",
                flush=True,
            )


if __name__ == "__main__":
    main()
