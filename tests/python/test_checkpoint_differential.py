"""Differential saves: what has not changed is not written again, and stays as long as a checkpoint needs
it."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import where
from test_checkpoint_group import Values

import headrace as hr
from headrace import sim as simulator
from headrace.checkpoint import Checkpointer
from headrace.checkpoint.copying import Copying
from headrace.checkpoint.differences import compare
from headrace.checkpoint.group import Group
from headrace.checkpoint.keys import SaveId, save_of
from headrace.checkpoint.leftovers import delete_leftover, find_leftovers
from headrace.checkpoint.place import GRACE_SECONDS, Place
from headrace.checkpoint.proving import find_damage
from headrace.checkpoint.reuse import Known, OwnFile, choose

MEMORY: dict[str, Any] = {"memory": "64MiB", "part_bytes": 5 << 20}


@pytest.fixture(params=["directory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """(url, options) of somewhere to save."""
    if request.param == "directory":
        yield str(tmp_path / "run"), MEMORY
        return
    (tmp_path / "bucket").mkdir()
    with simulator.Server(str(tmp_path)) as server:
        yield "s3://bucket/run", MEMORY | where(server)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def opened(url: Any, **options: Any) -> Checkpointer:
    return Checkpointer(url, differential=True, **(MEMORY | options))


class Training:
    """A state of which each step changes some arrays."""

    def __init__(self, seed: int, count: int = 12) -> None:
        self._rng = np.random.default_rng(seed)
        self.now: dict[str, Any] = {
            f"a{i}": self._rng.random(int(self._rng.integers(0, 9000))) for i in range(count)
        }
        self.saved: dict[int, dict[str, Any]] = {}

    def step(self, number: int) -> dict[str, Any]:
        """One byte of each array that changes."""
        for value in self.now.values():
            if len(value) and self._rng.random() < 0.3:
                value.view(np.uint8)[self._rng.integers(value.nbytes)] ^= 1 << self._rng.integers(8)
        self.saved[number] = {name: value.copy() for name, value in self.now.items()}
        return self.now

    def check(self, checkpointer: Checkpointer, step: int) -> None:
        checkpointer.verify(step)
        found = checkpointer.load(step)
        assert found.keys() == self.saved[step].keys()
        assert all(found[name].tobytes() == value.tobytes() for name, value in self.saved[step].items())


def frozen(trained: int = 1) -> dict[str, Any]:
    """90 % of it never change."""
    rng = np.random.default_rng(0)
    base = {f"layer{i}": rng.random(125_000) for i in range(9)}
    return {"base": base, "adapter": np.full(125_000, float(trained)), "step": trained}


def files_of(checkpointer: Checkpointer) -> set[str]:
    return {info.key for info in checkpointer._far.store.list("saves/")}


def needed_by(checkpointer: Checkpointer) -> set[str]:
    """Keys that the checkpoints that are there name."""
    manifests = [checkpointer.info(step) for step in checkpointer.steps()]
    return {key for each in manifests for key in each.data_keys} | {
        file.index_key for each in manifests for file in each.files
    }


def test_what_has_not_changed_is_not_written_again(place: Any) -> None:
    url, options = place
    with opened(url, **options) as checkpointer:
        store = checkpointer._far.store
        sent = [store.stats()["store.sent_bytes"]]
        for step in (1, 2, 3):
            saved = checkpointer.save(step, frozen(step)).result()
            sent.append(store.stats()["store.sent_bytes"])
            assert saved.size == pytest.approx(10_000_000, rel=0.01)
        whole, *others = [after - before for before, after in itertools.pairwise(sent)]
        assert [checkpointer.info(step).written for step in (2, 3)] == pytest.approx([1e6, 1e6], rel=0.01)
        if url.startswith("s3"):  # Files of a directory do not go through the store's requests.
            assert whole > 10_000_000
            assert all(1_000_000 < each < 1_100_000 for each in others)
        for step in (1, 2, 3):
            found = checkpointer.load(step)
            assert (found["adapter"] == step).all()
            assert all(np.array_equal(found["base"][name], value) for name, value in frozen()["base"].items())
        into = frozen(0)
        assert checkpointer.load(2, into=into)["step"] == 2
        assert (into["adapter"] == 2).all()


def test_the_file_of_what_has_changed_is_one_of_safetensors(run: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    with opened(run) as checkpointer:
        checkpointer.save(1, frozen(1)).result()
        (file,) = checkpointer.save(2, frozen(2)).result().files
        (same,) = checkpointer.save(3, frozen(2) | {"step": 3}).result().files
    assert list(safetensors.load_file(run / file.key)) == ["adapter"]
    assert safetensors.load_file(run / same.key) == {}


@pytest.mark.parametrize("seed", range(6))
def test_every_step_that_stays_is_whole(place: Any, seed: int) -> None:
    """Whatever changes, and whichever checkpoints go; and nothing stays that none of them needs."""
    url, options = place
    training = Training(seed)
    keep = (2, 3, hr.checkpoint.Keep(latest=1, every=3))[seed % 3]
    with opened(url, keep=keep, **options) as checkpointer:
        for step in range(1, 11):
            checkpointer.save(step, training.step(step)).result()
            checkpointer._worker.submit(int).result()  # Until what need not stay is gone.
            assert files_of(checkpointer) == needed_by(checkpointer)
        assert any(checkpointer.info(step).earlier for step in checkpointer.steps())
        for step in checkpointer.steps():
            training.check(checkpointer, step)
        rng = np.random.default_rng(seed)
        for step in rng.permutation(checkpointer.steps()).tolist():
            checkpointer.delete(step)
            assert files_of(checkpointer) == needed_by(checkpointer)
            for other in checkpointer.steps():
                training.check(checkpointer, other)
        assert files_of(checkpointer) == set()


def test_saves_that_overlap_build_upon_what_is_there(place: Any) -> None:
    """keep=1: each takes away what the one behind it builds upon, if nothing held it."""
    url, options = place
    training = Training(1)
    with opened(url, keep=1, **options) as checkpointer:
        for step in range(20):
            checkpointer.save(step, training.step(step))
        checkpointer.wait()
        checkpointer._worker.submit(int).result()
        training.check(checkpointer, 19)
        assert files_of(checkpointer) == needed_by(checkpointer)


def test_what_a_save_under_way_builds_upon_stays(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third save begins before the second is there: both build upon the first, which keep=1 takes away
    behind the second."""
    url, options = place
    may_commit = threading.Event()
    commit = Place.commit

    def late(self: Place, manifest: Any, **more: Any) -> str:
        assert may_commit.wait(60)
        return commit(self, manifest, **more)

    with opened(url, keep=1, **options) as checkpointer:
        first = checkpointer.save(1, frozen(1)).result()
        monkeypatch.setattr(Place, "commit", late)
        for step in (2, 3):
            checkpointer.save(step, frozen(step))
        may_commit.set()
        checkpointer.wait()
        assert checkpointer.info(3).saves == {first.save, checkpointer.info(3).save}
        checkpointer._worker.submit(int).result()
        assert checkpointer.steps() == [3]
        checkpointer.verify(3)
        assert files_of(checkpointer) == needed_by(checkpointer)


