"""`headrace bench load --sweep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_cli_pictures import check_files

from headrace.cli._settings import TRIED, draw, to_try

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


def test_its_picture_shows_all_of_every_panel() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    speeds = [10, 20, 5, 7, 3, 4, 90, 6, 8, 9, 30]
    rows = [
        {"changed": changed, "samples_per_s": speed, "samples_per_cpu_s": 10 * speed}
        for changed, speed in zip(to_try(GIVEN), speeds, strict=True)
    ]
    draw(figure, rows, GIVEN)
    assert len(figure.axes) == len(TRIED)
    for axes, name in zip(figure.axes, TRIED, strict=True):
        assert axes.get_ylim()[0] == 0
        assert axes.get_ylim()[1] > 900
        drawn = {y for line in axes.lines for y in line.get_ydata()}
        mine = [row for row in rows if not row["changed"] or name in row["changed"]]
        assert drawn == {row[column] for row in mine for column in ("samples_per_s", "samples_per_cpu_s")}
