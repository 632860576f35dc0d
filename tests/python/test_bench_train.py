"""`headrace bench train`: emulated accelerators on a clock that is passed in, and the command on tiny data.
Nothing here depends on how fast the machine is."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import sim as simulator
from headrace.bench.emulation import Clock, train
from headrace.bench.generate import generate
from headrace.bench.storage import BUCKET, SimulatedStorage
from headrace.bench.utilisation import utilisation
from headrace.bench.workloads import WORKLOADS
from headrace.cli.train import parse_latencies

TINY = (
    "--record-bytes",
    "1000",
    "--batch-size",
    "4",
    "--epochs",
    "2",
    "--time-scale",
    "0.001",
    "--seed",
    "1",
)


class ManualClock(Clock):
    """Time passes where somebody waits, only."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep_until(self, deadline: float, stopped: Callable[[], bool]) -> None:
        self.time = max(self.time, deadline)

    def prepare_thread(self) -> None:
        pass


class Waiting:
    """A loader whose batches take so long."""

    def __init__(self, clock: ManualClock, waits: Sequence[float], error: Exception | None = None) -> None:
        self._clock, self._waits, self._error = clock, waits, error
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[int]:
        for number, wait in enumerate(self._waits):
            self._clock.time += wait
            yield number
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self.closed.set()


class Endless(Waiting):
    """One that waits until it is closed."""

    def __iter__(self) -> Iterator[int]:
        assert self.closed.wait(60)
        raise hr.CancelledError("closed")
        yield 0


def test_an_accelerator_computes_and_waits_as_its_clock_says() -> None:
    clock = ManualClock()
    reports: list[int] = []
    [logs] = train(
        [Waiting(clock, [5, 0, 1, 0])], epochs=3, compute_seconds=2, clock=clock, report=reports.append
    )
    assert [log.waits for log in logs] == [[5, 0, 1, 0]] * 3
    assert [(log.started, log.first_step_ended, log.ended) for log in logs] == [
        (14 * i, 14 * i + 7, 14 * i + 14) for i in range(3)
    ]
    assert [utilisation(log, 2) for log in logs] == [6 / 7] * 3
    assert [log.overslept for log in logs] == [0, 0, 0]
    assert all(0 <= steps <= 12 for steps in reports)


def test_the_first_error_ends_all_and_closes_the_loaders() -> None:
    clock = ManualClock()
    loaders = [Waiting(clock, [], ValueError("broken")), Endless(clock, [])]
    with pytest.raises(ValueError, match="broken"):
        train(loaders, epochs=1, compute_seconds=0, clock=clock)
    assert all(loader.closed.is_set() for loader in loaders)
    assert not [t for t in threading.enumerate() if t.name == "headrace-accelerator"]