def test_damage_that_was_seen_is_not_built_upon(run: Path) -> None:
    with opened(run) as checkpointer:
        first = checkpointer.save(1, frozen(1)).result()
        assert checkpointer.save(2, frozen(2)).result().earlier
        damage_flip(run / first.files[0].key, 5_000_000)
        with pytest.raises(hr.CorruptError):
            checkpointer.verify(2)
        assert not checkpointer.save(3, frozen(3)).result().earlier
        checkpointer.verify(3)


def test_another_job_writes_everything_once(run: Path) -> None:
    for number in (1, 2):
        with opened(run) as checkpointer:
            first = checkpointer.save(2 * number, frozen(1)).result()
            second = checkpointer.save(2 * number + 1, frozen(2)).result()
        assert not first.earlier
        assert second.saves == {first.save, second.save}


def test_what_replaces_a_step_builds_upon_nothing(run: Path) -> None:
    with opened(run) as checkpointer:
        first = checkpointer.save(1, frozen(1)).result()
        second = checkpointer.save(2, frozen(2)).result()
        for step, trained in ((2, 3), (1, 4)):
            replaced = checkpointer.save(step, frozen(trained), overwrite=True).result()
            assert replaced.saves == {replaced.save}
        assert not {first.save, second.save} & {save_of(key) for key in files_of(checkpointer)}
        last = checkpointer.save(3, frozen(5)).result()
        assert last.saves == {last.save, replaced.save}
        assert [checkpointer.load(step)["adapter"][0] for step in (1, 2, 3)] == [4, 3, 5]
        assert files_of(checkpointer) == needed_by(checkpointer)


