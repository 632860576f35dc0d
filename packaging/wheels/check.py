"""What a wheel must be, read from the file alone: size, what it needs of the system, what it shows to others.

Needs only the standard library: tests use it too, where no build tools are.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

LARGEST_BYTES = 12 << 20
# Of manylinux_2_28: what every glibc system has. Everything else must be inside.
SYSTEM_LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}  # fmt: skip  # noqa: E501


class BadWheelError(Exception):
    """Says what the wheel must not be."""


@dataclass(frozen=True)
class Facts:
    """Of a wheel and of the extension in it."""

    size_bytes: int
    needed: set[str]
    exported: set[str]
    glibc: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.size_bytes / (1 << 20):.1f} MiB, glibc {self.glibc[0]}.{self.glibc[1]}"


def facts_of(wheel: Path) -> Facts:
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        (name,) = [name for name in archive.namelist() if name.endswith(".so")]
        extension = archive.extract(name, folder)
        dynamic = _readelf("--dynamic", extension)
        symbols = _readelf("--dyn-syms", extension)
        versions = _readelf("--version-info", extension)
    return Facts(
        wheel.stat().st_size,
        set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)),
        set(re.findall(r"(?:GLOBAL|WEAK|UNIQUE)\s+DEFAULT\s+\d+ (\S+)", symbols)),
        max((int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", versions)),
    )


def check(wheel: Path) -> Facts:
    """Raises BadWheelError; or says what the wheel is."""
    facts = facts_of(wheel)
    promised = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    if promised is None:
        raise BadWheelError(f"{wheel.name}: no manylinux tag")
    if facts.size_bytes > LARGEST_BYTES:
        raise BadWheelError(f"{wheel.name}: {facts.size_bytes} bytes, more than {LARGEST_BYTES}")
    if strangers := facts.needed - SYSTEM_LIBRARIES:
        raise BadWheelError(f"{wheel.name}: needs {', '.join(sorted(strangers))} of the system")
    if facts.exported != {"PyInit__native"}:
        raise BadWheelError(
            f"{wheel.name}: shows {', '.join(sorted(facts.exported)[:10])}, not PyInit__native alone"
        )
    if facts.glibc > (int(promised[1]), int(promised[2])):
        raise BadWheelError(f"{wheel.name}: needs glibc {facts.glibc[0]}.{facts.glibc[1]}")
    return facts


def _readelf(what: str, path: str) -> str:
    return subprocess.run(
        ["readelf", "--wide", what, path], capture_output=True, text=True, check=True
    ).stdout
