"""mosaicml-streaming's own tests, from its source distribution, against itself or against
headrace.compat.streaming.

    python tests/peers/mosaic_tests.py original|headrace [arguments of pytest]

The tests are taken from ``$HEADRACE_CACHE/peers`` (``tools/setup test`` puts them there) and run in a
temporary directory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "0.13.0"
HERE = Path(__file__).resolve().parent / "mosaic"
CACHE = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
SOURCE = CACHE / "peers" / f"mosaicml_streaming-{VERSION}" / "tests"

# What has a public name: run against both.
FILES = (
    "test_array.py",
    "test_compression.py",
    "test_distributed.py",
    "test_eviction.py",
    "test_hashing.py",
    "test_laziness.py",
    "test_local.py",
    "test_mixing.py",
    "test_reader.py",
    "test_shared.py",
    "test_stream.py",
    "test_streaming.py",
    "test_unsafe_types.py",
    "test_util.py",
    "test_writer.py",
)
# Left out of these, with the reason in the README: they call what is inside of mosaicml-streaming.
PRIVATE = (
    *(
        f"tests/test_compression.py::Test{name}"
        for name in ("Brotli", "Bzip2", "Gzip", "Snappy", "Zstandard")
    ),
    "tests/test_compression.py::test_is_compression",
    "tests/test_compression.py::test_success_get_compression_extension",
    "tests/test_compression.py::test_invalid_compression_extension",
    "tests/test_compression.py::test_compress",
    "tests/test_compression.py::test_decompress",
    "tests/test_shared.py::test_get_shm_prefix",
    "tests/test_shared.py::test_same_local_remote_none",
    "tests/test_shared.py::test_shared_array_size_is_integer",
    "tests/test_shared.py::test_check_and_find_skips_filelock_conflict",
    "tests/test_shared.py::test_shared_memory_permission_error",
    "tests/test_util.py::test_format_remote_index_files",
)
# Need pyspark, pandas and Java.
SPARK = ("tests/test_util.py::test_merge_index_from",)

SETTINGS = """[pytest]
addopts = -p no:cacheprovider -m "not daily and not remote" --tb=short
markers =
    world_size(count)
    daily
    remote
"""
# pytest 9 refuses a mark on a fixture, which never did anything.
MARKED_FIXTURE = re.compile(r"^@pytest\.mark\.usefixtures\([^)]*\)\n(?=@pytest\.fixture)", re.M)


def stage(directory: Path) -> None:
    """Copies the tests, and what their source distribution leaves out, below a directory."""
    tests = directory / "tests"
    (tests / "common").mkdir(parents=True)
    for path in SOURCE.glob("test_*.py"):
        (tests / path.name).write_text(MARKED_FIXTURE.sub("", path.read_text()))
    for path in (HERE / "common").glob("*.py"):
        shutil.copy(path, tests / "common")
    shutil.copy(HERE / "peer_conftest.py", tests / "conftest.py")
    for package in (tests, tests / "common"):
        (package / "__init__.py").touch()
    (directory / "pytest.ini").write_text(SETTINGS)


def run(package: str, arguments: list[str], seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Runs pytest over the staged tests."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        stage(root)
        paths = [str(HERE / "shim")] if package == "headrace" else []
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(root),
            "HEADRACE_ORDER_CACHE": str(root / "orders"),
        }
        command = [sys.executable, "-m", "pytest", "-q", "--basetemp", str(root / "tmp"), *arguments]
        return subprocess.run(
            command, cwd=root, env=environment, text=True, capture_output=True, timeout=seconds
        )


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("original", "headrace"):
        sys.exit(__doc__)
    done = run(sys.argv[1], sys.argv[2:])
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    sys.exit(done.returncode)