def test_what_replaces_a_step_leaves_what_others_need(run: Path) -> None:
    with opened(run) as checkpointer:
        checkpointer.save(1, frozen(1)).result()
        checkpointer.save(2, frozen(2)).result()
        checkpointer.save(1, frozen(3), overwrite=True).result()
        checkpointer.verify(2)
        assert files_of(checkpointer) == needed_by(checkpointer)


@pytest.mark.parametrize("is_first_there", [True, False])
def test_what_is_being_replaced_is_not_built_upon(
    run: Path, monkeypatch: pytest.MonkeyPatch, is_first_there: bool
) -> None:
    """The third save begins when the first is there and the second, which replaces it, is not."""
    may_commit = [threading.Event() for _ in range(4)]
    commit, calls = Place.commit, iter(may_commit)

    def late(self: Place, manifest: Any, **more: Any) -> str:
        assert next(calls).wait(60)
        return commit(self, manifest, **more)

    monkeypatch.setattr(Place, "commit", late)
    with opened(run) as checkpointer:
        first = checkpointer.save(1, frozen(1))
        if is_first_there:
            may_commit[0].set()
            first.result()
        checkpointer.save(1, frozen(2), overwrite=True)
        may_commit[0].set()
        first.result()
        third = checkpointer.save(2, frozen(3))
        for each in may_commit:
            each.set()
        assert not third.result().earlier
        checkpointer.wait()
        assert checkpointer.steps() == [1, 2]
        assert [checkpointer.load(step)["adapter"][0] for step in (1, 2)] == [2, 3]
        assert checkpointer.save(3, frozen(4)).result().saves >= {third.result().save}


@pytest.mark.parametrize("has_disk", [False, True])
def test_what_is_deleted_stays_for_saves_under_way(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_disk: bool
) -> None:
    is_deleting = threading.Event()
    commit, check = Place.commit, Place.check_not_pinned

    def late(self: Place, manifest: Any, **more: Any) -> str:
        assert is_deleting.wait(60)
        return commit(self, manifest, **more)

    def checks(self: Place, step: int) -> None:
        check(self, step)
        if step == 1:
            is_deleting.set()

    with opened(run, local=tmp_path / "disk" if has_disk else None) as checkpointer:
        checkpointer.save(1, frozen(1)).result()
        monkeypatch.setattr(Place, "commit", late)
        monkeypatch.setattr(Place, "check_not_pinned", checks)
        second = checkpointer.save(2, frozen(2))
        checkpointer.delete(1)
        assert second.result().earlier
        assert checkpointer.steps() == [2]
        checkpointer.verify(2)


def test_what_is_deleted_is_not_built_upon(run: Path) -> None:
    with opened(run) as checkpointer:
        checkpointer.save(1, frozen(1)).result()
        checkpointer.delete(1)
        assert not checkpointer.save(2, frozen(2)).result().earlier


