"""Loader(progress=True): one line on a terminal, a line every 30 s elsewhere. No clock of the machine's."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import write_mds

import headrace.base.progress
import headrace.loader.progress
from headrace.base.progress import StatusLine, progress_bar
from headrace.loader.progress import EpochProgress


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Engine:
    """What EpochProgress asks of the engine's loader."""

    def __init__(self) -> None:
        self.epoch, self.epoch_batches, self.batches_left, self.has_taken_all = 2, 4000, 4000, False
        self.counts = {
            "loader.batches": 0.0,
            "loader.samples": 0.0,
            "loader.delivered_bytes": 0.0,
            "store.received_bytes": 0.0,
            "stall.decode_us": 0.0,
            "stall.transfer_us": 0.0,
        }

    def metrics(self) -> list[tuple[Any, ...]]:
        return [(name, count, "counter", "", name, {}) for name, count in self.counts.items()]

    def deliver(self, batches: int, **waits: float) -> None:
        self.batches_left -= batches
        self.counts["loader.batches"] += batches
        self.counts["loader.samples"] += 64 * batches
        self.counts["loader.delivered_bytes"] += batches << 20
        self.counts["store.received_bytes"] += batches << 18
        for cause, seconds in waits.items():
            self.counts[f"stall.{cause}_us"] += seconds * 1e6
        self.has_taken_all = not self.batches_left


def patch_stderr(monkeypatch: pytest.MonkeyPatch, out: io.StringIO) -> None:
    """Of the module: pytest gives sys its own between a fixture and its test."""
    monkeypatch.setattr(headrace.base.progress, "sys", SimpleNamespace(stderr=out))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    out = Terminal()
    patch_stderr(monkeypatch, out)
    monkeypatch.setenv("COLUMNS", "200")
    return out


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    patch_stderr(monkeypatch, out)
    return out


def started(clock: Clock, engine: Engine) -> EpochProgress:
    progress = EpochProgress(StatusLine(clock))
    progress.begin(engine)  # type: ignore[arg-type]
    return progress


def step(progress: EpochProgress, clock: Clock, engine: Engine, seconds: float, **waits: float) -> None:
    clock.seconds += seconds
    engine.deliver(20, **waits)
    progress.after_batch(engine, engine.epoch)  # type: ignore[arg-type]


def test_the_line_says_how_fast_and_what_was_waited_for(terminal: Terminal) -> None:
    clock, engine = Clock(), Engine()
    progress = started(clock, engine)
    step(progress, clock, engine, 2.0, decode=0.5, transfer=0.1)
    assert terminal.getvalue() == (
        "\repoch 2, batch 20 of 4,000, 10 batches/s, 640 samples/s, 10.0 MiB/s (2.5 MiB/s read), "
        "waiting 30% (decode 25%, transfer 5%), 6:38 left\x1b[K"
    )


def test_on_a_terminal_one_line_is_written_anew_four_times_a_second(terminal: Terminal) -> None:
    clock, engine = Clock(), Engine()
    progress = started(clock, engine)
    for _ in range(100):
        step(progress, clock, engine, 0.0625)
    assert terminal.getvalue().count("\r") == 25
    assert "\n" not in terminal.getvalue()
    progress.end()
    progress.end()
    assert terminal.getvalue().endswith("\x1b[K\n")


def test_rates_are_of_the_last_seconds(terminal: Terminal) -> None:
    clock, engine = Clock(), Engine()
    progress = started(clock, engine)
    for _ in range(20):
        step(progress, clock, engine, 1.0)
    for _ in range(6):
        step(progress, clock, engine, 2.0)
    assert ", 10 batches/s" in terminal.getvalue().rpartition("\r")[2]


def test_the_end_of_an_epoch_stays_and_the_next_begins_a_line(terminal: Terminal) -> None:
    clock, engine = Clock(), Engine()
    engine.epoch_batches = engine.batches_left = 40
    progress = started(clock, engine)
    step(progress, clock, engine, 0.5)
    step(progress, clock, engine, 0.01)
    last = terminal.getvalue().rpartition("\r")[2]
    assert "batch 40 of 40" in last
    assert last.endswith("\x1b[K\n")
    assert "left" not in last
    engine.batches_left, engine.has_taken_all, engine.epoch = 40, False, 3
    progress.begin(engine)  # type: ignore[arg-type]
    step(progress, clock, engine, 1.0)
    assert terminal.getvalue().rpartition("\n")[2].startswith("\repoch 3, batch 20 of 40, 20 batches/s")


