#!/usr/bin/env python3
"""How much of a store's pipe a Loader fills at default settings.

    bench/pipe.py [--profiles s3-standard,gcs,...] [--cases mds,mds-in-order,...] [--mib 1024] [--epochs 3]
                  [--link GB/s] [--tell-epochs] [--memory 4GiB] [--loaders 1] [--touch MIB] [--builds DIR,DIR]
                  [--plot FILE.png] [--json]

Sets of 4 KiB samples behind `headrace sim` are read for some epochs, each by a fresh process that sets
nothing but the memory and what the case names: mds (uint16 tokens, shuffled), mds-in-order, mds-py1e
(Mosaic's order), mixture (two parts of it), tokens (plain .bin files of them), tar, tfrecord, litdata,
parquet, files (20 KB each). A rate is GB of samples a second in one epoch, the ramp at its begin included;
steady is what came from a quarter of the last epoch to 19 twentieths; up is how long it took from the
beginning until a quarter of a second brought 90 % of that. The knee is the best of `headrace bench fetch` on
the same store in the same run, with 16, 64 and 256 reads of 1 and 8 MiB under way, of files as large as they
are. `--plot`: steady and first epoch by the knee, a bar each.

Profiles: those of `headrace sim`; far has 100 ms and 200 MB/s a connection, tenfold 600 ms and 1.25 GB/s in
all: 750 MB under way, as on 100 Gbit/s. Client and simulator share the machine's cores: where no link limits,
the knee of two leaves none idle. `--link` puts the store behind a link of so many GB/s; what exceeds it is a
burst of the simulator.

`--loaders`: so many processes at once, each a rank of its own, sharing a control file. `--touch`: before the
clock runs, a process writes to that much memory and frees it: a virtual machine whose host takes free memory
back pays 1 to 2.5 CPU s/GB for the first touch, which others do not. `--builds`: directories of
`pip install --target`, measured in turn; default: the package that is installed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from builds import SAMPLE, environment, make_tars, pack, simulator

from headrace.base.pictures import find_figure

BAR = 40
"""Characters of a bar that reaches the knee."""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "mds": ("mds", {}),
    "mds-in-order": ("mds", {"shuffle": False}),
    "mds-py1e": ("mds", {"order": "mosaic:py1e"}),
    "mixture": ("mds", {"mixture": True}),
    "tokens": ("tokens", {"format": "tokens", "tokens_per_sample": SAMPLE // 2}),
    "tar": ("tar", {"ragged": "arrow"}),
    "tfrecord": ("tfrecord", {"ragged": "arrow"}),
    "litdata": ("litdata", {"ragged": "arrow"}),
    "parquet": ("parquet", {"ragged": "arrow"}),
    "files": ("files", {"ragged": "arrow"}),
}
PROFILES = {
    "far": [
        *("--set", "first_byte_p50_ms=100", "--set", "first_byte_p99_ms=150"),
        *("--set", "connection_bytes_per_s=200e6"),
    ],
    "tenfold": [
        *("--set", "first_byte_p50_ms=600", "--set", "first_byte_p99_ms=900"),
        *("--set", "connection_bytes_per_s=90e6", "--set", "total_bytes_per_s=1.25e9"),
    ],
}
FILE = 20_000
TOUCH = """
import mmap, sys
memory = mmap.mmap(-1, int(sys.argv[1]) << 20)
memory.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, len(memory), 4096):
    memory[at] = 1
"""
LOAD = """
import json, resource, sys, time
import headrace as hr
options = json.loads(sys.argv[1])
url, epochs, size = options.pop("url"), options.pop("epochs"), options.pop("sample_bytes")
if options.pop("tell_epochs"):
    options["epochs"] = epochs
if options.pop("mixture", False):
    control = options.pop("control_directory")
    url = hr.Mixture({"one": (url, 0.7), "two": (url, 0.3)}, control_directory=control)
