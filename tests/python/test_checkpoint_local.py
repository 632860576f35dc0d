"""Checkpoints that are saved on a local disk first and brought to the store in the background."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import where
from test_checkpoint_group import Values

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer
from headrace.checkpoint.copying import Copying
from headrace.checkpoint.flushing import Flusher
from headrace.checkpoint.group import Group
from headrace.checkpoint.leftovers import delete_leftover, find_leftovers
from headrace.checkpoint.place import GRACE_SECONDS, Place


@pytest.fixture
def far(tmp_path: Path) -> Any:
    (tmp_path / "bucket").mkdir()
    with simulator.Server(str(tmp_path)) as server:
        yield where(server)


@pytest.fixture
def near(tmp_path: Path) -> Path:
    return tmp_path / "disk"


def open_both(near: Path, far: Any, **options: Any) -> Checkpointer:
    return Checkpointer("s3://bucket/run", local=near, memory="64MiB", part_bytes=5 << 20, **far, **options)


def state(step: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(step).random(700_000), "n": step}


def is_state(got: Any, step: int) -> bool:
    return got["n"] == step and bool((got["x"] == state(step)["x"]).all())


def at(url: Any, **options: Any) -> list[int]:
    with Checkpointer(url, **options) as checkpointer:
        return checkpointer.steps()


def test_it_is_local_first_and_then_remote(near: Path, far: Any) -> None:
    with open_both(near, far, keep_local=2) as checkpointer:
        for step in (1, 2, 3):
            handle = checkpointer.save(step, state(step))
            handle.wait("local")
            assert step in at(near)
        checkpointer.wait()
        assert is_state(checkpointer.load(), 3)
        assert is_state(checkpointer.load(1), 1)
    assert at("s3://bucket/run", **far) == [1, 2, 3]
    assert at(near) == [2, 3]
    assert len(list((near / "saves").iterdir())) == 2
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.verify(step)


def test_what_lies_on_the_disk_is_read_there(near: Path, far: Any) -> None:
    with open_both(near, far) as checkpointer:
        checkpointer.save(1, state(1)).result()
        before = checkpointer._far.store.stats()["store.received_bytes"]
        assert is_state(checkpointer.load(), 1)
        assert checkpointer._far.store.stats()["store.received_bytes"] - before < 20_000


@pytest.mark.parametrize("kind", ["*.safetensors", "*.index"])
@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_what_is_broken_there_comes_from_the_store(near: Path, far: Any, kind: str, damage: str) -> None:
    with open_both(near, far) as checkpointer:
        checkpointer.save(1, state(1)).result()
        (path,) = (near / "saves").glob(f"*/{kind}")
        data = bytearray(path.read_bytes())
        data[-9] ^= 1
        path.unlink() if damage == "gone" else path.write_bytes(data)
        assert is_state(checkpointer.load(), 1)
        assert checkpointer.rejected == []


@pytest.mark.parametrize("steps", [(1, 2), (20, 11)])
def test_a_store_that_is_away_delays_and_loses_nothing(
    near: Path, far: Any, monkeypatch: pytest.MonkeyPatch, steps: tuple[int, int]
) -> None:
    """Also where the job goes back to an earlier step meanwhile."""
    early, later = steps
    copy = _native.checkpoint_copy_file
    is_away = threading.Event()
    is_away.set()

    def fail(*arguments: Any) -> str:
        if is_away.is_set():
            raise hr.UnavailableError("the store is away")
        return copy(*arguments)

    monkeypatch.setattr(_native, "checkpoint_copy_file", fail)
    with open_both(near, far) as checkpointer:
        handle = checkpointer.save(early, state(early))
        handle.wait("local")
        with pytest.raises(hr.UnavailableError, match="the store is away"):
            handle.result()
        assert handle.done("local")
        assert is_state(checkpointer.load(), early)
        is_away.clear()
        checkpointer.save(later, state(later)).result()
    # What comes late does not become the latest.
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        assert checkpointer.steps() == sorted(steps)
        assert is_state(checkpointer.load(), later)


def test_the_next_job_brings_over_what_one_has_left(
    near: Path, far: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Checkpointer(near) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step)).result()
    with open_both(near, far) as checkpointer:
        assert is_state(checkpointer.load(), 2)
        checkpointer.save(3, state(3)).result()
    assert at("s3://bucket/run", **far) == [1, 2, 3]


def test_what_does_not_match_its_sum_is_not_brought_over(near: Path, far: Any) -> None:
    with Checkpointer(near) as checkpointer:
        checkpointer.save(1, state(1)).result()
    (path,) = (near / "saves").glob("*/*.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with open_both(near, far) as checkpointer:
        checkpointer.save(2, state(2)).result()
    assert at("s3://bucket/run", **far) == [2]


def test_a_step_that_was_saved_anew_elsewhere_is_read_there(near: Path, far: Any) -> None:
    with open_both(near, far) as checkpointer:
        checkpointer.save(1, state(1)).result()
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        checkpointer.save(1, state(5), overwrite=True).result()
    with open_both(near, far) as checkpointer:
        assert is_state(checkpointer.load(), 5)


KILLED = """
import os, sys
import numpy as np
from headrace import _native
from headrace.checkpoint import Checkpointer
near, number, options = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
calls = 0
def counted(function):
    def call(*arguments, **more):
        global calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), 9)
        return function(*arguments, **more)
    return call
