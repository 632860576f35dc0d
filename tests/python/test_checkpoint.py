"""Checkpoints of one process: what comes back, what is refused, and what is found of what was broken."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import where

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer, Keep
from headrace.checkpoint.arrays import describe
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.place import Place
from headrace.checkpoint.plan import had, make_plan

DTYPES = ["bool", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", "c8"]


def example(seed: int = 0, size: int = 3000) -> dict[str, Any]:
    """A state of every kind of value."""
    rng = np.random.default_rng(seed)
    arrays = {f"a{i}": (rng.random((size >> i, 3)) * 100).astype(d) for i, d in enumerate(DTYPES)}
    return {
        "arrays": arrays,
        "odd": [
            np.zeros((0, 5)),
            np.float64(2.5).reshape(()),
            np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
        ],
        "lists": [1, -(10**30), 0.1, float("inf"), None, True, "text \u00e9\n", b"\x00\xff", (1, [2]), {}],
        "keys": OrderedDict([(0, "a"), ("0", "b"), ((1, "x"), "c"), (None, "d"), (True, "e")]),
        "numbers": [np.float32(1.5), np.int64(7), complex(1, -2)],
    }


def same(one: Any, other: Any) -> bool:
    """Equal, also in type, dtype and bits."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """(url, options) of somewhere to save."""
    if request.param == "directory":
        yield str(tmp_path / "run"), {}
        return
    (tmp_path / "bucket").mkdir()
    with simulator.Server(str(tmp_path)) as server:
        yield "s3://bucket/run", where(server)


@pytest.fixture
def checkpointer(place: Any) -> Any:
    url, options = place
    with Checkpointer(url, memory="64MiB", part_bytes=5 << 20, **options) as found:
        yield found


def test_what_is_saved_comes_back(checkpointer: Checkpointer) -> None:
    state = example()
    manifest = checkpointer.save(7, state, metadata={"loss": 1.5}).result()
    assert (manifest.step, manifest.world_size, manifest.metadata) == (7, 1, {"loss": 1.5})
    assert same(checkpointer.load(), state)
    assert same(checkpointer.load(7), state)
    checkpointer.verify(7)


def test_it_fills_the_arrays_it_is_given(checkpointer: Checkpointer) -> None:
    state = example()
    checkpointer.save(1, state).result()
    into = example(1)
    into["arrays"]["a0"] = np.asfortranarray(into["arrays"]["a0"])
    given = [into["arrays"]["a0"], into["odd"][2]]
    got = checkpointer.load(into=into)
    assert same(got, state)
    assert got["arrays"]["a0"] is given[0]
    assert got["odd"][2] is given[1]


def test_parts_of_large_states_leave_while_others_are_copied(place: Any) -> None:
    """Ten times the memory, in arrays that lie across parts."""
    url, options = place
    rng = np.random.default_rng(0)
    state = {f"a{i}": rng.integers(0, 256, 7_000_001, np.uint8) for i in range(12)}
    with Checkpointer(url, memory="8MiB", part_bytes=5 << 20, **options) as checkpointer:
        checkpointer.save(1, state).result()
        into = {name: np.zeros_like(value) for name, value in state.items()}
        assert same(checkpointer.load(into=into), state)
        assert checkpointer._place.store.stats()["pool.peak_bytes"] <= 8 << 20


def test_saved_values_may_change_at_once(checkpointer: Checkpointer) -> None:
    value = np.arange(1_000_000)
    handle = checkpointer.save(1, {"x": value})
    value[:] = 0
    assert handle.done("staged")
    handle.result()
    assert (checkpointer.load()["x"] == np.arange(1_000_000)).all()


def test_it_may_return_before_the_copy(checkpointer: Checkpointer) -> None:
    value = np.arange(1_000_000)
    handle = checkpointer.save(1, {"x": value}, wait=None)
    handle.wait("staged")
    value[:] = 0
    checkpointer.wait()
    assert checkpointer.load()["x"][-1] == 999_999


def test_many_saves_under_way_end_in_their_order(checkpointer: Checkpointer) -> None:
    handles = [checkpointer.save(step, {"x": np.full(1000, step)}) for step in range(10)]
    assert [handle.result().step for handle in handles] == list(range(10))
    assert checkpointer.steps() == list(range(10))
    assert checkpointer.latest() == 9


def test_torch_states_come_back(checkpointer: Checkpointer) -> None:
    torch = pytest.importorskip("torch")
    tied = torch.randn(30, 20)
    state = {
        "tied": [tied, tied],
        "half": torch.randn(5, 3).bfloat16(),
        "eighth": torch.randn(64).to(torch.float8_e4m3fn),
        "view": torch.randn(40, 30)[::2, 3:].T,
        "conjugate": torch.view_as_complex(torch.randn(4, 2)).conj(),
        "size": torch.Size([3, 4]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "parameter": torch.nn.Parameter(torch.ones(3)),
    }
    checkpointer.save(1, state).result()
    got = checkpointer.load()
    assert got["tied"][0] is got["tied"][1]
    for name in ("half", "eighth", "view", "conjugate", "parameter"):
        assert got[name].dtype == state[name].dtype
        assert torch.equal(
            got[name].float() if name != "conjugate" else got[name],
            state[name].float() if name != "conjugate" else state[name],
        )
    assert (got["size"], got["dtype"], got["device"]) == (state["size"], state["dtype"], state["device"])


def test_ties_may_differ_between_save_and_load(checkpointer: Checkpointer) -> None:
    torch = pytest.importorskip("torch")
    weight = torch.randn(30, 20)
    checkpointer.save(1, {"a": weight, "b": weight}).result()
    into = {"a": torch.zeros(30, 20), "b": torch.zeros(30, 20)}
    checkpointer.load(into=into)
    assert torch.equal(into["a"], weight)
    assert torch.equal(into["b"], weight)
    checkpointer.save(2, {"a": weight, "b": weight.clone()}).result()
    zeros = torch.zeros(30, 20)
    checkpointer.load(into={"a": zeros, "b": zeros})
    assert torch.equal(zeros, weight)


def test_what_has_a_state_dict_stands_for_it(checkpointer: Checkpointer) -> None:
    torch = pytest.importorskip("torch")

    def make() -> Any:
        model = torch.nn.Linear(20, 30)
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = make()
    model(torch.ones(20)).sum().backward()
    optimizer.step()
    checkpointer.save(1, {"model": model, "optimizer": optimizer, "step": 1}).result()
    model2, optimizer2 = make()
    got = checkpointer.load(into={"model": model2, "optimizer": optimizer2, "step": 0})
    assert got["step"] == 1
    assert torch.equal(model2.weight, model.weight)
    assert same_tensors(optimizer2.state_dict(), optimizer.state_dict())


def same_tensors(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_tensors(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_tensors, one, other))
    return bool((one == other).all()) if hasattr(one, "all") else one == other


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"a": {"b": [object()]}}, "state['a']['b']['0'] is a builtins.object"),
        ({1.5: {frozenset(): 1}}, "has a key of type frozenset"),
        ({"a": np.array(["x"])}, "a: arrays of str32 have no place"),
        ({"a": np.array([None])}, "a: arrays of object have no place"),
        ({"a": np.zeros(3, ">f4")}, "a: is big-endian"),
        ({"a": np.zeros(3, "f16")}, "a: arrays of "),
    ],
)
def test_what_has_no_place_is_named(checkpointer: Checkpointer, state: Any, text: str) -> None:
    with pytest.raises(hr.InvalidArgumentError) as error:
        checkpointer.save(1, state)
    assert text in str(error.value)
    assert checkpointer.steps() == []


def test_pickles_only_where_both_say_so(place: Any) -> None:
    url, options = place
    with Checkpointer(url, allow_pickle=True, **options) as checkpointer:
        checkpointer.save(1, {"x": Path("a")}).result()
        assert checkpointer.load() == {"x": Path("a")}
    with (
        Checkpointer(url, **options) as checkpointer,
        pytest.raises(hr.InvalidArgumentError, match="allow_pickle"),
    ):
        checkpointer.load()


@pytest.mark.parametrize(
    ("into", "text"),
    [
        ({"x": np.zeros(3), "y": np.zeros(2), "z": np.zeros(1)}, "1 arrays of the state are not in it (z)"),
        ({"x": np.zeros(3)}, "1 arrays of it are not in the state (y)"),
        ({"x": np.zeros(4), "y": np.zeros(2)}, "x: is F64[4] here, and F64[3] in the checkpoint of step 1"),
        ({"x": np.zeros(3, "f4"), "y": np.zeros(2)}, "x: is F32[3] here, and F64[3]"),
    ],
)
def test_another_structure_is_an_error(checkpointer: Checkpointer, into: Any, text: str) -> None:
    checkpointer.save(1, {"x": np.ones(3), "y": np.ones(2)}).result()
    with pytest.raises(hr.InvalidArgumentError) as error:
        checkpointer.load(into=into)
    assert text in str(error.value)


def test_a_part_may_be_loaded(checkpointer: Checkpointer) -> None:
    checkpointer.save(1, {"x": np.ones(3), "y": np.ones(2), "n": 5, "m": {"k": 1}}).result()
    got = checkpointer.load(into={"x": np.zeros(3), "z": np.zeros(1), "n": 0, "o": 7}, partial=True)
    assert same(got, {"x": np.ones(3), "z": np.zeros(1), "n": 5, "o": 7})


def test_a_step_is_saved_once(checkpointer: Checkpointer) -> None:
    checkpointer.save(1, {"x": 1}).result()
    with pytest.raises(hr.ChangedError, match=r"step 1 was saved before .* overwrite=True"):
        checkpointer.save(1, {"x": 2}).result()
    assert checkpointer.load() == {"x": 1}
    manifest = checkpointer.save(1, {"x": 3}, overwrite=True).result()
    assert checkpointer.load() == {"x": 3}
    left = {info.key.split("/")[1] for info in checkpointer._place.store.list("saves/")}
    assert left == {manifest.save}


def test_a_save_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"x": np.ones(3)}).result()
        with pytest.raises(hr.ChangedError):
            checkpointer.save(1, {"x": np.zeros(3)}).result()
        assert [path.name for path in (tmp_path / "saves").iterdir()] == [checkpointer.info(1).save]


def test_the_job_that_came_last_saves(place: Any) -> None:
    url, options = place
    with Checkpointer(url, **options) as old, Checkpointer(url, **options) as new:
        old.save(1, {"x": 1}).result()
        new.save(2, {"x": 2}).result()
        with pytest.raises(hr.ChangedError, match="another job saves here now"):
            old.save(3, {"x": 3}).result()
        assert new.steps() == [1, 2]


def test_an_error_that_nobody_looked_at_comes_with_the_next_call(place: Any) -> None:
    url, options = place
    checkpointer = Checkpointer(url, **options)
    checkpointer.save(1, {"x": 1}).result()
    checkpointer.save(1, {"x": 2})
    with pytest.raises(hr.ChangedError):
        checkpointer.close()
    with Checkpointer(url, **options) as checkpointer:
        handle = checkpointer.save(1, {"x": 2})
        while not handle._is_over():
            pass
        with pytest.raises(hr.ChangedError):
            checkpointer.save(2, {"x": 2})
        checkpointer.save(2, {"x": 2}).result()


@pytest.mark.parametrize("what", ["data", "index", "manifest", "LATEST"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_what_is_broken_is_passed_over(tmp_path: Path, what: str, damage: str) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, {"x": np.full(100_000, step)}).result()
    pattern = {"data": "saves/*2-*/*.safetensors", "index": "saves/*2-*/*.index", "manifest": "steps/*2"}
    (path,) = tmp_path.glob(pattern.get(what, what))
    data = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 8
        path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    with Checkpointer(tmp_path) as checkpointer:
        whole = what == "LATEST" or (what, damage) == ("manifest", "gone")
        if whole:
            expected = 2 if what == "LATEST" else 1
            assert checkpointer.load()["x"][0] == expected
            return
        with pytest.warns(RuntimeWarning, match="loaded step 1, since step 2 cannot be proved"):
            assert checkpointer.load()["x"][0] == 1
        assert [each.step for each in checkpointer.rejected] == [2]
        with pytest.raises((hr.CorruptError, hr.NotFoundError)):
            checkpointer.load(2)
        with pytest.raises((hr.CorruptError, hr.NotFoundError)):
            checkpointer.verify(2)
        for path in tmp_path.glob("saves/*1-*/*.safetensors"):
            path.unlink()
        with pytest.raises(hr.CorruptError, match=r"no checkpoint can be proved: step 2: .*; step 1: "):
            checkpointer.load()


@pytest.mark.parametrize(("keep", "is_damaged"), [(Keep(latest=1, every=2), False), (3, True)])
def test_what_is_newest_then_is_loaded_for_what_cannot_be_read(
    place: Any, monkeypatch: pytest.MonkeyPatch, keep: Any, is_damaged: bool
) -> None:
    """While step 3 is read, which is damaged or goes then, a job commits step 4."""
    url, options = place
    with Checkpointer(url, keep=keep, **options) as saving, Checkpointer(url, **options) as loading:
        for step in (2, 3):
            saving.save(step, {"x": np.full(9, step)}).result()
        if is_damaged:
            saving._far.store.delete(saving.info(3).files[0].key)
        read = loading._read

        def reads(*arguments: Any) -> Any:
            monkeypatch.setattr(loading, "_read", read)
            saving.save(4, {"x": np.full(9, 4)}).result()
            saving.close()
            return read(*arguments)

        monkeypatch.setattr(loading, "_read", reads)
        with pytest.warns(RuntimeWarning) if is_damaged else contextlib.nullcontext():
            assert loading.load()["x"][0] == 4
        assert [each.step for each in loading.rejected] == [3] * is_damaged
        with pytest.raises(hr.ChangedError):
            loading.save(2, {}).result()
        assert loading.latest() == 4


def test_where_nothing_is_it_says_so(checkpointer: Checkpointer) -> None:
    assert checkpointer.latest() is None
    assert checkpointer.steps() == []
    with pytest.raises(hr.NotFoundError, match="has no checkpoint"):
        checkpointer.load()
    checkpointer.save(3, {}).result()
    with pytest.raises(hr.NotFoundError, match="no checkpoint of step 4; those of 3"):
        checkpointer.load(4)


@pytest.mark.parametrize("options", [{}, {"differential": True}, {"local": "near"}])
def test_what_is_not_there_cannot_be_deleted(tmp_path: Path, options: Any) -> None:
    options = {name: tmp_path / value if name == "local" else value for name, value in options.items()}
    with Checkpointer(tmp_path / "far", **options) as checkpointer:
        with pytest.raises(hr.NotFoundError, match="has no checkpoint of step 7; nor any other"):
            checkpointer.delete(7)
        for step in (1, 2):
            checkpointer.save(step, {"x": np.ones(3)}).result()
        with pytest.raises(hr.NotFoundError, match="has no checkpoint of step 7; those of 1, 2"):
            checkpointer.delete(7)
        checkpointer.delete(1)
        assert checkpointer.steps() == [2]
        with pytest.raises(hr.NotFoundError, match="has no checkpoint of step 1; those of 2"):
            checkpointer.delete(1)


def test_what_need_not_stay_goes(place: Any) -> None:
    url, options = place
    keep = Keep(latest=2, every=4, best=1, metric="loss")
    with Checkpointer(url, keep=keep, **options) as checkpointer:
        for step, loss in enumerate([5, 4, 1, 3, 2, 6, 7, 8, 9, 9]):
            checkpointer.save(step, {"x": step}, metadata={"loss": loss})
    with Checkpointer(url, **options) as checkpointer:
        assert checkpointer.steps() == [0, 2, 4, 8, 9]
        saves = {info.key.split("/")[1] for info in checkpointer._place.store.list("saves/")}
        assert saves == {checkpointer.info(step).save for step in checkpointer.steps()}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "this save lacks; its metadata have no keys: expected a finite int or float"),
        ({"Loss": 0.5, "epoch": 3}, "this save lacks; its metadata have 'Loss', 'epoch': expected"),
        ({"loss": "0.5"}, r"is '0\.5' \(a str\) in this save"),
        ({"loss": True}, r"is True \(a bool\)"),
        ({"loss": None}, r"is None \(a NoneType\)"),
        ({"loss": float("nan")}, r"is nan \(a float\)"),
        ({"loss": -float("inf")}, r"is -inf \(a float\)"),
        ({"loss": 10**400}, r"is 10+ \(a int\)"),
        ({"loss": np.ones(3)}, r"is array.* \(a ndarray\)"),
    ],
)
def test_a_save_that_does_not_say_how_good_it_is_is_refused(
    tmp_path: Path, metadata: Any, message: str
) -> None:
    with Checkpointer(tmp_path, keep=Keep(latest=1, best=2, metric="loss")) as checkpointer:
        for step in range(3):
            checkpointer.save(step, {"x": step}, metadata={"loss": np.float64(step)}).result()
        text = rf"Keep\(best=2, metric='loss'\) goes by metadata\['loss'\], which {message}"
        with pytest.raises(hr.InvalidArgumentError, match=text):
            checkpointer.save(7, {"x": 7}, metadata=metadata)
        assert checkpointer.steps() == [0, 1, 2]
        assert len(list((tmp_path / "saves").iterdir())) == 3
        checkpointer.save(8, {"x": 8}, metadata={"loss": 10**300}).result()
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.steps() == [0, 1, 8]


def test_what_others_saved_without_the_metric_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    others = [None, {"Loss": 1}, {"loss": "0.5"}, {"loss": 3}, {"loss": 1}, {"loss": 2}]
    with Checkpointer(tmp_path) as checkpointer:
        for step, metadata in enumerate(others):
            checkpointer.save(step, {"x": step}, metadata=metadata).result()
    with Checkpointer(tmp_path, keep=Keep(latest=1, best=1, metric="loss")) as checkpointer:
        for step in (7, 8):
            checkpointer.save(step, {"x": step}, metadata={"loss": step}).result()
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.steps() == [0, 1, 2, 4, 8]
    said = "steps 0, 1, 2 stay, since their metadata have no number 'loss' that Keep(best=) could go by"
    assert caplog.text.count(said) == caplog.text.count(" stay, since") == 1


@pytest.mark.parametrize(
    ("keep", "steps"),
    [
        (Keep(latest=1, hours=2), [7, 8, 9]),
        (Keep(latest=2, every_hours=4), [0, 3, 7, 8, 9]),
        (Keep(latest=1, every_hours=4, every=5), [0, 3, 5, 7, 9]),
        (Keep(hours=0), list(range(10))),
    ],
)
def test_what_stays_by_the_clock(
    tmp_path: Path, keep: Keep, steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [datetime(2026, 5, 1, 21, tzinfo=timezone.utc).timestamp()]
    monkeypatch.setattr(time, "time", lambda: now[0])
    with Checkpointer(tmp_path, keep=keep) as checkpointer:
        for step in range(10):
            checkpointer.save(step, {"x": step}).result()
            now[0] += 3600
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.steps() == steps


@pytest.mark.parametrize(
    ("keep", "saved", "steps"),
    [
        (2, 4, [2, 3, 4]),
        (2, 5, [4, 5]),
        (Keep(latest=1, every=3), 4, [3, 4]),
        (Keep(latest=1, best=1, metric="loss"), 5, [2, 5]),
        (9, 5, [1, 2, 3, 4, 5]),
    ],
)
def test_what_is_damaged_takes_no_others_place(
    tmp_path: Path, keep: Any, saved: int, steps: list[int]
) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, {"x": np.full(9, step)}, metadata={"loss": 10 - step}).result()
    (data,) = (tmp_path / "saves").glob("*3-*/*.safetensors")
    data.write_bytes(data.read_bytes()[:-9] + bytes(9))
    with Checkpointer(tmp_path, keep=keep) as checkpointer:
        with pytest.warns(RuntimeWarning, match="loaded step 2, since step 3 cannot be proved"):
            checkpointer.load()
        for step in range(4, saved + 1):
            checkpointer.save(step, {"x": np.full(9, step)}, metadata={"loss": 99}).result()
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.steps() == steps


@pytest.mark.parametrize("differential", [False, True])
def test_a_manifest_that_cannot_be_read_keeps_no_other(
    tmp_path: Path, differential: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with Checkpointer(tmp_path, differential=differential) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, {"x": np.full(9, step)}).result()
    (manifest,) = (tmp_path / "steps").glob("*2")
    manifest.write_bytes(manifest.read_bytes()[:-20])
    with Checkpointer(tmp_path, keep=1, differential=differential) as checkpointer:
        for step in (4, 5):
            checkpointer.save(step, {"x": np.full(9, step)}).result()
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.steps() == [2, 5]
        assert caplog.text.count("keep= passes over step 2; delete(2) deletes it") == 1
        checkpointer.pin(5)
        checkpointer.delete(2)
        assert checkpointer.steps() == [5]
        checkpointer.verify(5)
        assert set(checkpointer._far.orphans(10**6)) == {
            path.name for path in (tmp_path / "saves").iterdir() if path.name != checkpointer.info(5).save
        }


def test_keep_says_how_many_of_the_last() -> None:
    with pytest.raises(hr.InvalidArgumentError, match="latest=3"):
        Checkpointer("unused", keep=Keep(every=100))
    with pytest.raises(hr.InvalidArgumentError, match="0 or more"):
        Checkpointer("unused", keep=Keep(latest=1, hours=-1))
    odd: Any
    for odd in (1.5, "3", -1, True, [2]):
        with pytest.raises(hr.InvalidArgumentError, match=r"keep=.*: expected a whole number"):
            Checkpointer("unused", keep=odd)
        for name in ("latest", "every", "best"):
            with pytest.raises(hr.InvalidArgumentError, match=f"Keep: {name}=.*: expected a whole number"):
                Checkpointer("unused", keep=Keep(**{"latest": 1, "metric": "loss", name: odd}))
    for odd in ("3", -1.5, True, float("nan")):
        with pytest.raises(hr.InvalidArgumentError, match=r"Keep: every_hours=.*: expected a number, 0 or"):
            Checkpointer("unused", keep=Keep(latest=1, every_hours=odd))
    for name in ("copy_threads", "keep_local"):
        with pytest.raises(hr.InvalidArgumentError, match=f"{name}=-1: expected a whole number from 0"):
            Checkpointer("unused", local="unused too", **{name: -1})
    with pytest.raises(hr.InvalidArgumentError, match="keep=0 would keep nothing: give None for all, or 1"):
        Checkpointer("unused", keep=0)


def test_an_index_of_another_save_is_not_taken(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        indexes = []
        for step in (1, 2):
            manifest = checkpointer.save(step, {"x": np.full(9000, step)}).result()
            indexes.append(tmp_path / manifest.files[0].index_key)
        indexes[0].write_bytes(indexes[1].read_bytes())
        with pytest.raises(hr.CorruptError, match="is not what was saved"):
            checkpointer.load(1)
        with pytest.raises(hr.CorruptError, match="is not what was saved"):
            checkpointer.verify(1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_values_that_are_not_finite_are_told(
    tmp_path: Path, dtype: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch = pytest.importorskip("torch")
    state = {"w": torch.ones(70_000, dtype=getattr(torch, dtype)), "n": torch.ones(5, dtype=torch.int64)}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state).result()
        assert "NaN" not in caplog.text
        for at in (0, 8191, 69_999):
            state["w"][at] = float("nan") if at else float("inf")
        checkpointer.save(2, state).result()
        assert "checkpoint of step 2: values are NaN or infinite: w (3)" in caplog.text
        assert checkpointer.load(2)["w"].isnan().sum() == 2
    caplog.clear()
    with Checkpointer(tmp_path, values="ignore") as checkpointer:
        checkpointer.save(3, state).result()
        assert "NaN" not in caplog.text
    with Checkpointer(tmp_path, values="error") as checkpointer:
        with pytest.raises(hr.InvalidArgumentError, match=r"NaN or infinite: w \(3\); values='warn'"):
            checkpointer.save(4, state).result()
        assert checkpointer.steps() == [1, 2, 3]
    with pytest.raises(hr.InvalidArgumentError, match="'warn', 'error' or 'ignore'"):
        Checkpointer(tmp_path, values="raise")  # type: ignore[arg-type]


def test_an_array_that_has_become_zero_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = {"moments": np.zeros(50_000), "bias": np.zeros(3), "w": np.ones(9)}
    with Checkpointer(tmp_path) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, state).result()
            assert "zero" not in caplog.text
            state["moments"][49_999] = 1e-300
        state["moments"][:] = 0
        checkpointer.save(3, state).result()
        assert "step 3: all zero, and it was not in the save before: moments" in caplog.text
        caplog.clear()
        checkpointer.save(4, state).result()
        assert "zero" not in caplog.text


def test_a_state_that_did_not_change_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = {"x": np.zeros(100_000), "y": np.ones(3), "n": 0}

    def save(step: int) -> bool:
        caplog.clear()
        checkpointer.save(step, state | {"n": step}).result()
        checkpointer.wait()
        checkpointer._worker.submit(int).result()  # Behind the save's own end.
        return "bit for bit, those of step" in caplog.text

    with Checkpointer(tmp_path) as checkpointer:
        assert not save(1)
        assert save(2)
        state["y"][2] = 5
        assert not save(3)
        assert save(4)
        state["y"] = state["y"].astype(np.float32)
        assert not save(5)
        for step, name in ((6, "x"), (7, "y")):  # No array is new, but one is another.
            state["tied"] = state[name]
            assert not save(step)
        # Of many, the first and each tenth.
        assert [step for step in range(8, 30) if save(step)] == [8, 17, 27]
    with Checkpointer(tmp_path) as checkpointer:
        state = {"n": 0, "x": np.zeros(0)}
        assert not save(30)
        assert not save(31)


def test_what_unfinished_saves_left_is_swept(place: Any) -> None:
    url, options = place
    with Checkpointer(url, **options) as checkpointer:
        checkpointer.save(1, {"x": np.ones(9)}).result()
        store = checkpointer._place.store
        store.put("saves/000001-000000000002-0123abcd/00000.safetensors", b"x" * 100)
        store.put("saves/000009-000000000002-0123abcd/00000.safetensors", b"of a job to come")
        store.put("saves/notes.txt", b"of somebody")
    with Checkpointer(url, **options) as checkpointer:
        checkpointer.save(3, {"x": np.ones(9)}).result()
        checkpointer._sweep(checkpointer._far.highest_fence())
        left = {info.key.split("/")[1] for info in checkpointer._place.store.list("saves/")}
        named = {checkpointer.info(step).save for step in (1, 3)}
        assert left == named | {"000009-000000000002-0123abcd", "notes.txt"}
        checkpointer.verify(1)


def test_any_reader_of_safetensors_reads_the_data(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    state = example()["arrays"]
    with Checkpointer(tmp_path) as checkpointer:
        manifest = checkpointer.save(1, state).result()
    found = safetensors.load_file(tmp_path / manifest.files[0].key)
    assert same(dict(sorted(found.items())), dict(sorted(state.items())))


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for step in range(3):
        with Checkpointer(tmp_path) as checkpointer:
            checkpointer.save(step, example()).result()
            checkpointer.load()
        with pytest.raises(hr.InvalidArgumentError, match="was closed"):
            checkpointer.load()
    gc.collect()
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) <= before


def test_a_manifest_of_another_version_says_so() -> None:
    plan = make_plan([had([describe("x", np.zeros(3))])])
    manifest = Manifest(1, "save", 1, "now", {}, {"array": "x"}, plan.arrays, [], 1)
    assert Manifest.decode(manifest.encode(), "here") == manifest
    body = json.loads(manifest.encode().split(b"\n")[0])
    text = json.dumps({**body, "version": 3}).encode()
    with pytest.raises(hr.UnsupportedError, match="here: is a headrace-checkpoint of version 3"):
        Manifest.decode(text + b"\ncrc32c:%08x\n" % _native.crc32c(text), "here")


def test_the_answer_to_a_commit_may_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has the manifest, and says that it failed."""
    write = _native.checkpoint_write_small

    def lose(store: Any, key: str, data: bytes, if_absent: bool = False) -> str:
        made = write(store, key, data, if_absent)
        if key.startswith("steps/"):
            raise hr.UnavailableError("connection lost")
        return made

    monkeypatch.setattr(_native, "checkpoint_write_small", lose)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"x": 1}).result()
    with hr.Store(tmp_path) as store:
        assert Place(store).steps() == [1]


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    data = tmp_path / "data"
    data.mkdir()
    for i in range(60):
        (data / f"{i:02}.bin").write_bytes(bytes([i]) * 10)
    text = (Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md").read_text()
    code = re.findall(r"```python\n(.*?)```", text, re.S)[0]
    code = code.replace("s3://bucket/run-17", str(tmp_path / "run")).replace("% 1000", "% 3")
    code = code.replace("    ...\n", "    train()\n")

    def run() -> dict[str, Any]:
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters())

        def train() -> None:
            optimizer.zero_grad()
            model(torch.ones(3, 4)).sum().backward()
            optimizer.step()

        with hr.Loader(str(data), batch_size=10, seed=1) as loader:
            names: dict[str, Any] = {
                "model": model,
                "optimizer": optimizer,
                "loader": loader,
                "train": train,
            }
            exec(code, names)
        return names

    first = run()
    assert first["state"]["step"] == 6
    again = run()
    assert again["state"]["step"] == 12, "from the last step on, over the next epoch"
    assert again["state"]["model"] is again["model"], "what is loaded into can be saved again"


