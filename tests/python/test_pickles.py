"""Pickles of what is open: whoever loads one opens the same anew, at the position that it had."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pickle_functions as functions
import pytest
from conftest import where, write_numbers

import headrace as hr
from headrace import sim as simulator
from headrace.base.recipe import lasting_options

OPTIONS: dict[str, Any] = {"batch_size": 10, "memory": "64MiB", "block_bytes": "64KiB", "seed": 5}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 samples."""
    return write_numbers(tmp_path_factory.mktemp("data") / "numbers", 200, per_shard=50)


@pytest.fixture(scope="module")
def spawned() -> Iterator[Any]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool.apply


def by_cloudpickle(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    cloudpickle = pytest.importorskip("cloudpickle")
    made, given = pickle.loads(cloudpickle.dumps((function, arguments)))
    return made(*given)


@pytest.fixture(params=["spawn", "cloudpickle"])
def call(request: pytest.FixtureRequest, spawned: Any) -> Any:
    """Calls a function with something pickled."""
    return spawned if request.param == "spawn" else by_cloudpickle


def test_a_store_reads_elsewhere(call: Any, data: Path) -> None:
    with hr.Store(data, memory="16MiB") as store:
        assert call(functions.get, (store, "index.json")) == (data / "index.json").read_bytes()


def test_a_dataset_reads_elsewhere(call: Any, data: Path) -> None:
    with hr.Dataset(data, block_bytes="64KiB") as dataset:
        assert call(functions.read, (dataset, [3, 199])) == [22, 1394]
    with hr.Dataset([data, data]) as twice:
        assert call(functions.read, (twice, [3, 203])) == [22, 22]


def test_packed_tokens_are_packed_again(call: Any, tmp_path: Path) -> None:
    with hr.prepare.MDSWriter(tmp_path / "a", {"tokens": "ndarray:uint16"}) as writer:
        for i in range(9):
            writer.write({"tokens": np.full(i + 1, i, np.uint16)})
    with hr.pack_tokens(tmp_path / "a", length=16) as packed:
        again = pickle.loads(pickle.dumps(packed))
        assert type(again) is type(packed)
        assert (again.fingerprint, again.report) == (packed.fingerprint, packed.report)
        again.close()


def open_loader(data: Path, kind: str) -> Any:
    if kind == "numpy":
        return hr.Loader(data, **OPTIONS)
    if kind == "mapped":
        return hr.Loader(data, **OPTIONS).map(functions.double, workers=1, where="thread")
    torch = pytest.importorskip("headrace.torch")
    if kind == "torch":
        return torch.Loader(data, **OPTIONS)
    if kind == "torch mapped":
        return torch.Loader(data, **OPTIONS).map(functions.double)
    mixture = hr.Mixture({"a": (data, 0.7), "b": (data, 0.3)}, block_bytes="64KiB")
    return hr.Loader(mixture, batch_size=10, memory="64MiB", seed=5)


KINDS = ["numpy", "mapped", "torch", "torch mapped", "mixture"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_goes_on_elsewhere_where_its_loop_stands(call: Any, data: Path, kind: str) -> None:
    with open_loader(data, kind) as loader:
        iterator = iter(loader)
        before = [next(iterator).ids.tolist() for _ in range(3)]
        found = call(functions.rest, (loader,))
        here = [(batch.ids.tolist(), batch["x"].tolist()) for batch in iterator]  # Not moved by the copy.
        assert found["batches"] == here
        assert found["state"] == loader.state_dict()
    assert len(before) + len(here) == (40 if kind == "mixture" else 20)
    if kind != "mixture":
        factor = 2 if "mapped" in kind else 1
        assert [x for _, values in here for x in values] == [
            factor * (7 * i + 1) for ids, _ in here for i in ids
        ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_that_has_not_begun_begins_elsewhere(data: Path, kind: str) -> None:
    with open_loader(data, kind) as loader, pickle.loads(pickle.dumps(loader)) as again:
        assert [b.ids.tolist() for b in again] == [b.ids.tolist() for b in loader]


def test_the_end_of_an_epoch_is_a_position(data: Path) -> None:
    with hr.Loader(data, **OPTIONS) as loader:
        list(loader)
        with pickle.loads(pickle.dumps(loader)) as again:
            assert again.state_dict() == loader.state_dict()
            assert [b.ids.tolist() for b in again] == [b.ids.tolist() for b in loader]
            assert again.epoch == loader.epoch


def test_a_loader_without_a_rank_becomes_that_of_its_process(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver makes it, and each worker of a job has its part."""
    with hr.Loader(data, **OPTIONS) as loader, hr.Loader(data, rank=0, world_size=1, **OPTIONS) as fixed:
        pickled, pickled_fixed = pickle.dumps(loader), pickle.dumps(fixed)
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen: list[int] = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        found = functions.rest(pickle.loads(pickled))
        assert found["rank"] == rank
        seen += [i for ids, _ in found["batches"] for i in ids]
        assert functions.rest(pickle.loads(pickled_fixed))["rank"] == 0
    assert sorted(seen) == list(range(200))


def test_a_loader_that_has_not_begun_takes_the_order_of_its_new_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lanes follow from the number of ranks, as if it had been made there."""
    data = write_numbers(tmp_path / "data", 400, per_shard=1)
    options = {**OPTIONS, "batch_size": 600}
    with hr.Loader(data, **options) as loader:
        pickled, lanes = pickle.dumps(loader), loader.order_spec["lane_count"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pickle.loads(pickled) as again, hr.Loader(data, **options) as there:
        assert again.order_spec == there.order_spec
        assert again.order_spec["lane_count"] == 2 * lanes


def test_what_was_changed_in_a_run_is_kept(data: Path) -> None:
    """Weights at the very start, a source that came later, and an order that a state brought."""
    mixture = hr.Mixture({"a": (data, 1.0), "b": (data, 1.0)}, block_bytes="64KiB")
    options: dict[str, Any] = {"batch_size": 10, "memory": "64MiB"}
    with contextlib.closing(mixture), hr.Loader(mixture, **options) as loader:
        loader.set_weights({"a": 1})
        again = functions.rest(pickle.loads(pickle.dumps(loader)))
        assert again["batches"] == functions.rest(copy.copy(loader))["batches"]
        assert max(i for ids, _ in again["batches"] for i in ids) < 200  # Of source a alone.
        loader.add_source("c", data, {"c": 1})
        list(islice(loader, 2))
        again = functions.rest(pickle.loads(pickle.dumps(loader)))
        assert again["batches"] == [(b.ids.tolist(), b["x"].tolist()) for b in loader]
        assert min(i for ids, _ in again["batches"] for i in ids) >= 400
    with hr.Loader(data, **{**OPTIONS, "memory": "1GiB", "lanes": 4}) as first:
        state = first.state_dict()
    with hr.Loader(data, **OPTIONS) as loader:
        loader.load_state_dict(state)
        loader.reset()
        with pickle.loads(pickle.dumps(loader)) as again:
            assert again.order_spec == loader.order_spec


def test_a_mixture_is_made_again(call: Any, data: Path) -> None:
    mixture = hr.Mixture({"a": hr.MixtureSource(data, choose=30), "b": hr.MixtureSource(data, choose=10)})
    with contextlib.closing(mixture):
        again = pickle.loads(pickle.dumps(mixture))
        with contextlib.closing(again):
            assert (again.names, again.sizes) == (mixture.names, mixture.sizes)
            assert again.describe() == mixture.describe()
        with pytest.raises(hr.InvalidArgumentError, match="pickle the Mixture"):
            pickle.dumps(mixture.dataset)


def test_paths_mean_the_same_where_another_folder_is_current(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data.parent)
    with (
        hr.Dataset("numbers") as dataset,
        hr.Loader("./numbers", **OPTIONS) as loader,
        hr.Store("numbers") as store,
    ):
        opened = [dataset, loader, store]
        pickled = [pickle.dumps(each) for each in opened]
    monkeypatch.chdir(tmp_path)
    dataset, loader, store = (pickle.loads(each) for each in pickled)
    with dataset, loader, store:
        assert (len(dataset), len(loader), store.exists("index.json")) == (200, 20, True)


def test_other_data_in_its_place_is_an_error(tmp_path: Path) -> None:
    data = write_numbers(tmp_path / "data", 20)
    with hr.Dataset(data) as dataset, hr.Loader(data, **OPTIONS) as loader:
        pickled = [pickle.dumps(dataset), pickle.dumps(loader)]
    write_numbers(data, 30)
    for each in pickled:
        with pytest.raises(hr.ChangedError, match="other data lies there"):
            pickle.loads(each)


@pytest.mark.parametrize(
    ("url", "options", "named"),
    [
        ("s3://b/x", {"access_key": "AKIA", "secret_key": "S3CR3T"}, "secret_key"),
        ("https://user:S3CR3T@127.0.0.1:1/x", {}, "its URL"),
        ("https://127.0.0.1:1/x?X-Amz-Signature=S3CR3T", {}, "its URL"),
        ("s3://b/x", {"anonymous": True, "proxy": "http://me:S3CR3T@127.0.0.1:1"}, "proxy"),
    ],
)
def test_secrets_are_not_pickled(url: str, options: dict[str, Any], named: str) -> None:
    with (
        hr.Store(url, **options) as store,
        pytest.raises(hr.InvalidArgumentError, match="was opened with a secret") as caught,
    ):
        pickle.dumps(store)
    assert f"({named})" in str(caught.value)
    assert "S3CR3T" not in str(caught.value)


def test_no_secret_is_in_any_pickle(sim: simulator.Server, buckets: Path) -> None:
    """Of what was opened by options: refused. By the environment: not in it, and read again elsewhere."""
    write_numbers(buckets / "b" / "x", 20)
    with (
        hr.Dataset("s3://b/x", **where(sim)) as dataset,
        hr.Loader("s3://b/x", **OPTIONS, **where(sim)) as loader,
    ):
        for opened in (dataset, loader, loader.map(functions.double)):
            with pytest.raises(hr.InvalidArgumentError, match="secret_key"):
                pickle.dumps(opened)
    hot = {"url": "s3://hot/x", "access_key": "a", "secret_key": "S3CR3T"}
    with (
        hr.Store("http://127.0.0.1:1/x", cache=hot) as store,
        pytest.raises(hr.InvalidArgumentError, match="secret_key"),
    ):
        pickle.dumps(store)


def test_credentials_of_the_environment_are_found_again(
    s3: simulator.Server, numbers: Path, spawned: Any
) -> None:
    with hr.Loader("s3://b/numbers", **OPTIONS) as loader:
        pickled = pickle.dumps(loader)
        assert s3.secret_key.encode() not in pickled
    script = (
        "import sys, pickle; loader = pickle.load(sys.stdin.buffer); print(sum(len(b.ids) for b in loader))"
    )
    environment = {**os.environ, **s3.environment()}
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickled, env=environment, capture_output=True, check=True
    )
    assert done.stdout.split() == [b"1000"]


def test_what_cannot_be_pickled_says_so(data: Path) -> None:
    with hr.Loader(data, **OPTIONS) as loader:
        with pytest.raises(hr.InvalidArgumentError, match="pickle the loader"):
            pickle.dumps(iter(loader))
        with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
            pickle.dumps(loader.map(lambda sample: sample))
    for closed in (loader, hr.Dataset(data)):
        closed.close()
        with pytest.raises(hr.InvalidArgumentError, match="closed"):
            pickle.dumps(closed)


def test_a_loader_in_spawned_workers_of_a_data_loader_is_refused(data: Path) -> None:
    torch = pytest.importorskip("torch")
    with hr.Loader(data, **OPTIONS) as loader:
        around = torch.utils.data.DataLoader(
            functions.Around(loader), batch_size=None, num_workers=1, multiprocessing_context="spawn"
        )
        with pytest.raises(hr.InvalidArgumentError, match="all its batches in each worker"):
            iter(around)


def test_a_dataset_in_spawned_workers_of_a_data_loader_reads(data: Path) -> None:
    """As any dataset with an index does."""
    torch = pytest.importorskip("torch")
    with hr.Dataset(data) as dataset:
        around = torch.utils.data.DataLoader(
            dataset, batch_size=50, num_workers=1, multiprocessing_context="spawn"
        )
        assert [batch["x"].tolist()[0] for batch in around] == [1, 351, 701, 1051]


def test_torch_save_takes_states_only(data: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with open_loader(data, "torch") as loader:
        for saved in (loader, torch.utils.data.DataLoader(loader, batch_size=None)):
            with pytest.raises(hr.InvalidArgumentError, match=r"loader.state_dict\(\)"):
                torch.save({"loader": saved}, tmp_path / "x.pt")
        torch.save({"loader": loader.state_dict()}, tmp_path / "x.pt")


def test_tasks_of_ray_take_loaders(data: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=1, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        with hr.Loader(data, **OPTIONS) as loader:
            list(islice(loader, 5))
            path = str(Path(__file__).parent)
            remote = ray.remote(functions.rest).options(
                runtime_env={"env_vars": {"PYTHONPATH": f"{path}:{os.environ.get('PYTHONPATH', '')}"}}
            )
            found = ray.get(remote.remote(loader))
            assert found["pid"] != os.getpid()
            assert found["batches"] == [(b.ids.tolist(), b["x"].tolist()) for b in loader]
    finally:
        ray.shutdown()


def test_paths_among_the_options_mean_the_same_too(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("bad.jsonl").write_text('{"position": 3}\n')
    Path("key").write_text("00" * 32)
    Path("key").chmod(0o600)
    opening: dict[str, Any] = {
        "index_cache": "indexes",
        "access_log": Path("log"),
        "control_directory": "",
        "cache": ["nvme:1GiB"],
    }
    mixture = hr.Mixture({"a": data}, **opening)
    with (
        hr.Loader(data, **OPTIONS, **opening, quarantine="bad.jsonl") as loader,
        hr.Dataset(data, cache={"directory": "encrypted"}, cache_key="file:key", index_cache="") as dataset,
        hr.Store(data, ca_bundle="ca") as store,
        contextlib.closing(mixture),
    ):
        absolute = {
            **opening,
            "index_cache": f"{os.getcwd()}/indexes",
            "access_log": f"{os.getcwd()}/log",
            "cache": [f"{os.getcwd()}/nvme:1GiB"],
        }
        for options in (loader._given.options, mixture._recipe.options):
            assert {name: options[name] for name in absolute} == absolute
        assert dataset._recipe is not None
        assert dataset._recipe.options["cache"] == {"directory": f"{os.getcwd()}/encrypted"}
        assert dataset._recipe.options["cache_key"] == f"file:{os.getcwd()}/key"
        assert store._recipe.options["ca_bundle"] == f"{os.getcwd()}/ca"
        monkeypatch.chdir(tmp_path)
        Path("bad.jsonl").write_text("")
        with pickle.loads(pickle.dumps(loader)) as again:
            assert functions.rest(again)["batches"] == [(b.ids.tolist(), b["x"].tolist()) for b in loader]
    lists: dict[str, Any] = {"a": "bad.jsonl", "directory": [1, 2], "b": "s3://b/bad.jsonl"}
    hot: dict[str, Any] = {"url": "s3://hot/x", "profile": "p", "ca_bundle": "ca"}
    assert lasting_options({"quarantine": lists, "cache": [hot], "profile": "p", "index_cache": ""}) == {
        "quarantine": {**lists, "a": f"{tmp_path}/bad.jsonl"},
        "cache": [{**hot, "ca_bundle": f"{tmp_path}/ca"}],
        "profile": "p",
        "index_cache": "",
    }


def test_columns_of_an_iterator_are_taken_once(data: Path) -> None:
    with hr.Loader(data, columns=(name for name in ["x"]), **OPTIONS) as loader:
        assert list(next(iter(loader))) == ["x"]
        with pickle.loads(pickle.dumps(loader)) as again:
            assert list(next(iter(again))) == ["x"]
    for open_it in (lambda: hr.Loader(data, columns=[], **OPTIONS), lambda: hr.Dataset(data, columns=())):
        with pytest.raises(hr.InvalidArgumentError, match=r"columns=\[\] names none: leave it out for all"):
            open_it()
