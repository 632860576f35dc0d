"""torch's distributed checkpoint (DCP) over our storage."""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework_ranks import LONG, Job, run_without_errors

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.distributed.checkpoint.default_planner import (  # noqa: E402
    DefaultLoadPlanner,
    DefaultSavePlanner,
    _EmptyStateDictLoadPlanner,
)
from torch.distributed.checkpoint.planner import SavePlan  # noqa: E402
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions  # noqa: E402
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict, _load_state_dict_from_keys  # noqa: E402

import headrace as hr  # noqa: E402
from headrace import _native  # noqa: E402
from headrace import sim as simulator  # noqa: E402
from headrace.checkpoint import Checkpointer, leftovers  # noqa: E402
from headrace.checkpoint.dcp import Reader, SafeLoadPlanner, Writer, writing  # noqa: E402

pytestmark = pytest.mark.timeout(3600 if LONG else 900)

PROGRAM = Path(__file__).with_name("checkpoint_dcp_ways.py")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is (disabled|unavailable)")
        warnings.filterwarnings("ignore", ".*deprecated", FutureWarning)
        warnings.filterwarnings("ignore", "TypedStorage is deprecated")
        yield


def state(number: float = 1.0) -> dict[str, Any]:
    return {
        "model": {"w": torch.full((300, 70), number), "b": torch.full((70,), number, dtype=torch.bfloat16)},
        "optimizer": {
            "state": {"0": {"step": torch.tensor(number)}},
            "groups": [{"lr": number, "params": [0, 1]}],
        },
        "step": int(number),
        "empty": torch.empty(0, 4),
        "text": "x",
        "array": np.full(3, number),
    }


def is_state(got: Any, number: float) -> bool:
    flat = [torch.equal(got["model"][name], state(number)["model"][name]) for name in ("w", "b")]
    return (
        all(flat)
        and got["optimizer"]["state"]["0"]["step"].item() == number
        and got["optimizer"]["groups"] == state(number)["optimizer"]["groups"]
        and got["step"] == number
        and bool((got["array"] == number).all())
    )


def loaded(reader: Reader, number: float = 0.0, planner: Any = None) -> Any:
    into = state(number)
    dcp.load(into, storage_reader=reader, planner=planner)
    return into


def results(jobs: list[Job]) -> list[list[Any]]:
    return run_without_errors(PROGRAM, jobs)


# --- One rank ---


def test_what_is_saved_is_loaded(s3: simulator.Server) -> None:
    url = "s3://b/run"
    dcp.save(state(1), storage_writer=Writer(url, step=1, metadata={"loss": 0.5}))
    dcp.save(state(2), storage_writer=Writer(url, step=2))
    assert is_state(loaded(Reader(url)), 2)
    assert is_state(loaded(Reader(url, step=1)), 1)
    with Checkpointer(url) as checkpointer:
        assert checkpointer.steps() == [1, 2]
        first, second = checkpointer.info(1), checkpointer.info(2)
        assert (second.job, second.number) == (first.job, first.number + 1)
        assert first.metadata == {"loss": 0.5}
        checkpointer.verify(1)
        with pytest.raises(hr.InvalidArgumentError, match="allow_pickle"):
            checkpointer.load()


def test_the_checkpointer_loads_it_without_pickle(tmp_path: Path) -> None:
    saved = state(3)
    del saved["array"]  # torch.save() pickles arrays of numpy.
    dcp.save(saved, storage_writer=Writer(tmp_path))
    with Checkpointer(tmp_path) as checkpointer:
        got = checkpointer.load()
        assert is_state(got | {"array": np.full(3, 3.0)}, 3)
        into = state(0)
        del into["array"]
        got = checkpointer.load(into=into)
        assert got["model"]["w"] is into["model"]["w"]
        assert is_state(got | {"array": np.full(3, 3.0)}, 3)


def test_what_the_checkpointer_has_saved_is_loaded(tmp_path: Path) -> None:
    extra = {"tuple": (1, torch.ones(2)), "lists": [[1, 2], [torch.zeros(2)]], "size": torch.Size([3])}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(5, state(4) | extra).result()
    into = state(0) | {"tuple": None, "lists": [[], [torch.ones(2)]], "size": None}
    dcp.load(into, storage_reader=Reader(tmp_path))
    assert is_state(into, 4)
    assert into["tuple"][0] == 1
    assert torch.equal(into["tuple"][1], torch.ones(2))
    assert into["lists"][0] == [1, 2]
    assert torch.equal(into["lists"][1][0], torch.zeros(2))
    assert into["size"] == torch.Size([3])


