"""Mixtures and several datasets as one, end to end."""

from __future__ import annotations

import itertools
import json
import math
import re
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_mds

import headrace as hr
from headrace.base import live

SHARD = 64


def write_source(root: Path, count: int, first: int) -> Path:
    """MDS with ``x`` (int, first + i) and ``t`` (str)."""
    samples = [{"x": struct.pack("<q", first + i), "t": f"t{first + i}".encode()} for i in range(count)]
    return write_mds(root, {"x": ("int", 8), "t": ("str", None)}, samples, SHARD)


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    return {
        "web": write_source(tmp_path / "web", 600, 0),
        "code": write_source(tmp_path / "code", 300, 10_000),
        "math": write_source(tmp_path / "math", 100, 20_000),
    }


def open_loader(mixture: hr.Mixture, **arguments: Any) -> hr.Loader:
    return hr.Loader(mixture, **{"batch_size": 20, "memory": "64MiB", "seed": 3, **arguments})


def numbers(batch: hr.Batch) -> list[int]:
    return [int(x) for x in batch["x"]]


def source_of(x: int) -> str:
    return ("web", "code", "math")[x // 10_000]


def test_shares_follow_the_weights_and_each_source_goes_through_its_epochs(sources: dict[str, Path]) -> None:
    mixture = hr.Mixture(
        {"web": (sources["web"], 0.5), "code": (sources["code"], 0.25), "math": (sources["math"], 0.25)}
    )
    with open_loader(mixture) as loader:
        assert len(loader) == 50
        seen: Counter[int] = Counter()
        for batch in loader:
            got = numbers(batch)
            seen.update(got)
            assert batch["t"] == [f"t{x}" for x in got]
            assert [mixture.names[i] for i in mixture.sources_of(batch.ids)] == [source_of(x) for x in got]
            assert all(
                position == x % 10_000
                for (_, position), x in zip(mixture.locate(batch.ids), got, strict=True)
            )
        shares = Counter(source_of(x) for x in seen.elements())
        assert shares["web"] == pytest.approx(500, abs=3)
        assert shares["math"] == pytest.approx(250, abs=3)
        assert {seen[20_000 + i] for i in range(100)} <= {2, 3}
        assert max(seen[i] for i in range(600)) == 1
    mixture.close()


def test_sizes_and_temperature_make_weights(sources: dict[str, Path]) -> None:
    with_sizes = hr.Mixture(sources)
    assert [s["epochs_per_epoch"] for s in with_sizes.describe(global_batch=20)["sources"]] == pytest.approx(
        [1, 1, 1], abs=0.03
    )
    flat = hr.Mixture(sources, temperature=1e9)
    assert [s["samples_per_epoch"] for s in flat.describe(global_batch=20)["sources"]] == pytest.approx(
        [333, 333, 333], abs=2
    )
    root = hr.Mixture(sources, temperature=2)
    counts = [s["samples_per_epoch"] for s in root.describe(global_batch=20)["sources"]]
    assert counts[0] / counts[2] == pytest.approx(6**0.5, rel=0.02)
    # Powers of the sizes that no float holds.
    for temperature in (1e-320, 1e-5):
        with pytest.raises(hr.InvalidArgumentError, match=r"source .* would never come"):
            hr.Mixture(sources, temperature=temperature).describe(global_batch=20)
    with pytest.raises(hr.InvalidArgumentError, match="'math' is less than 1/65536 of the sum"):
        hr.Mixture(sources, temperature=0.1).describe(global_batch=20)


def test_repeat_and_choose_are_exact(sources: dict[str, Path]) -> None:
    mixture = hr.Mixture(
        {
            "web": hr.MixtureSource(sources["web"], choose=70),
            "code": hr.MixtureSource(sources["code"], repeat=1),
            "math": hr.MixtureSource(sources["math"], repeat=2),
        },
        groups=1,
    )
    with open_loader(mixture, epoch_end="uneven") as loader:
        for epoch in range(3):
            seen = Counter(x for batch in loader for x in numbers(batch))
            assert Counter(source_of(x) for x in seen.elements()) == {"web": 70, "code": 300, "math": 200}
            assert all(seen[10_000 + i] == 1 for i in range(300)), epoch
            assert all(seen[20_000 + i] == 2 for i in range(100)), epoch


def test_a_source_that_no_stratified_batch_holds_is_named(sources: dict[str, Path]) -> None:
    mixture = hr.Mixture({"web": (sources["web"], 1000), "code": (sources["code"], 1)}, batching="stratified")
    with pytest.raises(hr.InvalidArgumentError, match="source 'code' has no sample in a stratified batch"):
        open_loader(mixture)
    mixture.close()


def test_batches_of_one_source_and_stratified_ones(sources: dict[str, Path]) -> None:
    weights = {"web": (sources["web"], 2), "code": (sources["code"], 1), "math": (sources["math"], 1)}
    with open_loader(hr.Mixture(weights, batching="per_source")) as loader:
        kinds = [{source_of(x) for x in numbers(batch)} for batch in loader]
        assert all(len(kind) == 1 for kind in kinds)
        assert Counter(kind.pop() for kind in kinds) == {"web": 25, "code": 13, "math": 12}
    with open_loader(hr.Mixture(weights, batching="stratified")) as loader:
        for batch in loader:
            assert Counter(map(source_of, numbers(batch))) == {"web": 10, "code": 5, "math": 5}


def test_all_worlds_see_the_same_global_batches(sources: dict[str, Path]) -> None:
    def run(world: int) -> list[list[int]]:
        batches: list[list[int]] = []
        for rank in range(world):
            mixture = hr.Mixture(
                {
                    name: (path, weight)
                    for (name, path), weight in zip(sources.items(), (5, 2, 1), strict=True)
                }
            )
            with open_loader(mixture, batch_size=32 // world, rank=rank, world_size=world) as loader:
                for k, batch in enumerate(loader):
                    if rank == 0:
                        batches.append([])
                    batches[k] += numbers(batch)
        return batches

    one = run(1)
    assert one == run(2) == run(8)


def test_the_schedule_changes_weights(sources: dict[str, Path]) -> None:
    mixture = hr.Mixture(
        {"web": (sources["web"], 1), "code": (sources["code"], 0), "math": (sources["math"], 0)},
        schedule=[(3, {"code": 1}), (5, {"code": 1, "math": 1})],
    )
    with open_loader(mixture) as loader:
        kinds = [Counter(map(source_of, numbers(batch))) for batch, _ in zip(loader, range(7), strict=False)]
    assert kinds[:3] == [{"web": 20}] * 3
    assert kinds[3:5] == [{"code": 20}] * 2
    assert kinds[5:] == [{"code": 10, "math": 10}] * 2


def test_weights_change_while_running_and_the_state_replays_it(sources: dict[str, Path]) -> None:
    def make() -> hr.Mixture:
        return hr.Mixture(
            {"web": (sources["web"], 1), "code": (sources["code"], 1), "math": (sources["math"], 0)}
        )

    with open_loader(make()) as loader:
        stream = iter(loader)
        for _ in range(4):
            next(stream)
        assert loader.set_weights({"math": 1}) == 4
        first = numbers(next(iter(loader)))
        assert {source_of(x) for x in first} == {"math"}
        assert loader.set_weights({"web": 1}, at_step=7) == 7
        state = loader.state_dict()
        rest = [numbers(batch) for batch in loader]
        with pytest.raises(hr.InvalidArgumentError, match="past"):
            loader.set_weights({"web": 1}, at_step=2)
        with pytest.raises(hr.InvalidArgumentError, match="no source"):
            loader.set_weights({"books": 1})
    assert len(json.dumps(state)) < 1024
    assert {source_of(x) for x in rest[1]} == {"math"}
    assert {source_of(x) for x in rest[2]} == {"web"}
    for world in (1, 4):
        got: list[list[int]] = [[] for _ in rest]
        for rank in range(world):
            with open_loader(make(), batch_size=20 // world, rank=rank, world_size=world) as loader:
                loader.load_state_dict(state)
                for k, batch in enumerate(loader):
                    got[k] += numbers(batch)
        assert got == rest


def test_a_source_is_added_to_a_run(sources: dict[str, Path]) -> None:
    pair = {"web": (sources["web"], 1), "code": (sources["code"], 1)}
    with open_loader(hr.Mixture(pair)) as loader:
        before = [numbers(next(iter(loader))) for _ in range(5)]
        old = loader.state_dict()
        assert loader.add_source("math", sources["math"], {"web": 1, "math": 1}) == 5
        state = loader.state_dict()
        after = [numbers(batch) for batch in loader]
    assert all(Counter(map(source_of, batch)) == {"web": 10, "math": 10} for batch in after)
    web = [x for batch in before + after for x in batch if source_of(x) == "web"]
    assert len(set(web)) == len(web) <= 600, "the first source goes on where it was"
    trio = hr.Mixture({**pair, "math": (sources["math"], 0)})
    with open_loader(trio) as loader:
        loader.load_state_dict(state)
        assert [numbers(batch) for batch in loader] == after
    # The state of before, opened with more sources: weights of the new mixture hold from there.
    with open_loader(hr.Mixture({**pair, "math": (sources["math"], 2)})) as loader:
        loader.load_state_dict(old)
        assert Counter(map(source_of, numbers(next(iter(loader))))) == {"web": 5, "code": 5, "math": 10}
    with open_loader(hr.Mixture(pair)) as loader, pytest.raises(hr.InvalidArgumentError, match="left out"):
        loader.load_state_dict(state)


@pytest.mark.parametrize("change", ["set_weights", "add_source"])
def test_an_epoch_ends_although_its_last_batch_changes_the_mixture(
    sources: dict[str, Path], change: str
) -> None:
    mixture = hr.Mixture({"web": (sources["web"], 1), "code": (sources["code"], 1)}, samples_per_epoch=60)
    with open_loader(mixture) as loader:
        for epoch in range(3):
            count = 0
            for _ in loader:
                count += 1
                assert count <= 3, "the end of the epoch was passed over"
                if change == "set_weights":
                    assert loader.set_weights({"web": 1, "code": count}) == 3 * epoch + count
                elif epoch == 0 and count == 3:
                    assert loader.add_source("math", sources["math"], {"math": 1}) == 3
            assert count == 3
            assert loader.epoch == epoch + 1
            loader.set_weights({"web": 1})
        # An iterator from before the first batch is in no epoch that has ended.
        stream = iter(loader)
        loader.set_weights({"code": 1})
        assert {source_of(x) for x in numbers(next(stream))} == {"code"}
    mixture.close()


def test_a_source_is_added_within_a_loop(sources: dict[str, Path]) -> None:
    with open_loader(hr.Mixture({"web": (sources["web"], 1)}, samples_per_epoch=100)) as loader:
        kinds = []
        for batch in loader:
            kinds.append({source_of(x) for x in numbers(batch)})
            if len(kinds) == 2:
                loader.add_source("code", sources["code"], {"code": 1}, at_step=3)
            elif len(kinds) == 4:
                loader.add_source("math", sources["math"], {"math": 1})
    assert kinds == [{"web"}] * 3 + [{"code"}, {"math"}]


def test_weights_hold_until_an_added_source_begins(sources: dict[str, Path]) -> None:
    pair = {"web": (sources["web"], 1), "code": (sources["code"], 0)}
    with open_loader(hr.Mixture(pair, schedule=[(4, {"web": 1, "code": 3}), (30, {"web": 1})])) as loader:
        stream = iter(loader)
        next(stream)
        assert loader.set_weights({"code": 1}, at_step=2) == 2
        next(stream)
        next(stream)
        assert loader.set_weights({"web": 1, "code": 1}, at_step=5) == 5
        assert loader.add_source("math", sources["math"], {"math": 1}, at_step=7) == 7
        state = loader.state_dict()
        rest = [Counter(map(source_of, numbers(batch))) for batch, _ in zip(loader, range(30), strict=False)]
    assert rest[:2] == [{"code": 20}] * 2
    assert rest[2:4] == [{"web": 10, "code": 10}] * 2
    assert rest[4:] == [{"math": 20}] * 26
    changes = state["mixture"]["changes"].split()
    assert [change.split(":")[0] for change in changes] == ["0", "2", "5", "7"], "no change without effect"


def test_a_source_that_cannot_be_added_leaves_the_loader_as_it_was(
    sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = {"web": (sources["web"], 1), "code": (sources["code"], 1)}
    with open_loader(hr.Mixture(pair)) as loader, open_loader(hr.Mixture(pair)) as undisturbed:
        streams = [iter(loader), iter(undisturbed)]
        for stream in streams * 2:
            next(stream)
        opened: list[hr.Dataset] = []
        register = live.register
        monkeypatch.setattr(live, "register", lambda thing: (opened.append(thing), register(thing)))
        state, mixture = loader.state_dict(), loader.mixture
        for name, source, weights, at_step, message in [
            ("math", sources["math"], {"math": 1}, 1, "past"),
            ("math", sources["math"], {"math": -1}, None, "negative"),
            ("math", sources["math"], {"maths": 1}, None, "no source"),
            ("math", sources["math"], {"math": 1}, 2.5, "number of a global batch"),
            ("code", sources["code"], {"code": 1}, None, "already"),
            ("math", hr.MixtureSource(sources["math"], repeat=2), {"math": 1}, None, "how much of it comes"),
            ("math", (sources["math"], 2), {"math": 1}, None, "how much of it comes"),
            (7, sources["math"], {"math": 1}, None, "is a text, not 7"),
        ]:
            with pytest.raises(hr.InvalidArgumentError, match=message):
                loader.add_source(name, source, weights, at_step)  # type: ignore[arg-type]
        with pytest.raises(hr.HeadraceError):
            loader.add_source("books", sources["web"].parent / "books", {"books": 1})
        assert all(thing.closed for thing in opened), "a failed call leaves nothing open"
        assert loader.mixture is mixture
        assert loader.state_dict() == state
        assert [numbers(batch) for batch in streams[0]] == [numbers(batch) for batch in streams[1]]
        opened.clear()
        loader.add_source("math", sources["math"], {"math": 1})
        assert opened
    assert all(thing.closed for thing in opened), "sources added by URL are closed with the loader"


def test_ranks_that_make_the_same_changes_see_the_same_global_batches(sources: dict[str, Path]) -> None:
    def run(world: int) -> tuple[list[list[int]], list[dict[str, Any]]]:
        batches: list[list[int]] = []
        states = []
        for rank in range(world):
            mixture = hr.Mixture(
                {"web": (sources["web"], 3), "code": (sources["code"], 1)}, samples_per_epoch=320
            )
            with open_loader(mixture, batch_size=32 // world, rank=rank, world_size=world) as loader:
                for epoch in range(2):
                    for k, batch in enumerate(loader):
                        if rank == 0:
                            batches.append([])
                        batches[10 * epoch + k] += numbers(batch)
                        if k == 2:
                            loader.set_weights({"web": 1, "code": 2 + epoch})
                        if epoch == 0 and k == 5:
                            loader.add_source(
                                "math", sources["math"], {"web": 2, "code": 1, "math": 1}, at_step=8
                            )
                        if k == 9:
                            loader.set_weights({"web": 1, "math": 1}, at_step=10 * (epoch + 1) + 1)
                states.append(loader.state_dict())
            mixture.close()
        return batches, states

    one, states = run(1)
    assert len(one) == 20
    assert Counter(map(source_of, one[8])) == {"web": 16, "code": 8, "math": 8}
    assert Counter(map(source_of, one[11])) == {"web": 16, "math": 16}
    two, others = run(2)
    assert one == two
    assert [other["mixture"] for other in others] == [states[0]["mixture"]] * 2
    assert [(other["epoch"], other["t"]) for other in others] == [(2, 0)] * 2


def test_states_of_shuffled_mixtures_are_not_for_others(sources: dict[str, Path]) -> None:
    pair = {"web": (sources["web"], 1), "code": (sources["code"], 1)}
    for shuffle in (False, True):
        with open_loader(hr.Mixture(pair, groups=1), shuffle=shuffle) as loader:
            next(iter(loader))
            state = loader.state_dict()
        with open_loader(hr.Mixture(pair, groups=1), shuffle=not shuffle) as loader:
            with pytest.raises(hr.InvalidArgumentError, match="shuffle"):
                loader.load_state_dict(state)
            assert loader.state_dict()["t"] == 0
        with open_loader(hr.Mixture(pair, groups=1), shuffle=shuffle) as loader:
            loader.load_state_dict(state)
            assert loader.state_dict() == state


def test_states_of_other_sources_are_refused(sources: dict[str, Path], tmp_path: Path) -> None:
    with open_loader(hr.Mixture({"web": (sources["web"], 1), "code": (sources["code"], 1)})) as loader:
        state = loader.state_dict()
    with open_loader(hr.Mixture({"web": (sources["web"], 1), "math": (sources["math"], 1)})) as loader:
        with pytest.raises(hr.InvalidArgumentError, match="math"):
            loader.load_state_dict(state)
        with pytest.raises(hr.InvalidArgumentError):
            loader.load_state_dict({**state, "mixture": None})
    with (
        hr.Loader(sources["web"], batch_size=10, memory="64MiB") as loader,
        pytest.raises(hr.InvalidArgumentError),
    ):
        loader.load_state_dict(state)


def test_wrong_mixtures_say_why(sources: dict[str, Path]) -> None:
    web = sources["web"]
    wrong: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {}, "at least one"),
        ({"a": (web, 1), "b": web}, {}, "weight to all"),
        ({"a": (web, -1)}, {}, "negative"),
        ({2: (web, 1)}, {}, "is a text, not 2"),
        ({"a": hr.MixtureSource(web, weight=1, repeat=1)}, {}, "one of"),
        ({"a": hr.MixtureSource(web, repeat=1), "b": (web, 1)}, {}, "to all sources"),
        ({"a": hr.MixtureSource(web, repeat=1)}, {"samples_per_epoch": 5}, "how long"),
        ({"a": (web, 1)}, {"temperature": 2}, "no other weights"),
        ({"a": (web, 1)}, {"batching": "random"}, "proportional"),
        ({"a": (web, 1)}, {"schedule": [(2, {"x": 1})]}, "no source"),
        ({"a": (web, 1)}, {"schedule": [(-1, {"a": 1})]}, "global batch"),
        ({"a": (web, 1)}, {"schedule": [3]}, "schedule: 3 is not"),
        ({"a": (web, 1)}, {"schedule": 3}, "schedule: 3 is not"),
        ({"a": (web, 1)}, {"schedule": {0: {"a": 1}}}, "schedule: 0 is not"),
        ({"a": (web, 1)}, {"schedule": [(0, [1])]}, "is not .global batch"),
        ({"a": (web, 1)}, {"schedule": [(5, {"a": 1}), (0, {"a": 2})]}, "not in order"),
        ({"a": (web, 1)}, {"schedule": [(0, {"a": 1}), (0, {"a": 2})]}, "not in order"),
        ({"a": (web, 1)}, {"groups": -1}, "groups=-1"),
        ({"a": (web, 1)}, {"groups": "2"}, "groups='2'"),
    ]
    for given, arguments, message in wrong:
        with pytest.raises(hr.InvalidArgumentError, match=message):
            hr.Mixture(given, **arguments).describe()
    for given_sources in ([web], ["a", "b"], [("a", 1)], str(web)):
        with pytest.raises(hr.InvalidArgumentError, match="a mixture is of a dict"):
            hr.Mixture(given_sources)  # type: ignore[arg-type]
    with pytest.raises(hr.InvalidArgumentError, match="own order"):
        open_loader(hr.Mixture(sources), order="headrace")
    with open_loader(hr.Mixture(sources)) as loader, pytest.raises(hr.InvalidArgumentError, match="negative"):
        loader.set_weights({"web": -1})
    with (
        hr.Loader(web, batch_size=10, memory="64MiB") as loader,
        pytest.raises(hr.InvalidArgumentError, match="Mixture"),
    ):
        loader.set_weights({"web": 1})


def test_formats_mix_where_columns_agree(tmp_path: Path, sources: dict[str, Path]) -> None:
    """MDS and raw files have the column they share."""
    raw = tmp_path / "raw"
    raw.mkdir()
    for i in range(50):
        (raw / f"{i:03}.bin").write_bytes(struct.pack("<q", i))
    samples = [{"data": struct.pack("<q", 1000 + i), "x": struct.pack("<q", i)} for i in range(200)]
    mds = write_mds(tmp_path / "mds", {"data": ("bytes", None), "x": ("int", 8)}, samples, SHARD)
    with pytest.raises(hr.InvalidArgumentError, match="columns"):
        hr.Mixture({"raw": (raw, 1), "mds": (mds, 1)})
    mixture = hr.Mixture({"raw": (raw, 1), "mds": (mds, 1)}, columns="common")
    with open_loader(mixture) as loader:
        for batch, _ in zip(loader, range(5), strict=False):
            assert list(batch) == ["data"]
            for value, (name, position) in zip(batch["data"], mixture.locate(batch.ids), strict=True):
                assert struct.unpack("<q", value)[0] == position + (1000 if name == "mds" else 0)


def test_a_list_of_datasets_is_one(sources: dict[str, Path]) -> None:
    with hr.Loader(list(sources.values()), batch_size=50, memory="64MiB", seed=1) as loader:
        seen = [x for batch in loader for x in numbers(batch)]
        assert sorted(seen) == [*range(600), *range(10_000, 10_300), *range(20_000, 20_100)]
        state = loader.state_dict()
    assert state["mixture"] is None
    other = [sources["code"], sources["web"]]
    with (
        hr.Loader(other, batch_size=50, memory="64MiB", seed=1) as loader,
        pytest.raises(hr.InvalidArgumentError, match="fingerprint"),
    ):
        loader.load_state_dict(state)


def test_a_list_of_urls_is_a_dataset(tmp_path: Path, sources: dict[str, Path]) -> None:
    parts = list(sources.values())
    with (
        hr.Dataset(parts, index_cache="") as dataset,
        hr.Dataset(parts[::-1], index_cache="") as reversed_dataset,
    ):
        expected = [s for part in parts for s in hr.Dataset(part, index_cache="")]
        assert len(dataset) == len(expected)
        np.testing.assert_equal(list(dataset), expected)
        np.testing.assert_equal(dataset[-1], expected[-1])
        assert isinstance(dataset, hr.Dataset)
        assert dataset.fingerprint != reversed_dataset.fingerprint
        with hr.Dataset(tuple(parts), index_cache="") as again:
            assert again.fingerprint == dataset.fingerprint
        # Ids are positions in this order, in a loader of the list as well.
        with (
            hr.Loader(dataset, batch_size=8, seed=5) as a,
            hr.Loader(parts, batch_size=8, seed=5, index_cache="") as b,
        ):
            assert [batch.ids.tolist() for batch in a] == [batch.ids.tolist() for batch in b]
    for i, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.csv").write_text(f"x,y\n{i},0\n")
    with hr.Dataset([tmp_path / "a", tmp_path / "b"], columns="x", index_cache="") as dataset:
        assert list(dataset) == [{"x": "0"}, {"x": "1"}]
    (tmp_path / "b" / "part.csv").write_text("x,z\n1,0\n")
    with pytest.raises(hr.InvalidArgumentError, match="they must be equal"):
        hr.Dataset([tmp_path / "a", tmp_path / "b"], index_cache="")
    for wrong in ([], 7, None):
        with pytest.raises(hr.InvalidArgumentError, match="expected a"):
            hr.Dataset(wrong)  # type: ignore[arg-type]


@pytest.fixture
def differing(tmp_path: Path) -> list[Path]:
    """Datasets that agree in "x", and in nothing else."""
    roots = []
    for name, other in (("a", ("int", 8)), ("b", ("float32", 4))):
        samples = [{"x": struct.pack("<q", i), "y": bytes(other[1]), name: b"t"} for i in range(20)]
        columns: dict[str, Any] = {name: ("str", None), "x": ("int", 8), "y": other}
        roots.append(write_mds(tmp_path / name, columns, samples, SHARD))
    return roots


def test_columns_that_differ_can_be_left_out(differing: list[Path]) -> None:
    options: dict[str, Any] = {"index_cache": ""}
    with pytest.raises(hr.InvalidArgumentError, match="they must be equal, or say with columns="):
        hr.Dataset(differing, **options)
    with pytest.raises(hr.InvalidArgumentError, match=r"column 'y' .* leave it out with columns="):
        hr.Mixture(dict(zip("ab", differing, strict=True)), columns="common", **options)
    with hr.Dataset(differing, columns=["x"], **options) as dataset:
        assert list(dataset) == [{"x": i} for i in range(20)] * 2
    for columns in ("x", ["x"]):
        with hr.Loader(differing, batch_size=8, columns=columns, memory="64MiB", **options) as loader:
            assert sorted(x for batch in loader for x in numbers(batch)) == sorted([*range(20)] * 2)
    mixture = hr.Mixture(dict(zip("ab", differing, strict=True)), columns=["x"], **options)
    for loader in (open_loader(mixture), open_loader(mixture, columns=["x"])):
        with loader:
            batch = next(iter(loader))
            assert list(batch) == ["x"]
    for wanted in (["y"], ["x", "a"], ["no"]):
        with pytest.raises(hr.InvalidArgumentError, match=wanted[-1]):
            hr.Mixture(dict(zip("ab", differing, strict=True)), columns=wanted, **options)
        with pytest.raises(hr.InvalidArgumentError, match=wanted[-1]):
            hr.Loader(differing, batch_size=8, columns=wanted, memory="64MiB", **options)


def test_columns_that_nobody_asks_for_change_no_fingerprint(sources: dict[str, Path]) -> None:
    parts = list(sources.values())
    with (
        hr.Loader(parts, batch_size=8, seed=5) as a,
        hr.Loader(parts, batch_size=8, seed=5, columns=["x"]) as b,
    ):
        assert a.state_dict() == b.state_dict()
        assert list(next(iter(b))) == ["x"]


def test_times_of_different_units_are_not_joined(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kinds = {
        "ms": pa.timestamp("ms"),
        "us": pa.timestamp("us"),
        "utc": pa.timestamp("us", tz="UTC"),
        "number": pa.int64(),
        "lasting": pa.duration("us"),
    }
    for name, kind in kinds.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"t": pa.array([1000, 2000], kind)}), tmp_path / name / "t.parquet")
    for a, b in itertools.permutations(kinds, 2):
        with pytest.raises(
            hr.InvalidArgumentError, match=r"column 't' is '.*columns of datasets as one must agree"
        ):
            hr.Dataset([tmp_path / a, tmp_path / b], index_cache="")
        with pytest.raises(hr.InvalidArgumentError, match="column 't'"):
            hr.Mixture({"a": tmp_path / a, "b": tmp_path / b}, columns="union", index_cache="")
    numbers = write_mds(tmp_path / "mds", {"t": ("int", 8)}, [{"t": struct.pack("<q", 5)}], SHARD)
    with hr.Dataset([tmp_path / "number", numbers], index_cache="") as dataset:
        assert [sample["t"] for sample in dataset] == [1000, 2000, 5]
    with hr.Dataset([tmp_path / "us", tmp_path / "us"], index_cache="") as dataset:
        assert len(dataset) == 4


def test_arrays_keep_their_type(sources: dict[str, Path]) -> None:
    with open_loader(hr.Mixture(sources)) as loader:
        batch = next(iter(loader))
    assert isinstance(batch["x"], np.ndarray)
    assert batch["x"].dtype == np.int64


_REFERENCE: dict[str, Any] = {}
for _block in re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "order.md").read_text(), re.DOTALL
):
    exec(_block, _REFERENCE)


