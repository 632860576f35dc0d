"""map(), filter(), collate(): what is delivered, in which order, and the state."""

from __future__ import annotations

import gc
import itertools
import random
from pathlib import Path
from typing import Any

import map_functions as functions
import numpy as np
import pytest
from conftest import in_threads, write_numbers
from map_loaders import open_loader

import headrace as hr
from headrace.loader.mapping.pool import Pool
from headrace.loader.mapping.randomness import Randomness

PLACES: list[dict[str, Any]] = [
    {"workers": 0},
    {"workers": 1, "where": "thread"},
    {"workers": 2, "where": "thread"},
    {"workers": 2},
]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_map_delivers_the_loaders_batches_with_its_states(few_numbers: Path, place: dict[str, Any]) -> None:
    """Two epochs; the first in two loops, since the first one is left."""
    with open_loader(few_numbers) as plain, open_loader(few_numbers).map(functions.double, **place) as mapped:
        assert len(mapped) == len(plain) == 22
        for stop in (5, 17, 22):
            wanted = iter(plain)
            delivered = 0
            for batch in mapped:
                same = next(wanted)
                assert batch.ids.tolist() == same.ids.tolist()
                assert batch.mask.tolist() == same.mask.tolist()
                assert (batch.epoch, batch.index) == (same.epoch, same.index)
                assert batch["y"].tolist() == (same["x"] * 2).tolist()
                assert batch["t"] == [text + "!" for text in same["t"]]
                assert mapped.state_dict() == plain.state_dict()
                assert (mapped.epoch, mapped.batches_left) == (plain.epoch, plain.batches_left)
                delivered += 1
                if delivered == stop == 5:
                    break
            assert delivered == stop


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_rank_without_a_last_batch_stands_where_the_others_stand(
    tmp_path: Path, place: dict[str, Any]
) -> None:
    """Of an uneven last batch four of six ranks have nothing: theirs is the one before."""
    np.save(tmp_path / "numbers.npy", np.arange(8))
    options: dict[str, Any] = {"batch_size": 1, "world_size": 6, "epoch_end": "uneven"}
    states, left = [], []
    for rank in range(6):
        with hr.Loader(tmp_path, rank=rank, **options).map(functions.as_is, per="batch", **place) as mapped:
            loop = iter(mapped)
            next(loop)
            states.append(mapped.state_dict())
            left.append(mapped.batches_left)
    assert [(state["epoch"], state["t"], state["batches"]) for state in states] == [(0, 6, 1)] * 6
    assert sorted(left) == [0, 0, 0, 0, 1, 1]
    rest: list[Any] = []
    for rank in range(6):
        with hr.Loader(tmp_path, rank=rank, **options).map(functions.as_is, per="batch", **place) as mapped:
            mapped.load_state_dict(states[0])
            rest += [batch.ids.tolist() for batch in mapped]
    assert len(rest) == 2


def test_a_batch_is_a_batch(few_numbers: Path) -> None:
    with open_loader(few_numbers).map(functions.as_is, per="batch", workers=1) as mapped:
        batch = next(iter(mapped))
        assert type(batch) is hr.Batch
        assert (batch["x"].dtype, batch["x"].shape, batch["x"].flags.writeable) == (np.int64, (10,), True)