def test_the_names_are_dcps_own(tmp_path: Path) -> None:
    metadata = dcp.save(state(1), storage_writer=Writer(tmp_path / "a"))
    with Checkpointer(tmp_path / "b") as checkpointer:
        checkpointer.save(0, state(1)).result()
    for name in "ab":
        reader = Reader(tmp_path / name)
        reader.reset()
        found = reader.read_metadata()
        assert found.planner_data == metadata.planner_data
        assert found.state_dict_metadata.keys() == metadata.state_dict_metadata.keys()
        for key, about in found.state_dict_metadata.items():
            expected = metadata.state_dict_metadata[key]
            assert type(about) is type(expected)
            if hasattr(about, "size"):
                assert (about.size, about.chunks, about.properties.dtype) == (
                    expected.size,
                    expected.chunks,
                    expected.properties.dtype,
                )


def test_keys_have_the_names_that_dcp_gives_them(tmp_path: Path) -> None:
    keys: list[Any] = [("a", 1), (), ((2,),), None, 1.5, True, 0, "b"]
    saved = {"of": {key: torch.full((2,), float(n)) for n, key in enumerate(keys)}}
    with Checkpointer(tmp_path / "a") as checkpointer:
        checkpointer.save(0, saved).result()
    dcp.save(saved, storage_writer=Writer(tmp_path / "b"))
    for name in "ab":
        into = {"of": {key: torch.zeros(2) for key in keys}}
        dcp.load(into, storage_reader=Reader(tmp_path / name))
        assert all(torch.equal(into["of"][key], value) for key, value in saved["of"].items())


def test_a_checkpoint_says_which_save_and_which_load_it_is(tmp_path: Path) -> None:
    writer, reader = Writer(tmp_path), Reader(tmp_path)
    assert (writer.save_id, reader.load_id) == (None, None)
    loads = set()
    for _ in range(2):
        dcp.save(state(1), storage_writer=writer)
        about = reader.read_metadata().storage_meta
        assert about is not None
        assert about.checkpoint_id == str(tmp_path)
        assert about.save_id == writer.save_id
        assert (tmp_path / "saves" / str(writer.save_id)).is_dir()
        assert about.load_id == reader.load_id
        loads.add(reader.load_id)
    assert len(loads) == 2


def test_dcp_makes_a_state_of_its_own(tmp_path: Path) -> None:
    dcp.save(state(2), storage_writer=Writer(tmp_path))
    got: dict[str, Any] = {}
    reader = Reader(tmp_path)
    reader.reset()
    _load_state_dict(got, reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    assert is_state(got, 2)
    some = _load_state_dict_from_keys("model", storage_reader=Reader(tmp_path))
    assert some.keys() == {"model"}
    assert torch.equal(some["model"]["w"], torch.full((300, 70), 2.0))


def test_a_part_of_it_and_another_dtype(tmp_path: Path) -> None:
    dcp.save(state(2), storage_writer=Writer(tmp_path))
    into = {"model": {"w": torch.zeros(300, 70, dtype=torch.float64).t().contiguous().t()}}
    dcp.load(into, storage_reader=Reader(tmp_path))
    assert torch.equal(into["model"]["w"], torch.full((300, 70), 2.0, dtype=torch.float64))
    with pytest.raises(CheckpointException, match=r"more"):
        dcp.load({"more": torch.zeros(2)}, storage_reader=Reader(tmp_path))
    partial = {"more": torch.zeros(2), "step": 0}
    dcp.load(partial, storage_reader=Reader(tmp_path), planner=DefaultLoadPlanner(allow_partial_load=True))
    assert partial["step"] == 2


def test_flat_states_and_own_planners(tmp_path: Path) -> None:
    flat = {"a.b": torch.ones(3), "c": [1, 2]}
    dcp.save(flat, storage_writer=Writer(tmp_path), planner=DefaultSavePlanner(flatten_state_dict=False))
    into = {"a.b": torch.zeros(3), "c": None}
    dcp.load(
        into,
        storage_reader=Reader(tmp_path),
        planner=DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False),
    )
    assert torch.equal(into["a.b"], torch.ones(3))
    assert into["c"] == [1, 2]


