#!/usr/bin/env python3
"""Builds the wheels of Headrace into dist/wheels: see README.md beside this file.

Runs in the venv that ``tools/setup wheels`` makes; ``make wheels`` does both.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from apt import Apt, BuildError
from check import check
from headers import TARGETS, Target, folders_of
from libraries import LIBRARIES, build_all
from toolchain import ARCHITECTURES, Toolchain
from wheel_file import REPOSITORY, Wheel, build

CACHE = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache/headrace") / "wheels"


def update_lock() -> None:
    """Takes the newest of every package."""
    apt = Apt(CACHE, update_lock=True)
    for library in LIBRARIES:
        apt.files(library.package)
    for architecture in ARCHITECTURES.values():
        for target in TARGETS:
            if target.headers_version != "3.10":
                apt.files(f"libpython{target.headers_version}-dev:{architecture}")


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One build at a time works in the cache; others wait."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_wheel(target: Target, chain: Toolchain, apt: Apt, jobs: int) -> None:
    started = time.monotonic()
    path = build(Wheel(target, chain, jobs), apt, REPOSITORY / "dist/wheels")
    print(f"{path.relative_to(REPOSITORY)}: {check(path)}, {time.monotonic() - started:.0f} s", flush=True)


def build_wheels(chain: Toolchain, targets: list[Target], jobs: int) -> None:
    apt = Apt(CACHE)
    chain.write()
    build_all(apt, chain, jobs)
    for target in targets:
        try:
            folders_of(target, chain, apt)
        except BuildError as why:
            print(f"left out {target.name} for {chain.arch}: {why}", file=sys.stderr)
            continue
        build_wheel(target, chain, apt, jobs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Builds the wheels of Headrace into dist/wheels.")
    names = [target.name for target in TARGETS]
    parser.add_argument(
        "--arch", nargs="+", choices=ARCHITECTURES, default=list(ARCHITECTURES), help="machines"
    )
    parser.add_argument(
        "--python", nargs="+", choices=names, default=names, help="Pythons; cp312 serves all newer ones"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    parser.add_argument(
        "--update-lock", action="store_true", help="take the newest libraries, write sources.lock"
    )
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.update_lock:
        update_lock()
        return
    for arch in args.arch:
        build_wheels(
            Toolchain(arch, CACHE / arch),
            [target for target in TARGETS if target.name in args.python],
            args.jobs,
        )


if __name__ == "__main__":
    try:
        with alone():
            main()
    except BuildError as why:
        sys.exit(f"wheels: {why}")