def test_going_back_to_an_earlier_step_keeps_what_is_saved_then(tmp_path: Path) -> None:
    keep = Keep(latest=3, every=1000)
    with Checkpointer(tmp_path, keep=keep) as checkpointer:
        for step in (1000, 1800, 1900, 1950):
            checkpointer.save(step, {"n": step}).result()
    with Checkpointer(tmp_path, keep=keep) as checkpointer:
        checkpointer.load(1000)
        checkpointer.save(1100, {"n": 1100}).result()
    with Checkpointer(tmp_path, keep=keep) as checkpointer:
        assert checkpointer.steps() == [1000, 1100, 1900, 1950]
        assert checkpointer.load() == {"n": 1100}
        for step in (1200, 1300):
            checkpointer.save(step, {"n": step}).result()
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.steps() == [1000, 1100, 1200, 1300]


GOING_BACK = [10, 20, 30, 11, 12, 13]


def test_going_back_within_a_job_keeps_what_is_saved_then(place: Any) -> None:
    url, options = place
    with Checkpointer(url, keep=2, **options) as checkpointer:
        for step in GOING_BACK:
            checkpointer.save(step, {"n": step}).result()
    with Checkpointer(url, keep=2, **options) as checkpointer:
        assert checkpointer.steps() == [12, 13]
        checkpointer.save(5, {"n": 5}).result()
    with Checkpointer(url, **options) as checkpointer:
        assert checkpointer.steps() == [5, 13]