def test_a_checkpoint_id_is_a_url(tmp_path: Path) -> None:
    writer, reader = Writer(), Reader()
    for step in (1, 2):
        dcp.save(state(step), checkpoint_id=tmp_path / f"step-{step}", storage_writer=writer)
    for step in (1, 2):
        into = state(0)
        dcp.load(into, checkpoint_id=str(tmp_path / f"step-{step}"), storage_reader=reader)
        assert is_state(into, step)
    with pytest.raises(CheckpointException, match="nothing says where to save"):
        dcp.save(state(1), storage_writer=Writer())
    with pytest.raises(CheckpointException, match="nothing says what to load"):
        dcp.load(state(1), storage_reader=Reader())


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "first")
    writer, reader = Writer("run"), Reader("run")
    monkeypatch.chdir(tmp_path / "second")
    dcp.save(state(1), storage_writer=writer)
    assert is_state(loaded(reader), 1)
    assert is_state(loaded(Reader(tmp_path / "first" / "run")), 1)
    assert not list((tmp_path / "second").iterdir())


def test_saving_again_replaces_it_or_is_an_error(tmp_path: Path) -> None:
    for number in (1, 2):
        dcp.save(state(number), storage_writer=Writer(tmp_path))
        assert len(list(tmp_path.glob("saves/*"))) == 1
    assert is_state(loaded(Reader(tmp_path)), 2)
    with pytest.raises(CheckpointException, match="step 0 was saved before"):
        dcp.save(state(3), storage_writer=Writer(tmp_path, overwrite=False))
    assert is_state(loaded(Reader(tmp_path)), 2)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.pin(0)
    with pytest.raises(CheckpointException, match="step 0 is pinned"):
        dcp.save(state(3), storage_writer=Writer(tmp_path))
    assert len(list(tmp_path.glob("saves/*"))) == 1  # Of neither was anything written.


def test_values_of_unknown_types_are_not_unpickled_by_the_safe_planner(tmp_path: Path) -> None:
    dcp.save(state(1), storage_writer=Writer(tmp_path))
    with pytest.raises(CheckpointException, match="weights_only"):
        loaded(Reader(tmp_path), planner=SafeLoadPlanner())
    assert is_state(loaded(Reader(tmp_path)), 1)


def test_a_value_that_needs_pickle_is_named(tmp_path: Path) -> None:
    dcp.save({"x": torch.ones(1), "cfg": {"size": Path("a")}}, storage_writer=Writer(tmp_path))
    text = r"^cfg\.size: .*allow_pickle=True if you trust who wrote it \(Unsupported global: GLOBAL pathlib\S* was not"  # noqa: E501
    with Checkpointer(tmp_path) as checkpointer, pytest.raises(hr.InvalidArgumentError, match=text) as raised:
        checkpointer.load()
    assert str(raised.value).isprintable()


VIEWS: list[Callable[[Any], dict[str, Any]]] = [
    lambda whole: {"a": whole, "b": whole},
    lambda whole: {"a": whole, "b": whole.t()},
    lambda whole: {"a": whole[:3], "b": whole[2:]},
    lambda whole: {"a": whole[:, :3], "b": whole[:, 2:]},
]


@pytest.mark.parametrize("views", VIEWS)
def test_tensors_that_share_memory_have_what_was_saved_of_each(
    views: Callable[[Any], dict[str, Any]], tmp_path: Path
) -> None:
    whole = torch.arange(25.0).reshape(5, 5)
    saved = {name: part.clone() for name, part in views(whole).items()}
    dcp.save(saved, storage_writer=Writer(tmp_path / "a"))
    into = torch.zeros(5, 5)
    dcp.load(views(into), storage_reader=Reader(tmp_path / "a"))
    assert torch.equal(into, whole)
    dcp.save(saved | {"b": saved["b"] + 1}, storage_writer=Writer(tmp_path / "b"))
    with pytest.raises(CheckpointException, match="have memory in common here, and differ"):
        dcp.load(views(into), storage_reader=Reader(tmp_path / "b"))


