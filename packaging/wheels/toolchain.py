"""zig's clang, libc++ and glibc stubs as a compiler for another machine and for a glibc older than ours."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

GLIBC = (2, 28)  # RHEL 8, Debian 10, Ubuntu 18.10 and all newer
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as Linux and as Debian call them
FLAGS = "-O2 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections -fno-sanitize=undefined"

CMAKE = """\
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {arch})
set(CMAKE_C_COMPILER {bin}/cc)
set(CMAKE_CXX_COMPILER {bin}/c++)
set(CMAKE_AR {bin}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB {bin}/ranlib CACHE FILEPATH "")
set(CMAKE_C_COMPILER_AR {bin}/ar)
set(CMAKE_C_COMPILER_RANLIB {bin}/ranlib)
set(CMAKE_CXX_COMPILER_AR {bin}/ar)
set(CMAKE_CXX_COMPILER_RANLIB {bin}/ranlib)
set(CMAKE_C_FLAGS_INIT "{flags}")
set(CMAKE_CXX_FLAGS_INIT "{flags}")
# Nothing of the machine that builds: libraries, headers and packages come from the prefix alone.
set(CMAKE_FIND_ROOT_PATH {prefix})
set(CMAKE_PREFIX_PATH {prefix})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{{PKG_CONFIG_LIBDIR}} {prefix}/lib/pkgconfig)
set(ENV{{PKG_CONFIG_PATH}} "")
"""


@dataclass(frozen=True)
class Toolchain:
    """Compiles for one machine; installs libraries into ``prefix``."""

    arch: str
    root: Path

    @property
    def prefix(self) -> Path:
        return self.root / "prefix"

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def file(self) -> Path:
        return self.root / "toolchain.cmake"

    @property
    def platform(self) -> str:
        """The platform tag of its wheels."""
        return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.arch}"

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{zig_version()} {self._target} {FLAGS} {CMAKE}".encode()).hexdigest()

    @property
    def _target(self) -> str:
        return f"{self.arch}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """For configure scripts and makefiles."""
        return {
            **os.environ,
            "CC": str(self.bin / "cc"),
            "CXX": str(self.bin / "c++"),
            "AR": str(self.bin / "ar"),
            "RANLIB": str(self.bin / "ranlib"),
            "CFLAGS": FLAGS,
            "CXXFLAGS": FLAGS,
            # Which ccache cannot tell from our compilers' names and times.
            "CCACHE_COMPILERTYPE": "clang",
            "CCACHE_COMPILERCHECK": f"string:zig {zig_version()} {self._target}",
            "PKG_CONFIG_LIBDIR": str(self.prefix / "lib/pkgconfig"),
        }

    def write(self) -> None:
        """Puts the compilers and CMake's description of them into ``root``; leaves alone what is there
        already."""
        self.bin.mkdir(parents=True, exist_ok=True)
        (self.prefix / "lib/pkgconfig").mkdir(parents=True, exist_ok=True)
        for name in ("cc", "c++"):
            _write_program(self.bin / name, f'exec {_zig()} {name} -target {self._target} "$@"')
        for name in ("ar", "ranlib"):
            _write_program(self.bin / name, f'exec {_zig()} {name} "$@"')
        _write(self.file, CMAKE.format(arch=self.arch, bin=self.bin, prefix=self.prefix, flags=FLAGS))


def zig_version() -> str:
    import importlib.metadata

    return importlib.metadata.version("ziglang")


def _zig() -> Path:
    import ziglang  # in the venv that build.py runs in

    return Path(next(iter(ziglang.__path__)), "zig")


def libcxx_licence() -> Path:
    """Of LLVM's runtime, which is linked in: libc++, libc++abi, libunwind."""
    return _zig().parent / "lib/libcxx/LICENSE.TXT"


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:  # a new time would make every object stale
        path.write_text(text)


def _write_program(path: Path, line: str) -> None:
    _write(path, f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