def test_what_was_left_behind_is_tried_last(tmp_path: Path) -> None:
    """The job saves 30, goes back to 10, and saves on from there."""
    with Checkpointer(tmp_path) as checkpointer:
        for step in GOING_BACK:
            checkpointer.save(step, {"x": np.full(9, step)}).result()
    (tmp_path / "LATEST").rename(tmp_path / "hidden")
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.latest() == checkpointer.load()["x"][0] == 13
    (tmp_path / "hidden").rename(tmp_path / "LATEST")
    broken: list[int] = []
    for expected in (13, 12, 11, 30, 10):
        with Checkpointer(tmp_path) as checkpointer:
            with pytest.warns(RuntimeWarning) if broken else contextlib.nullcontext():
                assert checkpointer.load()["x"][0] == expected
            assert [each.step for each in checkpointer.rejected] == broken
            assert checkpointer.latest() == 13
        _cut(*tmp_path.glob(f"saves/*{expected}-*/*.safetensors"))
        broken.append(expected)
        if expected == 30:  # A manifest that cannot be read tells its step alone: it goes before lower ones.
            _cut(tmp_path / f"steps/{20:012}")
            broken.insert(1, 20)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_a_save_without_a_number_is_read(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        numbers = [checkpointer.save(step, {"n": step}).result().number for step in (7, 3)]
        assert numbers == [1, 2]
        made = checkpointer.info(3)
    body = json.loads(made.encode().split(b"\n")[0])
    assert body.pop("number") == 2
    text = json.dumps(body).encode()
    found = Manifest.decode(text + b"\ncrc32c:%08x\n" % _native.crc32c(text), "here")
    assert found == made._replace(number=0)


def test_a_pin_that_is_set_while_it_is_deleted_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"n": 1}).result()
        real = Place.check_not_pinned

        def pin_behind_it(self: Place, step: int) -> None:
            real(self, step)
            monkeypatch.setattr(Place, "check_not_pinned", real)
            self.pin(step)

        monkeypatch.setattr(Place, "check_not_pinned", pin_behind_it)
        with pytest.raises(hr.InvalidArgumentError, match="pinned"):
            checkpointer._far.delete(checkpointer.info(1))
        assert checkpointer.load(1) == {"n": 1}
        assert checkpointer.pinned() == [1]


