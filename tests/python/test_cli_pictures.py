"""Pictures of `headrace order` and `headrace bench fetch`: what they show, and files that open by
themselves."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import headrace as hr
from headrace.cli import _knee_picture
from headrace.cli._order_picture import MOST_BATCHES, MOST_SLOTS, points

RANKS, BATCH = 4, 8


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "a.npy", np.arange(1000, dtype=np.int64))
    return tmp_path / "data"


def check_files(plot: Path, page: Path, *texts: str) -> None:
    with Image.open(plot) as image:
        assert image.format == "PNG"
        colours = image.convert("RGB").getcolors(1 << 20)
        assert colours
        assert len(colours) > 20, "something is drawn"
    text = page.read_text()
    assert "<svg" in text
    assert "<script" not in text
    assert 'src="' not in text
    for said in texts:
        assert said in text, said


def test_points_are_spread_over_the_epoch() -> None:
    found = points(lambda start, count: np.arange(start, start + count), 1_000_000, 1000)
    assert len(found) == MOST_BATCHES * MOST_SLOTS
    assert {position - 1000 * batch - slot for batch, slot, position in found} == {0}
    assert max(batch for batch, _, _ in found) > 990
    assert points(lambda start, count: np.arange(start, start + count), 10, 4)[-1] == (2, 1, 9)


@pytest.mark.parametrize("order", ["headrace", "sequential", "mosaic:py1e", "litdata"])
def test_the_order_picture_shows_what_each_rank_gets(
    numbers: Path, tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    pytest.importorskip("matplotlib")
    from headrace.cli import _order_picture

    shown: list[tuple[int, int, int]] = []
    drawn = _order_picture.draw
    monkeypatch.setattr(
        _order_picture,
        "draw",
        lambda figure, found, *rest: (shown.extend(found), drawn(figure, found, *rest)),
    )
    plot, page = tmp_path / "order.png", tmp_path / "order.html"
    told = ("--batch-size", str(BATCH), "--world-size", str(RANKS), "--order", order, "--ranks-per-node", "4")
    assert cli("order", str(numbers), *told, "--plot", str(plot), "--html", str(page)).code == 0
    check_files(plot, page, f"order {order}, epoch 0, 4 ranks", "<td>1000</td>")
    for rank in range(RANKS):
        options: dict[str, Any] = {"rank": rank, "world_size": RANKS, "epoch_end": "drop"}
        if ":" in order or order == "litdata":
            options["order_options"] = {"num_workers": 1, "ranks_per_node": 4}
        with hr.Loader(numbers, batch_size=BATCH, order=order, **options) as loader:
            ids = {step: batch.tolist() for step, batch in enumerate(loader.sample_ids(0))}
        mine = [point for point in shown if point[1] * RANKS // (BATCH * RANKS) == rank]
        assert mine
        for step, slot, position in mine:
            if step in ids and position >= 0:
                assert ids[step][slot - rank * BATCH] == position


def test_the_knee_of_a_store(numbers: Path, tmp_path: Path, cli: Any) -> None:
    pytest.importorskip("matplotlib")
    plot, page = tmp_path / "knee.png", tmp_path / "knee.html"
    told = ("--part-bytes", "1KiB,4KiB", "--in-flight", "1,2", "--seconds", "0.1")
    assert cli("bench", "fetch", str(numbers), *told, "--plot", str(plot), "--html", str(page)).code == 0
    check_files(plot, page, "headrace bench fetch", "<td>1.0 KiB</td><td>2</td>", "<td>knee</td>")


def test_a_picture_alone_says_what_it_is_of(numbers: Path, tmp_path: Path, cli: Any) -> None:
    """A page has a heading for it. In .svg matplotlib names each text in a comment."""
    pytest.importorskip("matplotlib")
    told = ("--part-bytes", "1KiB", "--in-flight", "1", "--seconds", "0.1")
    for name, command in {"knee": ("bench", "fetch"), "order": ("order", "--batch-size", "8")}.items():
        plot, page = tmp_path / f"{name}.svg", tmp_path / f"{name}.html"
        files = ("--plot", str(plot), "--html", str(page))
        rest = told if name == "knee" else ()
        assert cli(*command, str(numbers), *rest, *files).code == 0
        title = re.search(r"<h1>(.*)</h1>", page.read_text())
        assert title
        assert f"<!-- {title[1]} -->" in plot.read_text()
        assert f"<!-- {title[1]} -->" not in page.read_text()


def test_times_are_plain_numbers() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    row = {"part_bytes": 1 << 20, "gb_per_s": 1.0}
    rows = [
        {**row, "in_flight": n, "first_byte_p50_us": 40_000 * n, "first_byte_p99_us": 300_000 * n}
        for n in (1, 8)
    ]
    _knee_picture.draw(figure, rows, {"max_in_flight": 8})
    figure.draw_without_rendering()
    labels = {label.get_text() for label in figure.axes[1].get_yticklabels()}
    assert {"50", "200", "1,000"} <= labels


@pytest.mark.parametrize("command", [("order",), ("bench", "fetch")])
def test_without_matplotlib_nothing_is_measured(
    numbers: Path, cli: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for option in ("--plot", "--html"):
        done = cli(*command, str(numbers), option, "x")
        assert done.code == 1
        assert "pip install matplotlib" in done.err
        assert not done.out


@pytest.mark.parametrize(
    "command",
    [
        ("order",),
        ("bench", "fetch"),
        ("bench", "load"),
        ("bench", "load", "--sweep"),
        ("cache", "simulate", "--batch-size", "8"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_is_measured(
    numbers: Path, tmp_path: Path, cli: Any, command: tuple[str, ...]
) -> None:
    pytest.importorskip("matplotlib")
    wrong = [
        ("--plot", "x.jpeg", ".png, .svg, .pdf"),
        ("--plot", str(tmp_path / "none" / "x.png"), "there is no directory"),
        ("--html", str(tmp_path / "none" / "x.html"), "there is no directory"),
        ("--html", str(tmp_path), "is a directory"),
    ]
    if command == ("bench", "load"):
        wrong.append(("--html", "run.page", "a report is a page (.html)"))
    for option, path, said in wrong:
        done = cli(*command, str(numbers), option, path)
        assert (done.code, done.out, said in done.err) == (1, "", True), done.err