for name in ("checkpoint_copy_file", "checkpoint_write_small"):
    setattr(_native, name, counted(getattr(_native, name)))
with Checkpointer("s3://bucket/run", local=near, memory="64MiB", **options) as checkpointer:
    for step in (1, 2):
        checkpointer.save(step, {"x": np.random.default_rng(step).random(700_000), "n": step}).result()
print("done")
"""


def test_it_may_be_killed_between_any_two_writes(tmp_path: Path, far: Any) -> None:
    """Each write of two saves in turn: the next job loads the last checkpoint, goes on, and has all of it at
    the store."""
    number = 0
    while True:
        number += 1
        near = tmp_path / f"disk{number}"
        options = {**far}
        run = subprocess.run(
            [sys.executable, "-c", KILLED, str(near), str(number), repr(options)],
            capture_output=True,
            text=True,
        )
        if run.stdout == "done\n":
            break
        assert run.returncode == -signal.SIGKILL, run.stderr
        with open_both(near, far) as checkpointer:
            latest = checkpointer.latest()
            if latest is not None:
                assert is_state(checkpointer.load(), latest)
            checkpointer.save(3, state(3), overwrite=True).result()
            assert is_state(checkpointer.load(), 3)
        with Checkpointer("s3://bucket/run", **far) as checkpointer:
            assert set(checkpointer.steps()) >= ({3} if latest is None else {3, latest})
            for step in checkpointer.steps():
                checkpointer.verify(step)
            for step in checkpointer.steps():
                checkpointer.delete(step)
            checkpointer._place.store.delete("LATEST")
    assert number > 10
    assert os.path.exists(near)


def leave_on_the_disk(
    near: Path,
    far: Any,
    step: int,
    monkeypatch: pytest.MonkeyPatch,
    *,
    content: int = 0,
    overwrite: bool = True,
    **options: Any,
) -> None:
    """As a job does that is killed before it brings a checkpoint over; with ``content`` another than the step
    tells. By default it replaces what is there."""

    def killed(self: Flusher, *_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch, open_both(near, far, **options) as checkpointer:
        patch.setattr(Flusher, "flush", killed)
        handle = checkpointer.save(step, state(content or step), overwrite=overwrite)
        handle.wait("local")
        with pytest.raises(RuntimeError, match="killed"):
            handle.result()


def flip(path: Path) -> None:
    """One bit."""
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


def bring_over(near: Path, far: Any) -> None:
    """What the next job does before its first save."""
    with open_both(near, far) as checkpointer:
        checkpointer._take_fence()


@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("first", ["what was left", "what is saved"])
def test_what_is_saved_while_what_was_left_comes_over_is_there(
    near: Path, far: Any, step: int, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_on_the_disk(near, far, 2, monkeypatch)
    real, is_local, is_resumed = Flusher.resume, threading.Event(), threading.Event()

    def resume(self: Flusher, fence: int) -> None:
        if first == "what is saved":
            assert is_local.wait(60)
        real(self, fence)
        is_resumed.set()

    monkeypatch.setattr(Flusher, "resume", resume)
    with open_both(near, far) as checkpointer:
        checkpointer._take_fence()
        if first == "what was left":
            assert is_resumed.wait(60)
        handle = checkpointer.save(step, state(step) | {"m": "new"})
        handle.wait("local")
        is_local.set()
        handle.result()
        assert checkpointer.load()["m"] == "new"
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        assert checkpointer.steps() == sorted({2, step})
        assert checkpointer.load(step)["m"] == "new"
        assert is_state(checkpointer.load(2), 2)


@pytest.mark.parametrize("who", ["the job itself", "ckpt gc"])
def test_what_is_brought_over_late_is_not_swept_meanwhile(
    near: Path, far: Any, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_on_the_disk(near, far, 2, monkeypatch)
    real = Place.check_fence

    def sweep_first(self: Place, number: int) -> None:
        """More than 15 minutes after the job has begun, before it commits."""
        monkeypatch.setattr(Place, "check_fence", real)
        if who == "ckpt gc":
            for row in find_leftovers(self, now=time.time() + 2 * GRACE_SECONDS):
                if row.goes:
                    delete_leftover(self, row)
        else:
            for save in self.orphans(number):
                self.delete_save(save)
        real(self, number)

    monkeypatch.setattr(Place, "check_fence", sweep_first)
    bring_over(near, far)
    assert Place.check_fence is real
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        assert is_state(checkpointer.load(2), 2)


@pytest.mark.parametrize("keep_local", [0, 1, 3])
def test_as_many_as_asked_for_stay_on_the_disk(near: Path, far: Any, keep_local: int) -> None:
    with open_both(near, far, keep_local=keep_local) as checkpointer:
        for step in range(1, 6):
            checkpointer.save(step, state(step)).result()
            assert at(near) == list(range(1, step + 1))[-keep_local or step :]


def test_what_need_not_stay_does_not_come_back_from_the_disk(near: Path, far: Any) -> None:
    with open_both(near, far, keep=1, keep_local=2) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, state(step)).result()
    assert at(near) == [3]
    bring_over(near, far)
    assert at("s3://bucket/run", **far) == [3]


def test_what_was_deleted_does_not_come_back_from_the_disk(near: Path, far: Any) -> None:
    with open_both(near, far, keep_local=2) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step)).result()
        checkpointer.delete(2)
    bring_over(near, far)
    assert at("s3://bucket/run", **far) == [1]


@pytest.mark.parametrize(("copied", "newest"), [(1000, 2000), (3000, 3000)])
def test_a_copy_at_the_store_is_as_old_as_its_step(
    near: Path, far: Any, tmp_path: Path, copied: int, newest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Checkpointer(tmp_path / "other") as checkpointer:
        checkpointer.save(copied, state(copied)).result()
    with (
        Checkpointer(tmp_path / "other") as source,
        Checkpointer("s3://bucket/run", **far) as target,
    ):
        Copying(source._far, source.info(copied), target._far).run()
    leave_on_the_disk(near, far, 2000, monkeypatch)
    with open_both(near, far) as checkpointer:
        assert is_state(checkpointer.load(), newest)
    bring_over(near, far)
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        assert checkpointer.steps() == sorted((copied, 2000))
        assert is_state(checkpointer.load(), newest)


def test_uploads_that_nobody_completes_go(far: Any) -> None:
    boto3 = pytest.importorskip("boto3")
    client = boto3.client(
        "s3",
        endpoint_url=far["endpoint"],
        aws_access_key_id=far["access_key"],
        aws_secret_access_key=far["secret_key"],
        region_name="us-east-1",
    )

    def begin(key: str) -> None:
        client.create_multipart_upload(Bucket="bucket", Key=f"run/{key}")

    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        checkpointer.save(1, state(1)).result()
    begin("saves/000001-000000000002-0a0b0c0d/00000.safetensors")  # As a job leaves it that is killed.
    begin("saves/000001-000000000003-0a0b0c0d/00000.safetensors")
    begin("other")
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        checkpointer.save(4, state(4)).result()
        begin("saves/000002-000000000005-0a0b0c0d/00000.safetensors")  # May be under way.
        later = time.time() + 2 * GRACE_SECONDS
        rows = [row for row in find_leftovers(checkpointer._far, now=later) if row.goes]
        assert [(row.step, row.objects, row.bytes) for row in rows] == [(2, 1, 0), (3, 1, 0)]
        delete_leftover(checkpointer._far, rows[0])
        checkpointer._sweep(checkpointer._far.highest_fence())
        left = client.list_multipart_uploads(Bucket="bucket")["Uploads"]
        assert sorted(each["Key"] for each in left) == [
            "run/other",
            "run/saves/000002-000000000005-0a0b0c0d/00000.safetensors",
        ]
        assert checkpointer.steps() == [1, 4]


class Away:
    """A store that takes nothing while it is away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_away = False
        self._copy = _native.checkpoint_copy_file
        monkeypatch.setattr(_native, "checkpoint_copy_file", self._call)

    def _call(self, *arguments: Any) -> str:
        if self.is_away:
            raise hr.UnavailableError("the store is away")
        return self._copy(*arguments)