def test_parts_of_one_array_share_no_memory(tmp_path: Path) -> None:
    """However they lie: beside one another, or in turns."""
    whole = torch.arange(40.0).reshape(5, 8)
    saved = {"a": whole[:, ::2].clone(), "b": whole[:, 1::2].clone(), "empty": torch.empty(0)}
    dcp.save(saved, storage_writer=Writer(tmp_path))
    into = torch.zeros(5, 8)
    some = {"a": into[:, ::2], "b": into[:, 1::2], "empty": torch.empty(0)}
    dcp.load(some, storage_reader=Reader(tmp_path))
    assert torch.equal(into, whole)


@pytest.mark.parametrize(
    "alike",
    [{"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}, {"a": {1.5: torch.ones(1), "1.5": torch.zeros(1)}}],
)
def test_two_values_that_dcp_would_call_alike_are_an_error(alike: dict[str, Any], tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, alike).result()
    with pytest.raises(hr.InvalidArgumentError, match=r"two would have one name \(.*a\.(b|1\.5)\)"):
        Reader(tmp_path).read_metadata()


def test_what_is_damaged_is_not_loaded(tmp_path: Path) -> None:
    dcp.save(state(1), storage_writer=Writer(tmp_path))
    (path,) = tmp_path.glob("saves/*/*.safetensors")
    whole = path.read_bytes()
    for at in (len(whole) - 1, len(whole) // 2):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CheckpointException, match=r"CRC32C|sum"):
            loaded(Reader(tmp_path))
    path.write_bytes(whole)
    (tmp_path / "steps" / "000000000000").unlink()
    with pytest.raises(CheckpointException, match="has no checkpoint"):
        loaded(Reader(tmp_path))


class _Forgetful(Writer):
    """One of the results gets lost on the way."""

    def finish(self, metadata: Any, results: Any) -> None:
        super().finish(metadata, [rank[:-1] for rank in results])


def test_an_item_that_nobody_has_written_fails_the_save(tmp_path: Path) -> None:
    with pytest.raises(CheckpointException, match="no rank has written it"):
        dcp.save(state(1), storage_writer=_Forgetful(tmp_path))
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.steps() == []


def test_the_next_job_sweeps_what_one_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "GRACE_SECONDS", 0.05)
    with pytest.raises(CheckpointException):
        dcp.save(state(1), storage_writer=_Forgetful(tmp_path))
    (left,) = tmp_path.glob("saves/*")
    dcp.save(state(2), storage_writer=Writer(tmp_path, step=1))
    time.sleep(0.5)
    assert left.exists()  # The job may still be saving it.
    monkeypatch.setattr(writing, "_jobs", type(writing._jobs)())  # As of another process.
    with contextlib.closing(Writer(tmp_path, step=2)) as writer:
        dcp.save(state(3), storage_writer=writer)
    deadline = time.monotonic() + 30
    while left.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left.exists()
    assert is_state(loaded(Reader(tmp_path, step=1)), 2)
    assert is_state(loaded(Reader(tmp_path)), 3)


class _Changing(DefaultSavePlanner):
    def finish_plan(self, new_plan: SavePlan) -> SavePlan:
        return SavePlan(new_plan.items[:-1], new_plan.storage_data, new_plan.planner_data)


class _Odd(DefaultSavePlanner):
    def resolve_data(self, write_item: Any) -> Any:
        data = super().resolve_data(write_item)
        return data.to(torch.float64) if isinstance(data, torch.Tensor) else data


@pytest.mark.parametrize(
    ("planner", "text"),
    [
        (DefaultSavePlanner(enable_plan_caching=True), "enable_plan_caching=False"),
        (_Changing(), "has changed the plan"),
        (_Odd(), "was planned as torch"),
    ],
)
def test_planners_that_would_lose_something_are_refused(tmp_path: Path, planner: Any, text: str) -> None:
    with pytest.raises(CheckpointException, match=text):
        dcp.save(state(1), storage_writer=Writer(tmp_path), planner=planner)
    assert not list(tmp_path.glob("steps/*"))
    assert not list(tmp_path.glob("saves/*/*"))


def test_ranks_on_their_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(hr.UnsupportedError, match="use_collectives"):
        dcp.save(state(1), storage_writer=Writer(tmp_path), use_collectives=False)


# --- In the background ---


def test_what_changes_after_async_save_is_not_in_it(s3: simulator.Server) -> None:
    for number in (1, 2):
        saved = state(number)
        future = dcp.async_save(saved, storage_writer=Writer("s3://b/run", step=number, memory="32MiB"))
        saved["model"]["w"].zero_()
        saved["optimizer"]["groups"][0]["lr"] = 99
        future.result()
        assert is_state(loaded(Reader("s3://b/run")), number)


def test_a_save_that_fails_before_anything_is_copied_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    future = dcp.async_save(state(1), storage_writer=Writer(tmp_path / "file" / "run"))
    with pytest.raises(CheckpointException, match=r"file"):
        future.result()
    future = dcp.async_save({"x": object(), "y": threading.Lock()}, storage_writer=Writer(tmp_path / "run"))
    with pytest.raises(CheckpointException, match="pickle"):
        future.result()


def test_a_writer_saves_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, may_write = _native.checkpoint_write_small, threading.Event()

    def slow(*arguments: Any) -> None:
        if "saves/" in arguments[1]:
            assert may_write.wait(60)
        write(*arguments)

    monkeypatch.setattr(_native, "checkpoint_write_small", slow)
    writer = Writer(tmp_path)
    future = dcp.async_save(state(1), storage_writer=writer)
    with pytest.raises(CheckpointException, match="under way"):
        dcp.save(state(2), storage_writer=writer)
    may_write.set()
    future.result()
    dcp.async_save(state(2), storage_writer=writer).result()
    assert is_state(loaded(Reader(tmp_path)), 2)


def test_another_stager_may_stage(tmp_path: Path) -> None:
    stager = DefaultStager(StagingOptions(False, False, False, False))
    saved = state(1)
    future = dcp.async_save(saved, storage_writer=Writer(tmp_path), async_stager=stager)
    saved["model"]["w"].zero_()
    getattr(future, "upload_completion", future).result()
    assert is_state(loaded(Reader(tmp_path)), 1)
    stager.close()


def test_a_writer_that_stages_stays_in_its_process() -> None:
    writer = Writer("x")
    assert pickle.loads(pickle.dumps(writer)).step == 0
    writer.stage({})
    with pytest.raises(hr.InvalidArgumentError, match=r"async_stager=DefaultStager\(\)"):
        pickle.dumps(writer)
    writer.synchronize_staging()


def test_staging_has_a_time_limit() -> None:
    writer = Writer("x", stage_timeout=0.01)
    writer.stage({})
    with pytest.raises(hr.DeadlineError, match="stage_timeout"):
        writer.synchronize_staging()


# --- Several ranks ---


def test_any_mesh_loads_what_any_other_has_saved(tmp_path: Path) -> None:
    jobs = []
    for number, (saving, loading) in enumerate([(4, 2), (2, 3), (3, 8), (4, 1)]):
        options = {"seed": 10 * number, "asynchronous": number % 2 == 1}
        place = str(tmp_path / str(number))
        jobs += [Job("save", place, saving, options=options), Job("load", place, loading, options=options)]
    for ranks in results(jobs)[1::2]:
        assert all(result == [5, {"text": "x"}, [0.5, 0.25]] for result in ranks)


@pytest.mark.parametrize("way", ["fsdp", "ddp"])
def test_training_goes_on_on_other_ranks(tmp_path: Path, way: str) -> None:
    runs = [(4, 3, "stopped"), (3, 5, "stopped"), (8, 6, "stopped"), (4, 6, "whole")]
    out = results(
        [
            Job("train", str(tmp_path / name), world, options={"steps": n, "way": way})
            for world, n, name in runs
        ]
    )
    assert out[0][0] != pytest.approx(out[3][0], rel=1e-5)
    for result in out[2]:
        assert result == pytest.approx(out[3][0], rel=1e-5)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_rank_that_fails_fails_the_save(tmp_path: Path, asynchronous: bool) -> None:
    for text, steps in results([Job("one_fails", str(tmp_path), 2, options={"asynchronous": asynchronous})])[
        0
    ]:
        assert "no room for it" in text
        assert steps == [1]


def test_async_save_in_another_process(tmp_path: Path) -> None:
    job = Job("other_process", str(tmp_path), 1)
    assert results([job])[0][0] == ["AsyncCheckpointerType.PROCESS saves in another process", 1.0]