def test_ctrl_c_ends_all() -> None:
    loaders = [Endless(ManualClock(), []) for _ in range(3)]

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(loaders, epochs=1, compute_seconds=0, clock=ManualClock(), report=interrupt)
    assert not [t for t in threading.enumerate() if t.name == "headrace-accelerator"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_data_is_made_and_read(name: str, cli: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = ("bench", "train", str(data), "--workload", name, "--json", *TINY)
    made = cli(*arguments, "--samples", "41", "-n", "2").json()
    [row] = made["rows"]
    assert row["dataset_samples"] == 41
    assert (row["accelerators"], row["steps"], row["samples"]) == (2, 2 * 5, 2 * 2 * 5 * 4)
    assert 0 <= row["utilisation"] <= 1
    assert row["passes"] == (row["utilisation"] >= made["bar"])
    assert row["delivered_bytes"] > 0
    assert row["cpu_seconds"] > 0
    assert (made["is_published"], made["profile"], made["seed"]) == (False, None, 1)
    # It stays, and is read as it is: --samples says nothing then.
    before = sorted((p.name, p.stat().st_mtime_ns) for p in data.iterdir())
    again = cli(*arguments, "--samples", "99").json()
    assert again["rows"][0]["dataset_samples"] == 41
    assert sorted((p.name, p.stat().st_mtime_ns) for p in data.iterdir()) == before


def test_data_of_another_workload_are_told(cli: Any, tmp_path: Path) -> None:
    arguments = ("bench", "train", str(tmp_path / "data"), *TINY)
    assert "these are no data" not in cli(*arguments, "--workload", "llm", "--samples", "40").out
    again = cli(*arguments, "--workload", "llm", "--record-bytes", "100000")
    assert "no data of llm: a sample has 1,009 B, its records have 97.7 KiB" in again.out


def test_files_are_as_published(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    volumes = WORKLOADS["unet3d"].changed(record_bytes=5000)
    generate(volumes, str(tmp_path / "unet3d"), 7)
    files = sorted((tmp_path / "unet3d").iterdir())
    with np.load(files[0]) as first:
        assert (first["x"].dtype, first["x"].ndim, list(first["y"])) == (np.uint8, 3, [0])
    assert len(files) == 7
    assert len({f.stat().st_size for f in files}) > 1
    boxes = WORKLOADS["cosmoflow"].changed(record_bytes=5000)
    generate(boxes, str(tmp_path / "cosmoflow"), 7)
    assert len(list((tmp_path / "cosmoflow").glob("*.tfrecord"))) == 7
    images = WORKLOADS["resnet50"].changed(record_bytes=10_000)
    generate(images, str(tmp_path / "resnet50"), 1260)
    with hr.Dataset(tmp_path / "resnet50") as dataset:
        assert [shard.sample_count for shard in dataset.shards] == [1251, 9]
        assert sorted(dataset.schema) == ["image", "size"]


def test_the_same_seed_makes_the_same_bytes_and_a_failed_run_leaves_none(tmp_path: Path) -> None:
    workload = WORKLOADS["cosmoflow"].changed(record_bytes=500)

    def content(name: str) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in (tmp_path / name).iterdir() if p.suffix != ".hri"}

    for name in ("a", "b"):
        generate(workload, str(tmp_path / name), 9)
    assert content("a") == content("b")

    def interrupt(done: int) -> None:
        if done > 2000:
            raise KeyboardInterrupt

    for container in ("tfrecord", "npz", "mds"):
        target = tmp_path / container
        with pytest.raises(KeyboardInterrupt):
            generate(
                workload._replace(container=container, record_stdev=0), str(target), 20, report=interrupt
            )
        assert [p for p in target.rglob("*") if p.is_file()] == []


def test_data_in_a_bucket(cli: Any, s3: simulator.Server, buckets: Path) -> None:
    arguments = ("bench", "train", "s3://b/deep/llm", "--workload", "llm", "--json", *TINY)
    row = cli(*arguments, "--size", "40kB").json()["rows"][0]
    assert (row["dataset_samples"], row["steps"]) == (40, 20)
    assert row["fetched_bytes"] >= 80 * 1000
    assert (buckets / "b" / "deep" / "llm" / "index.json").exists()
    # A neighbour whose name begins the same is another place.
    other = cli("bench", "train", "s3://b/deep/ll", "--workload", "llm", "--samples", "8", "--json", *TINY)
    assert other.json()["rows"][0]["dataset_samples"] == 8


def test_without_a_url_nothing_is_left(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = cli("bench", "train", "--workload", "resnet50", "--samples", "40", *TINY)
    assert done.code == 0, done.err
    assert "utilisation (AU)" in done.out
    assert "not the published workload" in done.out
    assert "page cache" in done.out
    assert list(tmp_path.iterdir()) == []


def test_the_simulator_in_front(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    arguments = ("bench", "train", "--workload", "cosmoflow", "--samples", "24", *TINY)
    report = cli(*arguments, "--profile", "s3-express", "--latency", "+3ms", "--json").json()
    assert (report["profile"], report["added_latency_s"]) == ("s3-express", 0.003)
    assert report["rows"][0]["simulator"]["requests"] >= 24
    assert report["rows"][0]["fetched_bytes"] >= 40 * 1000
    swept = cli(*arguments, "--sweep-latency", "1,0ms", "--json").json()
    assert [row["added_latency_s"] for row in swept["rows"]] == [0, 0.001]
    shown = cli(*arguments, "--sweep-latency", "1,0ms")
    assert "+1 ms" in shown.out
    assert list(tmp_path.iterdir()) == []


def test_latency_is_added_to_each_first_byte(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    with SimulatedStorage(str(tmp_path)) as storage:
        storage.set_delay(0.05)
        with hr.Store(storage.url, **storage.options) as store:
            started = time.monotonic()
            assert store.get("x") == b"x"
            assert time.monotonic() - started >= 0.05
        while storage.stats()["requests"] < 1:  # Counted when the answer has gone, a little after it came.
            pass
        assert storage.url == f"s3://{BUCKET}"
    storage.close()
    assert storage._process.returncode == 0


def test_plots(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "au.png"
    arguments = ("bench", "train", "--workload", "llm", "--samples", "16", *TINY)
    swept = (*arguments, "--sweep-latency", "0,1ms", "--plot", str(picture))
    if importlib.util.find_spec("matplotlib") is not None:
        assert cli(*swept).code == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    missing = cli(*swept)
    assert (missing.code, missing.err.count("\n")) == (1, 1)
    assert "pip install matplotlib" in missing.err


def test_find_ends_at_what_the_data_allows(cli: Any) -> None:
    # With no time to compute, nothing passes; with all of it, everything does.
    arguments = ("bench", "train", "--workload", "llm", "--samples", "40", "--find", *TINY)
    slow = cli(*arguments, "--time-scale", "0", "--json").json()
    assert (slow["found"], slow["limit"], len(slow["rows"])) == (0, 5, 1)
    shown = cli(*arguments, "--time-scale", "0")
    assert "0 x h100 stay at or above 90%" in shown.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--workload", "bert"), "unet3d, resnet50"),
        (("--accelerator", "b200"), "h100 or a100"),
        (("--profile", "s4"), "s3-standard"),
        (("--latency", "20"), "such as 20ms"),
        (("--latency", "1ms", "--sweep-latency", "1ms"), "neither"),
        (("--plot", "x.png"), "--sweep-latency"),
        (("--samples", "1", "--size", "1MB"), "one of them"),
        (("s3://b/x", "--profile", "s3-standard"), "local data"),
        (("--samples", "3", *TINY), "no step of 1 accelerators"),
    ],
)
def test_mistakes_are_one_line(cli: Any, arguments: tuple[str, ...], text: str) -> None:
    done = cli("bench", "train", *arguments)
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert text in done.err


def test_latencies_of_a_sweep() -> None:
    assert parse_latencies("0,5,20ms") == [0, 0.005, 0.02]
    assert parse_latencies("1s, 5ms,0") == [0, 0.005, 1]
    for wrong in ("", "ms", "1,x,ms", "1,2"):
        with pytest.raises(hr.InvalidArgumentError):
            parse_latencies(wrong)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_and_leave_nothing(number: signal.Signals, tmp_path: Path) -> None:
    run = subprocess.Popen(
        [
            *(sys.executable, "-m", "headrace.cli", "bench", "train", "--workload", "llm"),
            *("--samples", "400", "--profile", "none", "--epochs", "100"),
        ],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # The data's directory, and the simulator's.
    while len(list(tmp_path.glob("headrace-bench-*"))) < 2 and run.poll() is None:
        time.sleep(0.01)
    run.send_signal(number)
    out, err = run.communicate(timeout=60)
    assert (run.returncode, out, err) == (130, b"", b"")
    assert list(tmp_path.iterdir()) == []
