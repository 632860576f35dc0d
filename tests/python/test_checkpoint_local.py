"""Checkpoints that are saved on a local disk first and brought to the store in the background."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import where

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer
from headrace.checkpoint.copying import Copying
from headrace.checkpoint.flushing import Flusher
from headrace.checkpoint.leftovers import GRACE_SECONDS, delete_leftover, find_leftovers
from headrace.checkpoint.place import Place


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


def test_a_store_that_is_away_delays_and_loses_nothing(
    near: Path, far: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = _native.checkpoint_copy_file
    is_away = threading.Event()
    is_away.set()

    def fail(*arguments: Any) -> str:
        if is_away.is_set():
            raise hr.UnavailableError("the store is away")
        return copy(*arguments)

    monkeypatch.setattr(_native, "checkpoint_copy_file", fail)
    with open_both(near, far) as checkpointer:
        handle = checkpointer.save(1, state(1))
        handle.wait("local")
        with pytest.raises(hr.UnavailableError, match="the store is away"):
            handle.result()
        assert handle.done("local")
        assert is_state(checkpointer.load(), 1)
        is_away.clear()
        checkpointer.save(2, state(2)).result()
    # What comes late does not become the latest.
    with Checkpointer("s3://bucket/run", **far) as checkpointer:
        assert checkpointer.steps() == [1, 2]
        assert is_state(checkpointer.load(), 2)


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


def leave_on_the_disk(near: Path, far: Any, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job does that is killed before it brings a checkpoint over."""

    def killed(self: Flusher, *_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch, open_both(near, far) as checkpointer:
        patch.setattr(Flusher, "flush", killed)
        handle = checkpointer.save(step, state(step))
        handle.wait("local")
        with pytest.raises(RuntimeError, match="killed"):
            handle.result()


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
        checkpointer._sweep()
        left = client.list_multipart_uploads(Bucket="bucket")["Uploads"]
        assert sorted(each["Key"] for each in left) == [
            "run/other",
            "run/saves/000002-000000000005-0a0b0c0d/00000.safetensors",
        ]
        assert checkpointer.steps() == [1, 4]
