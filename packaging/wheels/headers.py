"""Headers of each Python that a wheel is compiled for: of any machine, without the Python."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

from apt import Apt, BuildError, digest_of, run
from toolchain import ARCHITECTURES, Toolchain


@dataclass(frozen=True)
class Target:
    """One wheel: its tags, and the Python whose headers it is compiled with."""

    python_tag: str
    abi_tag: str
    headers_version: str

    @property
    def name(self) -> str:
        return self.python_tag

    @property
    def is_stable(self) -> bool:
        return self.abi_tag == "abi3"


# The stable ABI of 3.12 serves all that came after; what it leaves out of newer headers, the compiler does
# not see.
TARGETS = [
    Target("cp310", "cp310", "3.10"),
    Target("cp311", "cp311", "3.11"),
    Target("cp312", "abi3", "3.13"),
]

# Debian has no Python 3.10: from the jar that brings it to Java programs. Its pyconfig.h, of x86-64, says
# nothing that is not so on aarch64 too: both are LP64 and little-endian.
JAR = "org.bytedeco:cpython:3.10.8-1.5.8:jar:linux-x86_64"
JAR_SHA256 = "2f101b1aa06effdbda3c318c1728b13f22b571707c7b7704abaf5d19a33aa981"


def folders_of(target: Target, chain: Toolchain, apt: Apt) -> list[Path]:
    """The folders to compile with. Raises BuildError when the headers cannot be had."""
    into = chain.root / "headers" / target.headers_version
    if target.headers_version == "3.10":
        return [_of_interpreter("3.10") or _of_jar(apt.downloads, into)]
    (package,) = apt.files(f"libpython{target.headers_version}-dev:{ARCHITECTURES[chain.arch]}")
    if not into.exists():
        into.parent.mkdir(parents=True, exist_ok=True)
        run(["dpkg-deb", "--extract", str(package), str(into)])
    return [into / f"usr/include/python{target.headers_version}", into / "usr/include"]


def _of_interpreter(version: str) -> Path | None:
    """Those of this machine's own Python of that version."""
    program = shutil.which(f"python{version}")
    if program is None:
        return None
    ask = [program, "-c", "import sysconfig; print(sysconfig.get_path('include'))"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)  # a shim may lead nowhere
    folder = Path(done.stdout.strip())
    return folder if done.returncode == 0 and (folder / "Python.h").exists() else None


def _of_jar(downloads: Path, into: Path) -> Path:
    jar = downloads / "cpython-3.10.jar"
    if not jar.exists() or digest_of(jar) != JAR_SHA256:
        _download_jar(jar)
    folder = into / "org/bytedeco/cpython/linux-x86_64/include/python3.10"
    if not folder.exists():
        with zipfile.ZipFile(jar) as archive:
            names = [name for name in archive.namelist() if "/include/python3.10/" in name]
            archive.extractall(into, names)
    return folder


def _download_jar(jar: Path) -> None:
    if shutil.which("mvn") is None:
        raise BuildError("no headers of Python 3.10: install python3.10-dev where there is one, else maven")
    get = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
    jar.parent.mkdir(parents=True, exist_ok=True)
    run(["mvn", "-q", "-B", get, f"-Dartifact={JAR}", f"-DoutputDirectory={jar.parent}"])
    (got,) = jar.parent.glob("cpython-3.10.*-linux-x86_64.jar")
    if digest_of(got) != JAR_SHA256:
        raise BuildError(f"{got} is not the file that headers.py names")
    got.rename(jar)
