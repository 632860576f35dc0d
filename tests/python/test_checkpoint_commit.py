"""How many requests a commit makes one after the other, and what it promises all the same."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import where

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer, fence_check
from headrace.checkpoint.place import Place

WAITED = 60.0
"""Seconds after which what should be under way is not."""


@pytest.fixture
def far(tmp_path: Path) -> Any:
    (tmp_path / "bucket").mkdir()
    with simulator.Server(str(tmp_path)) as server:
        yield {"url": "s3://bucket/run", "memory": "64MiB", **where(server)}


class Requests:
    """What a checkpointer asks of its store, beside data files.

    :param together: requests that are to be under way at once: each waits until all of them have begun, and
        raises where one does not.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, together: Sequence[Sequence[str]]) -> None:
        self.rounds: list[set[str]] = []
        """Each of those that had begun before one of them ended."""
        self._lock = threading.Lock()
        self._has_ended = True
        self._counts: Counter[str] = Counter()
        self._barriers = {
            name: barrier
            for names in together
            for barrier in [threading.Barrier(len(names))]
            for name in names
        }
        for verb in ("get", "list", "head", "delete"):
            monkeypatch.setattr(hr.Store, verb, self._watched(verb, getattr(hr.Store, verb)))
        write = _native.checkpoint_write_small
        monkeypatch.setattr(_native, "checkpoint_write_small", self._watched("put", write))

    def _watched(self, verb: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(owner: Any, key: str = "", *arguments: Any, **more: Any) -> Any:
            name = f"{verb} {key.split('/')[0] if key.startswith(('fence', 'steps')) else key[-6:]}"
            with self._lock:
                self._counts[name] += 1
                numbered = f"{name} {self._counts[name]}"
                if self._has_ended:
                    self.rounds.append(set())
                    self._has_ended = False
                self.rounds[-1].add(name)
            if numbered in self._barriers:
                self._barriers[numbered].wait(WAITED)
            try:
                return function(owner, key, *arguments, **more)
            finally:
                with self._lock:
                    self._has_ended = True

        return call


BESIDE_THE_INDEX = ("put .index 1", "list fence 1")
LAST = ("get steps 1", "get LATEST 1", "list fence 2")


@pytest.mark.parametrize("differential", [False, True])
def test_a_commit_takes_three_round_trips(
    far: Any, monkeypatch: pytest.MonkeyPatch, differential: bool
) -> None:
    monkeypatch.setattr(fence_check, "_FRESH_SECONDS", math.inf)
    last = (*LAST, "head steps 1") if differential else LAST
    state = {"x": np.arange(9000.0), "y": np.zeros(9000)}
    with Checkpointer(**far, differential=differential) as checkpointer:
        checkpointer.save(1, state).result()
        state["y"] += 1
        with monkeypatch.context() as patched:
            requests = Requests(patched, [BESIDE_THE_INDEX, last])
            checkpointer.save(2, state).result()
    assert requests.rounds == [
        {"put .index", "list fence"},
        {"get .index"},
        {"put steps"},
        {"put LATEST"},
        {name.rpartition(" ")[0] for name in last},
    ]


def test_an_old_answer_is_asked_for_again(far: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks may be minutes apart."""
    monkeypatch.setattr(fence_check, "_FRESH_SECONDS", -1.0)
    with Checkpointer(**far) as checkpointer:
        checkpointer.save(1, {"x": np.arange(3)}).result()
        with monkeypatch.context() as patched:
            requests = Requests(patched, [BESIDE_THE_INDEX])
            checkpointer.save(2, {"x": np.arange(3)}).result()
    assert requests.rounds[2:4] == [{"list fence"}, {"put steps"}]


def test_a_job_that_was_followed_takes_no_step(far: Any) -> None:
    with Checkpointer(**far) as first, Checkpointer(**far) as second:
        first.save(1, {"x": np.arange(3)}).result()
        second.save(2, {"x": np.arange(4)}).result()
        for options in ({}, {"overwrite": True}):
            with pytest.raises(hr.ChangedError, match="another job saves here now"):
                first.save(2, {"x": np.arange(5)}, **options).result()
        assert len(second.load(2)["x"]) == 4
        assert len(list(second._far.store.list("saves/"))) == 4


def test_a_job_that_is_followed_meanwhile_does_not_say_that_it_is_there(
    far: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the first answer, before the manifest."""
    commit = Place.commit
    with Checkpointer(**far) as first, Checkpointer(**far) as second:
        first.save(1, {"x": np.arange(3)}).result()

        def late(self: Place, manifest: Any, **more: Any) -> str:
            monkeypatch.undo()
            second.save(2, {"x": np.arange(4)}).result()
            return commit(self, manifest, **more)

        monkeypatch.setattr(Place, "commit", late)
        with pytest.raises(hr.UnavailableError, match="another job saves here now"):
            first.save(3, {"x": np.arange(5)}).result()
        for step in second.steps():
            second.verify(step)
        assert len(second.load(2)["x"]) == 4


def test_what_a_manifest_has_replaced_that_nobody_can_read_is_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a disk that says it has written what it has not."""
    write = _native.checkpoint_write_small
    with Checkpointer(tmp_path, check="read") as checkpointer:
        checkpointer.save(1, {"x": np.arange(3)}).result()

        def dropped(store: Any, key: str, data: bytes, *more: Any) -> str:
            if key.startswith("steps/"):
                monkeypatch.undo()
                data = bytes(len(data))
            return write(store, key, data, *more)

        monkeypatch.setattr(_native, "checkpoint_write_small", dropped)
        with pytest.raises(hr.CorruptError, match="the store has other bytes"):
            checkpointer.save(1, {"x": np.arange(4)}, overwrite=True).result()
        checkpointer.verify(1)
        assert len(checkpointer.load()["x"]) == 3