@pytest.mark.parametrize("differential", [False, True])
def test_what_a_killed_job_was_to_replace_is_replaced_by_the_next(
    near: Path, far: Any, monkeypatch: pytest.MonkeyPatch, differential: bool
) -> None:
    options = {**far, "differential": differential}
    with open_both(near, options) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step)).result()
    leave_on_the_disk(near, options, 1, monkeypatch, content=7)
    with open_both(near, options) as checkpointer:
        assert is_state(checkpointer.load(), 7)
        checkpointer.save(3, state(3)).result()
        checkpointer.save(4, state(3) | {"y": np.ones(9)}).result()
        assert is_state(checkpointer.load(1), 7)
    assert at(near) == [4]
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        assert checkpointer.steps() == [1, 2, 3, 4]
        for step in checkpointer.steps():
            checkpointer.verify(step)
        assert is_state(checkpointer.load(1), 7)
        assert is_state(checkpointer.load(), 3)


@pytest.mark.parametrize("differential", [False, True])
def test_what_could_not_replace_another_does_so_later(
    near: Path,
    far: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    differential: bool,
) -> None:
    store = Away(monkeypatch)
    with open_both(near, far, differential=differential) as checkpointer:
        checkpointer.save(1, state(1)).result()
        store.is_away = True
        with pytest.raises(hr.UnavailableError, match="the store is away"):
            checkpointer.save(1, state(7), overwrite=True).result()
        store.is_away = False
        for step in (2, 3, 4):
            checkpointer.save(step, state(step)).result()
    assert "on no node" not in caplog.text
    assert at(near) == [4]
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        assert is_state(checkpointer.load(1), 7)


