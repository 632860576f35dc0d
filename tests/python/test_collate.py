"""headrace.collate: padding, jagged tensors, buckets, packing; alone and behind a loader."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_mds
from map_loaders import open_loader

import headrace as hr
from headrace import collate
from headrace.loader.mapping.stack import stack


def documents(*lengths: int) -> list[dict[str, Any]]:
    """Of tokens 10, 11, ... of the first, 20, 21, ... of the second, and so on; with their lengths."""
    return [
        {"tokens": np.arange(length, dtype=np.int32) + 10 * number, "n": length}
        for number, length in enumerate(lengths, 1)
    ]


def test_pad_fills_up_to_the_longest() -> None:
    made = collate.pad("tokens", value=-1)(documents(3, 1, 0))
    assert made["tokens"].tolist() == [[10, 11, 12], [20, -1, -1], [-1, -1, -1]]
    assert made["tokens_lengths"].tolist() == [3, 1, 0]
    assert made["tokens_mask"].tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert (made["tokens"].dtype, made["n"].tolist()) == (np.int32, [3, 1, 0])
    assert collate.pad(["tokens"], multiple_of=8)(documents(3, 9))["tokens"].shape == (2, 16)
    assert collate.pad("tokens", length=5)(documents(3))["tokens"].shape == (1, 5)
    assert collate.pad("x")([{"x": [[1.5, 2]]}, {"x": [[3, 4], [5, 6]]}])["x"].shape == (2, 2, 2)


def test_pad_cuts_only_where_asked() -> None:
    with pytest.raises(hr.InvalidArgumentError, match="value of 9, and length=5"):
        collate.pad("tokens", length=5)(documents(3, 9))
    made = collate.pad("tokens", length=5, truncate=True)(documents(3, 9))
    assert made["tokens"].tolist()[1] == [20, 21, 22, 23, 24]
    assert made["tokens_lengths"].tolist() == [3, 5]


def test_wrong_columns_and_options_are_errors() -> None:
    with pytest.raises(hr.InvalidArgumentError, match="no column 'x'; there are 'tokens', 'n'"):
        collate.pad("x")(documents(1))
    with pytest.raises(
        hr.InvalidArgumentError, match="'n', sample 0 of the batch, has a value without a length"
    ):
        collate.pad("n")(documents(1))
    with pytest.raises(hr.InvalidArgumentError, match="method"):
        collate.pack(length=4, method="other")
    with pytest.raises(hr.InvalidArgumentError, match="length"):
        collate.pack(length=0)
    with pytest.raises(hr.InvalidArgumentError, match="count"):
        collate.bucket("tokens", 0, then=collate.pad("tokens"))


def column_of(*values: Any) -> list[dict[str, Any]]:
    return [{"v": value} for value in values]


@pytest.mark.parametrize("values", [([2**60 + 1, 5], [], [7]), ([], [2**60 + 1]), ((), (2**60 + 1,), [1])])
def test_an_empty_list_has_the_dtype_of_the_others(values: Any) -> None:
    padded = collate.pad("v")(column_of(*values))
    assert padded["v"].dtype == np.int64
    assert [row[:n].tolist() for row, n in zip(padded["v"], padded["v_lengths"], strict=True)] == [
        list(value) for value in values
    ]
    packed = collate.pack("v", length=4)(column_of(*values))
    assert packed["v"].dtype == np.int64
    assert packed["v"][packed["segment_ids"] > 0].tolist() == [token for value in values for token in value]
    # Of nothing but empty ones the filling value tells.
    assert collate.pad("v")(column_of([], []))["v"].dtype == np.int64
    assert collate.pack("v", length=4)(column_of([], []))["v"].dtype == np.int64
    # Axes behind the first one are theirs, too.
    assert collate.pad("v")(column_of([[1, 2]], []))["v"].tolist() == [[[1, 2]], [[0, 0]]]


def test_an_empty_list_makes_no_floats_of_a_jagged_tensor() -> None:
    torch = pytest.importorskip("torch")
    made = collate.nested("v")(column_of([2**60 + 1], [], [5]))
    assert made["v"].dtype == torch.int64
    assert [part.tolist() for part in made["v"].unbind()] == [[2**60 + 1], [], [5]]


def test_jagged_tensors_have_a_dtype_that_all_values_fit_into() -> None:
    torch = pytest.importorskip("torch")
    wide = 2**24 + 1  # float32, which torch.cat() takes of both, does not have it.
    for values in ([[wide], torch.tensor([0.5])], [torch.tensor([wide]), np.array([0.5], np.float32)]):
        made = collate.nested("v")(column_of(*values))
        assert [part.tolist() for part in made["v"].unbind()] == [[wide], [0.5]]
    with pytest.raises(hr.InvalidArgumentError, match="would round"):
        collate.nested("v")(column_of(torch.tensor([2**53 + 1]), [0.5]))
    made = collate.nested("v")(column_of(np.arange(4)[::-1], [7]))
    assert [part.tolist() for part in made["v"].unbind()] == [[3, 2, 1, 0], [7]]


@pytest.mark.parametrize("make", [collate.pad("v"), collate.pack("v", length=4), collate.nested("v")])
def test_masks_of_values_are_not_lost(make: Any) -> None:
    pytest.importorskip("torch")
    with pytest.raises(hr.InvalidArgumentError, match="sample 1 of the batch, has masked numbers"):
        make(column_of([1], np.ma.masked_array([1, 2], [False, True])))
    make(column_of([1], np.ma.masked_array([1, 2])))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (([1], [3, None]), r"column 'v', sample 1 of the batch, has \[3, None\]"),
        (([1], [[1], [2, 3]]), "column 'v', sample 1 of the batch"),
        (([1.0, 2**60 + 1],), "column 'v', sample 0 of the batch"),
        ((np.array([1, None], object),), "column 'v', sample 0 of the batch"),
        (([2**60 + 1], [0.5]), "sample 0 of the batch, has int64 that float64"),
        ((np.array([2**63 + 1], np.uint64), [5]), "sample 0 of the batch, has uint64 that float64"),
    ],
)
def test_numbers_that_would_be_changed_are_errors(values: Any, message: str) -> None:
    for function in (collate.pad("v"), collate.pack("v", length=4)):
        with pytest.raises(hr.InvalidArgumentError, match=message):
            function(column_of(*values))


def test_values_fill_up_along_their_first_axis_alone() -> None:
    wrong = column_of(np.zeros((2, 3)), np.full((1, 1), 7.0))
    with pytest.raises(hr.InvalidArgumentError, match=r"\(1,\) and \(3,\)"):
        collate.pad("v")(wrong)
    with pytest.raises(hr.InvalidArgumentError, match="several axes"):
        collate.pack("v", length=4)(wrong)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", 0.5),
        ("int64", float("nan")),
        ("uint16", -1),
        ("int8", 300),
        ("float16", 1e6),
        ("int64", None),
        ("<U3", 0),
    ],
)
def test_a_filling_value_that_the_column_has_not_is_an_error(dtype: str, value: Any) -> None:
    with pytest.raises(hr.InvalidArgumentError, match=f"value={value!r} is no {dtype}"):
        collate.pad("v", value=value)(column_of(np.ones(2, dtype)))
    with pytest.raises(hr.InvalidArgumentError, match=f"pad_token={value!r} is no {dtype}"):
        collate.pack("v", length=4, pad_token=value)(column_of(np.ones(2, dtype)))


def test_text_is_filled_up_with_text() -> None:
    made = collate.pad("v", value="-")(column_of(["a", "bc"], ["d"]))
    assert made["v"].tolist() == [["a", "bc"], ["d", "-"]]


def test_filling_values_may_be_rounded_fractions() -> None:
    for value in (0.1, float("nan"), float("-inf"), -100):
        made = collate.pad("v", value=value)(column_of(np.ones(1, np.float32), np.ones(2, np.float32)))
        np.testing.assert_equal(made["v"], np.array([[1, value], [1, 1]], np.float32))
    made = collate.pad("v", value=[8, 9])(column_of(np.ones((1, 2), np.int64), np.ones((2, 2), np.int64)))
    assert made["v"].tolist() == [[[1, 1], [8, 9]], [[1, 1], [1, 1]]]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_that_numpy_lacks_keep_their_dtype(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    samples = column_of(torch.tensor([1.5]).to(kind), torch.tensor([1.5, 2.0, 3.0]).to(kind), [])
    padded = collate.pad("v", value=1)(samples)
    assert padded["v"].dtype == kind
    assert padded["v"].float().tolist() == [[1.5, 1, 1], [1.5, 2, 3], [1, 1, 1]]
    packed = collate.pack("v", length=5, pad_token=-1)(samples)
    assert packed["v"].dtype == kind
    assert packed["v"].float().tolist() == [[1.5, 1.5, 2, 3, -1]]
    with pytest.raises(hr.InvalidArgumentError, match=f"value=1e\\+39 is no {dtype}"):
        collate.pad("v", value=1e39)(samples)
    with pytest.raises(hr.InvalidArgumentError, match=f"column 'v' has values of .*{dtype}"):
        collate.pad("v")([*samples, {"v": torch.ones(2)}])


def to_bfloat16(sample: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {"v": torch.full((int(sample["n"]),), 1.5, dtype=torch.bfloat16)}


@pytest.mark.parametrize("workers", [0, 1])
def test_bfloat16_is_padded_behind_a_loader(texts: Path, workers: int) -> None:
    torch = pytest.importorskip("torch")
    import headrace.torch

    options: dict[str, Any] = {"batch_size": 3, "memory": "16MiB", "index_cache": "", "shuffle": False}
    with (
        headrace.torch.Loader(texts, **options)
        .map(to_bfloat16, workers=workers)
        .collate(collate.pad("v", value=1)) as loader
    ):
        batch = next(iter(loader))
    assert batch["v"].dtype == torch.bfloat16
    assert batch["v"].tolist() == [[1, 1], [1.5, 1], [1.5, 1.5]]


@pytest.mark.parametrize(
    "values",
    [
        [np.uint64(2**60 + 1), 5],
        [1.0, 2**60 + 1],
        [float("nan"), 2**60 + 1],
        [2**63, -1],
        [[0.5, 1.0], [2.0, -(2**60) - 1]],
        [1j, 2**60 + 1],
    ],
)
def test_stacking_rounds_no_whole_number(values: Any) -> None:
    assert stack(values) is values


def test_stacking_makes_arrays_of_numbers() -> None:
    for values in ([1.0, 2**53 - 1], [1e300, 1.5], [1e300, True], [np.uint64(1), 5], [np.float16(1), 2]):
        assert stack(values).tolist() == values
    assert stack([np.uint64(2**60 + 1), np.uint64(1)]).tolist() == [2**60 + 1, 1]


@pytest.mark.parametrize(
    "other",
    [None, 0, 0.0, False, "", b"", {}, 5, "a", {"a": 1}, np.array([0]), np.array([0, 1]), np.array(0)],
    ids=repr,
)
def test_lists_beside_something_else_stay_as_they_are(other: Any) -> None:
    for values in ([[1, 2], other, [3]], [[], other], [(), (1,), other], [other, [1]]):
        made = stack(list(values))
        assert all(one is other for one, other in zip(made, values, strict=True))
    assert [one.tolist() for one in stack([[1, 2], [], (3,)])] == [[1, 2], [], [3]]
    assert stack([[], ()]) == [[], ()]


def test_bucket_puts_samples_of_like_lengths_together() -> None:
    made = collate.bucket("tokens", 2, then=collate.pad("tokens"))(documents(9, 1, 8, 2, 1))
    assert [part["tokens_lengths"].tolist() for part in made] == [[1, 1, 2], [8, 9]]
    assert len(collate.bucket("tokens", 4, then=collate.pad("tokens"))(documents(1, 2))) == 2


def test_pack_concatenates() -> None:
    made = collate.pack(length=4, pad_token=-1)(documents(3, 0, 6))
    assert made["tokens"].tolist() == [[10, 11, 12, 30], [31, 32, 33, 34], [35, -1, -1, -1]]
    assert made["segment_ids"].tolist() == [[1, 1, 1, 2], [1, 1, 1, 1], [1, 0, 0, 0]]
    assert made["positions"].tolist() == [[0, 1, 2, 0], [0, 1, 2, 3], [0, 0, 0, 0]]
    assert made["document_rows"].tolist() == [[0, 0, 0, 2], [2] * 4, [2, -1, -1, -1]]


@pytest.mark.parametrize("method", ["concatenate", "best_fit"])
def test_pack_loses_and_repeats_nothing(method: str) -> None:
    samples = documents(*np.random.default_rng(1).integers(0, 40, 50))
    made = collate.pack(length=16, method=method)(samples)
    is_there = made["segment_ids"] > 0
    assert sorted(made["tokens"][is_there]) == sorted(np.concatenate([s["tokens"] for s in samples]))
    for number, sample in enumerate(samples):
        pieces = made["tokens"][made["document_rows"] == number]
        assert sorted(pieces) == sample["tokens"].tolist()
        if method == "best_fit" and 0 < len(sample["tokens"]) <= 16:
            assert len(np.unique(np.nonzero(made["document_rows"] == number)[0])) == 1
    assert is_there.mean() > 0.9


def test_best_fit_takes_the_row_with_the_least_room() -> None:
    """Against looking through all rows for each piece."""
    random = np.random.default_rng(3)
    for length in (1, 7, 40):
        totals = random.integers(0, 60, 80).tolist()
        pieces = [
            (number, begin, min(length, total - begin))
            for number, total in enumerate(totals)
            for begin in range(0, total, length)
        ]
        rows: list[list[tuple[int, int, int]]] = []
        for piece in sorted(pieces, key=lambda each: -each[2]):
            rooms = [length - sum(each[2] for each in row) for row in rows]
            fits = [row for row, room in enumerate(rooms) if room >= piece[2]]
            if not fits:
                rows.append([])
            rows[min(fits, key=rooms.__getitem__, default=-1)].append(piece)
        assert collate._best_fit(totals, length) == rows


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 documents of 0 to 16 tokens."""
    samples = [
        {"n": struct.pack("<q", i), "tokens": np.arange(i, i + i % 17, dtype=np.uint16).tobytes()}
        for i in range(60)
    ]
    columns = {"n": ("int", 8), "tokens": ("bytes", None)}
    return write_mds(tmp_path_factory.mktemp("data") / "texts", columns, samples, per_shard=20)


