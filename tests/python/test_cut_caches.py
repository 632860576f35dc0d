"""Indexes and tables of orders that another process cuts off under a running job: it goes on, nothing is
mapped that may vanish."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import headrace as hr

_RUN = """
import os, pathlib, sys, headrace as hr
path, pattern, options = sys.argv[1], sys.argv[2], eval(sys.argv[3])
with hr.Loader(path, batch_size=1000, rank=0, world_size=1, memory="8MiB", prefetch=1, seed=1, **options) as loader:
    ids = []
    for batch in loader:
        ids.extend(batch.ids.tolist())
        if len(ids) == 1000:
            files = list(pathlib.Path(sys.argv[4]).rglob(pattern))
            assert files
            for file in files:
                os.truncate(file, 0)
    loader.state_dict()
assert sorted(ids)[:1] == [0] and len(set(ids)) == len(ids), len(ids)
print(len(ids))
"""  # noqa: E501


def run(path: Path, pattern: str, options: dict[str, object], home: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "XDG_CACHE_HOME": str(home / "cache"),
        "HEADRACE_INDEX_CACHE": str(home / "cache" / "index"),
    }
    return subprocess.run(
        [sys.executable, "-c", _RUN, str(path), pattern, repr(options), str(home)],
        capture_output=True,
        text=True,
        env=environment,
    )


def write_lines(path: Path) -> int:
    path.mkdir()
    for file in range(10):
        (path / f"{file}.jsonl").write_text(
            "".join(json.dumps({"id": i, "x": "y" * (i * 7 % 300)}) + "\n" for i in range(5000))
        )
    return 50_000


@pytest.mark.parametrize("is_beside", [True, False])
def test_an_index(tmp_path: Path, is_beside: bool) -> None:
    count = write_lines(tmp_path / "data")
    if is_beside:
        with hr.Dataset(tmp_path / "data", index_cache="") as dataset:
            dataset.write_index()
    done = run(tmp_path / "data", "*.hri", {"index_cache": ""} if is_beside else {}, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, str(count)), done.stderr


def test_a_table_of_an_order(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "a.bin").open("wb") as tokens:
        tokens.truncate(4 * 500_000)
    options = {"order": "mosaic:py1e", "format": "tokens", "tokens_per_sample": 2, "index_cache": ""}
    done = run(tmp_path / "data", "*.order", options, tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "500000"), done.stderr


def test_caches_are_their_owners_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = os.umask(0o022)
    try:
        write_lines(tmp_path / "data")
        with hr.Dataset(tmp_path / "data", index_cache=str(tmp_path / "cache" / "deep" / "index")):
            pass
        monkeypatch.setenv("HEADRACE_ORDER_CACHE", str(tmp_path / "orders"))
        with hr.Loader(
            tmp_path / "data", batch_size=10, rank=0, world_size=1, order="mosaic:py1e", index_cache=""
        ) as loader:
            next(iter(loader))
    finally:
        os.umask(old)
    found = [
        path for root in ("cache", "orders") for path in (tmp_path / root, *(tmp_path / root).rglob("*"))
    ]
    assert any(path.suffix == ".hri" for path in found)
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
