"""Debian source and binary packages at pinned versions, checked against ``sources.lock``.

apt works here on lists of its own in the cache: nothing of the system's changes and nothing is installed. The
mirror is the one that the system uses; on a machine without Debian's, name one in HEADRACE_DEBIAN_MIRROR.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

LOCK = Path(__file__).with_name("sources.lock")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITES = ("trixie", "bookworm")  # Debian 13 and 12
CONFIGURATION = """\
Dir::State "{root}/state";
Dir::State::status "{root}/state/status";
Dir::State::lists "{root}/lists";
Dir::Etc::sourcelist "{root}/sources.list";
Dir::Etc::sourceparts "-";
Dir::Cache "{root}/cache";
APT::Sandbox::User "root";
APT::Architectures {{ "amd64"; "arm64"; }};
"""


class BuildError(Exception):
    """What stops a build, told to the user without a traceback."""


def run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """The output of ``command``; its end in the error when it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        end = "\n".join(done.stdout.splitlines()[-40:])
        raise BuildError(f"{' '.join(command)}\n  in {cwd or Path.cwd()} failed:\n{end}")
    return done.stdout


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass
class Lock:
    """``package version``, then ``  sha256  file`` for each of its files."""

    versions: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Lock:
        lock = cls()
        package = ""
        for line in LOCK.read_text().splitlines() if LOCK.exists() else []:
            if line.startswith("  "):
                digest, name = line.split()
                lock.files[package][name] = digest
            elif line and not line.startswith("#"):
                package, lock.versions[package] = line.split()
                lock.files[package] = {}
        return lock

    def write(self) -> None:
        lines = ["# What the wheels are built from; written by `build.py --update-lock`."]
        for package in sorted(self.versions):
            lines.append(f"{package} {self.versions[package]}")
            lines += [f"  {digest}  {name}" for name, digest in sorted(self.files[package].items())]
        LOCK.write_text("\n".join(lines) + "\n")


def system_mirrors() -> tuple[str, str]:
    """Where this system has Debian from, and its security updates (empty: none)."""
    chosen = os.environ.get("HEADRACE_DEBIAN_MIRROR")
    rows = run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(ORIGIN)"]).splitlines()
    debian = [row.split(" ", 2)[:2] for row in rows if row.endswith(" Debian")]
    main = chosen or next((uri for uri, codename in debian if "-" not in codename), "")
    security = next((uri for uri, codename in debian if codename.endswith("-security")), "")
    if not main:
        raise BuildError("this system's apt knows no Debian mirror; name one: HEADRACE_DEBIAN_MIRROR=URL")
    return main, security


def _newer_first(one: str, other: str) -> int:
    is_newer = subprocess.run(["dpkg", "--compare-versions", one, "gt", other], check=False).returncode == 0
    return -1 if is_newer else 1


class Apt:
    """Packages of Debian 13, and of 12 where 13 has none: headers of Python 3.11."""

    def __init__(self, cache: Path, update_lock: bool = False) -> None:
        self.root = cache / "apt"
        self.downloads = cache / "downloads"
        self.lock = Lock.read()
        self.update_lock = update_lock
        self._is_ready = False

    def _prepare(self) -> None:
        if self._is_ready:
            return
        for folder in ("state", "lists/partial", "cache/archives/partial"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "state/status").touch()
        (self.root / "apt.conf").write_text(CONFIGURATION.format(root=self.root))
        main, security = system_mirrors()
        signed = f"[signed-by={KEYRING}]"
        lines = [f"{kind} {signed} {main} {suite} main" for suite in SUITES for kind in ("deb", "deb-src")]
        if security:
            lines += [f"deb-src {signed} {security} {suite}-security main" for suite in SUITES]
        (self.root / "sources.list").write_text("\n".join(lines) + "\n")
        self._apt("apt-get", "update", "-q")
        self._is_ready = True

    def _apt(self, *command: str, cwd: Path | None = None) -> str:
        return run(list(command), cwd, {**os.environ, "APT_CONFIG": str(self.root / "apt.conf")})

    def files(self, package: str) -> list[Path]:
        """The package's files: a source package's, or the .deb of ``name:architecture``."""
        folder = self.downloads / package.replace(":", "_")
        if self.update_lock:
            shutil.rmtree(folder, ignore_errors=True)
        elif package not in self.lock.versions:
            raise BuildError(
                f"{LOCK.name} has no version of {package}: packaging/wheels/build.py --update-lock"
            )
        if not folder.exists() or not self._is_locked(package, folder):
            self._download(package, folder)
        return sorted(folder.iterdir())

    def _is_locked(self, package: str, folder: Path) -> bool:
        return {file.name: digest_of(file) for file in folder.iterdir()} == self.lock.files[package]

    def _download(self, package: str, folder: Path) -> None:
        self._prepare()
        if self.update_lock:
            self._download_newest(package, folder)
            return
        version = self.lock.versions[package]
        try:
            self._download_version(package, version, folder)
        except BuildError as why:
            raise BuildError(
                f"{why}\n{package} {version} is not to be had. If Debian has replaced that version by a "
                "newer one: packaging/wheels/build.py --update-lock"
            ) from None
        if not self._is_locked(package, folder):
            raise BuildError(f"the files of {package} in {folder} are not those that {LOCK.name} names")

    def _download_newest(self, package: str, folder: Path) -> None:
        """The newest that is there: a mirror may list what it does not have yet."""
        refused: BuildError | None = None
        for version in self._versions(package):
            try:
                self._download_version(package, version, folder)
            except BuildError as why:
                refused = why
                continue
            self.lock.versions[package] = version
            self.lock.files[package] = {file.name: digest_of(file) for file in folder.iterdir()}
            self.lock.write()
            return
        raise refused or BuildError(f"Debian has no package {package}")

    def _download_version(self, package: str, version: str, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        how = ["download"] if ":" in package else ["source", "--download-only"]
        self._apt("apt-get", *how, "-q", f"{package}={version}", cwd=folder)

    def _versions(self, package: str) -> list[str]:
        """Newest first, as apt lists them."""
        rows = [row.split("|") for row in self._apt("apt-cache", "madison", package).splitlines()]
        kind = "Packages" if ":" in package else "Sources"
        found = dict.fromkeys(version.strip() for _, version, where in rows if where.rstrip().endswith(kind))
        return sorted(found, key=functools.cmp_to_key(_newer_first))

    def unpack_source(self, package: str, into: Path) -> None:
        """The package's source tree with Debian's patches, which hold the security fixes."""
        (control,) = [file for file in self.files(package) if file.suffix == ".dsc"]
        shutil.rmtree(into, ignore_errors=True)
        into.parent.mkdir(parents=True, exist_ok=True)
        run(["dpkg-source", "--no-check", "--extract", str(control), str(into)])

    def closure(self, packages: list[str], suite: str, architecture: str) -> list[Path]:
        """The newest .deb files of ``packages`` and of what they depend on. For tests: not in the lock."""
        self._prepare()
        cache = self.root / "closures" / f"{suite}-{architecture}-{packages[0]}"
        (cache / "archives/partial").mkdir(parents=True, exist_ok=True)
        options = [
            f"APT::Architecture={architecture}",
            f"Dir::Cache={cache}",
            f"APT::Default-Release={suite}",
        ]
        command = ["apt-get", "install", "-q", "-y", "--download-only", "--no-install-recommends"]
        self._apt(*command, *(f"--option={option}" for option in options), *packages)
        return sorted((cache / "archives").glob("*.deb"))
