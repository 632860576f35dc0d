"""Older checkpoints move to colder storage classes, and are whole before, meanwhile and behind."""

from __future__ import annotations

import logging
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_fault_proxy import FaultProxy
from conftest import where

import headrace as hr
from headrace import _native
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer, Cold, Keep
from headrace.checkpoint.cold import check_rules, rule_of_each
from headrace.checkpoint.cooling import Cooling
from headrace.checkpoint.place import Place
from headrace.checkpoint.retention import Kept

URL = "s3://bucket/run"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[simulator.Server]:
    (tmp_path / "bucket").mkdir()
    with simulator.Server(str(tmp_path), require_signature=False) as running:
        yield running


@pytest.fixture
def far(server: simulator.Server) -> dict[str, Any]:
    return {"memory": "64MiB", "part_bytes": 5 << 20, **where(server)}


def state(step: int) -> dict[str, Any]:
    return {"x": np.full(3000, float(step)), "n": step}


def save(far: dict[str, Any], *steps: int, **options: Any) -> None:
    with Checkpointer(URL, **far, **options) as checkpointer:
        for step in steps:
            checkpointer.save(step, state(step)).result()


def classes(far: dict[str, Any]) -> dict[int, set[str | None]]:
    """Of the data files that each checkpoint needs."""
    with Checkpointer(URL, **far) as checkpointer:
        told = checkpointer._far.storage_classes()
        return {
            step: {told[key] for key in checkpointer.info(step).data_keys} for step in checkpointer.steps()
        }


def check_all(far: dict[str, Any], *steps: int) -> None:
    with Checkpointer(URL, **far) as checkpointer:
        assert checkpointer.steps() == list(steps)
        for step in steps:
            checkpointer.verify(step)
            assert (checkpointer.load(step)["x"] == step).all()


def place_of(far: dict[str, Any], **options: Any) -> Place:
    return Place(hr.Store(URL, **{k: v for k, v in far.items() if k != "part_bytes"} | options))


def kept(steps: list[int]) -> dict[int, Kept]:
    """One an hour, of one job."""
    return {step: Kept(1, None, 3600.0 * step) for step in steps}


# --- Rules ---


def test_each_rule_is_for_older_ones() -> None:
    rules = check_rules([Cold("A", after=2), Cold("B", after=4, hours=6)])
    wanted = rule_of_each(rules, kept([1, 2, 3, 4, 5, 6, 7, 8]), frozenset())
    assert wanted == {8: 0, 7: 0, 6: 1, 5: 1, 4: 1, 3: 1, 2: 2, 1: 2}
    assert rule_of_each(rules, kept([1, 2, 3, 8]), {2, None}) == {8: 0, 3: 0, 2: 0, 1: 1}


def test_which_was_saved_later_tells_the_job() -> None:
    """A run may go back to an earlier step."""
    about = {9: Kept(1, None, 0.0), 3: Kept(2, None, 0.0)}
    assert rule_of_each([Cold("A")], about, frozenset()) == {3: 0, 9: 1}
    within = {9: Kept(1, None, 0.0, number=1), 3: Kept(1, None, 0.0, number=2)}
    assert rule_of_each([Cold("A")], within, frozenset()) == {3: 0, 9: 1}


@pytest.mark.parametrize(
    ("cold", "match"),
    [
        (Cold("A", after=0), "1 or more"),
        (Cold("A", hours=-1), "0 or more"),
        (Cold(""), "Cold"),
        ("STANDARD_IA", "Cold"),
        ({"after": 5, "class": "STANDARD_IA"}, "Cold"),
        ([Cold("A", after=5), Cold("B", after=2)], "older checkpoints"),
        ([Cold("DEEP_ARCHIVE", after=5), Cold("B", after=9)], "must be the last"),
    ],
)
def test_rules_that_make_no_sense(tmp_path: Path, cold: Any, match: str) -> None:
    with pytest.raises(hr.InvalidArgumentError, match=match):
        Checkpointer(tmp_path, cold=cold)


def test_a_directory_has_no_classes(tmp_path: Path) -> None:
    with pytest.raises(hr.UnsupportedError, match="storage_class"):
        Checkpointer(tmp_path, cold=Cold("STANDARD_IA"))


# --- Moving ---


def test_older_ones_move_and_stay_whole(far: dict[str, Any]) -> None:
    save(far, 1, 2, 3, 4, 5, cold=[Cold("STANDARD_IA", after=2), Cold("GLACIER_IR", after=4)])
    assert classes(far) == {
        1: {"GLACIER_IR"},
        2: {"STANDARD_IA"},
        3: {"STANDARD_IA"},
        4: {"STANDARD"},
        5: {"STANDARD"},
    }
    with place_of(far).store as store:
        others = {info.storage_class for info in store.list() if not info.key.endswith(".safetensors")}
    assert others == {"STANDARD"}, "manifests and indexes stay"
    check_all(far, 1, 2, 3, 4, 5)


