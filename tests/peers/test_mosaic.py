"""mosaicml-streaming's own tests against mosaicml-streaming and against headrace.compat.streaming: see the
README of this folder."""

from __future__ import annotations

import os
import re
import shutil

import mosaic_tests
import pytest

pytest.importorskip("streaming")
pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not mosaic_tests.SOURCE.is_dir(), reason="tools/setup test fetches mosaicml-streaming's tests"
)

IS_LONG = os.environ.get("HEADRACE_LONG_TESTS") == "1"
# Of each kind of thing, what takes little time.
QUICK = [
    "tests/test_stream.py",
    "tests/test_unsafe_types.py",
    "tests/test_mixing.py",
    "tests/test_hashing.py",
    "tests/test_reader.py",
    "tests/test_eviction.py::test_eviction_zip_keep[manual_shard_eviction]",
    "tests/test_eviction.py::test_eviction_nozip[cache_limit_too_low]",
]


def has_spark() -> bool:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return False
    return shutil.which("java") is not None


def run(package: str, paths: list[str]) -> dict[str, int]:
    """How many tests passed, failed, ... Shows what pytest said when one did not pass."""
    deselected = [*mosaic_tests.PRIVATE, *([] if has_spark() else mosaic_tests.SPARK)]
    done = mosaic_tests.run(package, [*(f"--deselect={name}" for name in deselected), *paths])
    counts = {
        name: int(count)
        for count, name in re.findall(r"(\d+) (passed|failed|errors?|skipped)", done.stdout.splitlines()[-1])
    }
    if done.returncode != 0:
        print(done.stdout[-20_000:], done.stderr[-2_000:])
    return counts


@pytest.mark.parametrize("package", ["original", "headrace"])
def test_a_quick_part_passes(package: str) -> None:
    if package == "original" and not IS_LONG:
        pytest.skip("the original's result is known: HEADRACE_LONG_TESTS=1 asks it again")
    counts = run(package, QUICK)
    assert counts.get("passed", 0) == 98
    assert set(counts) <= {"passed", "skipped"}


@pytest.mark.skipif(not IS_LONG, reason="minutes: HEADRACE_LONG_TESTS=1")
@pytest.mark.timeout(3000)
def test_all_pass_with_both() -> None:
    counts = {
        package: run(package, [f"tests/{name}" for name in mosaic_tests.FILES])
        for package in ("original", "headrace")
    }
    assert counts["headrace"] == counts["original"]
    assert set(counts["headrace"]) <= {"passed", "skipped"}
