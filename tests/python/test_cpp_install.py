"""What ``cmake --install`` gives: headers, a library and ``find_package(headrace)``. examples/cpp is built
against it as a project of its own, and its programs run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace import sim as simulator

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("HEADRACE_BUILD_DIR") or ROOT / "build" / "test")
VERSION = re.search(r"VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text().split("project(", 1)[1])[1]  # type: ignore[index]
COUNT = 50

pytestmark = pytest.mark.skipif(
    not (BUILD / "libheadrace.so").exists() or shutil.which("ninja") is None,
    reason=f"no libheadrace.so in {BUILD} (make build-test), or no ninja",
)


def run(*command: str | Path, status: int = 0, **options: object) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([str(word) for word in command], capture_output=True, timeout=250, **options)  # type: ignore[call-overload]
    assert done.returncode == status, (done.stdout + done.stderr).decode()
    return done  # type: ignore[no-any-return]


class Installed(NamedTuple):
    prefix: Path
    examples: Path  # their programs


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What was built is moved to another place after it was installed, as packages are."""
    root = tmp_path_factory.mktemp("cpp")
    run("cmake", "--install", BUILD, "--prefix", root / "made", "--component", "cpp", "--strip")
    prefix = (root / "made").rename(root / "moved")
    configure = ["cmake", "-S", ROOT / "examples" / "cpp", "-B", root / "build", "-G", "Ninja"]
    run(*configure, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
    run("ninja", "-C", root / "build")
    return Installed(prefix, root / "build")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    folder = tmp_path / "lines"
    folder.mkdir()
    (folder / "part-0.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(COUNT)))
    return folder


def test_the_target_alone_asks_for_cxx20(installed: Installed) -> None:
    targets = installed.prefix.glob("lib*/**/headraceTargets.cmake")
    assert 'INTERFACE_COMPILE_FEATURES "cxx_std_20"' in next(targets).read_text()
    assert "STANDARD" not in (ROOT / "examples" / "cpp" / "CMakeLists.txt").read_text()


def test_another_minor_version_is_not_found(installed: Installed, tmp_path: Path) -> None:
    major, minor, *_ = (int(part) for part in VERSION.split("."))
    project = (
        "cmake_minimum_required(VERSION 3.22)\nproject(p LANGUAGES NONE)\nfind_package(headrace {} "
        "REQUIRED)\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(project.format(f"{major}.{minor + 1}"))
    done = run("cmake", "-B", tmp_path / "b", tmp_path, f"-DCMAKE_PREFIX_PATH={installed.prefix}", status=1)
    assert VERSION.encode() in done.stderr


def test_every_header_is_there_and_compiles(installed: Installed, tmp_path: Path) -> None:
    ours = sorted(path.name for path in (ROOT / "include" / "headrace").glob("*.h"))
    assert sorted(path.name for path in (installed.prefix / "include" / "headrace").glob("*")) == ours
    source = tmp_path / "all.cc"
    source.write_text("".join(f"#include <headrace/{name}>\n" for name in ours))
    run("c++", "-std=c++20", "-fsyntax-only", f"-I{installed.prefix / 'include'}", source)


def test_only_public_names_are_shown(installed: Installed) -> None:
    library = next(installed.prefix.glob("lib*/**/libheadrace.so"))
    names = run("nm", "-DC", "--defined-only", library).stdout.decode()
    inner = set(re.findall(r"^\w+ \w (?:.* for )?headrace::([a-z_0-9]+)::", names, re.M)) - {"checkpoint"}
    assert not inner, f"name these namespaces in cmake/libheadrace.map: {sorted(inner)}"
    assert "headrace::Loader::create(" in names
    assert "nlohmann" not in names
    assert (
        "libheadrace.so." + ".".join(VERSION.split(".")[:2]) in run("readelf", "-d", library).stdout.decode()
    )


def test_pkg_config(installed: Installed) -> None:
    folder = next(installed.prefix.glob("lib*/**/pkgconfig"))
    said = run(
        "pkg-config", "--cflags", "--libs", "headrace", env=os.environ | {"PKG_CONFIG_PATH": str(folder)}
    )
    words = said.stdout.decode().split()
    assert "-std=c++20" in words
    assert "-lheadrace" in words
    include = next(Path(word[2:]) for word in words if word.startswith("-I"))
    assert (include / "headrace" / "store.h").exists()
    assert (Path(next(word[2:] for word in words if word.startswith("-L"))) / "libheadrace.so").exists()


def test_read_ranges(installed: Installed, s3: simulator.Server, buckets: Path, tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (buckets / "b" / "data.bin").write_bytes(data)
    ranges = [(299_990, 10), (0, 1), (70_000, 200_000)]
    program = installed.examples / "read_ranges"
    for url in ("s3://b", str(buckets / "b")):
        done = run(program, url, "data.bin", *(f"{offset}+{length}" for offset, length in ranges))
        assert done.stdout == b"".join(data[offset : offset + length] for offset, length in ranges)
    assert b"corrupt: GET" in run(program, "s3://b", "data.bin", "299990+11", status=1).stderr
    assert b"not_found: GET s3://b/none" in run(program, "s3://b", "none", "0+1", status=1).stderr
    assert b"7-9: no range; say OFFSET+LENGTH" in run(program, "s3://b", "data.bin", "7-9", status=1).stderr


def test_a_training_loop_goes_on_where_it_stopped(installed: Installed, lines: Path, tmp_path: Path) -> None:
    program, state = installed.examples / "train", tmp_path / "state.json"
    first = run(program, lines, state, "3").stdout.decode()
    rest = run(program, lines, state).stdout.decode()
    second_epoch = run(program, lines, state).stdout.decode()
    found = [
        [int(i) for line in part.splitlines() for i in line.split(" ids ")[1].split()]
        for part in (first, rest)
    ]
    assert len(found[0]) == 24
    assert sorted(found[0] + found[1]) == list(range(COUNT))
    assert "epoch 1 batch 0 " in second_epoch
    state.write_text("{}")
    assert b"invalid_argument: while reading" in run(program, lines, state, status=1).stderr


def test_a_store_of_ones_own(installed: Installed) -> None:
    total = 3 * 1000
    said = run(installed.examples / "own_store", "3", "1000").stdout.decode()
    assert said == f"{total} numbers, sum {total * (total - 1) // 2}\n"
