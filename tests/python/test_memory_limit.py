"""The memory limit is a limit, whatever is decoded or inflated: a process that reads stays near it.

Quick: blocks of a few MiB. ``HEADRACE_LONG_TESTS=1``: blocks of 64 MB and 1 GB, also in a control group of
the limit and 150 MiB.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import memory_sets
import pytest

import headrace as hr

LONG = os.environ.get("HEADRACE_LONG_TESTS") == "1"
MiB = 1 << 20
# What a reading process takes besides: threads, connections, Python's objects, pages that allocators keep.
BESIDES = 48 * MiB
QUICK = ("parquet_flat", "parquet_ragged", "arrow_plain")


@pytest.mark.parametrize("name", QUICK)
def test_a_process_stays_near_its_limit(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    memory_sets.FORMATS[name](tmp_path / "data", 12 * MiB)
    # Without a bound, pyarrow took 90 MiB for one of these blocks.
    limit = 112 * MiB
    answer = memory_sets.read(tmp_path / "data", limit, 16, tmp_path, most=2000)
    assert "error" not in answer, answer
    assert answer["pool"] <= limit
    assert answer["peak"] <= limit + BESIDES, answer


def test_what_decodes_beyond_measure_is_said_when_it_is_opened(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"id": range(200_000), "text": pa.array(["x" * 1800]).take(pa.array([0] * 200_000))})
    pq.write_table(table, tmp_path / "bomb.parquet", row_group_size=200_000)
    assert (tmp_path / "bomb.parquet").stat().st_size < 2 * MiB
    with pytest.raises(hr.ExhaustedError, match=r"memory limit of 128\.0 MiB is less than the \d+\.\d MiB"):
        hr.Loader(tmp_path, batch_size=16, rank=0, world_size=1, memory="128MiB", index_cache="")


def test_a_limit_that_makes_reading_slow_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    memory_sets.parquet_flat(tmp_path / "data", 4 * MiB)

    def open_loader(memory: int) -> hr.Loader:
        return hr.Loader(
            tmp_path / "data", batch_size=16, rank=0, world_size=1, memory=memory, lanes=4, index_cache=""
        )

    with open_loader(48 * MiB) as loader:
        batches = iter(loader)
        with pytest.warns(RuntimeWarning, match=r'memory="\d+MiB" would do') as said:
            assert [len(next(batches).ids), len(next(batches).ids)] == [16, 16]
    assert len(said) == 1
    wanted = int(str(said[0].message).split('memory="')[1].split("MiB")[0]) * MiB
    assert 48 * MiB < wanted < 400 * MiB
    with open_loader(wanted) as loader, warnings.catch_warnings():
        warnings.simplefilter("error")
        next(iter(loader))


def test_the_default_memory_needs_few_addresses(tmp_path: Path) -> None:
    import resource
    import subprocess
    import sys

    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' * 1000)
    code = (
        "import sys, headrace as hr; l = hr.Loader(sys.argv[1], batch_size=10, rank=0, world_size=1, "
        "index_cache=''); print(sum(len(b.ids) for b in l))"
    )
    most = 8 << 30  # The pool of 4 GiB once reserved 325 GB.
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)),
    )
    assert done.stdout.strip() == "1000", done.stderr


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A new control group with a memory limit (version 1 or 2), where the tests may make one."""
    for root, limit in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        (Path("/sys/fs/cgroup"), "memory.max"),
    ):
        group = root / f"headrace-test-{os.getpid()}"
        try:
            group.mkdir()
            if not (group / limit).exists():
                group.rmdir()
                continue
        except OSError:
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    pytest.skip("no control group may be made here")


def limit_group(group: Path, most: int) -> None:
    name = "memory.limit_in_bytes" if (group / "memory.limit_in_bytes").exists() else "memory.max"
    (group / name).write_text(str(most))


@pytest.mark.skipif(not LONG, reason="HEADRACE_LONG_TESTS=1")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(memory_sets.FORMATS))
def test_in_a_control_group_of_the_limit_and_150_mib(tmp_path: Path, control_group: Path, name: str) -> None:
    (tmp_path / "data").mkdir()
    memory_sets.FORMATS[name](tmp_path / "data", 64 * MiB)
    limit = 512 * MiB
    limit_group(control_group, limit + 150 * MiB)
    answer = memory_sets.read(tmp_path / "data", limit, 16, tmp_path, group=control_group)
    if "is less than the" in answer.get("error", ""):  # Lance's largest pages: the open says what it needs.
        return
    assert "error" not in answer, answer
    print(
        f"{name:16} limit 512 MiB: pool {int(answer['pool']) >> 20}, resident above the start "
        f"{answer['peak'] >> 20} MiB, {answer['samples']} samples"
    )


@pytest.mark.skipif(not LONG, reason="HEADRACE_LONG_TESTS=1")
def test_row_groups_of_a_gigabyte(tmp_path: Path, control_group: Path) -> None:
    (tmp_path / "data").mkdir()
    memory_sets.parquet_flat(tmp_path / "data", 1000 * MiB)
    answer = memory_sets.read(tmp_path / "data", 1 << 30, 16, tmp_path)
    assert "is less than the" in answer["error"]  # The open says what it needs.
    limit = 4 << 30
    limit_group(control_group, limit + 150 * MiB)
    answer = memory_sets.read(tmp_path / "data", limit, 16, tmp_path, most=400_000, group=control_group)
    assert "error" not in answer, answer
    print(
        f"parquet, 1 GB row groups, limit 4096 MiB: pool {int(answer['pool']) >> 20}, resident above the "
        f"start {answer['peak'] >> 20} MiB"
    )