@pytest.mark.parametrize("differential", [False, True])
def test_what_was_not_to_replace_another_never_does(
    near: Path, far: Any, caplog: pytest.LogCaptureFixture, differential: bool
) -> None:
    options = {**far, "differential": differential}
    with open_both(near, options) as checkpointer:
        checkpointer.save(1, state(1)).result()
        with pytest.raises(hr.ChangedError, match="step 1 was saved before"):
            checkpointer.save(1, state(7)).result()
        assert is_state(checkpointer.load(1), 1)
    bring_over(near, options)
    with open_both(near, options) as checkpointer:
        with pytest.raises(hr.ChangedError, match="step 1 was saved before"):
            checkpointer.save(1, state(8)).result()
        for step in (2, 3):
            checkpointer.save(step, state(step)).result()
        assert is_state(checkpointer.load(1), 1)
        checkpointer._sweep(checkpointer._far.highest_fence())
    assert "still on the local disk" not in caplog.text
    assert len(list((near / "saves").iterdir())) == 1


@pytest.mark.parametrize("at", ["before", "between data and index"])
@pytest.mark.parametrize("world", [1, 2])
def test_what_is_replaced_on_the_disk_fails_no_other_save(
    tmp_path: Path, far: Any, monkeypatch: pytest.MonkeyPatch, at: str, world: int
) -> None:
    """The first is brought over when the second is on the disk."""
    real, is_there = Flusher._copy_file, threading.Event()

    def waits(self: Flusher, *arguments: Any) -> None:
        if at == "before":
            assert is_there.wait(60)
        real(self, *arguments)

    def index_bytes(self: Place, file: Any) -> bytes:
        assert is_there.wait(60)
        return real_index_bytes(self, file)

    real_index_bytes = Place.index_bytes
    monkeypatch.setattr(Flusher, "_copy_file", waits)
    monkeypatch.setattr(Place, "index_bytes", index_bytes)
    values = Values()

    def run(rank: int) -> None:
        group = Group(rank, world, values if world > 1 else None, 60.0)
        with open_both(tmp_path / "disk", far, group=group) as checkpointer:
            first = checkpointer.save(1, state(1))
            second = checkpointer.save(1, state(5), overwrite=True)
            second.wait("local")
            is_there.set()
            second.result()
            checkpointer.save(2, state(2)).result()
            checkpointer.wait()
            with pytest.raises(hr.ChangedError, match="step 1 was saved again with overwrite=True"):
                first.result()

    with ThreadPoolExecutor(world) as threads:
        for each in [threads.submit(run, rank) for rank in range(world)]:
            each.result()
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        assert checkpointer.steps() == [1, 2]
        checkpointer.verify(1)
        assert is_state(checkpointer.load(1), 5)


