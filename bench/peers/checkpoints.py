#!/usr/bin/env python3
"""Checkpoints: Headrace beside torch.save, torch's distributed checkpoint (DCP) and safetensors.

    bench/peers/checkpoints.py [--directory DIR] [--mib 2048] [--rounds 3] [--only state,store,manifest]

`state`: a state of that many MiB in 64 tensors of float32 on the CPU, one rank, to a directory. Each run is a
process of its own, ways take turns; it saves three times and loads twice. "first": the first save of a process,
"warm": the median of the others. "blocked": until the state may change; "saved": until it is durable (files are
synced for who does not sync them). "load": into a state that is there, files dropped from the page cache
before the first and warm the second time. `floor`: one memcpy of the state into memory that was touched before,
one write of it with O_DIRECT by two threads, and one read.
`store`: Headrace, one put of as many bytes in parts, and plain puts of the same parts, to a simulator in another
process. It keeps files (in /dev/shm its disk is out of the way), makes MD5s, and puts the parts of an upload
together by copying them, for which a store makes nobody wait: the put in parts is what a save compares with.
`manifest`: 100,000 tensors over 1,024 ranks: to plan, to write, and to open for one rank.
CPU is user and system time of the process that saves.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

TENSORS = 64
PART = 16 << 20


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident() -> int:
    """Peak bytes of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class Clock:
    def __init__(self, size: int) -> None:
        self._size, self.rows = size, {}  # type: int, dict[str, list[dict[str, float]]]

    def measure(self, name: str, run: Callable[[], Any]) -> None:
        """``run`` may return what is to be waited for after it: then the first part is what blocks."""
        begin, used = time.perf_counter(), cpu()
        rest = run()
        blocked = time.perf_counter() - begin
        if callable(rest):
            rest()
        seconds = time.perf_counter() - begin
        row = {"blocked": blocked, "seconds": seconds, "cpu": (cpu() - used) / (self._size / 1e9)}
        self.rows.setdefault(name, []).append(row)