def test_a_base_that_another_process_deletes_fails_the_save(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its manifest is there: then nobody who deletes can see that it needs the files."""
    url, options = place
    with opened(url, **options) as checkpointer, Checkpointer(url, **options) as other:
        checkpointer.save(1, frozen(1)).result()
        commit = Place.commit

        def late(self: Place, manifest: Any, **more: Any) -> str:
            other.delete(1)
            return commit(self, manifest, **more)

        with monkeypatch.context() as patched:
            patched.setattr(Place, "commit", late)
            with pytest.raises(
                hr.UnavailableError, match=r"step 1, whose unchanged pieces .* save once more"
            ):
                checkpointer.save(2, frozen(2)).result()
        assert checkpointer.steps() == []
        assert not checkpointer.save(3, frozen(3)).result().earlier
        checkpointer.verify(3)


def test_what_is_needed_by_what_came_meanwhile_stays(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted when the manifest that refers to it is there, and before anybody looks whether it still is."""
    url, options = place
    with opened(url, **options) as checkpointer, Checkpointer(url, **options) as other:
        checkpointer.save(1, frozen(1)).result()
        surplus = Place.surplus

        def late(self: Place, manifest: Any) -> Any:
            checkpointer.save(2, frozen(2)).result()  # Between the end of the manifest and that of its files.
            return surplus(self, manifest)

        with monkeypatch.context() as patched:
            patched.setattr(Place, "surplus", late)
            with pytest.raises(hr.UnavailableError, match="has been deleted"):
                other.delete(1)
        checkpointer.save(3, frozen(3)).result()
        checkpointer.save(4, frozen(4)).result()
        other.delete(3)
        checkpointer.verify(4)
        assert checkpointer.load(4)["adapter"][0] == 4
        assert checkpointer.info(4).earlier


def damage_flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path, at: path.unlink(), "missing"),
        (lambda path, at: os.truncate(path, at), "bytes instead of"),
        (damage_flip, "does not match its CRC32C"),
    ],
)
def test_damage_of_an_earlier_file_is_found(run: Path, damage: Callable[[Path, int], None], why: str) -> None:
    with opened(run) as checkpointer:
        first = checkpointer.save(1, {"a": np.arange(9000.0), "b": np.arange(9000.0)}).result()
        second = checkpointer.save(2, {"a": np.arange(9000.0), "b": np.ones(9000)}).result()
        third = checkpointer.save(3, {"a": np.zeros(9000), "b": np.zeros(9000)}).result()
        (file,) = first.files
        piece = checkpointer._far.index(second, 0).piece(0, 0)
        assert second.files[0].key_of(piece) == file.key
        damage(run / file.key, piece.offset + 100)
        for step in (1, 2):
            with pytest.raises(hr.CorruptError if step == 2 else hr.HeadraceError):
                checkpointer.verify(step)
        found, *_ = find_damage(checkpointer._far, second)
        assert found.key == file.key
        assert why in found.why
        assert found.array == ("a" if why.startswith("does") else "")
        assert find_damage(checkpointer._far, third) == []
        with pytest.raises((hr.CorruptError, hr.NotFoundError)):
            checkpointer.load(2)
        checkpointer.delete(3)
        if why.startswith("does"):  # The others' bytes are not those that the second needs.
            damage(run / file.key, piece.offset + 100)
            checkpointer.verify(2)
            (other,) = (checkpointer._far.index(first, 0).piece(1, 0),)
            damage(run / file.key, other.offset)
            checkpointer.verify(2)
            assert find_damage(checkpointer._far, second) == []
            with pytest.warns(RuntimeWarning) if checkpointer.latest() != 2 else _nothing():
                assert (checkpointer.load()["b"] == 1).all()


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_what_is_referred_to_is_no_leftover(place: Any) -> None:
    url, options = place
    with opened(url, keep=1, **options) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, frozen(step)).result()
        checkpointer._worker.submit(int).result()
        assert checkpointer.steps() == [3]
        assert len({save_of(key) for key in files_of(checkpointer)}) == 2
    with Checkpointer(url, **options) as job:  # Another follows.
        number = job._take_fence()
        assert list(job._far.orphans(number)) == []
        later = 2_000_000_000.0 + GRACE_SECONDS
        assert find_leftovers(job._far, 0.0, now=later) == []
        job._far.store.delete("steps/000000000003")
        left = find_leftovers(job._far, 0.0, now=later)
        assert len(left) == 2
        assert len(list(job._far.orphans(number))) == 2
        assert all(each.goes and delete_leftover(job._far, each) for each in left)
        assert files_of(job) == set()