def parse(sample: dict[str, Any]) -> dict[str, Any]:
    return {"n": sample["n"], "tokens": np.frombuffer(sample["tokens"], np.uint16)}


@pytest.mark.parametrize("workers", [0, 1])
def test_they_work_behind_a_loader(texts: Path, workers: int) -> None:
    with (
        open_loader(texts, shuffle=False).map(parse, workers=workers).collate(collate.pad("tokens")) as loader
    ):
        batch = next(iter(loader))
        assert type(batch) is hr.Batch
        assert batch["tokens_lengths"].tolist() == list(range(10))
        assert batch["tokens"][3].tolist() == [3, 4, 5, 0, 0, 0, 0, 0, 0]
    packed = open_loader(texts, shuffle=False).map(parse, workers=workers)
    with packed.collate(collate.pack(length=8)) as loader:
        batches = list(loader)
        found = [int(t) for batch in batches for t in batch["tokens"][batch["segment_ids"] > 0]]
        assert found == [t for i in range(60) for t in range(i, i + i % 17)]
        assert batches[0].ids.tolist() == list(range(10))


@pytest.mark.parametrize("workers", [0, 1])
def test_jagged_tensors_arrive(texts: Path, workers: int) -> None:
    torch = pytest.importorskip("torch")
    import headrace.torch

    options: dict[str, Any] = {"batch_size": 10, "memory": "16MiB", "index_cache": "", "shuffle": False}
    with (
        headrace.torch.Loader(texts, **options)
        .map(to_floats, workers=workers)
        .collate(collate.nested("tokens")) as loader
    ):
        batch = next(iter(loader))
    assert batch["tokens"].is_nested
    assert batch["tokens"].layout == torch.jagged
    assert [part.tolist() for part in batch["tokens"].unbind()] == [[float(i)] * i for i in range(10)]


def to_floats(sample: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {"tokens": torch.full((int(sample["n"]),), float(sample["n"]))}