@pytest.mark.parametrize("differential", [False, True])
def test_a_save_does_not_replace_one_that_waits_on_the_disk(
    near: Path, far: Any, monkeypatch: pytest.MonkeyPatch, differential: bool
) -> None:
    real, may_go = Flusher.flush, threading.Event()

    def flush(self: Flusher, *arguments: Any, **options: Any) -> Any:
        assert may_go.wait(60)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Flusher, "flush", flush)
    with open_both(near, far, differential=differential) as checkpointer:
        first = checkpointer.save(7, state(7))
        first.wait("local")
        with pytest.raises(hr.ChangedError, match=r"step 7 was saved before .*overwrite=True"):
            checkpointer.save(7, state(1)).wait("local")
        may_go.set()
        first.result()
        with pytest.raises(hr.ChangedError, match="step 7 was saved before"):
            checkpointer.save(7, state(2)).result()
        assert is_state(checkpointer.load(), 7)
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        checkpointer.verify(7)
        assert is_state(checkpointer.load(), 7)


def test_what_a_killed_job_was_not_to_replace_stays(
    near: Path, far: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        checkpointer.save(1, state(1)).result()
    leave_on_the_disk(near, far, 1, monkeypatch, content=7, overwrite=False)
    with open_both(near, far) as checkpointer:
        checkpointer.save(2, state(2)).result()
        assert is_state(checkpointer.load(1), 1)
    assert "step 1, which an earlier job has left, is not brought over" in caplog.text
    assert at(near) == [2]
    assert len(list((near / "saves").iterdir())) == 1
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        checkpointer.verify(1)
        assert is_state(checkpointer.load(1), 1)


def test_what_was_saved_later_at_the_store_is_not_replaced(
    near: Path, far: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_on_the_disk(near, far, 1, monkeypatch)
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        checkpointer.save(1, state(5)).result()
    with open_both(near, far) as checkpointer:
        checkpointer.save(2, state(2)).result()
        assert is_state(checkpointer.load(1), 5)
    assert at(near) == [2]


def test_manifests_that_this_job_brought_over_are_not_read_again(
    near: Path, far: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_both(near, far, keep_local=2) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step)).result()
    real, read = Place.manifest, []

    def manifest(self: Place, step: int) -> Any:
        read.extend([step] if self.url.startswith("s3:") else [])
        return real(self, step)

    monkeypatch.setattr(Place, "manifest", manifest)
    with open_both(near, far, keep_local=2) as checkpointer:
        for step in (3, 4, 5):
            checkpointer.save(step, state(step)).result()
    assert sorted(read) == [1, 2, 2]  # When the job began: check_key(), and each once.


def test_a_broken_manifest_on_the_disk_fails_no_save(
    near: Path, far: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with open_both(near, far, keep_local=2, keep=3) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step)).result()
        flip(near / "steps" / f"{1:012}")
        for step in (3, 4):
            checkpointer.save(step, state(step)).result()
        assert caplog.text.count("what the local disk has of step 1 is passed over") == 1
        assert is_state(checkpointer.load(2), 2)
    assert at(near) == [3, 4]
    assert at("s3://bucket/run", **far) == [2, 3, 4]


@pytest.mark.parametrize("broken", [1, 3])
def test_a_broken_manifest_on_the_disk_keeps_no_other_there(near: Path, far: Any, broken: int) -> None:
    with Checkpointer(near) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, state(step)).result()
    flip(near / "steps" / f"{broken:012}")
    bring_over(near, far)
    assert at("s3://bucket/run", **far) == sorted({1, 2, 3} - {broken})