@pytest.mark.parametrize("workers", [0, 1])
def test_columns_of_every_kind_arrive_alike(few_numbers: Path, workers: int) -> None:
    with open_loader(few_numbers, batch_size=5, shuffle=False).map(functions.all_kinds, workers=workers) as m:
        stream = iter(m)
        next(stream)
        batch = next(stream)
    ids = range(5, 10)
    arrays = {
        name: (value.dtype.str, value.tolist()) for name, value in batch.items() if hasattr(value, "dtype")
    }
    assert arrays == {
        "int": ("<i8", list(ids)),
        "float": ("<f8", [i / 2 for i in ids]),
        "bool": ("|b1", [i % 2 == 0 for i in ids]),
        "numpy": ("<f4", list(ids)),
        "fixed": ("|u1", [[[i] * 3] * 2 for i in ids]),
        "list": ("<i8", [[i, i + 1] for i in ids]),
        "when": ("<M8[s]", np.array(list(ids), "M8[s]").tolist()),
        "empty": ("<f8", [[]] * 5),
        "fortran": ("<i8", [(np.arange(6).reshape(2, 3) + i).tolist() for i in ids]),
    }
    assert [value.tolist() for value in batch["ragged"]] == [list(range(i % 5)) for i in ids]
    assert [(value.dtype, value.tolist()) for value in batch["tokens"]] == [
        (np.int64, list(range(i % 5))) for i in ids
    ]
    assert [value.tolist() for value in batch["lists"]] == [[[i] * (1 + i % 3)] for i in ids]
    assert batch["text"] == [f"t{i}" for i in ids]
    assert batch["bytes"] == [bytes([i]) * (i % 4) for i in ids]
    assert batch["none"] == [None] * 5
    assert batch["dict"] == [{"of": i} for i in ids]
    assert all(batch[name].flags.writeable for name in arrays)


@pytest.mark.parametrize("workers", [0, 1])
def test_filters_take_samples_out_or_mask_them(few_numbers: Path, workers: int) -> None:
    with open_loader(few_numbers, shuffle=False).filter(functions.is_not_third, workers=workers) as mapped:
        batches = list(mapped)
    assert [batch.ids.tolist() for batch in batches[:2]] == [[1, 2, 4, 5, 7, 8], [10, 11, 13, 14, 16, 17, 19]]
    assert [len(batch["x"]) for batch in batches[:2]] == [len(batch.mask) for batch in batches[:2]] == [6, 7]
    real = [
        i for batch in batches for i, is_real in zip(batch.ids.tolist(), batch.mask, strict=True) if is_real
    ]
    assert real == [i for i in range(211) if i % 3]
    with open_loader(few_numbers, shuffle=False).filter(
        functions.is_not_third, holes="mask", workers=workers
    ) as mapped:
        batches = list(mapped)
    assert len(batches) == 22
    assert batches[0].mask.tolist() == [i % 3 != 0 for i in range(10)]
    assert batches[0]["t"] == [f"s{i}" for i in range(10)]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_a_filter_empties_count_as_received(few_numbers: Path, workers: int) -> None:
    loader = open_loader(few_numbers, shuffle=False)
    with loader.filter(functions.is_below_20, workers=workers) as mapped:
        assert [len(batch.ids) for batch in mapped] == [10, 10]
        assert (mapped.epoch, mapped.state_dict()["t"]) == (1, 0)
        assert [len(batch.ids) for batch in mapped] == [10, 10]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_empty_batches_are_skipped_with_the_one_before_them(few_numbers: Path, place: dict[str, Any]) -> None:
    """So the last one that is delivered is the end of its epoch, and states go on behind it."""
    with (
        open_loader(few_numbers, shuffle=False) as other,
        open_loader(few_numbers, shuffle=False) as loader,
        loader.filter(functions.is_within_batches_2_and_5, **place) as mapped,
    ):
        for epoch in range(2):
            stream = iter(mapped)
            assert next(stream).index == 2
            state = mapped.state_dict()
            assert (state["epoch"], state["batches"]) == (epoch, 5)
            other.load_state_dict(state)
            assert next(iter(other)).index == 5
            assert next(stream).index == 5
            assert mapped.epoch == mapped.state_dict()["epoch"] == epoch + 1
            assert next(stream, None) is None


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_error_behind_empty_batches_comes_in_its_place(few_numbers: Path, place: dict[str, Any]) -> None:
    with open_loader(few_numbers, shuffle=False).filter(functions.fail_on_55_of_those, **place) as mapped:
        stream = iter(mapped)
        assert next(stream).index == 2
        for _ in range(2):
            with pytest.raises(LookupError, match="fifty-five"):
                next(stream)
            assert mapped.state_dict()["batches"] == 5


