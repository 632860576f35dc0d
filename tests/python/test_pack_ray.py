"""Conversions on Ray: killed workers, killed drivers, claims."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import headrace as hr
from headrace import prepare
from headrace.prepare.on_ray import Claims, SharedTarget
from headrace.prepare.target import WORK, PackTarget
from headrace.store.store import open_native

PLAN = {"format": "mds", "compression": ""}
CONFIG = '{"compression": null, "hashes": []}'
PARTS = [{"name": f"shard.{i:05d}.mds", "bytes": 3, "samples": 1} for i in range(3)]
FINISHED = ".hrpack.done.json"
ROUNDS = 20 if os.environ.get("HEADRACE_LONG_TESTS") else 2
SAMPLES = [{"x": i, "text": f"sample {i} " * (i % 40)} for i in range(6000)]
OPTIONS = {"format": "mds", "shard_bytes": 16_000, "compression": "zstd:19", "hash": "sha1"}


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def place(tmp_path: Path) -> PackTarget:
    store = open_native(tmp_path / "target", "16MiB")
    target = PackTarget(store, PLAN)
    target.load()
    return target


def test_one_of_two_takers_wins(place: PackTarget) -> None:
    a, b = Claims(place, "a", 10, Hand()), Claims(place, "b", 10, Hand())
    a.beat()
    b.beat()
    assert a.take(3)
    assert not b.take(3)
    assert b.take(4)


def test_the_part_of_a_silent_owner_is_taken_after_the_lease(place: PackTarget) -> None:
    clock = Hand()
    a, b, c = Claims(place, "a", 10, clock), Claims(place, "b", 10, clock), Claims(place, "c", 10, clock)
    a.beat()
    assert a.take(0)
    assert not b.take(0)
    clock.now = 9.9
    assert not b.take(0)
    a.beat()
    clock.now = 19
    assert not b.take(0), "it moved since"
    clock.now = 29
    b.beat()
    assert b.take(0)
    assert not c.take(0), "the newest attempt counts, and its owner lives"


def test_the_part_of_an_owner_told_dead_is_taken_at_once_unless_it_is_done(place: PackTarget) -> None:
    a, b = Claims(place, "a", 10, Hand()), Claims(place, "b", 10, Hand())
    a.beat()
    assert a.take(0)
    assert a.take(1)
    place.put_part(1, PARTS[1], b"abc")
    b.bury("a")
    assert b.take(0)
    assert not b.take(1)


def records(place: PackTarget) -> list[str]:
    return place.notes(WORK)


def test_nothing_is_left_by_those_who_come_after_the_end(place: PackTarget) -> None:
    late = Claims(place, "late", 10, Hand())
    place.finish([], CONFIG)
    assert not late.take(0)
    late.beat()
    assert records(place) == []


def test_nothing_is_left_by_those_whom_the_end_overtakes(
    place: PackTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = place.put_note

    def then_finish(key: str, value: dict[str, object], *, if_absent: bool = False) -> None:
        put(key, value, if_absent=if_absent)
        if key.startswith(WORK):
            put(FINISHED, {})

    monkeypatch.setattr(place, "put_note", then_finish)
    Claims(place, "a", 10, Hand()).beat()
    assert records(place) == []
    place.remove_note(FINISHED)
    assert not Claims(place, "b", 10, Hand()).take(7)
    assert records(place) == []


def test_a_worker_taken_for_dead_writes_nothing_after_the_end(tmp_path: Path) -> None:
    place = SharedTarget(open_native(tmp_path / "target", "16MiB"), PLAN)
    place.load()
    place.put_part(0, PARTS[0], b"abc")
    assert list(place.done()) == [0]
    place.finish(PARTS[:1], CONFIG)
    place.put_part(1, PARTS[1], b"abc")
    assert place.notes("shard") == ["shard.00000.mds"]
    assert records(place) == []


def test_what_is_done_is_what_is_there(place: PackTarget) -> None:
    for number, facts in enumerate(PARTS):
        place.put_part(number, facts, b"abc")
    place.remove_note(PARTS[1]["name"])
    assert set(place.reopen()) == set(place.recorded()) == {0, 2}
    # The same after the end, whose record also tells of parts; and when records outlived it.
    place.put_part(1, PARTS[1], b"abc")
    place.finish(PARTS, CONFIG)
    place.record(1, PARTS[1])
    for part in PARTS[1:]:
        place.remove_note(part["name"])
    assert not place.finished()
    assert set(place.reopen()) == set(place.recorded()) == {0}
    assert not place.is_finished()


class InlineRay:
    """As much of ray as run_on_ray() uses: a cluster of half a core that runs tasks at once."""

    class exceptions:  # noqa: N801
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            pass

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 0.5}

    def remote(self, **_: object) -> Callable[[Callable[..., int]], SimpleNamespace]:
        return lambda function: SimpleNamespace(remote=function)

    def wait(self, tasks: list[int], timeout: float) -> tuple[list[int], list[int]]:
        return tasks, []

    def get(self, task: int) -> int:
        return task


def test_a_conversion_with_missing_shards_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", InlineRay())
    source, target = tmp_path / "source", tmp_path / "target"
    prepare.write(SAMPLES[:300], source, shard_bytes="64KiB")
    options: dict[str, object] = {"format": "webdataset", "shard_bytes": 60_000, "ray": True}
    first = prepare.convert(source, target, **options)  # type: ignore[arg-type]
    whole = outputs(target)
    assert len(whole) == first["shard_count"] > 4
    for name in sorted(whole)[1:3]:
        (target / name).unlink()
    again = prepare.convert(source, target, **options)  # type: ignore[arg-type]
    assert outputs(target) == whole
    assert again["resumed_shard_count"] == len(whole) - 2
    assert not [p for p in (target / WORK).rglob("*") if p.is_file()]


class RayElsewhere(InlineRay):
    """Whose tasks run in another directory."""

    def remote(self, **_: object) -> Callable[[Callable[..., int]], SimpleNamespace]:
        def run(function: Callable[..., int], *arguments: object) -> int:
            here = os.getcwd()
            os.chdir("/")
            sys.path[:] = [path for path in sys.path if path != here]
            sys.modules.pop("beside_the_driver", None)
            try:
                return function(*arguments)
            finally:
                os.chdir(here)

        return lambda function: SimpleNamespace(remote=partial(run, function))


@pytest.mark.parametrize(
    "source", ["lines", "lines/a.jsonl", "lines/{a,b}.jsonl", "lines/b.jsonl::lines/a.jsonl"]
)
def test_workers_read_what_the_driver_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", RayElsewhere())
    monkeypatch.chdir(tmp_path)
    Path("lines").mkdir()
    for i, name in enumerate("abc"):
        Path(f"lines/{name}.jsonl").write_text(
            "".join(json.dumps({"x": 1000 * i + k}) + "\n" for k in range(50))
        )
    prepare.convert(source, "plain", shard_bytes=300)
    assert prepare.convert(source, "target", shard_bytes=300, ray=True)["shard_count"] > 2
    assert outputs(Path("target")) == outputs(Path("plain"))


def test_workers_are_told_the_choices_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", RayElsewhere())
    for name in ("cat", "dog"):
        (tmp_path / "source" / name).mkdir(parents=True)
        (tmp_path / "source" / name / "1.bin").write_bytes(name.encode())
    prepare.convert(tmp_path / "source", tmp_path / "target", ray=True, dataset_options={"labels": "folder"})
    with hr.Dataset(tmp_path / "target", index_cache="") as dataset:
        assert [int(sample["label"]) for sample in dataset] == [0, 1]


def test_workers_find_modules_beside_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", RayElsewhere())
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    Path("beside_the_driver.py").write_text("def turn(sample):\n    return {'x': -sample['x']}\n")
    prepare.write([{"x": i} for i in range(50)], "source")
    prepare.convert("source", "target", map="beside_the_driver:turn", ray=True)
    with hr.Dataset("target", index_cache="") as dataset:
        assert [int(s["x"]) for s in dataset] == [-i for i in range(50)]


def test_what_other_machines_cannot_see_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", InlineRay())
    prepare.write(SAMPLES[:3], tmp_path / "source")
    with pytest.raises(hr.UnsupportedError, match="a list of datasets"):
        prepare.convert([tmp_path / "source"] * 2, tmp_path / "target", ray=True)  # type: ignore[arg-type]


def test_a_part_that_goes_away_meanwhile_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    prepare.write(SAMPLES[:300], source, shard_bytes="64KiB")

    def losing(*_: object, **__: object) -> dict[int, dict[str, object]]:
        return {}

    monkeypatch.setattr("headrace.prepare.on_ray.run_on_ray", losing)
    with pytest.raises(hr.ChangedError, match="went away"):
        prepare.convert(source, target, ray=True)


# --- with Ray itself ---

DRIVER = """
import json, sys
from headrace import prepare
options = json.loads(sys.argv[3])
print(json.dumps(prepare.convert(sys.argv[1], sys.argv[2], ray=True, workers=2, lease=1.0, **options)))
"""


def outputs(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir() if not p.name.startswith(".")}


def start_driver(source: Path, target: Path) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "AWS_SECRET_ACCESS_KEY": "verysecretvalue",
    }
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(source), str(target), json.dumps(OPTIONS)],
        env=environment,
        stdout=subprocess.PIPE,
    )


def worker_pids(target: Path) -> list[int]:
    """Processes that said so in the target."""
    pids = []
    for path in (target / WORK / "owners").glob("*") if (target / WORK / "owners").is_dir() else []:
        try:
            pids.append(json.loads(path.read_text())["pid"])
        except (OSError, ValueError, KeyError):
            continue
    return pids


def parts_done(target: Path) -> int:
    return len(list((target / WORK / "done").glob("*"))) if (target / WORK / "done").is_dir() else 0


def wait_for_parts(driver: subprocess.Popen[bytes], target: Path, count: int) -> bool:
    """False when the driver ended before so many parts were there."""
    while driver.poll() is None:
        if parts_done(target) >= count:
            return True
        time.sleep(0.005)  # Waits for an event in another process; how long it takes does not matter.
    return False


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ray") / "source"
    prepare.write(SAMPLES, path, format="webdataset", shard_bytes="1MiB")
    return path


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    target = tmp_path_factory.mktemp("ray") / "undisturbed"
    prepare.convert(source, target, workers=1, **OPTIONS)  # type: ignore[arg-type]
    return outputs(target)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_workers_and_drivers_leave_the_same_bytes(
    tmp_path: Path, source: Path, undisturbed: dict[str, bytes], seed: int
) -> None:
    pytest.importorskip("ray")
    rng = random.Random(seed)
    target = tmp_path / "target"
    part_count = len(undisturbed) - 1
    assert part_count > 50

    # A worker dies, and the driver goes on without it.
    driver = start_driver(source, target)
    if wait_for_parts(driver, target, rng.randrange(1, part_count // 3)):
        for pid in worker_pids(target)[:1]:
            os.kill(pid, signal.SIGKILL)
    # Then the driver dies.
    if wait_for_parts(driver, target, rng.randrange(part_count // 3, part_count - 10)):
        driver.kill()
    driver.communicate()
    # The same command goes on.
    driver = start_driver(source, target)
    out, _ = driver.communicate()
    assert driver.returncode == 0
    assert json.loads(out.splitlines()[-1])["sample_count"] == len(SAMPLES)
    assert outputs(target) == undisturbed
    assert not list((target / WORK).rglob("*/*"))
    assert not any(b"verysecretvalue" in p.read_bytes() for p in target.rglob("*") if p.is_file())
    with hr.Dataset(target, index_cache="") as dataset:
        assert len(dataset) == len(SAMPLES)
