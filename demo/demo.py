"""The main job end to end, on real data: stream, train, kill -9, resume on another world size, prove, report.

    make demo            # or: .venv/bin/python demo/demo.py [--data DIR] [--profile s3-standard]

Everything is kept under demo-data/ (about 4 GB); a second run reuses the unpacked sources and the finished
shards.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from rich.table import Table

import headrace as hr
from headrace.cli.common import console as make_console

HERE = Path(__file__).resolve().parent
TARBALL = Path("/usr/src/linux-source-6.1.tar.xz")
PART = ["init", "ipc", "mm", "virt"]  # directories that make an epoch of about two minutes on two cores
TOKENS = 1025
GLOBAL_BATCH = 32
SEED = 17
CHECKPOINTS = "s3://linux/checkpoints"
KILL_IN_SAVE_OF_STEP = 60
console = make_console()


@dataclass
class Demo:
    data: Path
    profile: str
    port: int
    started: float = field(default_factory=time.monotonic)
    results: dict[str, Any] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        return self.data / "buckets" / "linux" / "raw"

    @property
    def checkpoints(self) -> Path:
        """The objects at CHECKPOINTS."""
        return self.data / "buckets" / "linux" / "checkpoints"

    @property
    def runs(self) -> Path:
        return self.data / "runs"

    def step(self, text: str) -> None:
        console.print(f"[bold cyan]{time.monotonic() - self.started:6.1f} s[/]  [bold]{text}[/]")

    def note(self, text: str) -> None:
        console.print(f"          {text}")


def fail(text: str) -> NoReturn:
    console.print(f"[bold red]demo failed:[/] {text}")
    sys.exit(1)


def unpack_sources(demo: Demo) -> None:
    """(0) The kernel's source tree as a bucket of small objects, and a few of its directories as another
    prefix."""
    done = demo.data / ".unpacked"
    if done.exists():
        return
    if not TARBALL.exists():
        fail(f"{TARBALL} is missing: run `tools/setup demo` (apt package linux-source-6.1)")
    demo.step("unpacking the Linux kernel source (80,000 small files)")
    shutil.rmtree(demo.data, ignore_errors=True)
    demo.tree.mkdir(parents=True)
    subprocess.run(["tar", "xf", TARBALL, "-C", demo.tree, "--strip-components=1"], check=True)
    for name in PART:
        shutil.copytree(
            demo.tree / name, demo.tree.parent / "raw-part" / name, copy_function=os.link, symlinks=True
        )
    done.touch()


@contextmanager
def simulator(demo: Demo) -> Iterator[str]:
    """(1) `headrace sim` in a process of its own: an S3 endpoint with the latencies of S3 Standard."""
    command = [
        sys.executable,
        "-m",
        "headrace.cli",
        "sim",
        str(demo.data / "buckets"),
        "--profile",
        demo.profile,
    ]
    process = subprocess.Popen(
        [*command, "--port", str(demo.port), "--seed", "1", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            fail(f"the simulator did not start on port {demo.port}: is it in use? Choose another with --port")
        endpoint = str(json.loads(line)["endpoint"])
        os.environ |= {
            "AWS_ENDPOINT_URL_S3": endpoint,
            "AWS_ACCESS_KEY_ID": "headrace",
            "AWS_SECRET_ACCESS_KEY": "headrace-secret",
            "AWS_REGION": "us-east-1",
        }
        yield endpoint
    finally:
        process.terminate()
        process.wait()


def headrace_json(*arguments: str) -> dict[str, Any]:
    """Runs one `headrace ... --json` command as a user would, with its progress bar on the terminal."""
    run = subprocess.run(
        [sys.executable, "-m", "headrace.cli", *arguments, "--json"], stdout=subprocess.PIPE, text=True
    )
    if run.returncode:
        fail(f"headrace {' '.join(arguments)} ended with exit code {run.returncode}")
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def pack_shards(demo: Demo) -> None:
    """(2) Small files in, token shards out; both sides are object storage."""
    for source, target in (("raw", "packed"), ("raw-part", "part")):
        demo.step(f"headrace pack s3://linux/{source} s3://linux/{target} --format mds --tokens {TOKENS}")
        started = time.monotonic()
        packed = headrace_json(
            "pack", f"s3://linux/{source}", f"s3://linux/{target}", "--format", "mds", "--tokens", str(TOKENS)
        )
        seconds = time.monotonic() - started
        kept = (
            f", {packed['resumed_shard_count']} of them kept from an earlier run"
            if packed["resumed_shard_count"]
            else ""
        )
        demo.note(
            f"{packed['file_count']:,} files -> {packed['sample_count']:,} samples in "
            f"{packed['shard_count']} shards, {seconds:.1f} s{kept}"
        )
        headrace_json("index", f"s3://linux/{target}")


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def stream_everything(demo: Demo) -> None:
    """(3a) The whole packed set once, without a model: the loader's own speed."""
    demo.step("streaming the whole packed set once, shuffled, no model")
    started, cpu = time.monotonic(), cpu_seconds()
    samples = 0
    with hr.Loader("s3://linux/packed", batch_size=64, shuffle=True, seed=SEED, memory="1GiB") as loader:
        first = None
        for batch in loader:
            first = first or time.monotonic() - started
            samples += int(batch.mask.sum())
        stats = loader.stats()
    seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu
    demo.results["stream"] = {
        "samples": samples,
        "seconds": seconds,
        "cpu_s": cpu,
        "first_batch_s": first,
        "stats": stats,
    }
    demo.note(
        f"{samples:,} samples in {seconds:.1f} s = {samples / seconds:,.0f} samples/s, {samples / cpu:,.0f} "
        "per CPU second"
    )