def test_another_job_goes_on(far: dict[str, Any]) -> None:
    save(far, 1, 2, 3)
    assert set().union(*classes(far).values()) == {"STANDARD"}
    save(far, 4, cold=Cold("STANDARD_IA", after=1), keep=3)
    assert classes(far) == {2: {"STANDARD_IA"}, 3: {"STANDARD_IA"}, 4: {"STANDARD"}}
    check_all(far, 2, 3, 4)


def test_what_is_colder_already_is_left_alone(far: dict[str, Any]) -> None:
    save(far, 1, 2, 3, cold=Cold("GLACIER_IR"))
    save(far, 4, cold=[Cold("STANDARD_IA", after=1), Cold("GLACIER_IR", after=9)])
    assert classes(far) == {1: {"GLACIER_IR"}, 2: {"GLACIER_IR"}, 3: {"STANDARD_IA"}, 4: {"STANDARD"}}


def test_pinned_ones_stay(far: dict[str, Any]) -> None:
    with Checkpointer(URL, **far, cold=Cold("STANDARD_IA"), keep=Keep(latest=9)) as checkpointer:
        checkpointer.save(1, state(1)).result()
        checkpointer.pin(1)
        for step in (2, 3):
            checkpointer.save(step, state(step)).result()
    assert classes(far) == {1: {"STANDARD"}, 2: {"STANDARD_IA"}, 3: {"STANDARD"}}


def test_a_file_that_a_newer_one_refers_to_stays(far: dict[str, Any]) -> None:
    frozen = np.arange(9000.0)
    with Checkpointer(URL, **far, differential=True, cold=Cold("STANDARD_IA", after=2)) as checkpointer:
        for step in (1, 2, 3, 4):
            checkpointer.save(step, {"frozen": frozen, **state(step)}).result()
        old = checkpointer.info(1).files[0].key
        assert old in checkpointer.info(4).data_keys
    told = place_of(far).storage_classes()
    assert told[old] == "STANDARD"
    with Checkpointer(URL, **far) as checkpointer:
        assert told[checkpointer.info(2).files[0].key] == "STANDARD_IA"
        checkpointer.save(5, state(5)).result()  # Refers to nothing.
    save(far, 6, cold=Cold("STANDARD_IA", after=2))
    assert place_of(far).storage_classes()[old] == "STANDARD_IA"
    check_all(far, 1, 2, 3, 4, 5, 6)


