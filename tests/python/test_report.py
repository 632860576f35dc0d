"""loader.report(): what a run was like, over time."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import write_numbers

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.loader.history import History
from headrace.loader.report import _CAUSES, write_report

OPTIONS: dict[str, Any] = {"batch_size": 10, "memory": "64MiB", "block_bytes": "64KiB"}
pictures = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True, check=False).returncode
    != 0,
    reason="needs matplotlib",
)


class Engine:
    """Has counters that a test sets."""

    def __init__(self) -> None:
        self.values = {"loader.batches": 0.0, "loader.samples": 0.0, "store.request_p50_us": 0.0}

    def metrics(self) -> Iterator[tuple[str, float]]:
        return iter(self.values.items())


class Run:
    """A run in time of its own: a batch of 10 samples each 0.05 s."""

    def __init__(self) -> None:
        self.now, self.engine = 100.0, Engine()
        self.history = History(lambda: self.now)

    def deliver(self, count: int) -> None:
        for _ in range(count):
            self.now += 0.05
            self.engine.values["loader.batches"] += 1
            self.engine.values["loader.samples"] += 10
            self.history.after_batch(self.engine, False)


@pytest.fixture
def run() -> Run:
    made = Run()
    made.history.begin(made.engine, 0)
    return made


@pytest.mark.parametrize("batches", [10, 1000, 200_000])
def test_a_run_of_any_length_has_few_points_all_over_it(run: Run, batches: int) -> None:
    run.deliver(batches)
    points = run.history.record(run.engine).points
    assert len(points) <= 513
    assert len(points) > min(batches // 3, 200)
    assert (points[0].seconds, round(points[-1].seconds, 6)) == (0.0, round(batches * 0.05, 6))
    gaps = [b.seconds - a.seconds for a, b in pairwise(points)]
    assert max(gaps) < 5 * points[-1].seconds / len(points) + 0.2
    for point in points:  # At 200 samples a second, wherever one looks.
        assert point.values["loader.samples"] == pytest.approx(200 * point.seconds)


def test_counters_go_on_over_a_change_of_the_engine(run: Run) -> None:
    run.deliver(100)
    run.engine = Engine()
    run.deliver(100)
    values = [point.values["loader.samples"] for point in run.history.record(run.engine).points]
    assert values == sorted(values)
    assert values[-1] == 2000


def test_a_pause_between_loops_is_no_part_of_either(run: Run) -> None:
    run.deliver(20)
    run.history.after_batch(run.engine, True)
    run.now += 60
    ended = run.history.record(run.engine)
    assert ended.points[-1].seconds == pytest.approx(1.0)  # Nobody looks at what comes after.
    run.history.begin(run.engine, 1)
    run.deliver(20)
    record = run.history.record(run.engine)
    assert [(round(seconds, 6), epoch) for seconds, epoch in record.loops] == [(0.0, 0), (61.0, 1)]
    near = [point for point in record.points if 1.0 < point.seconds < 61.0 - 1e-6]
    assert not near
    assert {10 * round(20 * p.seconds) for p in record.points if p.seconds <= 1.0 + 1e-6} == {
        p.values["loader.samples"] for p in record.points if p.seconds <= 1.0 + 1e-6
    }


def test_it_costs_little() -> None:
    """A batch a look at the clock, and a point 10 times a second at most."""
    asked = 0

    class Counting(Engine):
        def metrics(self) -> Iterator[tuple[str, float]]:
            nonlocal asked
            asked += 1
            return super().metrics()

    run = Run()
    run.engine = Counting()
    run.history.begin(run.engine, 0)
    run.deliver(10_000)  # 500 s
    assert asked < 1500


def rows(page: str) -> dict[str, list[str]]:
    """Of the tables of a page, by their first cell."""
    found = [re.findall(r"<td>(.*?)</td>", line) for line in re.findall(r"<tr>(.*?)</tr>", page)]
    return {cells[0]: cells[1:] for cells in found if cells}


@pictures
def test_the_page_says_what_was_and_needs_nothing_else(
    s3: simulator.Server, numbers: Path, tmp_path: Path
) -> None:
    s3.set_behaviour(first_byte_p50_ms=20.0, first_byte_p99_ms=40.0)
    with hr.Loader("s3://b/numbers", cache=tmp_path / "cache", cache_limit="64MiB", **OPTIONS) as loader:
        for _ in range(2):
            for _ in loader:
                time.sleep(0.001)
        loader.report(tmp_path / "run.html")
        waited = loader.stats()["stall_seconds"]
    page = (tmp_path / "run.html").read_text()
    assert not re.findall(r"(?:src|href)=.(?!#)", page)
    assert "<script" not in page
    for title in ("Throughput", "What the loop waited for", "Latency of the store", "Where bytes came from"):
        assert f"<!-- {title} -->" in page
    found = rows(page)
    assert found["samples"] == ["2,000"]
    assert found["loops"] == ["2"]
    assert set(_native.STALL_CAUSES) == set(_CAUSES) <= set(found)
    assert float(found["first_byte"][1]) == pytest.approx(waited["first_byte"], abs=0.006)
    assert float(found["all"][1]) == pytest.approx(sum(waited.values()), abs=0.006)
    assert "from cache on disk" in found


@pictures
def test_it_shows_no_secret(s3: simulator.Server, numbers: Path, tmp_path: Path, run: Run) -> None:
    with hr.Loader("s3://b/numbers", **OPTIONS) as loader:
        list(loader)
        loader.report(tmp_path / "run.html")
    assert s3.secret_key not in (tmp_path / "run.html").read_text()

    class Signed(Engine):
        url = "https://me:S3CR3T@store/x?sig=S3CR3T"

    run.history.stores = [Signed()]
    run.deliver(100)
    write_report(tmp_path / "signed.html", run.history.record(run.engine), "signed", {})
    assert "store/x" in (tmp_path / "signed.html").read_text()
    assert "S3CR3T" not in (tmp_path / "signed.html").read_text()


def slow(batch: Any) -> Any:
    time.sleep(0.002)
    return batch


@pictures
@pytest.mark.parametrize("workers", [0, 1])
def test_functions_are_a_cause_to_wait_for(few_numbers: Path, tmp_path: Path, workers: int) -> None:
    with hr.Loader(few_numbers, **OPTIONS).map(slow, per="batch", workers=workers, where="thread") as loader:
        for _ in loader:
            pass
        loader.report(tmp_path / "run.html")
        waited = loader.stats()["stall_seconds"]["transform"]
    assert float(rows((tmp_path / "run.html").read_text())["transform"][1]) == pytest.approx(
        waited, abs=0.006
    )
    assert waited > 0.03


@pictures
@pytest.mark.parametrize("name", ["run.png", "run.svg", "run.PDF"])
def test_a_picture_alone(few_numbers: Path, tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("headrace.torch")
    with torch.Loader(few_numbers, **OPTIONS) as loader:
        next(iter(loader))
        time.sleep(0.01)
        loader.report(tmp_path / name)
    start = (tmp_path / name).read_bytes()[:5]
    assert start in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    if name.endswith(".svg"):
        assert f"<!-- headrace: {few_numbers} -->" in (tmp_path / name).read_text()


@pictures
def test_stores_of_a_mixture_are_told_apart(s3: simulator.Server, numbers: Path, tmp_path: Path) -> None:
    """And a loader that was closed in a loop has its report."""
    write_numbers(numbers.parent / "more", 500)
    mixture = hr.Mixture({"a": "s3://b/numbers", "b": "s3://b/more", "c": numbers}, block_bytes="64KiB")
    with hr.Loader(mixture, batch_size=10, memory="64MiB") as loader:
        for batch in loader:
            if batch.index == 200:
                break
        time.sleep(0.11)
        next(iter(loader))
        received = loader.stats()["store.received_bytes"]
    mixture.close()
    loader.report(tmp_path / "run.html")
    found = rows((tmp_path / "run.html").read_text())
    assert {"s3://b/numbers", "s3://b/more", str(numbers)} <= set(found)
    assert found["s3://b/numbers"][0].endswith(("KiB", "MiB"))
    assert int(found["s3://b/more"][1].replace(",", "")) > 0
    assert found[str(numbers)][1:] == ["0", ""]
    assert received > 0


def test_what_cannot_be_reported(few_numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Loader(few_numbers, **OPTIONS) as loader:
        with pytest.raises(hr.InvalidArgumentError, match=r"run.txt: a report is a page \(.html\)"):
            loader.report(tmp_path / "run.txt")
        if not pictures.args[0]:
            with pytest.raises(hr.InvalidArgumentError, match="iterate the loader first"):
                loader.report(tmp_path / "run.html")
        list(loader)
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(hr.UnsupportedError, match="a report needs matplotlib: pip install matplotlib"):
            loader.report(tmp_path / "run.html")
    assert not list(tmp_path.glob("run*"))


@pictures
def test_bench_load_draws_its_run(cli: Any, tmp_path: Path) -> None:
    data = write_numbers(tmp_path / "data", 300)
    picture, page = tmp_path / "run.png", tmp_path / "run.html"
    done = cli(
        "bench",
        "load",
        str(data),
        "--batch-size",
        "10",
        "--plot",
        str(picture),
        "--html",
        str(page),
        "--json",
    )
    assert done.json()["samples"] == 300
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert rows(page.read_text())["samples"] == ["300"]
    mistake = cli("bench", "load", str(data), "--html", str(tmp_path / "run.doc"))
    assert (mistake.code, mistake.err.count("\n")) == (1, 1)
