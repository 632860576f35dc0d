#!/usr/bin/env python3
"""Checkpoints: Headrace beside torch.save, torch's distributed checkpoint (DCP) and other libraries.

    bench/peers/checkpoints.py [--directory DIR] [--mib 2048] [--rounds 3] [--only state,store,put,manifest]

`state`: a state of that many MiB in 64 tensors of float32 on the CPU, one rank, to a directory. Each run is a
process of its own, ways take turns; it saves three times and loads twice. "first": the first save of a
process, "save": the others. "blocked": until the state may change; GB/s until it is durable (files are synced
for who does not sync them). "load": into a state that is there, files dropped from the page cache before the
first ("cold") and warm the second time. `floor`: one memcpy of the state into memory that was touched before,
its CRC32C, one write of it as files are written, one with O_DIRECT by two threads, and one read; and what fio
says of the directory (sequential, direct=1). Below the table each way's blocking is set against the memcpy,
and its CPU against the CRC32C.
--warm, for a directory in memory: as much as a save writes is written there, and deleted, right before each
save. Else it pays for memory that the host has not given yet; of a virtual machine's that is more than all
else. `store`: the same to a simulator in another process, which keeps files in --directory (in /dev/shm its
disk is out of the way).
`put`: Headrace, one put of as many bytes in parts, and plain puts of the same parts, to such a simulator, and
gets of them, whole and of the parts, beside loads. It makes MD5s, and puts the parts of an upload together by
copying them, for which a store makes nobody wait: the put in parts is what a save compares with.
`manifest`: 100,000 tensors over 1,024 ranks, of one layout and of many: to plan, to write, and to open for
one rank, with the index of what it has written.
CPU is user and system time of the processes that save. --path DIR: where Python finds peers that are not in
its venv; --ways NAME,NAME: only those; ways whose library is missing are left out.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from checkpoint_ways import TO_DIRECTORIES, TO_STORES, sync

TENSORS = 64
PART = 16 << 20
BUCKET = "s3://b"


def cpu() -> float:
    """Seconds of this process and of those that it has started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ticks = sum(_ticks(pid) for pid in _descendants(os.getpid()))
    return sum(each.ru_utime + each.ru_stime for each in used) + ticks / os.sysconf("SC_CLK_TCK")


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _ticks(pid: int) -> int:
    with suppress(OSError):
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return 0