def test_what_a_broken_manifest_may_refer_to_stays(run: Path) -> None:
    with opened(run) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, frozen(step)).result()
        damage_flip(run / "steps/000000000002", 50)
        before = files_of(checkpointer)
        with pytest.raises(hr.CorruptError, match="files of step 1 stay, since the manifest of step 2"):
            checkpointer.delete(1)
        assert files_of(checkpointer) == before
        assert checkpointer.steps() == [2, 3]
        left = find_leftovers(checkpointer._far, 0.0, now=4e9)
        assert [each.goes for each in left if each.step == 1] == []  # Step 3 refers to it.
        checkpointer._far.store.delete("steps/000000000003")
        left = find_leftovers(checkpointer._far, 0.0, now=4e9)
        assert [(each.step, each.goes) for each in left] == [(1, False), (2, False), (3, False)]
        assert "broken manifest of step 2" in left[0].why


def test_gc_that_saw_no_reference_looks_again(run: Path) -> None:
    with opened(run) as checkpointer:
        checkpointer.save(1, frozen(1)).result()
        manifest = (run / "steps/000000000001").read_bytes()
        (run / "steps/000000000001").unlink()
        (left,) = find_leftovers(checkpointer._far, 0.0, now=4e9)
        (run / "steps/000000000001").write_bytes(manifest)
        checkpointer._reuse.renew(checkpointer._reuse._base._replace(version=_version(checkpointer, 1)))  # type: ignore[union-attr]
        checkpointer.save(2, frozen(2)).result()
        (run / "steps/000000000001").unlink()
        assert delete_leftover(checkpointer._far, left) == 0
        checkpointer.verify(2)


def _version(checkpointer: Checkpointer, step: int) -> str:
    return checkpointer._far.store.head(f"steps/{step:012}").etag


def test_a_copy_has_all_of_it(place: Any, tmp_path: Path) -> None:
    url, options = place
    with opened(url, **options) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, frozen(step)).result()
    for number, step in enumerate((2, 3)):
        source = Place(hr.Store(url, **{k: v for k, v in options.items() if k != "part_bytes"}))
        target = Place(hr.Store(tmp_path / "copy"))
        job = Copying(source, source.manifest(step), target)
        job.run()
        assert job.manifest.saves == {job.manifest.save}
        parsed = SaveId.parse(job.manifest.save)
        assert parsed is not None
        assert not parsed.is_shared
        assert compare(source, source.manifest(step), target, target.manifest(step)).is_none
        source.close()
        target.close()
        with Checkpointer(tmp_path / "copy") as copied:
            assert len(copied.steps()) == number + 1
            copied.verify(step)
            assert copied.load(step)["adapter"][0] == step
    with Checkpointer(tmp_path / "copy") as copied:
        copied.delete(2)
        copied.verify(3)
        assert files_of(copied) == needed_by(copied)


def test_what_differs_is_told_though_it_lies_elsewhere(run: Path) -> None:
    with opened(run) as checkpointer:
        first = checkpointer.save(1, frozen(1)).result()
        second = checkpointer.save(2, frozen(2)).result()
        found = compare(checkpointer._far, first, checkpointer._far, second)
        assert [each.name for each in found.arrays] == ["adapter"]
        assert found.equal == 9


