"""Limits of containers: threads by the quota, and a word about more memory than there is."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import _native
from headrace.base import machine

GIB = 1 << 30
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(autouse=True)
def nobody_was_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_has_warned", False)


@pytest.mark.parametrize(("limit", "ranks", "is_said"), [(GIB, 1, False), (GIB - 1, 1, True), (GIB, 2, True)])
def test_more_memory_than_there_is(
    few_numbers: Path, monkeypatch: pytest.MonkeyPatch, limit: int, ranks: int, is_said: bool
) -> None:
    monkeypatch.setattr(_native, "memory_limit", lambda: (limit, "/sys/fs/cgroup/memory.max"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    options: dict[str, Any] = {"batch_size": 10, "memory": "1GiB", "rank": 0, "world_size": ranks}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            hr.Loader(few_numbers, **options).close()
    said = [each for each in caught if "the kernel kills the process" in str(each.message)]
    assert len(said) == is_said
    for each in said:
        assert "memory.max" in str(each.message)
        assert f'memory="{limit // (2 * ranks) >> 20}MiB"' in str(each.message)
        assert each.filename == __file__


def test_the_machine_is_named_where_no_group_limits(
    few_numbers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "memory_limit", lambda: (GIB, ""))
    with pytest.warns(RuntimeWarning, match=r"more than the 1.0 GiB that this machine has"):
        hr.Loader(few_numbers, batch_size=10, memory="2GiB").close()


@contextmanager
def group(controller: str, **limits: int) -> Iterator[Path]:
    """A control group of version 1 with these limits. Skips where we may not make one."""
    directory = GROUPS / controller / f"headrace-test-{id(limits)}"
    try:
        directory.mkdir()
        for name, value in limits.items():
            (directory / f"{controller}.{name}").write_text(str(value))
    except OSError as error:
        pytest.skip(f"no control group of our own: {error}")
    try:
        yield directory
    finally:
        directory.rmdir()


def in_group(directory: Path, code: str) -> str:
    """What a process says that is in the group from its start."""
    script = f"open({str(directory / 'cgroup.procs')!r}, 'w').write('0')\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_quota_of_the_kernel() -> None:
    with group("cpu", cfs_period_us=100_000, cfs_quota_us=50_000) as directory:
        assert in_group(directory, "from headrace import _native; print(_native.available_cores())") == "1\n"


def test_a_memory_limit_of_the_kernel(few_numbers: Path) -> None:
    code = f"""
        import headrace as hr
        hr.Loader({str(few_numbers)!r}, batch_size=10, memory="3GiB").close()
    """
    with group("memory", limit_in_bytes=2 * GIB) as directory:
        said = in_group(directory, code)
    assert "memory=3.0 GiB is more than the 2.0 GiB that the control group of this process has" in said