def test_a_manifest_that_cannot_be_read_may_need_any_file(
    far: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(far, 1, 2, 3)
    (tmp_path / "bucket" / "run" / "steps" / f"{2:012}").write_bytes(b"broken")
    place = place_of(far)
    with pytest.raises(hr.CorruptError, match="000000000002"):
        Cooling(place, [Cold("STANDARD_IA")]).run(kept([1, 2, 3]), frozenset())
    assert set(place.storage_classes().values()) == {"STANDARD"}
    with caplog.at_level(logging.WARNING, "headrace.checkpoint"):
        save(far, 4, cold=Cold("STANDARD_IA"))
    assert "could not be" in caplog.text


def test_a_store_that_keeps_no_classes_is_told(far: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    save(far, 1, 2)
    place = place_of(far)
    monkeypatch.setattr(_native.Store, "set_storage_class", lambda self, key, _: self.head(key))
    with pytest.raises(hr.UnsupportedError, match="left it in"):
        Cooling(place, [Cold("STANDARD_IA")]).run(kept([1, 2]), frozenset())


def test_a_move_that_damages_is_told(far: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    save(far, 1, 2)
    place = place_of(far)
    move = _native.Store.set_storage_class

    def damaged(self: Any, key: str, wanted: str) -> Any:
        data = bytearray(self.get(key))
        data[-1] ^= 1
        self.put(key, data)
        return move(self, key, wanted)

    monkeypatch.setattr(_native.Store, "set_storage_class", damaged)
    with pytest.raises(hr.CorruptError):
        Cooling(place, [Cold("STANDARD_IA")]).run(kept([1, 2]), frozenset())


def test_one_that_goes_while_it_moves_does_not_come_back(
    far: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(far, 1, 2)
    place = place_of(far)
    move = _native.Store.set_storage_class

    def deleted_meanwhile(self: Any, key: str, wanted: str) -> Any:
        data = self.get(key)
        place.delete(place.manifest(1))
        self.put(key, data)  # As the end of a copy that had begun before.
        return move(self, key, wanted)

    monkeypatch.setattr(_native.Store, "set_storage_class", deleted_meanwhile)
    Cooling(place, [Cold("STANDARD_IA")]).run(kept([1, 2]), frozenset())
    needed = set(place.manifest(2).data_keys) | {place.manifest(2).files[0].index_key}
    assert {info.key for info in place.store.list("saves/")} == needed


def test_copies_that_others_were_killed_at_are_given_up(far: dict[str, Any]) -> None:
    save(far, 1, 2)
    place = place_of(far)
    key, later = (place.manifest(step).files[0].key for step in (1, 2))
    begun = [_native.Upload(place.native, each, {"storage_class": "STANDARD_IA"}) for each in (key, later)]
    for upload in begun:
        upload.put(b"x" * (5 << 20))
    assert {each[0] for each in place.uploads()} == {key, later}
    Cooling(place, [Cold("STANDARD_IA")]).run(kept([1, 2]), frozenset())
    assert [each[0] for each in place.uploads()] == [later], "nobody has moved that one"
    begun[1].abort()
    check_all(far, 1, 2)


def test_killed_between_any_two_requests(
    server: simulator.Server, far: dict[str, Any], tmp_path: Path
) -> None:
    """The store is there for n requests, and then for none: what they have left is whole, and another goes
    on."""
    host, port = server.endpoint.removeprefix("http://").split(":")
    rules = [Cold("STANDARD_IA", after=1), Cold("GLACIER_IR", after=2)]
    stops = 0
    for at in range(200):
        with hr.Store("s3://bucket", **where(server)) as store:
            store.delete_many([info.key for info in store.list()])
        save(far, 1, 2, 3)
        proxy = FaultProxy((host, int(port)), "unavailable for ever", at)
        urllib.request.urlopen(f"{proxy.endpoint}/_arm?pid={os.getpid()}").read()
        place = place_of(far, endpoint=proxy.endpoint, max_attempts=1, hedge_fraction=0.0)
        try:
            count = Cooling(place, rules).run(kept([1, 2, 3]), frozenset())
        except hr.HeadraceError:
            count = -1
        place.close()
        proxy.close()
        check_all(far, 1, 2, 3)
        again = Cooling(place_of(far), rules).run(kept([1, 2, 3]), frozenset())
        assert classes(far) == {1: {"GLACIER_IR"}, 2: {"STANDARD_IA"}, 3: {"STANDARD"}}
        if count >= 0:
            assert (count, again) == (2, 0)
            break
        stops += 1
    assert stops > 10, "as many requests as a run of it makes"


# --- Archives ---


def test_an_archived_one_says_how_to_restore_it(far: dict[str, Any], tmp_path: Path) -> None:
    save(far, 1, 2, 3, cold=Cold("DEEP_ARCHIVE"))
    with Checkpointer(URL, **far) as checkpointer:
        for act in (checkpointer.load, checkpointer.verify):
            with pytest.raises(
                hr.UnsupportedError,
                match=r"step 1 .*1 of its 1 data files are in DEEP_ARCHIVE.*restore-object",
            ):
                act(1)
        assert checkpointer.load()["n"] == 3
        assert checkpointer.info(1).step == 1
        assert checkpointer.steps() == [1, 2, 3]


def test_an_archived_one_is_not_passed_over(far: dict[str, Any], tmp_path: Path) -> None:
    """It is not broken: an older one would lose what was trained since, without a word."""
    save(far, 1)
    save(far, 2, 3, cold=Cold("GLACIER"))
    with Checkpointer(URL, **far) as checkpointer:
        newest = checkpointer.info(3).files[0].key
        path = tmp_path / "bucket" / "run" / newest
        path.write_bytes(b"\0" * path.stat().st_size)
        with pytest.raises(hr.UnsupportedError, match="step 2 cannot be read before it is restored"):
            checkpointer.load()
        assert [each.step for each in checkpointer.rejected] == [3]


# --- Commands ---


def test_commands_show_classes(far: dict[str, Any], cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", far["access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", far["secret_key"])
    save(far, 1, 2, cold=Cold("DEEP_ARCHIVE"))
    reach = ("--endpoint", far["endpoint"])
    rows = cli("ckpt", "ls", URL, *reach, "--json").json()["checkpoints"]
    assert [row["storage_classes"] for row in rows] == [["DEEP_ARCHIVE"], ["STANDARD"]]
    listed = cli("ckpt", "ls", URL, *reach).out.splitlines()
    assert "DEEP_ARCHIVE" in listed[1]
    assert "STANDARD" not in listed[2]
    assert "DEEP_ARCHIVE (1 file)" in cli("ckpt", "info", URL, "1", *reach).out
    info = cli("ckpt", "info", URL, "2", *reach, "--json").json()
    assert [file["storage_class"] for file in info["files"]] == ["STANDARD"]
    for command in (("verify", URL, "1"), ("cat", URL, "1", "x", "--summary")):
        failed = cli("ckpt", *command, *reach)
        assert failed.code != 0
        assert "restore-object" in failed.err, failed.err


def test_a_store_moves_single_objects(far: dict[str, Any]) -> None:
    with hr.Store("s3://bucket", **where_only(far)) as store:
        store.put("x", b"123", content_type="a/b", metadata={"a": "1"})
        moved = store.set_storage_class("x", "STANDARD_IA")
        assert moved.storage_class == "STANDARD_IA"
        assert store.get("x") == b"123"
        settings = dict(store.head("x").settings or {})
        assert settings == {"content_type": "a/b", "metadata": {"a": "1"}, "storage_class": "STANDARD_IA"}
        assert [info.storage_class for info in store.list()] == ["STANDARD_IA"]
        assert store.set_storage_class("x", "STANDARD_IA").etag == moved.etag
        with pytest.raises(hr.HeadraceError):
            store.set_storage_class("x", "NO_CLASS")
        with pytest.raises(hr.NotFoundError):
            store.set_storage_class("y", "STANDARD_IA")


def where_only(far: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in far.items() if name != "part_bytes"}