def reference_epochs(
    state: dict[str, Any], counts: list[int], shares: list[int] | None, batch: int, epochs: int
) -> list[list[int]]:
    """Samples of the epochs by the program of docs/order.md; without shares, by equal weights of two
    sources."""
    mixture = state["mixture"]
    groups, samples = mixture["groups"], mixture["epoch_samples"]
    parts = []
    for part, count in zip(mixture["parts"].split(), counts, strict=True):
        lanes, _, window = part[6:].partition("w")
        blocks = [min(SHARD, count - first) for first in range(0, count, SHARD)]
        parts.append((blocks, int(lanes) * groups, int(window or state["window_blocks"])))
    if shares is None:
        steps = _REFERENCE["weighted"](
            [(0, [32768, 32768])], "proportional", groups, mixture["batch"], epochs * samples
        )
    else:
        steps = (step for _ in range(epochs) for step in _REFERENCE["exact"](shares, groups))
    given = _REFERENCE["mixture"](steps, state["seed"], groups, parts)
    return [list(_REFERENCE["epoch_of"](given, epoch, samples, 0, batch, groups)) for epoch in range(epochs)]


@pytest.mark.parametrize(
    "shares", [None, [450, 40], [5, 3]], ids=["weights", "repeat and choose", "below one batch"]
)
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_order_is_that_of_the_reference_program(
    sources: dict[str, Path], shares: list[int] | None, world_size: int
) -> None:
    counts, batch, epochs = [300, 100], 16, 3
    given: dict[str, Any] = {"code": sources["code"], "math": sources["math"]}
    if shares is None:
        given = {name: (path, 1.0) for name, path in given.items()}
    else:
        given = {
            "code": hr.MixtureSource(sources["code"], repeat=shares[0] / 300),
            "math": hr.MixtureSource(sources["math"], choose=shares[1]),
        }
    seen: list[list[list[int]]] = []
    for rank in range(world_size):
        with open_loader(
            hr.Mixture(given), batch_size=batch // world_size, rank=rank, world_size=world_size
        ) as loader:
            state = loader.state_dict()
            seen.append([[int(i) for i in one.ids] for _ in range(epochs) for one in loader])
    expected = []
    for samples in reference_epochs(state, counts, shares, batch, epochs):
        for first in range(0, len(samples), batch):
            real = samples[first : first + batch]
            expected.append([real[slot % len(real)] for slot in range(batch)])
    assert [[i for part in parts for i in part] for parts in zip(*seen, strict=True)] == expected