def test_what_cannot_be_deleted_on_the_disk_fails_no_save(
    near: Path, far: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> int:
        raise hr.UnavailableError("the disk does not answer")

    with open_both(near, far) as checkpointer:
        checkpointer.save(1, state(1)).result()
        monkeypatch.setattr(Place, "delete_save", fail)
        checkpointer.save(2, state(2)).result()
    assert "the disk does not answer" in caplog.text


def test_what_is_on_the_disk_only_is_verified(near: Path, far: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_on_the_disk(near, far, 1, monkeypatch)
    (path,) = (near / "saves").glob("*/*.safetensors")
    with open_both(near, far) as checkpointer:
        checkpointer.verify(1)
        flip(path)
        with pytest.raises(hr.CorruptError, match=r"00000\.safetensors"):
            checkpointer.verify(1)
        with pytest.raises(hr.CorruptError, match=r"^x, of rank 0: "):
            checkpointer.load(1)


@pytest.mark.parametrize("kind", ["*.safetensors", "*.index"])
@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_what_a_later_job_brought_over_is_read_and_verified_there(
    near: Path, far: Any, kind: str, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is called otherwise at the store."""
    leave_on_the_disk(near, far, 1, monkeypatch)
    bring_over(near, far)
    (path,) = (near / "saves").glob(f"*/{kind}")
    with open_both(near, far) as checkpointer:
        before = checkpointer._far.store.stats()["store.received_bytes"]
        assert is_state(checkpointer.load(1), 1)  # From the disk.
        assert checkpointer._far.store.stats()["store.received_bytes"] - before < 20_000
        checkpointer.verify(1)
        flip(path) if damage == "flipped" else path.unlink()
        checkpointer.verify(1)
        assert is_state(checkpointer.load(1), 1)
        assert is_state(checkpointer.load(), 1)
        assert checkpointer.rejected == []
        flip(next(each for each in near.parent.glob("bucket/run/saves/*/*.safetensors")))
        with pytest.raises(hr.CorruptError):
            checkpointer.verify(1)


def on_two_nodes(disks: list[Path], far: Any, *steps: int, level: str = "remote", content: int = 0) -> None:
    """A job that saves steps; ``content``: default, as the step."""
    values = Values()

    def run(rank: int) -> None:
        with open_both(disks[rank], far, group=Group(rank, 2, values, 60.0)) as checkpointer:
            for step in steps:
                rows = {"all": np.arange(600_000.0), f"rank{rank}": np.full(9, content or step)}
                checkpointer.save(step, rows, overwrite=content != 0).wait(level)
            for handle in checkpointer._saves if level == "local" else []:
                with pytest.raises(hr.HeadraceError):
                    handle.result()

    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(run, rank) for rank in range(2)]:
            each.result()


def test_what_was_to_be_replaced_by_several_ranks_is_replaced_by_the_next_job(
    tmp_path: Path, far: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks = [tmp_path / "disk0", tmp_path / "disk1"]
    on_two_nodes(disks, far, 1, 2)
    store = Away(monkeypatch)
    store.is_away = True
    on_two_nodes(disks, far, 1, level="local", content=7)
    store.is_away = False
    on_two_nodes(disks, far, 3, 4)
    for disk in disks:
        assert len(list((disk / "saves").iterdir())) == 1
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        assert checkpointer.steps() == [1, 2, 3, 4]
        got = checkpointer.load(1)
        assert (got["rank0"] == 7).all()
        assert (got["rank1"] == 7).all()


@pytest.mark.parametrize("is_short", [False, True])
def test_what_unfinished_saves_left_on_other_nodes_is_swept(
    tmp_path: Path, far: Any, monkeypatch: pytest.MonkeyPatch, is_short: bool
) -> None:
    """Once this job has gone on for long enough, or, where it is short, the one before it had begun long
    before."""
    disks = [tmp_path / "disk0", tmp_path / "disk1"]
    on_two_nodes(disks, far, 1, 2)
    named = {path.name for disk in disks for path in (disk / "saves").iterdir()}
    assert len(named) == 1
    for disk in disks:  # As a job leaves it that is killed.
        for save in ("000001-000000000009-0a0b0c0d", "000009-000000000009-0a0b0c0d"):
            (disk / "saves" / save).mkdir()
            (disk / "saves" / save / "00001.safetensors").write_bytes(b"x" * 100)
    # Needed by a manifest that is on the other node's disk alone, and not at the store.
    (save,) = named
    (disks[1] / "steps").mkdir()
    shutil.move(disks[0] / "steps" / f"{2:012}", disks[1] / "steps")
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        checkpointer.delete(2)
    on_two_nodes(disks, far, 3, 4)
    assert all((disk / "saves" / "000001-000000000009-0a0b0c0d").exists() for disk in disks)
    if is_short:
        then = time.time() - GRACE_SECONDS
        os.utime(tmp_path / "bucket/run/fence/000002", (then, then))
    else:
        monkeypatch.setattr("headrace.checkpoint.flushing.GRACE_SECONDS", 0.0)
    on_two_nodes(disks, far, 5)
    for disk in disks:
        left = {path.name for path in (disk / "saves").iterdir()}
        assert len(left) == 3
        assert left > {save, "000009-000000000009-0a0b0c0d"}