@pytest.mark.parametrize("wait", [None, "staged"])
def test_close_brings_to_an_end_what_was_begun(tmp_path: Path, wait: Any) -> None:
    checkpointer = Checkpointer(tmp_path)
    handle = checkpointer.save(1, {"w": np.ones(1 << 20)}, wait=wait)
    checkpointer.close()
    assert handle.result().step == 1


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise ValueError"])
@pytest.mark.parametrize("local", ["", "local=sys.argv[2], "])
def test_a_program_that_ends_behind_save_has_saved(tmp_path: Path, end: str, local: str) -> None:
    """Executors end before what atexit calls."""
    script = (
        "import sys, numpy as np\n"
        "from headrace.checkpoint import Checkpointer\n"
        f"ckpt = Checkpointer(sys.argv[1], {local}keep=3)\n"
        "ckpt.save(1, {'w': np.ones(1 << 20)})\n"
        f"{end}\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "run", tmp_path / "disk"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == {"": 0, "raise SystemExit(3)": 3, "raise ValueError": 1}[end], run.stderr
    assert ("ValueError" in run.stderr) == (end == "raise ValueError")
    with Checkpointer(tmp_path / "run") as checkpointer:
        assert checkpointer.load(1)["w"].sum() == 1 << 20


def test_a_save_that_fails_at_the_end_of_a_program_is_told(tmp_path: Path) -> None:
    script = (
        "import sys, numpy as np, headrace as hr\n"
        "from headrace.checkpoint import Checkpointer\n"
        "ckpt = Checkpointer(sys.argv[1])\n"
        "ckpt.save(1, {'w': np.ones(10)}).result()\n"
        "ckpt.save(1, {'w': np.ones(10)})\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False
    )
    assert "ChangedError" in run.stderr
    assert "Traceback" not in run.stderr, "where our own end was called from says nothing"


def test_what_load_has_passed_over_is_saved_anew(tmp_path: Path) -> None:
    """The loop that goes on behind the step before comes to the damaged one again."""
    with Checkpointer(tmp_path) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, {"w": np.full(9, step)}).result()
        (data,) = (tmp_path / "saves" / checkpointer.info(2).save).glob("*.safetensors")
    data.write_bytes(data.read_bytes()[:-9] + bytes(9))
    with Checkpointer(tmp_path) as checkpointer:
        with pytest.warns(RuntimeWarning, match="step 2 cannot be proved"):
            assert checkpointer.load()["w"][0] == 1
        checkpointer.save(2, {"w": np.full(9, 22)}).result()
        assert checkpointer.load()["w"][0] == 22
        with pytest.raises(hr.ChangedError):
            checkpointer.save(2, {"w": np.full(9, 23)}).result()


def test_a_bucket_that_is_not_there_is_no_empty_one(tmp_path: Path) -> None:
    """Whoever resumes would train from scratch."""
    (tmp_path / "root" / "bucket").mkdir(parents=True)
    with simulator.Server(str(tmp_path / "root")) as server:
        for url in ("s3://bucket/run", "s3://bucket", str(tmp_path / "new"), "memory://new"):
            with Checkpointer(url, **(where(server) if "s3:" in url else {})) as checkpointer:
                assert (checkpointer.latest(), checkpointer.steps()) == (None, [])
        for local in (None, tmp_path / "disk"):
            with Checkpointer("s3://bukcet/run", local=local, **where(server)) as checkpointer:
                for ask in (
                    checkpointer.latest,
                    checkpointer.steps,
                    checkpointer.load,
                    lambda: checkpointer.info(1),
                    lambda: checkpointer.save(1, {"a": 1}).result(),
                ):
                    with pytest.raises(hr.NotFoundError, match="the bucket does not exist"):
                        ask()
