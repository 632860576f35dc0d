"""The engine's log in ``logging``: what comes under faults of the simulator, and nothing in a clean run; fork
and exit."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import where, write_mds

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.base import log

ROOT = Path(__file__).parents[2]


@pytest.fixture
def dataset(buckets: Path) -> Path:
    samples = [{"x": i.to_bytes(8, "little")} for i in range(400)]
    return write_mds(buckets / "b" / "numbers", {"x": ("int", 8)}, samples)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, int, str]]]:
    """(logger, level, text) of what was logged since the last call, counted events included."""
    caplog.set_level(logging.INFO, "headrace")
    log.pass_on(all_counts=True)
    caplog.clear()

    def lines() -> list[tuple[str, int, str]]:
        log.pass_on(all_counts=True)
        found = [
            (r.name, r.levelno, r.getMessage()) for r in caplog.records if r.name.startswith("headrace.")
        ]
        caplog.clear()
        return found

    return lines


def read_all(server: simulator.Server, **options: Any) -> int:
    with hr.Loader("s3://b/numbers", batch_size=10, **where(server), **options) as loader:
        return sum(len(batch.ids) for batch in loader)


def test_a_clean_run_says_what_was_opened_and_nothing_else(
    dataset: Path, sim: simulator.Server, told: Callable[[], list[tuple[str, int, str]]]
) -> None:
    assert read_all(sim) == 400
    opened = told()
    assert [line[:2] for line in opened] == [("headrace.index", logging.INFO)]
    assert re.fullmatch(
        r"opened s3://b/numbers \(mds, 400 samples in 4 shards\), whose index was made in [0-9.]+ s; "
        r"`headrace index s3://b/numbers` stores it there, for all who open it",
        opened[0][2],
    )
    assert read_all(sim) == 400
    assert [re.sub(r"[0-9.]+ s$", "", text) for _, _, text in told()] == [
        "opened s3://b/numbers (mds, 400 samples in 4 shards) by an index made before in "
    ]


def test_the_command_of_the_line_stores_the_index(
    dataset: Path, s3: simulator.Server, told: Callable[[], list[tuple[str, int, str]]], cli: Any
) -> None:
    assert read_all(s3) == 400
    command = re.search("`headrace (.*)`", told()[0][2])
    assert command is not None
    assert cli(*command[1].split()).code == 0
    told()
    assert read_all(s3) == 400
    assert "by the index stored beside it" in told()[0][2]


def test_throttling_is_a_warning_with_the_last_request_and_advice(
    dataset: Path, buckets: Path, told: Callable[[], list[tuple[str, int, str]]]
) -> None:
    ranges = [("numbers/shard.00000.mds", 8 * i, 8) for i in range(64)]
    with (
        simulator.Server(buckets, behaviour={"throttle_rate": 0.3}, seed=3) as server,
        hr.Store("s3://b", **where(server)) as store,
    ):
        assert len(list(store.get_ranges(ranges))) == 64
    lines = [line for line in told() if line[0] == "headrace.store"]
    assert lines
    assert lines[0][1] == logging.WARNING
    assert re.fullmatch(
        r"\d\d+ requests to s3://b refused for their rate, and repeated more slowly, in the last \d+ s, "
        r"last: GET s3://b/numbers/.*503.*, attempt \d+ of 10, \d+ ms; see docs/stalls.md#throttled",
        lines[0][2],
    )


def test_lost_connections_are_told_with_their_number(
    dataset: Path, buckets: Path, told: Callable[[], list[tuple[str, int, str]]]
) -> None:
    with simulator.Server(buckets, behaviour={"reset_rate": 0.5}, seed=3) as server:
        assert read_all(server) == 400
    lines = [line for line in told() if line[0] == "headrace.store"]
    assert lines
    assert all(level == logging.INFO for _, level, _ in lines)
    assert re.match(r"\d+ requests? to s3://b/numbers repeated after failures in the last", lines[0][2])


def test_a_slow_batch_is_a_warning_with_cause_object_and_advice(
    dataset: Path, buckets: Path, told: Callable[[], list[tuple[str, int, str]]]
) -> None:
    with simulator.Server(buckets) as server:
        loader = hr.Loader("s3://b/numbers", batch_size=10, **where(server))
    slow = {"first_byte_p50_ms": 5500.0, "first_byte_p99_ms": 5500.0}
    with loader, simulator.Server(buckets, behaviour=slow, port=server.port):
        next(iter(loader))
        waiting = loader.stats()["stall_seconds"]["first_byte"]
    assert waiting > 5
    (line,) = [line for line in told() if line[0] == "headrace.loader"]
    assert line[1] == logging.WARNING
    assert re.fullmatch(
        r"waited \d+\.\d s for a batch, \d+\.\d s of it for first bytes from s3://b/numbers/shard\.0000\d\.mds "  # noqa: E501
        r"\[\d+, \d+\)( \(attempt \d\))?: .*; see docs/stalls.md#first_byte",
        line[2],
    )


def test_the_thread_passes_lines_on_by_itself(
    dataset: Path, sim: simulator.Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace")
    with hr.Dataset("s3://b/numbers", **where(sim)):
        until = time.monotonic() + 20
        while "opened s3://b/numbers" not in caplog.text and time.monotonic() < until:
            time.sleep(0.01)
    assert "opened s3://b/numbers" in caplog.text


def test_nothing_is_kept_that_no_logger_takes(dataset: Path, sim: simulator.Server) -> None:
    log.pass_on(all_counts=True)
    assert read_all(sim) == 400
    assert _native.take_log(True) == []


def test_secrets_in_urls_are_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    log._emit(log._loggers["store"], logging.WARNING, "GET https://me:pw@host/x?sig=abc: no", 0.0)
    assert caplog.messages == ["GET https://***@host/x?... no"]


FULL_DISK = """
import logging, resource, sys
import headrace as hr
from headrace.base import log
logging.basicConfig(format="%(name)s: %(message)s")
cache = hr.Cache(sys.argv[2], create=True)
with hr.Store(sys.argv[1], cache=sys.argv[2]) as plain:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    for i in range(3):
        plain.get(str(i))