rates, arrived, began, begin = [], [], None, resource.getrusage(resource.RUSAGE_SELF)
with hr.Loader(url, batch_size=256, **options) as loader:
    for _ in range(epochs):
        count, times = 0, [time.perf_counter()]
        for batch in loader:
            count += len(batch.ids)
            times.append(time.perf_counter())
        rates.append(count * size / (times[-1] - times[0]) / 1e9)
        arrived += times[1:]
        began = began or times[0]
    stats = loader.stats()
first, last = len(times) // 4, len(times) * 19 // 20
steady = count * size * (last - first) / (len(times) - 1) / (times[last] - times[first]) / 1e9
# Batches are about equal: so many of them come in a quarter of a second at 90 % of the steady rate.
wanted = max(1, round(0.9 * steady * 1e9 * 0.25 / (count * size / (len(times) - 1))))
up = next((b - began for a, b in zip(arrived, arrived[wanted:]) if b - a <= 0.25), None)
end = resource.getrusage(resource.RUSAGE_SELF)
cpu = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
print(json.dumps({"rates": rates, "steady": steady, "up_s": up,
                  "cpu_s_per_gb": cpu / (count * epochs * size / 1e9),
                  "rss_bytes": end.ru_maxrss << 10, "peak_bytes": stats["pool.peak_bytes"],
                  "stalls": stats["stall_seconds"]}))
