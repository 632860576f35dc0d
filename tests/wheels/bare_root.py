"""Debian systems with a Python and nothing else, of this machine's kind or run by qemu: what a wheel may
count on.

Made of .deb files that apt fetches into the cache; nothing of this system changes. Commands run in them as
root of a user namespace, so anybody may.
"""

from __future__ import annotations

import platform
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from apt import Apt, run
from toolchain import ARCHITECTURES

# libstdc++ for numpy; a wheel of ours that needs it is found out by check.py.
PACKAGES = ["python3", "libstdc++6"]
MERGED = ("bin", "lib", "lib64", "sbin")
MOUNTS = "mount --rbind /proc proc && mount --rbind /dev dev && mount -t tmpfs none tmp"
EMULATOR = "/emulator"


@dataclass(frozen=True)
class BareRoot:
    """One of them."""

    folder: Path
    python: str  # "3.11"
    arch: str

    def run(self, *arguments: str) -> str:
        """What its Python prints for ``arguments``; raises BuildError with all that was printed when it
        fails."""
        variables = ["LANG=C.UTF-8", "HOME=/tmp", "PATH=/usr/bin"]
        emulator = [EMULATOR] if self.arch != platform.machine() else []
        inside = ["env", "-i", *variables, shutil.which("chroot") or "/usr/sbin/chroot", ".", *emulator]
        script = f"{MOUNTS} && exec {shlex.join([*inside, f'/usr/bin/python{self.python}', *arguments])}"
        return run(["unshare", "--map-root-user", "--mount", "sh", "-c", script], self.folder)


def bare_root(apt: Apt, cache: Path, suite: str, arch: str) -> BareRoot:
    """Makes it unless the cache has it."""
    folder = cache / f"{suite}-{arch}"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _make(apt, folder, suite, arch)
        (folder / "ready").touch()
    (library,) = (folder / "usr/lib").glob("python3.*/")
    return BareRoot(folder, library.name.removeprefix("python"), arch)


def _make(apt: Apt, folder: Path, suite: str, arch: str) -> None:
    for name in MERGED:
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    for name in ("proc", "dev", "tmp"):
        (folder / name).mkdir()
    for package in apt.closure(PACKAGES, suite, ARCHITECTURES[arch]):
        run(["dpkg-deb", "--extract", str(package), str(folder)])
    if arch != platform.machine():
        _add_emulator(apt, folder, arch)


def _add_emulator(apt: Apt, folder: Path, arch: str) -> None:
    unpacked = folder.with_suffix(".emulator")
    for package in apt.closure(["qemu-user-static"], "bookworm", ARCHITECTURES[platform.machine()]):
        run(["dpkg-deb", "--extract", str(package), str(unpacked)])
    shutil.copy2(unpacked / f"usr/bin/qemu-{arch}-static", folder / EMULATOR.lstrip("/"))
    shutil.rmtree(unpacked)