def free_port() -> int:
    """One that is free, below those that the kernel gives to connections (32768 and more): of these the demo
    opens hundreds."""
    for port in range(20000 + os.getpid() % 10000, 32768):
        with socket.socket() as listener, suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return port
    fail("no port below 32768 is free")


def start_training(demo: Demo, run: str, world_size: int, endpoint: str) -> list[subprocess.Popen[bytes]]:
    command = [
        sys.executable,
        str(HERE / "train.py"),
        "s3://linux/part",
        "--run-dir",
        str(demo.runs),
        "--checkpoints",
        CHECKPOINTS,
        "--run",
        run,
    ]
    command += [
        "--global-batch",
        str(GLOBAL_BATCH),
        "--seed",
        str(SEED),
        "--threads",
        str(max(1, (os.cpu_count() or 1) // world_size)),
    ]
    port = str(free_port())
    ranks = []
    for rank in range(world_size):
        env = os.environ | {
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        ranks.append(subprocess.Popen(command, env=env, start_new_session=True))
    return ranks


def read_log(path: Path) -> list[dict[str, Any]]:
    """One JSON line a step; a line cut off by the kill is dropped."""
    if not path.exists():
        return []
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]


def follow(
    demo: Demo, run: str, ranks: list[subprocess.Popen[bytes]], until: Callable[[], bool] | None = None
) -> None:
    """Prints the falling loss while the ranks run; returns when they end, or `until` says so."""
    shown = -1
    while any(rank.poll() is None for rank in ranks):
        log = read_log(demo.runs / f"log-{run}-0.jsonl")
        if log and log[-1]["step"] // 25 > shown:
            shown = log[-1]["step"] // 25
            demo.note(f"step {log[-1]['step']:4}   loss {log[-1]['loss']:.3f}")
        if until is not None and until():
            return
        if any(rank.poll() not in (None, 0) for rank in ranks):
            break
        time.sleep(0.2 if until is None else 0.005)
    if until is not None or any(rank.wait() for rank in ranks):
        for rank in ranks:
            rank.kill()
        fail(f"training run {run!r} ended early; its output is above")


def train_and_kill(demo: Demo, endpoint: str) -> None:
    """(3b, 4) Two ranks, killed with kill -9 in mid-epoch, while a checkpoint is on its way."""
    for directory in (demo.runs, demo.checkpoints):
        shutil.rmtree(directory, ignore_errors=True)
    demo.runs.mkdir(parents=True)
    demo.step("training on two ranks (PyTorch, gloo) from the simulator")
    ranks = start_training(demo, "two-ranks", 2, endpoint)
    saves = f"saves/*-{KILL_IN_SAVE_OF_STEP:012}-*/*"
    follow(demo, "two-ranks", ranks, until=lambda: any(demo.checkpoints.glob(saves)))
    for rank in ranks:
        os.kill(rank.pid, signal.SIGKILL)
        rank.wait()
    demo.step(f"kill -9 of both ranks in mid-epoch, in the save of step {KILL_IN_SAVE_OF_STEP}")
    whole = [row["step"] for row in headrace_json("ckpt", "verify", "--all", CHECKPOINTS)["checkpoints"]]
    said = (
        "which was whole already"
        if KILL_IN_SAVE_OF_STEP in whole
        else f"that of step {KILL_IN_SAVE_OF_STEP} is not one"
    )
    demo.note(f"checkpoints in the bucket, each byte proved: {', '.join(map(str, whole))}; {said}")


def resume_on_one(demo: Demo, endpoint: str) -> None:
    """(5) The rest of the epoch on one rank, from the last checkpoint."""
    demo.step("resuming as one rank from the last checkpoint")
    ranks = start_training(demo, "one-rank", 1, endpoint)
    follow(demo, "one-rank", ranks)
    saves = json.loads((demo.runs / "stats-one-rank.json").read_text())["save_s"]
    demo.note(
        f"{len(saves)} checkpoints saved to the bucket; each held the loop up for {1000 * median(saves):.0f} "
        "ms"
    )


def uninterrupted_batches() -> Iterator[tuple[list[int], int]]:
    """What a run without interruption receives: ids and a checksum of the bytes of each global batch."""
    with hr.Loader(
        "s3://linux/part",
        batch_size=GLOBAL_BATCH,
        shuffle=True,
        seed=SEED,
        memory="256MiB",
        rank=0,
        world_size=1,
    ) as loader:
        for batch in loader:
            yield (
                [int(i) for i, real in zip(batch.ids, batch.mask, strict=True) if real],
                zlib.crc32(batch["tokens"]),
            )


def prove(demo: Demo) -> None:
    """(6) From the logs alone: each sample once, and the same global batches as an uninterrupted run."""
    demo.step("proving it from the log of delivered sample ids")
    two = [read_log(demo.runs / f"log-two-ranks-{rank}.jsonl") for rank in (0, 1)]
    one = read_log(demo.runs / "log-one-rank-0.jsonl")
    resumed_at = one[0]["step"]
    # Steps after the last checkpoint died with the ranks, model and loader alike: they are not part of the
    # training that counts.
    lost = len(two[0]) - resumed_at

    def real(entries: list[dict[str, Any]]) -> list[int]:
        return [i for e in entries for i, is_real in zip(e["ids"], e["mask"], strict=True) if is_real]

    batches = [real([two[0][k], two[1][k]]) for k in range(resumed_at)] + [real([e]) for e in one]
    delivered = [i for batch in batches for i in batch]
    sample_count = len(hr.Dataset("s3://linux/part"))
    if sorted(delivered) != list(range(sample_count)):
        fail(f"{sample_count} samples, {len(delivered)} deliveries, {len(set(delivered))} distinct")
    expected = list(uninterrupted_batches())
    if [ids for ids, _ in expected] != batches:
        fail("the global batches differ from those of an uninterrupted run")
    if [crc for _, crc in expected[resumed_at:]] != [e["crc"] for e in one]:
        fail("the bytes of a batch differ from those of an uninterrupted run")
    losses = [e["loss"] for e in two[0][:resumed_at]] + [e["loss"] for e in one]
    if not sum(losses[-10:]) < 0.8 * sum(losses[:10]):
        fail(f"the loss did not fall: {losses[0]:.3f} -> {losses[-1]:.3f}")
    demo.results["proof"] = {
        "samples": sample_count,
        "batches": len(batches),
        "resumed_at_step": resumed_at,
        "redone_steps": lost,
    }
    demo.results["loss"] = {"first": losses[0], "last": losses[-1]}
    demo.note(
        f"[green]each of {sample_count:,} samples exactly once[/] over 2 ranks (steps 0-{resumed_at - 1}) "
        f"and 1 rank (steps {resumed_at}-{len(batches) - 1})"
    )
    demo.note(
        f"[green]all {len(batches)} global batches equal[/] those of an uninterrupted run; {lost} steps "
        "after the last checkpoint were redone with the model"
    )
    demo.note(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")


def read_small_files(demo: Demo) -> None:
    """(7, contrast) As many samples as the training epoch had, one small object and one request each."""
    demo.step("for contrast: the same number of samples as raw small files, one request each")
    wanted = demo.results["proof"]["samples"]
    started, cpu = time.monotonic(), cpu_seconds()
    count = 0
    with hr.Store("s3://linux/raw") as store:
        keys = [(o.key, 0, o.size) for o in store.list("drivers/gpu") if o.size][:wanted]
        for result in store.get_ranges(keys):
            count += len(result.data) > 0
        stats = store.stats()
    seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu
    demo.results["small_files"] = {"samples": count, "seconds": seconds, "cpu_s": cpu, "stats": stats}


def report(demo: Demo) -> None:
    trained = json.loads((demo.runs / "stats-one-rank.json").read_text())
    demo.results["train"] = trained
    table = Table(
        title=f"\nWhere time went (simulator profile {demo.profile}; training is the resumed run)",
        title_justify="left",
    )
    for heading in (
        "",
        "first batch",
        "samples/s",
        "samples/CPU s",
        "requests",
        "GB",
        "stall seconds by cause",
    ):
        table.add_column(
            heading, justify="left" if heading in ("", "stall seconds by cause") else "right", no_wrap=True
        )

    def row(
        name: str, samples: int, seconds: float, cpu: float | None, first: float | None, stats: dict[str, Any]
    ) -> None:
        stalls = {k: v for k, v in stats.get("stall_seconds", {}).items() if v >= 0.05}
        table.add_row(
            name,
            f"{1000 * first:.0f} ms" if first else "-",
            f"{samples / seconds:,.0f}",
            f"{samples / cpu:,.0f}" if cpu else "-",
            f"{stats['store.requests']:,.0f}",
            f"{stats['store.received_bytes'] / 1e9:.2f}",
            ", ".join(f"{k} {v:.1f}" for k, v in sorted(stalls.items(), key=lambda kv: -kv[1])) or "none",
        )

    s, small = demo.results["stream"], demo.results["small_files"]
    resumed = demo.results["proof"]["samples"] - demo.results["proof"]["resumed_at_step"] * GLOBAL_BATCH
    row("packed, streamed", s["samples"], s["seconds"], s["cpu_s"], s["first_batch_s"], s["stats"])
    row("packed, training", resumed, trained["seconds"], None, trained["first_batch_s"], trained["stats"])
    row("raw small files", small["samples"], small["seconds"], small["cpu_s"], None, small["stats"])
    console.print(table)
    ratio = (s["samples"] / s["seconds"]) / (small["samples"] / small["seconds"])
    requests = (small["stats"]["store.requests"] / small["samples"]) / (
        s["stats"]["store.requests"] / s["samples"]
    )
    console.print(
        f"Packed shards stream {ratio:,.0f} times the samples per second with {requests:,.0f} times fewer "
        "requests per sample: why packing matters."
    )
    (demo.data / "report.json").write_text(json.dumps(demo.results, indent=1))
    demo.step(f"done; the report is also in {demo.data / 'report.json'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=HERE.parent / "demo-data",
        help="where everything is kept (default: %(default)s)",
    )
    parser.add_argument("--profile", default="s3-standard", help="simulator profile (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port of the simulator (default: any free one)")
    args = parser.parse_args()
    demo = Demo(args.data, args.profile, args.port)
    unpack_sources(demo)
    with simulator(demo) as endpoint:
        demo.step(f"S3 endpoint {endpoint} (headrace sim, profile {demo.profile})")
        pack_shards(demo)
        stream_everything(demo)
        train_and_kill(demo, endpoint)
        resume_on_one(demo, endpoint)
        prove(demo)
        read_small_files(demo)
        report(demo)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        console.print("[yellow]stopped[/]")
        sys.exit(130)
    except hr.HeadraceError as error:
        fail(str(error))