"""


def make_random(directory: Path, count: int) -> Path:
    directory.mkdir()
    for i in range(max(1, count)):
        (directory / f"{i:05}.bin").write_bytes(random.Random(i).randbytes(64 << 20))
    return directory


def make_data(bucket: Path, name: str, mib: int, build: str) -> None:
    if name == "mds":
        files = make_random(bucket / "files", mib // 128)  # A byte becomes a uint16.
        pack(files, bucket / "mds", build, "--tokens", str(SAMPLE // 2))
        shutil.rmtree(files)
    elif name == "tokens":
        make_random(bucket / "tokens", mib // 64)
    elif name == "files":
        content = random.Random(3).randbytes(FILE + 30_000)
        for i in range(min(30_000, (mib << 20) // FILE)):
            file = bucket / "files" / f"{i % 100:02}" / f"{i:05}.bin"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content[i : i + FILE])
    else:
        make_tars(bucket, mib)
        if name != "tar":
            pack(bucket / "tar", bucket / name, build, "--format", name)
            shutil.rmtree(bucket / "tar")


def run(codes: list[list[str]], env: dict[str, str]) -> list[Any]:
    """What processes print that run side by side."""
    processes = [
        subprocess.Popen([sys.executable, *code], env=env, stdout=subprocess.PIPE, text=True)
        for code in codes
    ]
    answers = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit("a process failed: see above")
    return [json.loads(answer) for answer in answers]


def knee(name: str, parts: str, env: dict[str, str]) -> float:
    words = ["bench", "fetch", f"s3://bucket/{name}/", "--part-bytes", parts, "--in-flight", "16,64,256"]
    (found,) = run([["-m", "headrace.cli", *words, "--json"]], env)
    return max(float(row["gb_per_s"]) for row in found["rows"])


def read(given: dict[str, Any], env: dict[str, str], count: int) -> dict[str, Any]:
    """What `count` loaders that share a control file do together."""
    with tempfile.TemporaryDirectory() as control:
        shared = {"control_directory": control if count > 1 else "", "world_size": count}
        answers = run(
            [["-c", LOAD, json.dumps({**given, **shared, "rank": rank})] for rank in range(count)], env
        )
    row: dict[str, Any] = {
        "rates": [sum(rates) for rates in zip(*(answer["rates"] for answer in answers), strict=True)],
        "steady": sum(answer["steady"] for answer in answers),
        "cpu_s_per_gb": statistics.mean(answer["cpu_s_per_gb"] for answer in answers),
        "rss_bytes": sum(answer["rss_bytes"] for answer in answers),
        "stalls": answers[0]["stalls"],
        "up_s": max((answer["up_s"] for answer in answers), key=lambda s: s if s is not None else 1e9),
    }
    last = [answer["rates"][-1] for answer in answers]
    row["slowest"] = min(last) / statistics.mean(last)
    return row


def show(row: dict[str, Any]) -> None:
    rates = " ".join(f"{rate:.2f}" for rate in row["rates"])
    first, steady = row["rates"][0] / row["knee"], row["steady"] / row["knee"]
    up = "never up" if row["up_s"] is None else f"up after {row['up_s']:.1f} s"
    stalls = ", ".join(f"{name} {s:.1f} s" for name, s in sorted(row["stalls"].items()) if s >= 0.05)
    print(
        f"{row['profile']:12} {row['case']:13} {row['build'] or 'installed':14} {rates}, steady "
        f"{row['steady']:.2f} of {row['knee']:.2f} GB/s, "
        f"{row['cpu_s_per_gb']:.2f} CPU s/GB, {row['rss_bytes'] >> 20} MiB resident, slowest "
        f"{row['slowest']:.2f}\n    {'#' * round(BAR * steady):{BAR}}| {steady:.2f}, first {first:.2f}, "
        f"{up}; waited: {stalls or 'never'}",
        flush=True,
    )


def draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    """Of each row two bars, by the knee of its own run."""
    axes = figure.subplots()
    names = [" ".join(filter(None, (row["case"], row["profile"], row["build"]))) for row in rows]
    for shift, colour, label in ((-0.2, "#1f6feb", "steady"), (0.2, "#d1702a", "first epoch")):
        rates = [row["steady"] if label == "steady" else row["rates"][0] for row in rows]
        shares = [rate / row["knee"] for rate, row in zip(rates, rows, strict=True)]
        axes.barh([at + shift for at in range(len(rows))], shares, 0.4, color=colour, label=label)
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1, color="#8884", lw=6, zorder=0)
    axes.set_xlabel("GB/s by those of the knee of the same run (grey)")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=8)


def measure(
    case: str, profile: str, builds: list[str], port: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    name, more = CASES[case]
    size = FILE if case == "files" else SAMPLE
    parts = "20KB" if case == "files" else "1MiB,8MiB"
    most = knee(name, parts, environment(builds[-1], port))
    rows = []
    for build in builds:
        if options.touch:
            subprocess.run([sys.executable, "-c", TOUCH, str(options.touch)], check=True)
        given = {
            "url": f"s3://bucket/{name}",
            "epochs": options.epochs,
            "tell_epochs": options.tell_epochs,
            "sample_bytes": size,
            "memory": options.memory,
            **more,
        }
        row = read(given, environment(build, port), options.loaders)
        row |= {"profile": profile, "case": case, "build": build, "knee": most}
        rows.append(row)
        if options.json:
            print(json.dumps(row), flush=True)
        else:
            show(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", default="s3-standard")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--tell-epochs", action="store_true", help="the loader may read on into the next")
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--loaders", type=int, default=1)
    parser.add_argument("--link", type=float, metavar="GB/s")
    parser.add_argument("--touch", type=int, default=0, metavar="MIB")
    parser.add_argument("--builds", default="")
    parser.add_argument("--plot", metavar="FILE.png", help="needs matplotlib")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figure = find_figure("--plot needs") if options.plot else None
    rows: list[dict[str, Any]] = []
    builds, cases = options.builds.split(","), options.cases.split(",")
    for case in cases:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            bucket = Path(directory) / "bucket"
            bucket.mkdir()
            make_data(bucket, CASES[case][0], options.mib, builds[-1])
            for profile in options.profiles.split(","):
                words = PROFILES.get(profile, ["--profile", profile])
                if options.link:
                    words = [*words, "--set", f"total_bytes_per_s={options.link * 1e9:.0f}"]
                with simulator(Path(directory), builds[-1], *words, "--seed", "5", "--unsigned") as port:
                    rows += measure(case, profile, builds, port, options)
    if figure is not None:
        drawing = figure(figsize=(8, 1.2 + 0.45 * len(rows)), layout="constrained")
        draw(drawing, rows)
        drawing.savefig(options.plot, dpi=150)


if __name__ == "__main__":
    main()