def test_a_state_that_did_not_change_is_told(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(run) as checkpointer, caplog.at_level(logging.WARNING, "headrace.checkpoint"):
        checkpointer.save(1, frozen(1)).result()
        checkpointer.save(2, frozen(2)).result()
        assert not caplog.records
        checkpointer.save(3, frozen(2)).result()
        assert "step 3 are, bit for bit, those of step 2" in caplog.text


def test_values_are_told_of_what_is_not_written_again(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = {"odd": np.array([np.nan] * 5000), "x": np.zeros(9000)}
    with opened(run) as checkpointer, caplog.at_level(logging.WARNING, "headrace.checkpoint"):
        for step in (1, 2):
            state["x"] += 1
            caplog.clear()
            checkpointer.save(step, state).result()
            assert "odd (5000)" in caplog.text
        assert checkpointer.info(2).earlier
        caplog.clear()
        checkpointer.save(3, {"odd": np.zeros(5000), "x": state["x"]}).result()
        assert "all zero" in caplog.text


def test_arrays_that_go_or_change_their_type_are_written(run: Path) -> None:
    with opened(run) as checkpointer:
        checkpointer.save(1, {"a": np.zeros(9000), "b": np.ones(9000), "c": np.ones(9000)}).result()
        new = {"a": np.zeros(9000, np.int64), "b": np.ones((90, 100)), "d": np.ones(9000), "c": np.ones(9000)}
        saved = checkpointer.save(2, new).result()
        assert [each.needed for each in saved.earlier] == [9000 * 8]
        found = checkpointer.load(2)
        assert all(np.array_equal(found[name], value) for name, value in new.items())


def known(file: int, length: int, whole: int) -> Known:
    return Known(OwnFile(f"saves/{file}/00000.safetensors", whole, 0, whole), 0, length, b"", b"", (0, False))


def test_files_of_which_little_is_needed_are_given_up() -> None:
    assert choose({0: known(1, 90, 100)}, 100).keys() == {0}
    assert choose({0: known(1, 25, 100)}, 100).keys() == {0}
    assert choose({0: known(1, 24, 100)}, 100) == {}  # Less than a quarter.
    assert choose({0: known(1, 24, 100), 1: known(2, 50, 50)}, 100).keys() == {1}
    # More than twice the state: 100 + 100 + 20 to write.
    assert choose({0: known(1, 45, 100), 1: known(2, 35, 100)}, 100).keys() == {0}
    many = {i: known(i, 1, 1) for i in range(40)}
    assert len(choose(many, 40)) == 32


def test_what_a_checkpoint_needs_stays_below_twice_its_bytes(run: Path) -> None:
    """Each step changes a third of many pieces, at random."""
    rng = np.random.default_rng(5)
    state = {f"e{i}": rng.random(600) for i in range(60)}
    with opened(run, keep=1) as checkpointer:
        for step in range(25):
            for name in rng.choice(sorted(state), 20, replace=False).tolist():
                state[name][0] += 1
            saved = checkpointer.save(step, state).result()
            data = sum(value.nbytes for value in state.values())
            headers = 16384 * len(saved.data_keys)
            assert sum((run / key).stat().st_size for key in saved.data_keys) <= 2 * data + headers
        assert np.array_equal(checkpointer.load()["e7"], state["e7"])


def on_ranks(count: int, values: Values, work: Callable[[Group], Any]) -> list[Any]:
    with ThreadPoolExecutor(count) as threads:
        groups = [Group(rank, count, values, 60.0) for rank in range(count)]
        return list(threads.map(work, groups))


def test_each_rank_keeps_what_it_has_written(place: Any) -> None:
    url, options = place
    training = Training(3)
    barrier = threading.Barrier(3)

    def work(group: Group) -> None:
        with opened(url, keep=2, group=group, **options) as checkpointer:
            for step in range(6):
                if group.rank == 0:
                    training.step(step)
                barrier.wait()
                checkpointer.save(step, training.now).result()
                barrier.wait()

    on_ranks(3, Values(), work)
    with Checkpointer(url, **options) as one:
        assert one.steps() == [4, 5]
        assert len({file.key for file in one.info(5).files}) == 3
        assert one.info(5).earlier
        for step in one.steps():
            training.check(one, step)
        assert files_of(one) == needed_by(one)


@pytest.mark.parametrize(("forgets", "earlier"), [(1, [True, False]), (0, [False, False])])
def test_ranks_build_upon_what_the_first_says(run: Path, forgets: int, earlier: list[bool]) -> None:
    """A rank that has heard of another writes everything."""
    barrier = threading.Barrier(2)

    def work(group: Group) -> Any:
        with opened(run, group=group) as checkpointer:
            checkpointer.save(1, frozen(1)).result()
            if group.rank == forgets:
                checkpointer._reuse.renew(None)  # type: ignore[union-attr]
            barrier.wait()
            saved = checkpointer.save(2, frozen(2)).result()
            barrier.wait()
            return [bool(file.earlier) for file in saved.files]

    assert on_ranks(2, Values(), work) == [earlier] * 2
    with Checkpointer(run) as one:
        one.verify(2)
        assert one.load(2)["adapter"][0] == 2


@pytest.mark.parametrize("keep_local", [0, 1])
def test_from_the_local_disk_it_is_brought_over_once(tmp_path: Path, keep_local: int) -> None:
    (tmp_path / "bucket").mkdir()
    near = tmp_path / "disk"
    with simulator.Server(str(tmp_path)) as server:
        options = where(server)
        with opened("s3://bucket/run", local=near, keep_local=keep_local, **options) as checkpointer:
            sent = [0]
            for step in (1, 2, 3):
                saved = checkpointer.save(step, frozen(step)).result()
                assert bool(saved.earlier) == (step > 1)
                sent.append(checkpointer._far.store.stats()["store.sent_bytes"])
            assert sent[1] > 10_000_000
            assert all(after - before < 1_100_000 for before, after in itertools.pairwise(sent[1:]))
            with Checkpointer(near) as local:
                assert local.steps() == [3]
                assert files_of(local) == needed_by(local)
                local.verify(3)
            assert checkpointer.load()["adapter"][0] == 3
        with Checkpointer("s3://bucket/run", **options) as far:
            for step in (1, 2, 3):
                far.verify(step)
                assert far.load(step)["adapter"][0] == step
            assert files_of(far) == needed_by(far)


def test_the_next_job_brings_over_all_that_was_left(tmp_path: Path) -> None:
    """Of the disk's checkpoints the last refers to one that was never brought over."""
    (tmp_path / "bucket").mkdir()
    near = tmp_path / "disk"
    with opened(near, keep=1) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, frozen(step)).result()
    with simulator.Server(str(tmp_path)) as server:
        options = where(server)
        with opened("s3://bucket/run", local=near, **options) as job:
            job.save(4, frozen(4)).result()
            job.save(5, frozen(5)).result()
        with Checkpointer("s3://bucket/run", **options) as far:
            assert far.steps() == [3, 4, 5]
            for step in far.steps():
                far.verify(step)
                assert far.load(step)["adapter"][0] == step
            assert far.info(3).saves == {far.info(3).save}
            assert files_of(far) == needed_by(far)


def test_a_store_that_was_away_gets_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bucket").mkdir()
    near = tmp_path / "disk"
    with simulator.Server(str(tmp_path)) as server:
        with opened("s3://bucket/run", local=near, **where(server)) as checkpointer:
            with monkeypatch.context() as patched:
                patched.setattr(
                    checkpointer._flusher, "_copy_file", lambda *_: (_ for _ in ()).throw(OSError("away"))
                )
                with pytest.raises(OSError, match="away"):
                    checkpointer.save(1, frozen(1)).result()
            for step in (2, 3):
                checkpointer.save(step, frozen(step)).result()
                checkpointer._flush_worker.submit(int).result()
            assert checkpointer.steps() == [1, 2, 3]
            assert all(checkpointer.info(step).earlier for step in (2, 3))
        with Checkpointer("s3://bucket/run", **where(server)) as far:
            for step in (1, 2, 3):
                far.verify(step)
                assert far.load(step)["adapter"][0] == step
