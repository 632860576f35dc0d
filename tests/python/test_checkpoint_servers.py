"""Checkpoints at servers that we did not write: versitygw, MinIO, Azurite, fake-gcs-server."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework_ranks import Job, run_jobs
from real_servers import make_container, server

import headrace as hr
from headrace.checkpoint import Checkpointer, Cold


@pytest.fixture(params=["S3", "MINIO", "AZURE", "GCS"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]]:
    """URL of an empty prefix, and the options that lead there."""
    name = request.param
    prefix = uuid.uuid4().hex
    options: dict[str, Any] = {"memory": "64MiB", "part_bytes": 5 << 20, "timeout": 30.0}
    if name in ("S3", "MINIO"):
        options |= {
            "endpoint": server(f"{name}_ENDPOINT"),
            "access_key": server("S3_ACCESS_KEY"),
            "secret_key": server("S3_SECRET_KEY"),
        }
        return f"s3://{server('S3_BUCKET')}/{prefix}", options
    if name == "AZURE":
        monkeypatch.setenv("AZURE_STORAGE_KEY", server("AZURE_KEY"))
        account = server("AZURE_ACCOUNT")
        make_container()
        return (
            f"az://{account}/{server('AZURE_CONTAINER')}/{prefix}",
            options | {"endpoint": server("AZURE_ENDPOINT").removesuffix(f"/{account}")},
        )
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server("GCS_ENDPOINT"))
    return f"gs://{server('GCS_BUCKET')}/{prefix}", options


def state(step: int, count: int = 1_500_000) -> dict[str, Any]:
    """Three parts."""
    return {"x": np.random.default_rng(step).random(count), "n": step}


def is_state(got: Any, step: int, count: int = 1_500_000) -> bool:
    return got["n"] == step and np.array_equal(got["x"], state(step, count)["x"])


def check_that_parts_come_back(
    url: str, options: dict[str, Any], between: Callable[[], None] = lambda: None
) -> None:
    """``between``: called behind the first save."""
    with Checkpointer(url, keep=2, **options) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, state(step)).result()
            if step == 1:
                between()
    with Checkpointer(url, **options) as checkpointer:
        assert checkpointer.latest() == 3
        assert checkpointer.steps() == [2, 3]
        for step in (2, 3):
            checkpointer.verify(step)
            assert is_state(checkpointer.load(step), step)
        assert len(list(checkpointer._far.store.list("saves/"))) == 4


def test_what_is_saved_in_parts_comes_back(place: tuple[str, dict[str, Any]]) -> None:
    check_that_parts_come_back(*place)


def test_a_bucket_that_is_not_there_is_no_empty_one(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    with Checkpointer(url, **options) as checkpointer:
        assert (checkpointer.latest(), checkpointer.steps()) == (None, [])
    root, prefix = url.rsplit("/", 1)
    wrong = f"{root.rsplit('/', 1)[0]}/nothing-{prefix[:8]}/{prefix}"
    with Checkpointer(wrong, **options) as checkpointer:
        for ask in (checkpointer.latest, checkpointer.steps, checkpointer.load):
            with pytest.raises(hr.NotFoundError, match=r"bucket|container"):
                ask()


def test_what_has_not_changed_is_not_written_again(place: tuple[str, dict[str, Any]]) -> None:
    """What a put tells as the version is what a head, and a list, tell of it."""
    url, options = place
    frozen = np.random.default_rng(0).random(1_500_000)
    with Checkpointer(url, differential=True, keep=1, **options) as checkpointer:
        for step in (1, 2, 3):
            saved = checkpointer.save(step, {"frozen": frozen, **state(step, 100)}).result()
            assert (saved.written < 20_000) == bool(saved.earlier) == (step > 1)
        checkpointer._worker.submit(int).result()
        assert checkpointer.steps() == [3]
        needs = checkpointer._far.needs()
        assert checkpointer._far._known_needs.keys() == {
            ("steps/000000000003", checkpointer._far.store.head("steps/000000000003").etag)
        }
        assert len(needs.keys) == 1
        assert np.array_equal(checkpointer.load()["frozen"], frozen)
        checkpointer.delete(3)
        assert list(checkpointer._far.store.list("saves/")) == []


def check_that_one_job_has_a_step(url: str, options: dict[str, Any]) -> None:
    """Conditional puts: of the fence, and of the manifest."""
    with Checkpointer(url, **options) as first, Checkpointer(url, **options) as second:
        first.save(1, state(1, 100)).result()
        second.save(2, state(2, 100)).result()
        with pytest.raises(hr.ChangedError, match="another job saves here now"):
            first.save(3, state(3, 100)).result()
        with pytest.raises(hr.ChangedError, match="step 1 was saved before"):
            second.save(1, state(4, 100)).result()
        second.save(2, state(5, 100), overwrite=True).result()
        assert is_state(second.load(1), 1, 100)
        assert is_state(second.load(), 5, 100)


def test_of_two_jobs_one_has_the_step(place: tuple[str, dict[str, Any]]) -> None:
    check_that_one_job_has_a_step(*place)


def test_local_checkpoints_are_brought_over(place: tuple[str, dict[str, Any]], tmp_path: Any) -> None:
    url, options = place
    with Checkpointer(url, local=tmp_path / "disk", **options) as checkpointer:
        checkpointer.save(1, state(1)).result()
    with Checkpointer(url, **options) as checkpointer:
        checkpointer.verify(1)
        assert is_state(checkpointer.load(), 1)


def test_damage_at_the_server_is_seen(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    with Checkpointer(url, **options) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step, 5000)).result()
        store = checkpointer._far.store
        (key,) = (i.key for i in store.list("saves/") if "-000000000002-" in i.key and "safetensors" in i.key)
        data = bytearray(store.get(key))
        data[-9] ^= 1
        store.put(key, bytes(data))
        with pytest.warns(RuntimeWarning, match="loaded step 1"):
            assert is_state(checkpointer.load(), 1, 5000)


def test_ranks_write_parts_of_one_object(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    if url.startswith("gs://"):
        pytest.skip("of the emulator's uploads only the process that began them knows")
    options = {name: value for name, value in options.items() if name not in ("memory", "part_bytes")}
    program = Path(__file__).with_name("safetensors_ways.py")
    (ranks,) = run_jobs(program, [Job("large", url, 2, options=options)])
    assert ranks == [[True] * 3] * 2, ranks
    keys = {info.key for info in hr.Store(url, **options).list()}
    files = {f"model-{number:05}-of-00002.safetensors" for number in (1, 2)}
    assert keys == {*files, "model.safetensors.index.json"}


def test_older_ones_move_to_a_colder_class(place: tuple[str, dict[str, Any]]) -> None:
    """Where a server keeps classes; where it does not, and says nothing of it, it is told in the log."""
    url, options = place
    if url.startswith("gs://"):
        pytest.skip("the emulator's interface takes no classes")
    wanted = "Cool" if url.startswith("az://") else "REDUCED_REDUNDANCY"
    with Checkpointer(url, cold=Cold(wanted, after=2), **options) as checkpointer:
        for step in (1, 2, 3, 4):
            checkpointer.save(step, state(step)).result()
    with Checkpointer(url, **options) as checkpointer:
        told = checkpointer._far.storage_classes()
        classes = [told.get(checkpointer.info(step).files[0].key) for step in (1, 2, 3, 4)]
        if classes[0] == wanted:
            assert classes[1] == wanted
            assert wanted not in classes[2:]
        else:
            assert set(classes) <= {"STANDARD", None}, "versitygw"
        for step in (1, 2, 3, 4):
            checkpointer.verify(step)
            assert is_state(checkpointer.load(step), step)


def test_azures_archive_is_said(place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    if not url.startswith("az://"):
        pytest.skip("Azure's")
    with Checkpointer(url, cold=Cold("Archive"), **options) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state(step)).result()
    with Checkpointer(url, **options) as checkpointer:
        with pytest.raises(hr.UnsupportedError, match=r"step 1 .*in Archive.*set-tier"):
            checkpointer.load(1)
        assert checkpointer.load()["n"] == 2