def sync(directory: Path, *, drops: bool = False) -> None:
    """``drops``: out of the page cache as well."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError), Path(folder, name).open("rb") as file:  # Retention may go on.
                os.fsync(file.fileno())
                if drops:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write_parts(path: Path, size: int) -> None:
    """O_DIRECT, by two threads."""
    part = mmap.mmap(-1, PART)
    part.write(os.urandom(1 << 20) * (PART >> 20))
    with ThreadPoolExecutor(2) as threads:
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
        list(threads.map(lambda at: os.pwrite(file, part, at), range(0, size, PART)))
        os.fdatasync(file)
        os.close(file)


def read_parts(path: Path, size: int) -> None:
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffers = [mmap.mmap(-1, PART) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda at: os.preadv(file, [buffers[at // PART % 4]], at), range(0, size, PART)))
    os.close(file)


def run_way(way: str, directory: Path, mib: int) -> dict[str, Any]:
    """In a process of its own."""
    import torch

    torch.set_num_threads(1)
    elements = (mib << 20) // TENSORS // 4
    size = TENSORS * elements * 4
    clock = Clock(size)
    if way == "floor":
        source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
        path = directory / "file"
        for _ in range(3):
            clock.measure("memcpy", lambda: np.copyto(target, source))
            clock.measure("save", lambda: write_parts(path, size))
            clock.measure("load", lambda: read_parts(path, size))
        return {"rows": clock.rows, "size": size, "extra": 0}
    state = {f"layer{i:03}.weight": torch.full((elements,), float(i)) for i in range(TENSORS)}
    like = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    before = resident()
    save, load, close = WAYS[way](directory, state, like)
    for step in range(1, 4):
        clock.measure("first save" if step == 1 else "save", lambda: save(step))  # noqa: B023
    extra = resident() - before
    sync(directory, drops=True)
    for name in ("cold load", "load"):
        clock.measure(name, load)
    assert all(torch.equal(a, b) for a, b in zip(state.values(), like.values(), strict=True))
    close()
    return {"rows": clock.rows, "size": size, "extra": extra}


def headrace_way(directory: Path, state: Any, like: Any, memory: str = "4GiB") -> Any:
    from headrace.checkpoint import Checkpointer

    checkpointer = Checkpointer(directory / "run", memory=memory, keep=1)
    return (
        lambda step: checkpointer.save(step, state).result,
        lambda: checkpointer.load(into=like),
        checkpointer.close,
    )


def headrace_small_way(directory: Path, state: Any, like: Any) -> Any:
    return headrace_way(directory, state, like, "256MiB")


def torch_way(directory: Path, state: Any, like: Any) -> Any:
    import torch

    def save(_: int) -> None:
        torch.save(state, directory / "file.pt")
        sync(directory)

    def load() -> None:
        for name, tensor in torch.load(directory / "file.pt", weights_only=True).items():
            like[name].copy_(tensor)

    return save, load, lambda: None


def safetensors_way(directory: Path, state: Any, like: Any) -> Any:
    from safetensors.torch import load_file, save_file

    def save(_: int) -> None:
        save_file(state, directory / "file.safetensors")
        sync(directory)

    def load() -> None:
        for name, tensor in load_file(directory / "file.safetensors").items():
            like[name].copy_(tensor)

    return save, load, lambda: None


def dcp_headrace_way(directory: Path, state: Any, like: Any) -> Any:
    import torch.distributed as dist
    from torch.distributed import checkpoint as dcp

    from headrace.checkpoint.dcp import Reader, Writer

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    writer, reader = Writer(directory / "run", memory="4GiB"), Reader(directory / "run")
    return (
        lambda _: dcp.async_save(state, storage_writer=writer).result,
        lambda: dcp.load(like, storage_reader=reader),
        dist.destroy_process_group,
    )


def dcp_way(directory: Path, state: Any, like: Any) -> Any:
    import torch.distributed as dist
    from torch.distributed import checkpoint as dcp

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    last = directory / "none"

    def save(step: int) -> Any:
        nonlocal last
        shutil.rmtree(last, ignore_errors=True)
        last = directory / f"step{step}"
        writer = dcp.FileSystemWriter(last, thread_count=4, sync_files=True)
        return dcp.async_save(state, storage_writer=writer).result

    def load() -> None:
        dcp.load(like, storage_reader=dcp.FileSystemReader(last))

    return save, load, dist.destroy_process_group


WAYS: dict[str, Callable[..., Any]] = {
    "headrace": headrace_way,
    "headrace, 256 MiB": headrace_small_way,
    "torch.save": torch_way,
    "DCP, async_save": dcp_way,
    "DCP, async_save, headrace's Writer": dcp_headrace_way,
    "safetensors": safetensors_way,
}


def in_process(*arguments: str) -> Any:
    run = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])


def measure_state(directory: Path, mib: int, rounds: int) -> None:
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    extra: dict[str, float] = {}
    size = 0
    for _ in range(rounds):
        for way in ("floor", *WAYS):
            with tempfile.TemporaryDirectory(dir=directory) as scratch:
                report = in_process("--way", way, "--directory", scratch, "--mib", str(mib))
            size, extra[way] = report["size"], report["extra"] / 1e9
            for name, rows in report["rows"].items():
                found.setdefault(way, {}).setdefault(name, []).extend(rows)
    print(f"\nstate of {size / 1e9:.2f} GB, {TENSORS} tensors; medians of {rounds} processes")
    print(f"{'':20} {'':10} {'blocked s':>10} {'GB/s':>7} {'spread':>13} {'CPU s/GB':>9} {'memory +GB':>11}")
    for way, parts in found.items():
        for name, rows in parts.items():
            blocked, seconds, used = (
                statistics.median(row[key] for row in rows) for key in ("blocked", "seconds", "cpu")
            )
            rates = sorted(size / 1e9 / row["seconds"] for row in rows)
            print(
                f"{way:20} {name:10} {blocked:10.3f} {size / 1e9 / seconds:7.2f} {rates[0]:6.2f}-{rates[-1]:<6.2f} {used:9.3f} {extra[way]:11.2f}"
            )


def measure_store(directory: Path, mib: int, rounds: int) -> None:
    import headrace as hr
    from headrace.checkpoint import Checkpointer

    size = mib << 20
    state = {f"t{i}": np.full(size // TENSORS // 4, i, np.float32) for i in range(TENSORS)}
    code = (
        "import sys, headrace.sim as s\n"
        "with s.Server(sys.argv[1]) as server:\n"
        "    print(server.endpoint, server.access_key, server.secret_key, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    clock = Clock(size)
    like = {name: np.zeros_like(array) for name, array in state.items()}
    with tempfile.TemporaryDirectory(dir=directory) as root:
        Path(root, "b").mkdir()
        server = subprocess.Popen(
            [sys.executable, "-c", code, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert server.stdin
        assert server.stdout
        keys = ("endpoint", "access_key", "secret_key")
        where = dict(zip(keys, server.stdout.readline().split(), strict=True))
        part, whole = bytes(PART), np.zeros(size, np.uint8)
        with (
            hr.Store("s3://b", memory="2GiB", **where) as store,
            Checkpointer("s3://b/run", memory="2GiB", keep=1, **where) as checkpointer,
            ThreadPoolExecutor(16) as threads,
        ):

            def put() -> None:
                list(threads.map(lambda i: store.put(f"plain/{i}", part), range(size // PART)))

            for step in range(1, rounds + 2):
                clock.measure("puts of 16 MiB", put)
                clock.measure("put in parts", lambda: store.put("whole", whole))
                clock.measure("save", lambda: checkpointer.save(step, state).result)  # noqa: B023
                clock.measure("load", lambda: checkpointer.load(into=like))
        server.stdin.close()
        server.wait()
    print(f"\nto a simulator on loopback, {size / 1e9:.2f} GB; medians of {rounds}, without the first")
    for name, rows in clock.rows.items():
        row = {key: statistics.median(each[key] for each in rows[1:]) for key in rows[0]}
        print(
            f"{name:20} blocked {row['blocked']:.3f} s, {size / 1e9 / row['seconds']:.2f} GB/s, {row['cpu']:.3f} CPU s/GB"
        )


def measure_manifest(tensors: int = 100_000, ranks: int = 1024) -> None:
    from headrace.checkpoint.manifest import DataFile, Manifest
    from headrace.checkpoint.plan import Had, make_plan

    rows, columns = 4, 1024
    shape = [ranks * rows, columns]
    arrays = [[f"layers.{n}.weight", "torch", "BF16", shape, 0] for n in range(tensors)]
    said = [Had(arrays, [[[[rank * rows, 0], [rows, columns]]]]) for rank in range(ranks)]
    begin = time.perf_counter()
    plan = make_plan(said)
    plan.of_rank(0)
    planned = time.perf_counter()
    files = [DataFile(f"saves/x/{rank:05}", 1 << 30, 1, f"i{rank}", 2, tensors) for rank in range(ranks)]
    tree = {"dict": [[name.name, {"array": name.name}] for name in plan.arrays]}
    manifest = Manifest(1, "000001-000000000001-00000000", ranks, "", {}, tree, plan.arrays, files, 1)
    data = manifest.encode()
    encoded = time.perf_counter()
    again = Manifest.decode(data, "manifest")
    opened = time.perf_counter()
    assert len(again.arrays) == tensors
    print(
        f"\nmanifest of {tensors:,} tensors x {ranks:,} ranks: {len(data) / 1e6:.1f} MB; planned in {planned - begin:.2f} s, "
        f"written in {encoded - planned:.2f} s, opened in {1000 * (opened - encoded):.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on the disk that is measured")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="state,store,manifest")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        print(json.dumps(run_way(args.way, args.directory, args.mib)))
        return
    only = args.only.split(",")
    if "state" in only:
        measure_state(args.directory, args.mib, args.rounds)
    if "store" in only:
        measure_store(args.directory, args.mib, args.rounds)
    if "manifest" in only:
        measure_manifest()


if __name__ == "__main__":
    main()
