"""`headrace bench load --sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_cli_pictures import check_files

from headrace.cli._settings import TRIED, to_try

GIVEN = {"prefetch": 16, "workers": 0, "memory": "1024MiB"}


def test_each_setting_is_changed_alone_and_none_is_tried_twice() -> None:
    tried = to_try(GIVEN)
    assert tried[0] == {}
    assert all(len(changed) == 1 for changed in tried[1:])
    assert [c["prefetch"] for c in tried if "prefetch" in c] == [1, 4, 64]
    assert [c["workers"] for c in tried if "workers" in c] == TRIED["workers"]
    assert [c["memory"] for c in tried if "memory" in c] == ["64MiB", "256MiB", "4GiB"]


def test_a_sweep_reads_the_same_with_every_setting(cli: Any, numbers: Path, tmp_path: Path) -> None:
    report = cli("bench", "load", str(numbers), "--batches", "3", "--batch-size", "10", "--sweep", "--json")
    rows = report.json()["rows"]
    assert [row["changed"] for row in rows] == to_try({**GIVEN, "memory": "4GiB"})
    assert {row["samples"] for row in rows} == {30}
    shown = cli("bench", "load", str(numbers), "--batches", "3", "--sweep").out
    assert "as given" in shown
    assert "memory=64MiB" in shown


def test_its_picture_and_its_page(cli: Any, numbers: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot, page = tmp_path / "settings.png", tmp_path / "settings.html"
    words = ("bench", "load", str(numbers), "--batches", "2", "--sweep")
    assert cli(*words, "--plot", str(plot), "--html", str(page)).code == 0
    check_files(plot, page, "headrace bench load --sweep", "<td>as given</td>", "<td>memory=64MiB</td>")