def test_a_narrow_terminal_gets_as_much_as_fits(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    clock, engine = Clock(), Engine()
    step(started(clock, engine), clock, engine, 1.0)
    assert terminal.getvalue() == "\repoch 2, batch 20 of 4,000, 2\x1b[K"


def test_elsewhere_it_is_a_line_every_half_a_minute(pipe: io.StringIO) -> None:
    clock, engine = Clock(), Engine()
    progress = started(clock, engine)
    for _ in range(75):
        step(progress, clock, engine, 1.0)
    lines = pipe.getvalue().splitlines()
    assert [re.sub(r" batches/s.*", "", line) for line in lines] == [
        "epoch 2, batch 600 of 4,000, 20",
        "epoch 2, batch 1,200 of 4,000, 20",
    ]
    assert "\r" not in pipe.getvalue()


def test_long_calls_tell_their_progress_without_a_terminal(
    pipe: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    line = StatusLine(clock)
    monkeypatch.setattr(headrace.base.progress, "StatusLine", lambda: line)
    with progress_bar("indexing", "shards") as report:
        for done, seconds in ((1, 29.0), (2, 2.0), (3, 2.0), (4, 31.0)):
            clock.seconds += seconds
            report(done, 1300, 0)
    assert pipe.getvalue() == "indexing: 2 of 1,300 shards\nindexing: 4 of 1,300 shards\n"


def test_where_the_logger_is_heard_it_is_asked(pipe: io.StringIO, caplog: pytest.LogCaptureFixture) -> None:
    clock, engine = Clock(), Engine()
    progress = started(clock, engine)
    with caplog.at_level(logging.INFO, "headrace.progress"):
        step(progress, clock, engine, 61.0)
    assert [record.name for record in caplog.records] == ["headrace.progress"]
    assert "batch 20 of 4,000" in caplog.records[0].getMessage()
    assert pipe.getvalue() == ""


def test_another_engine_begins_anew(terminal: Terminal) -> None:
    clock, engine = Clock(), Engine()
    progress = started(clock, engine)
    step(progress, clock, engine, 1.0)
    shown = terminal.getvalue()
    other = Engine()
    clock.seconds += 1
    progress.after_batch(other, 2)  # type: ignore[arg-type]
    assert terminal.getvalue() == shown
    step(progress, clock, other, 1.0)
    assert ", 20 batches/s" in terminal.getvalue().rpartition("\r")[2]


def test_a_closed_stderr_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Terminal()
    patch_stderr(monkeypatch, out)
    clock, engine = Clock(), Engine()
    progress = started(clock, engine)
    out.close()
    step(progress, clock, engine, 1.0)


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is a second later."""
    clock = Clock()

    def tick() -> float:
        clock.seconds += 1
        return clock.seconds

    monkeypatch.setattr(headrace.loader.progress, "StatusLine", lambda: StatusLine(tick))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    samples = [{"x": i.to_bytes(8, "little")} for i in range(80)]
    return write_mds(tmp_path / "mds", {"x": ("int", 8)}, samples)


@pytest.mark.usefixtures("ticking")
def test_a_loader_shows_its_epochs(dataset: Path, open_loader: Any, terminal: Terminal) -> None:
    loader = open_loader(dataset, batch_size=8, progress=True)
    for _ in range(2):
        for _batch in loader:
            pass
    lines = terminal.getvalue().split("\n")
    assert len(lines) == 3
    assert "epoch 0, batch 10 of 10" in lines[0]
    assert "epoch 1, batch 10 of 10" in lines[1]
    assert lines[2] == ""
    assert "batches/s" in lines[0]
    next(iter(loader))
    loader.close()
    assert terminal.getvalue().endswith("\n")


@pytest.mark.usefixtures("ticking")
def test_only_rank_0_shows_it_and_only_where_asked(
    dataset: Path, open_loader: Any, terminal: Terminal
) -> None:
    for options in ({"rank": 1, "world_size": 2, "progress": True}, {}):
        for _ in open_loader(dataset, batch_size=4, **options):
            pass
    assert terminal.getvalue() == ""


@pytest.mark.usefixtures("ticking")
def test_functions_behind_a_loader_change_nothing(
    dataset: Path, open_loader: Any, terminal: Terminal
) -> None:
    for _ in open_loader(dataset, batch_size=8, progress=True).map(dict):
        pass
    assert "epoch 0, batch 10 of 10" in terminal.getvalue()