@pytest.mark.parametrize("workers", [0, 1])
def test_functions_are_chained(few_numbers: Path, workers: int) -> None:
    mapped = open_loader(few_numbers, shuffle=False).filter(functions.is_not_third, workers=workers)
    mapped = mapped.map(functions.add_half).map(functions.mean_of, per="batch")
    with mapped:
        batch = next(iter(mapped))
        x = np.array([7 * i + 1 for i in (1, 2, 4, 5, 7, 8)])
        assert batch["x"].tolist() == x.tolist()
        assert batch["mean"].tolist() == [np.mean(x / 2)]
        assert batch.ids.tolist() == [1, 2, 4, 5, 7, 8]
    with open_loader(few_numbers, shuffle=False).map(functions.add_half).collate(functions.to_pair) as mapped:
        values, texts = next(iter(mapped))
        assert values.tolist() == [7 * i + 1 for i in range(10)]
        assert texts == [f"s{i}" for i in range(10)]


@pytest.mark.parametrize("workers", [0, 1])
def test_masked_arrays_keep_their_masks(few_numbers: Path, workers: int) -> None:
    with open_loader(few_numbers).map(functions.to_masked, workers=workers) as mapped:
        batch = next(iter(mapped))
        assert [value.tolist() for value in batch["m"]] == [[1, None, 3]] * 10


def test_samples_of_a_batch_without_columns_are_an_error(few_numbers: Path) -> None:
    mapped = open_loader(few_numbers).map(functions.without_columns, per="batch").map(functions.double)
    with mapped, pytest.raises(hr.InvalidArgumentError, match="without columns"):
        next(iter(mapped))


def test_the_places_of_a_chain_must_agree(few_numbers: Path) -> None:
    with open_loader(few_numbers) as loader:
        with pytest.raises(hr.InvalidArgumentError, match=r"workers=3: an earlier function .* workers=2"):
            loader.map(functions.double, workers=2).map(functions.double, workers=3)
        for arguments in ({"where": "fork"}, {"per": "row"}, {"workers": -1}):
            with pytest.raises(hr.InvalidArgumentError, match=next(iter(arguments))):
                loader.map(functions.double, **arguments)
        with pytest.raises(hr.InvalidArgumentError, match="not callable"):
            loader.map(3)  # type: ignore[arg-type]
        with pytest.raises(hr.InvalidArgumentError, match="holes"):
            loader.filter(functions.is_even, holes="none")


