#!/usr/bin/env python3
"""How long a load takes by several processes of this machine, each reading what it needs, and sharing it.

bench/shared_loads.py [DIRECTORY] [--bytes 256MB] [--ranks 1,2,4,8] [--profile s3-standard] [--total 1GB]
[--rounds 3]
                      [--json]

A state of 16 matrices of float32, saved once by one process to a simulator in another; then loaded into
replicas (each rank wants all of it) and into columns (each rank a share of every row). Ways take turns;
medians of the slowest rank's time, and bytes of data files that the simulator has sent for each byte of the
state. The first load of a process, which makes connections, is left out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.base.units import parse_bytes
from headrace.checkpoint import Checkpointer, Group

MATRICES, COLUMNS = 16, 2048
WAYS = [(layout, share) for layout in ("replicas", "columns") for share in ("never", "auto")]
_SIMULATOR = (
    "import json, sys, headrace.sim as s\n"
    "with s.Server(sys.argv[1], profile=sys.argv[2], behaviour=json.loads(sys.argv[3])) as server:\n"
    "    print(server.endpoint, server.access_key, server.secret_key, flush=True)\n"
    "    sys.stdin.read()\n"
)


@contextmanager
def simulator(root: Path, profile: str, total: int) -> Iterator[dict[str, str]]:
    """In a process of its own; gives the options that lead there."""
    (root / "b").mkdir()
    behaviour = json.dumps({"total_bytes_per_s": total} if total else {})
    server = subprocess.Popen(
        [sys.executable, "-c", _SIMULATOR, str(root), profile, behaviour],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin
    assert server.stdout
    keys = ("endpoint", "access_key", "secret_key")
    try:
        yield dict(zip(keys, server.stdout.readline().split(), strict=True))
    finally:
        server.stdin.close()
        server.wait()


def sent_bytes(where: dict[str, str]) -> int:
    with urllib.request.urlopen(f"{where['endpoint']}/_headrace/stats") as answer:
        objects = json.load(answer)["objects"]
    return sum(each["bytes"] for name, each in objects.items() if name.endswith(".safetensors"))


def whole_state(size: int, fill: float = 0.0) -> dict[str, Any]:
    import torch

    rows = size // 4 // COLUMNS // MATRICES
    return {f"matrix{i}": torch.full((rows, COLUMNS), fill and fill + i) for i in range(MATRICES)}


def placed(state: dict[str, Any], layout: str, world: int) -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    if layout == "replicas":
        return state
    mesh = init_device_mesh("cpu", (world,))
    return {
        name: distribute_tensor(value, mesh, [Shard(1)], src_data_rank=None) for name, value in state.items()
    }


def run_rank(rank: int, world: int, store: str, args: argparse.Namespace, where: Any, out: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    rows = []
    for layout in ("replicas", "columns"):
        state = placed(whole_state(args.size), layout, world)
        for turn in range(args.rounds + 1):
            for share in ("never", "auto"):
                with Checkpointer("s3://b/run", memory="256MiB", share_reads=share, **where) as checkpointer:
                    dist.barrier()
                    before = sent_bytes(where) if rank == 0 else 0
                    dist.barrier()
                    begin = time.perf_counter()
                    checkpointer.load(into=state)
                    dist.barrier()
                    seconds = time.perf_counter() - begin
                    sent = sent_bytes(where) - before if rank == 0 else 0
                if turn > 0:
                    rows.append((layout, share, seconds, sent / args.size))
    if rank == 0:
        out.put(rows)
    dist.destroy_process_group()


def measure(world: int, args: argparse.Namespace, where: dict[str, str], scratch: Path) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    store = str(scratch / f"store{world}")
    ranks = [
        context.Process(target=run_rank, args=(rank, world, store, args, where, out)) for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    rows = out.get(timeout=600)
    for rank in ranks:
        rank.join()
    found = {}
    for layout, share in WAYS:
        some = [row[2:] for row in rows if row[:2] == (layout, share)]
        seconds, sent = (statistics.median(each[i] for each in some) for i in (0, 1))
        found[f"{layout}, {share}"] = {"seconds": seconds, "sent": sent}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "directory", type=Path, nargs="?", help="of the simulator's files; default: a temporary one"
    )
    parser.add_argument("--bytes", default="256MB", help="of the state")
    parser.add_argument("--ranks", default="1,2,4,8")
    parser.add_argument("--profile", default="s3-standard")
    parser.add_argument("--total", help="bytes a second that the server gives; default: no limit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.directory and not args.directory.is_dir():
        parser.error(f"{args.directory} is no directory")
    total = parse_bytes(args.total, "--total") if args.total else 0
    args.size = parse_bytes(args.bytes) // (4 * COLUMNS * MATRICES) * (4 * COLUMNS * MATRICES)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=args.directory) as root:
        (buckets := Path(root, "buckets")).mkdir()
        with simulator(buckets, args.profile, total) as where:
            with Checkpointer("s3://b/run", group=Group(), **where) as checkpointer:
                checkpointer.save(1, whole_state(args.size, 1.0)).result()
            for world in map(int, args.ranks.split(",")):
                found[str(world)] = measure(world, args, where, Path(root))
    if args.json:
        print(json.dumps(found))
        return
    print(
        f"{args.size / 1e6:.0f} MB, {args.profile}: seconds of the slowest rank (bytes sent for each of the "
        "state)"
    )
    print(f"{'ranks':>5}" + "".join(f"{layout + ', ' + share:>22}" for layout, share in WAYS))
    for world, row in found.items():
        cells = (row[f"{layout}, {share}"] for layout, share in WAYS)
        print(f"{world:>5}" + "".join(f"{each['seconds']:>14.2f} ({each['sent']:.2f})" for each in cells))


if __name__ == "__main__":
    main()