def resident() -> int:
    """Peak bytes of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


class Clock:
    def __init__(self, size: int) -> None:
        self._size, self.rows = size, {}  # type: int, dict[str, list[dict[str, float]]]

    def add(self, name: str, seconds: float, used: float) -> None:
        """What somebody else has measured; ``used``: CPU seconds."""
        row = {"blocked": seconds, "seconds": seconds, "cpu": used / (self._size / 1e9)}
        self.rows.setdefault(name, []).append(row)

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


def write_plainly(path: Path, data: Any) -> None:
    """As most libraries do; by one thread."""
    with path.open("wb") as file:
        for at in range(0, len(data), PART):
            file.write(data[at : at + PART])
        os.fsync(file.fileno())


def warm(directory: Path, size: int) -> None:
    """Has so much memory touched that a file in it takes."""
    path, part = directory / "warm", bytes(PART)
    with path.open("wb") as file:
        for at in range(0, size, PART):
            file.write(part[: size - at])
    path.unlink()


def measure_fio(clock: Clock, path: Path, size: int) -> None:
    """Its sequential rates; nothing where it is missing, or cannot do direct=1 there."""
    for name, way in (("fio write", "write"), ("fio read", "read")):
        command = ["fio", "--name=x", f"--filename={path}", f"--rw={way}", f"--size={size}", "--bs=4M"]
        command += [
            "--direct=1",
            "--ioengine=libaio",
            "--iodepth=16",
            "--end_fsync=1",
            "--output-format=json",
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return
        (job,) = json.loads(done.stdout[done.stdout.index("{") :])["jobs"]
        seconds = size / job[way]["bw_bytes"]
        clock.add(name, seconds, seconds * (job["usr_cpu"] + job["sys_cpu"]) / 100)


def run_way(kind: str, way: str, place: Path, mib: int, *, warms: bool) -> dict[str, Any]:
    """In a process of its own. ``place``: a directory, or (of a store's ways) a bucket's URL."""
    import torch

    torch.set_num_threads(1)
    elements = (mib << 20) // TENSORS // 4
    size = TENSORS * elements * 4
    clock = Clock(size)
    if way == "floor":
        measure_floor(clock, place, size, warms=warms)
        return {"rows": clock.rows, "size": size, "extra": 0}
    state = {f"layer{i:03}.weight": torch.full((elements,), float(i)) for i in range(TENSORS)}
    like = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    before = resident()
    try:
        save, load, close = (
            TO_DIRECTORIES[way](place, state, like)
            if kind == "state"
            else TO_STORES[way](BUCKET, state, like)
        )
    except ImportError as error:
        return {"missing": str(error)}
    for step in range(1, 4):
        if warms:
            warm(place, size)
        clock.measure("first save" if step == 1 else "save", lambda: save(step))  # noqa: B023
    extra = resident() - before
    if kind == "state":
        sync(place, drops=True)
    for name in ("cold load", "load"):
        clock.measure(name, load)
    assert all(torch.equal(a, b) for a, b in zip(state.values(), like.values(), strict=True))
    close()
    return {"rows": clock.rows, "size": size, "extra": extra}


def measure_floor(clock: Clock, place: Path, size: int, *, warms: bool) -> None:
    from headrace import _native

    source, target, path = np.ones(size, np.uint8), np.ones(size, np.uint8), place / "file"
    for _ in range(3):
        clock.measure("memcpy", lambda: np.copyto(target, source))
        clock.measure("crc32c", lambda: _native.crc32c(source))
        path.unlink(missing_ok=True)
        if warms:
            warm(place, size)
        clock.measure("write", lambda: write_plainly(path, source))
        clock.measure("save", lambda: write_parts(path, size))
        clock.measure("load", lambda: read_parts(path, size))
    path.unlink()
    measure_fio(clock, path, size)


def in_process(*arguments: str, **environment: str) -> Any:
    run = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        sys.exit(run.stderr)
    return next(json.loads(line) for line in run.stdout.splitlines()[::-1] if line.startswith("{"))


@contextmanager
def simulator(directory: Path) -> Iterator[dict[str, str]]:
    """In another process, with one bucket, b. Gives what the environment names it by."""
    code = (
        "import sys, headrace.sim as s\n"
        "with s.Server(sys.argv[1]) as server:\n"
        "    print(server.endpoint, server.access_key, server.secret_key, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with tempfile.TemporaryDirectory(dir=directory) as root:
        Path(root, "b").mkdir()
        command = [sys.executable, "-c", code, root]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin
            assert server.stdout
            keys = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
            named = dict(zip(keys, server.stdout.readline().split(), strict=True))
            yield named | {"AWS_REGION": "us-east-1", "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}
            server.stdin.close()


def measure_ways(kind: str, ways: list[str], directory: Path, mib: int, rounds: int, *, warms: bool) -> None:
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    extra: dict[str, float] = {}
    missing: dict[str, str] = {}
    size = 0
    for _ in range(rounds):
        for way in ways:
            with ExitStack() as opened:
                environment = opened.enter_context(simulator(directory)) if kind == "store" else {}
                scratch = opened.enter_context(tempfile.TemporaryDirectory(dir=directory))
                options = ["--kind", kind, "--way", way, "--directory", scratch, "--mib", str(mib)]
                options += ["--warm"] if warms else []
                report = in_process(*options, **environment)
            if "missing" in report:
                missing[way] = report["missing"]
                continue
            size, extra[way] = report["size"], report["extra"] / 1e9
            for name, rows in report["rows"].items():
                found.setdefault(way, {}).setdefault(name, []).extend(rows)
    where = "a directory" if kind == "state" else "a simulator on loopback"
    print(f"\n{size / 1e9:.2f} GB to {where}, {TENSORS} tensors; medians of {rounds} processes")
    print(f"{'':40} {'':10} {'blocked s':>10} {'GB/s':>7} {'spread':>13} {'CPU s/GB':>9} {'memory +GB':>11}")
    for way, parts in found.items():
        for name, rows in parts.items():
            blocked, seconds, used = (
                statistics.median(row[key] for row in rows) for key in ("blocked", "seconds", "cpu")
            )
            rates = sorted(size / 1e9 / row["seconds"] for row in rows)
            print(
                f"{way:40} {name:10} {blocked:10.3f} {size / 1e9 / seconds:7.2f} "
                f"{rates[0]:6.2f}-{rates[-1]:<6.2f} {used:9.3f} {extra[way]:11.2f}"
            )
    for way, why in missing.items():
        print(f"{way}: not here ({why})")
    if "floor" in found:
        compare_with_floor(found)


def compare_with_floor(found: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    def median(way: str, name: str, key: str) -> float:
        return statistics.median(row[key] for row in found[way][name])

    copy, crc = median("floor", "memcpy", "seconds"), median("floor", "crc32c", "cpu")
    print(f"\na memcpy takes {copy:.3f} s; a CRC32C of the same bytes {crc:.3f} CPU s/GB")
    for way in found:
        if way != "floor":
            times = [median(way, name, "blocked") / copy for name in ("first save", "save")]
            sums = f"; sums are {100 * crc / median(way, 'save', 'cpu'):.0f} % of its CPU"
            print(
                f"{way:40} blocked {times[0]:.2f} x the memcpy the first time, then {times[1]:.2f} x"
                + (sums if "headrace" in way else "")
            )


def measure_put(directory: Path, mib: int, rounds: int) -> None:
    import headrace as hr
    from headrace.checkpoint import Checkpointer

    size = mib << 20
    state = {f"t{i}": np.full(size // TENSORS // 4, i, np.float32) for i in range(TENSORS)}
    clock = Clock(size)
    like = {name: np.zeros_like(array) for name, array in state.items()}
    with simulator(directory) as environment:
        os.environ.update(environment)
        part, whole = bytes(PART), np.zeros(size, np.uint8)
        with (
            hr.Store(BUCKET, memory="2GiB") as store,
            Checkpointer(f"{BUCKET}/run", memory="2GiB", keep=1) as checkpointer,
            ThreadPoolExecutor(16) as threads,
        ):

            def put() -> None:
                list(threads.map(lambda i: store.put(f"plain/{i}", part), range(size // PART)))

            def get() -> None:
                for _ in threads.map(lambda i: len(store.get(f"plain/{i}")), range(size // PART)):
                    pass

            for step in range(1, rounds + 2):
                clock.measure("puts of 16 MiB", put)
                clock.measure("put in parts", lambda: store.put("whole", whole))
                clock.measure("save", lambda: checkpointer.save(step, state).result)  # noqa: B023
                clock.measure("gets of 16 MiB", get)
                clock.measure("get whole", lambda: len(store.get("whole")))
                clock.measure("load", lambda: checkpointer.load(into=like))
    print(f"\nto a simulator on loopback, {size / 1e9:.2f} GB; medians of {rounds}, without the first")
    medians = {
        name: {key: statistics.median(each[key] for each in rows[1:]) for key in rows[0]}
        for name, rows in clock.rows.items()
    }
    for name, row in medians.items():
        print(
            f"{name:20} blocked {row['blocked']:.3f} s, {size / 1e9 / row['seconds']:.2f} GB/s, "
            f"{row['cpu']:.3f} CPU s/GB"
        )
    for name, other in (("save", "put in parts"), ("save", "puts of 16 MiB"), ("load", "gets of 16 MiB")):
        share = medians[other]["seconds"] / medians[name]["seconds"]
        print(f"{name}: {100 * share:.0f} % of the rate of {other}")


def layouts_of(ranks: int, mixed: bool) -> list[tuple[list[int], Callable[[int], list[Any]]]]:
    """Shapes, and the boxes ([offsets, sizes]) that a rank has of each: rows of one matrix; or rows and
    columns of many, some of which fall on the ranks unevenly, and vectors that one rank has."""

    def rows(shape: list[int]) -> tuple[list[int], Callable[[int], list[Any]]]:
        return shape, lambda rank: _share(shape, 0, rank, ranks)

    def columns(shape: list[int]) -> tuple[list[int], Callable[[int], list[Any]]]:
        return shape, lambda rank: _share(shape, 1, rank, ranks)

    if not mixed:
        return [rows([4 * ranks, 1024])]
    wide = [rows([size, 1024]) for size in (4 * ranks, 5 * ranks, 3 * ranks + 7, ranks // 2, 11008)]
    tall = [columns([1024, size]) for size in (4 * ranks, 6 * ranks, 2 * ranks + 5, 11008)]
    whole = [([size], lambda _, size=size: [[[0], [size]]]) for size in (1024, 11008)]
    return wide + tall + whole  # type: ignore[operator]


def _share(shape: list[int], axis: int, rank: int, ranks: int) -> list[Any]:
    each = -(-shape[axis] // ranks)
    begin, end = (min(shape[axis], number * each) for number in (rank, rank + 1))
    offsets, sizes = [0, 0], list(shape)
    offsets[axis], sizes[axis] = begin, end - begin
    return [[offsets, sizes]] if end > begin else []


def measure_manifest(*, mixed: bool, tensors: int = 100_000, ranks: int = 1024) -> None:
    from headrace.checkpoint.manifest import DataFile, Manifest, Piece, decode_index, encode_index
    from headrace.checkpoint.plan import Had, make_plan

    known = layouts_of(ranks, mixed)
    arrays = [
        [f"layers.{n}.weight", "torch", "BF16", known[n % len(known)][0], n % len(known)]
        for n in range(tensors)
    ]
    said = [Had(arrays, [boxes(rank) for _, boxes in known]) for rank in range(ranks)]
    begin = time.perf_counter()
    plan = make_plan(said)
    mine = plan.of_rank(0)
    planned = time.perf_counter()
    files = [DataFile(f"saves/x/{rank:05}", 1 << 30, 1, f"i{rank}", 2, tensors, 3) for rank in range(ranks)]
    tree = {"dict": [[name.name, {"array": name.name}] for name in plan.arrays]}
    manifest = Manifest(1, "000001-000000000001-00000000", ranks, "", {}, tree, plan.arrays, files, 1)
    data = manifest.encode()
    encoded = time.perf_counter()
    index = encode_index(mine, [Piece(0, 4096 * n, 4096, b"sums") for n in range(len(mine))])
    opened = []
    again: Any = None
    pieces: Any = None
    for _ in range(5):
        del again, pieces  # Or their end would be timed.
        started = time.perf_counter()
        again = Manifest.decode(data, "manifest")
        read = time.perf_counter()
        pieces = decode_index(index, "index")
        opened.append((read - started, time.perf_counter() - read))
    assert len(again.arrays) == tensors
    assert pieces.piece(*mine[-1]).offset == 4096 * (len(mine) - 1)
    of_manifest, of_index = (1000 * statistics.median(times) for times in zip(*opened, strict=True))
    print(
        f"\nmanifest of {tensors:,} tensors x {ranks:,} ranks, {len(known)} layouts: {len(data) / 1e6:.1f} "
        f"MB; planned in {planned - begin:.2f} s, written in {encoded - planned:.2f} s; one rank's view "
        f"opened in {of_manifest + of_index:.0f} ms: {of_manifest:.0f} the manifest, {of_index:.0f} the "
        f"index of {len(mine):,} pieces"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on the disk that is measured")
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="state,store,put,manifest")
    parser.add_argument("--warm", action="store_true", help="touches the memory that saves take")
    parser.add_argument("--ways", default="", help="of state and store; default: all")
    parser.add_argument("--path", action="append", default=[], help="a directory of libraries")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        print(json.dumps(run_way(args.kind, args.way, args.directory, args.mib, warms=args.warm)))
        return
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *args.path]))
    only = args.only.split(",")
    for kind, known in (("state", ["floor", *TO_DIRECTORIES]), ("store", list(TO_STORES))):
        wanted = [way for way in known if not args.ways or way in args.ways.split(",")]
        if kind in only and wanted:
            measure_ways(
                kind, wanted, args.directory, args.mib, args.rounds, warms=args.warm and kind == "state"
            )
    if "put" in only:
        measure_put(args.directory, args.mib, args.rounds)
    if "manifest" in only:
        for mixed in (False, True):
            measure_manifest(mixed=mixed)


if __name__ == "__main__":
    main()