@pytest.mark.parametrize(
    ("fn", "what"),
    [(functions.to_none, "returned None for sample 0"), (functions.to_other_columns, "different columns")],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_results_that_make_no_batch_are_errors(few_numbers: Path, fn: Any, what: str, workers: int) -> None:
    with (
        open_loader(few_numbers, shuffle=False).map(fn, workers=workers) as mapped,
        pytest.raises(hr.InvalidArgumentError, match=what),
    ):
        next(iter(mapped))


def test_a_result_that_cannot_be_sent_is_an_error(few_numbers: Path) -> None:
    with (
        open_loader(few_numbers).map(functions.to_lambda, per="batch", workers=1) as mapped,
        pytest.raises(Exception, match=r"(?i)pickle.*lambda"),
    ):
        next(iter(mapped))


def drawn(path: Path, workers: int, world_size: int = 1, skip: int = 0) -> dict[int, Any]:
    """What functions.draw() drew for each sample of epoch 1, by id."""
    found: dict[int, Any] = {}
    for rank in range(world_size):
        loader = open_loader(path, batch_size=12 // world_size, rank=rank, world_size=world_size)
        with loader.map(functions.draw, workers=workers) as mapped:
            mapped.set_epoch(1)
            for number, _ in enumerate(mapped):
                if number == skip:
                    break
            state = mapped.state_dict()
        loader = open_loader(path, batch_size=12 // world_size, rank=rank, world_size=world_size)
        with loader.map(functions.draw, workers=workers) as mapped:
            mapped.load_state_dict(state)
            for batch in mapped:
                rows = zip(batch["own"].tolist(), batch["np"].tolist(), batch["py"].tolist(), strict=True)
                found.update(zip(batch.ids.tolist(), rows, strict=True))
    return found


def test_global_generators_draw_what_they_always_drew() -> None:
    """As they were on 2026-11-24: runs that go on draw what they would have drawn."""
    before = random.getstate(), np.random.get_state()
    own = Randomness(5, seeds_globals=True)
    found = []
    for epoch, sample in ((0, 0), (2, 13), (2, 14), (0, 13)):
        own.begin(epoch, sample)
        found.append((random.getrandbits(64), np.random.randint(1 << 62), own.generator(1).integers(1 << 62)))
    random.setstate(before[0])
    np.random.set_state(before[1])
    assert found == [
        (6220385663118439193, 83532056322472260, 3309740292922513697),
        (8150227338826199124, 1443518540743513045, 1190201269959891026),
        (9516096246485941935, 4431047439397808912, 2909822327430288288),
        (10832928139104719985, 3877019329235541581, 4065923119177899259),
    ]


def test_random_numbers_depend_on_the_sample_alone(few_numbers: Path) -> None:
    first = drawn(few_numbers, workers=0)
    assert len({own[0] for own, _, _ in first.values()}) == len(first) > 190
    for other in (drawn(few_numbers, 1, skip=7), drawn(few_numbers, 3), drawn(few_numbers, 2, 2, skip=4)):
        both = first.keys() & other.keys()
        assert len(both) > 100
        assert {i: first[i] for i in both} == {i: other[i] for i in both}


def test_the_callers_own_random_numbers_are_left_alone(few_numbers: Path) -> None:
    random.seed(3)
    np.random.seed(3)
    expected = [random.random(), np.random.rand(), random.random(), np.random.rand()]
    random.seed(3)
    np.random.seed(3)
    with open_loader(few_numbers).map(functions.draw) as mapped:
        stream = iter(mapped)
        found = [random.random(), np.random.rand()]
        next(stream)
        assert [*found, random.random(), np.random.rand()] == expected


def test_batch_functions_draw_by_their_first_sample(few_numbers: Path) -> None:
    found = []
    for workers in (0, 2):
        with open_loader(few_numbers).map(functions.draw_for_batch, per="batch", workers=workers) as mapped:
            found.append([batch["first"].tolist() for batch in mapped])
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def test_states_are_the_loaders_and_go_on_in_another_world(few_numbers: Path) -> None:
    with open_loader(few_numbers, batch_size=12) as plain:
        expected = [batch.ids.tolist() for batch in plain]
    loaders = [open_loader(few_numbers, batch_size=6, rank=rank, world_size=2) for rank in range(2)]
    mapped = [loader.map(functions.double, workers=2) for loader in loaders]
    streams = [iter(each) for each in mapped]
    for wanted in expected[:5]:
        parts = [next(stream) for stream in streams]
        assert [i for part in parts for i in part.ids.tolist()] == wanted
    state = mapped[0].state_dict()
    assert state == mapped[1].state_dict() == loaders[0].state_dict()
    for each in mapped:
        each.close()
    with open_loader(few_numbers, batch_size=12).map(functions.double, workers=2) as one:
        next(iter(one))
        one.load_state_dict(state)
        assert [batch.ids.tolist() for batch in one] == expected[5:]
    with open_loader(few_numbers, batch_size=12) as plain:
        plain.load_state_dict(state)
        assert [batch.ids.tolist() for batch in plain] == expected[5:]


def test_the_loader_itself_goes_on_behind_what_was_delivered(few_numbers: Path) -> None:
    with open_loader(few_numbers) as plain:
        expected = [batch.ids.tolist() for batch in plain]
    with open_loader(few_numbers) as loader:
        one, other = (
            loader.map(functions.double, workers=2),
            loader.map(functions.as_is, per="batch", workers=1),
        )
        found = [batch.ids.tolist() for batch in itertools.islice(one, 3)]
        found += [batch.ids.tolist() for batch in itertools.islice(loader, 4)]
        found += [batch.ids.tolist() for batch in itertools.islice(other, 5)]
        assert other._ahead
        assert (loader.state_dict()["batches"], loader.batches_left, loader.epoch) == (12, 10, 0)
        assert other._ahead  # Asking changes nothing.
        found += [batch.ids.tolist() for batch in one]
        assert found == expected
        other.close()
        one.close()


def test_a_state_of_another_run_is_refused_and_changes_nothing(few_numbers: Path) -> None:
    with open_loader(few_numbers, seed=6) as other:
        state = other.state_dict()
    with (
        open_loader(few_numbers) as plain,
        open_loader(few_numbers).map(functions.double, workers=1) as mapped,
    ):
        expected = [batch.ids.tolist() for batch in plain]
        found = [batch.ids.tolist() for batch in itertools.islice(mapped, 3)]
        with pytest.raises(hr.InvalidArgumentError, match="seed"):
            mapped.load_state_dict(state)
        assert found + [batch.ids.tolist() for batch in mapped] == expected


def test_errors_of_the_loader_come_in_their_place(few_numbers: Path, tmp_path: Path) -> None:
    path = write_numbers(tmp_path / "broken", 100, per_shard=25)
    with open_loader(path, shuffle=False).map(functions.double, workers=2) as mapped:
        (path / "shard.00002.mds").write_bytes(b"")
        stream = iter(mapped)
        found = [next(stream).ids.tolist() for _ in range(5)]
        assert found == [list(range(i, i + 10)) for i in range(0, 50, 10)]
        for _ in range(2):
            with pytest.raises((hr.ChangedError, hr.CorruptError)):
                next(stream)
        assert mapped.state_dict()["t"] == 50


def test_batches_that_are_kept_stay_as_they_are(few_numbers: Path) -> None:
    with open_loader(few_numbers).map(functions.as_is, per="batch", workers=2) as mapped:
        held = list(mapped)
    assert all(batch["x"].tolist() == [7 * i + 1 for i in batch.ids.tolist()] for batch in held)


def test_shared_memory_is_bounded_and_used_again(few_numbers: Path) -> None:
    with open_loader(few_numbers).map(functions.as_is, per="batch", workers=1) as mapped:
        held = [batch for _ in range(20) for batch in mapped]
        assert len(held) == 440
        pool = mapped._executor
        assert isinstance(pool, Pool)
        assert len(pool._targets.by_number) <= 4 + 4 + 1
        assert len(pool._sources.by_number) <= 4
        del held
        gc.collect()
        assert not pool._held


def test_what_a_function_keeps_is_not_written_over(few_numbers: Path) -> None:
    with open_loader(few_numbers, shuffle=False).map(functions.keep_arrays, per="batch", workers=1) as mapped:
        for batch in mapped:
            assert batch["first"].tolist() == [7 * i + 1 for i in range(10)]


def test_threads_may_share_a_mapped_loader(few_numbers: Path) -> None:
    found: list[int] = []
    with open_loader(few_numbers).map(functions.double, workers=2) as mapped:
        stream = iter(mapped)

        def take() -> None:
            for batch in stream:
                found.extend(i for i, real in zip(batch.ids.tolist(), batch.mask, strict=True) if real)

        in_threads(3, take)
    assert sorted(found) == list(range(211))


def test_numbers_of_a_seed_never_change_and_every_seed_has_its_own() -> None:
    def drawn(seed: int) -> list[int]:
        randomness = Randomness(seed, seeds_globals=False)
        randomness.begin(3, 12345)
        return [int(number) for number in randomness.generator(1).integers(0, 1 << 63, 2)]

    assert drawn(0) == [5116401373671367087, 5087090432930515324]
    assert drawn(17) == [1514255251036318309, 4475047553205068387]
    assert drawn((1 << 63) - 1) == [291513943795166088, 5059636486721830743]
    large = [0, 1 << 63, (1 << 63) + 1, (1 << 64) - 2, (1 << 64) - 1]
    assert len({tuple(drawn(seed)) for seed in large}) == len(large)