cache._native.flush()
log.pass_on(all_counts=True)
"""


def test_a_cache_that_cannot_write_says_so(buckets: Path, sim: simulator.Server, tmp_path: Path) -> None:
    for i in range(3):
        (buckets / "b" / str(i)).write_bytes(bytes(300_000))
    options = where(sim)
    keys = {"AWS_ACCESS_KEY_ID": options["access_key"], "AWS_SECRET_ACCESS_KEY": options["secret_key"]}
    text = FULL_DISK.replace("cache=sys.argv[2])", f"cache=sys.argv[2], endpoint={options['endpoint']!r})")
    done = subprocess.run(
        [sys.executable, "-c", text, "s3://b", str(tmp_path / "cache")],
        env={**os.environ, **keys},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "headrace.cache: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_handler_that_fails_stops_no_other_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    class Bad(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("bad handler")

    bad = Bad()
    logger = log._loggers["store"]
    logger.addHandler(bad)
    try:
        log._emit(logger, logging.WARNING, "a", 0.0)
        log._emit(log._loggers["loader"], logging.WARNING, "b", 0.0)
    finally:
        logger.removeHandler(bad)
    assert "b" in caplog.messages
    assert "bad handler" in capsys.readouterr().err


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | environment,
    )


def test_the_environment_shows_lines_on_stderr_the_last_of_them_at_exit(dataset: Path) -> None:
    code = "import sys, headrace as hr\nds = hr.Dataset(sys.argv[1])"
    shown = python(code, str(dataset), HEADRACE_LOG="info")
    assert shown.returncode == 0
    assert re.fullmatch(
        r"[-0-9]+ [:,0-9]+ INFO headrace.index: opened .*/numbers \(mds, .*\n", shown.stderr
    ), shown.stderr
    assert python(code, str(dataset)).stderr == ""
    assert "log level 'loud': there are debug, info" in python(code, str(dataset), HEADRACE_LOG="loud").stderr


def test_the_command_line_shows_lines_where_asked(dataset: Path) -> None:
    def run(*arguments: str, **environment: str) -> str:
        command = [sys.executable, "-m", "headrace.cli", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=os.environ | environment
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert run("inspect", str(dataset)) == ""
    for line in (
        run("-v", "inspect", str(dataset)),
        run("--log-level", "debug", "inspect", str(dataset)),
        run("inspect", str(dataset), HEADRACE_LOG="info"),
    ):
        assert "INFO headrace.index: opened" in line


FORK = """
import logging, os, sys, threading, time
import headrace as hr
from headrace.base import log
logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s")
held = hr.Dataset(sys.argv[1])
child = os.fork()
if child == 0:
    alive = [t for t in threading.enumerate() if t.name == "headrace-log"]
    assert not alive, alive
    if sys.argv[2] == "open":
        with hr.Dataset(sys.argv[1]):
            assert [t for t in threading.enumerate() if t.name == "headrace-log"]
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(os.getpid(), child)
"""


@pytest.mark.parametrize("does", ["nothing", "open"])
def test_a_forked_child_tells_its_own_lines_and_none_of_its_parents(dataset: Path, does: str) -> None:
    done = python(FORK, str(dataset), does)
    assert done.returncode == 0, done.stderr
    parent, child = done.stdout.split()
    by_process = [line.split()[0] for line in done.stderr.splitlines() if "opened" in line]
    assert sorted(by_process) == sorted([parent] + ([child] if does == "open" else []))


def test_forks_while_lines_are_being_told_hang_nobody(dataset: Path) -> None:
    code = """
import logging, os, sys, threading
import headrace as hr
from headrace.base import log
logging.basicConfig(level=logging.INFO, stream=open(os.devnull, "w"))
held = hr.Dataset(sys.argv[1])
stop = threading.Event()
def tell():
    while not stop.is_set():
        with hr.Dataset(sys.argv[1]):
            log.pass_on(all_counts=True)
teller = threading.Thread(target=tell)
teller.start()
for i in range(50):
    child = os.fork()
    if child == 0:
        log.pass_on(all_counts=True)
        logging.getLogger("headrace.store").warning("child %d", i)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set()
teller.join()
"""
    done = python(code, str(dataset))
    assert done.returncode == 0, done.stderr


def test_an_exit_waits_for_no_handler(dataset: Path) -> None:
    code = """
import logging, sys, threading, time
import headrace as hr
class Stuck(logging.Handler):
    def handle(self, record):
        time.sleep(100)
logging.getLogger("headrace").addHandler(Stuck())
logging.getLogger("headrace").setLevel(logging.INFO)
held = hr.Dataset(sys.argv[1])
time.sleep(1.0)
"""
    began = time.monotonic()
    done = python(code, str(dataset))
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 20


def test_every_advice_points_to_a_section_that_exists() -> None:
    sources = [
        path
        for ending in ("*.cc", "*.h", "*.py")
        for part in ("src", "python")
        for path in (ROOT / part).rglob(ending)
    ]
    anchors = {
        anchor
        for path in sources
        if not path.name.endswith("_test.cc")
        for anchor in re.findall(r"docs/stalls\.md#([\w-]+)", path.read_text())
    }
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / "stalls.md").read_text(), re.M)
    there = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert anchors
    assert anchors <= there
    assert set(_native.STALL_CAUSES) <= there