def test_numbers_that_are_none_name_their_source(sources: dict[str, Path]) -> None:
    web, code = sources["web"], sources["code"]
    wrong: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"web": hr.MixtureSource(web, choose=10.5)}, {}, "source 'web': choose=10.5"),  # type: ignore[arg-type]
        ({"web": hr.MixtureSource(web, choose=-1)}, {}, "source 'web': choose=-1"),
        ({"web": hr.MixtureSource(web, repeat=math.nan)}, {}, "source 'web': repeat=nan"),
        ({"web": hr.MixtureSource(web, repeat=math.inf)}, {}, "source 'web': repeat=inf"),
        ({"web": hr.MixtureSource(web, repeat="x")}, {}, "source 'web': repeat='x'"),  # type: ignore[arg-type]
        ({"web": (web, "x")}, {}, "source 'web': weight 'x' is no number"),
        ({"web": (web, 1)}, {"samples_per_epoch": -1}, "samples_per_epoch=-1"),
        ({"web": (web, 1)}, {"samples_per_epoch": 0}, "samples_per_epoch=0"),
        ({"web": (web, 1)}, {"samples_per_epoch": 2.5}, "samples_per_epoch=2.5"),
        ({"web": (web, 1), "code": (code, 1e-9)}, {}, "the weight of source 'code' is less than 1/65536"),
    ]
    for given, arguments, message in wrong:
        with pytest.raises(hr.InvalidArgumentError, match=message):
            hr.Mixture(given, **arguments).describe()
    mixture = hr.Mixture(
        {
            "web": hr.MixtureSource(web, choose=np.int64(40)),
            "code": hr.MixtureSource(code, repeat=np.float32(0.5)),
        }
    )  # type: ignore[arg-type]
    assert [part["samples_per_epoch"] for part in mixture.describe()["sources"]] == [40, 150]
    with open_loader(hr.Mixture({"web": web, "code": code})) as loader:
        for weights, message in [
            ({"web": "x"}, "source 'web': weight 'x' is no number"),
            ({"web": 1, "code": math.nan}, "the weight of source 'code' is negative or not a number"),
            ({"web": 1e-9, "code": 1}, "the weight of source 'web' is less than"),
        ]:
            with pytest.raises(hr.InvalidArgumentError, match=message):
                loader.set_weights(weights)


def test_samples_per_epoch_are_whole_global_batches(sources: dict[str, Path]) -> None:
    with open_loader(hr.Mixture({"web": sources["web"]}, samples_per_epoch=50)) as loader:
        assert sum(len(batch.ids) for batch in loader) == 40
    with pytest.warns(
        RuntimeWarning, match="samples_per_epoch=5 is less than a global batch.* 20 samples"
    ) as told:
        loader = open_loader(hr.Mixture({"web": sources["web"]}, samples_per_epoch=5))
    assert len(told) == 1
    with loader:
        assert sum(len(batch.ids) for batch in loader) == 20
