"""Loader(ragged="arrow"): the same values as lists, in pyarrow arrays over the engine's memory."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import write_mds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr

OPTIONS: dict[str, Any] = {"index_cache": "", "epoch_end": "uneven", "memory": "64MiB"}

VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "text": (pa.string(), st.text(max_size=8)),
    "blob": (pa.binary(), st.binary(max_size=8)),
    "i32s": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=5)),
    "u16s": (
        pa.list_(pa.field("item", pa.uint16(), nullable=False)),
        st.lists(st.integers(0, 65535), max_size=5),
    ),
    "f64s": (pa.list_(pa.float64()), st.lists(st.floats(allow_nan=False), max_size=5)),
    "u8": (pa.uint8(), st.integers(0, 255)),
    "f32": (pa.float32(), st.floats(allow_nan=False, width=32)),
    "flag": (pa.bool_(), st.booleans()),
}


def plain(values: Any) -> list[Any]:
    """Values of a column of either kind as Python objects."""
    if isinstance(values, pa.Array):
        values.validate(full=True)
        return list(values.to_pylist())
    return [v.tolist() if isinstance(v, np.ndarray | np.generic) else v for v in values]


def read(path: Path, ragged: str, **options: Any) -> list[dict[str, Any]]:
    with hr.Loader(path, batch_size=7, seed=3, ragged=ragged, **(OPTIONS | options)) as loader:
        return [{name: plain(batch[name]) for name in batch} for batch in loader]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), rows=st.integers(7, 40), nulls=st.booleans())
def test_arrow_and_lists_hold_the_same_values(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: int, nulls: bool
) -> None:
    columns = {}
    for name, (dtype, values) in VALUES.items():
        cells = st.none() | values if nulls else values
        columns[name] = pa.array(data.draw(st.lists(cells, min_size=rows, max_size=rows)), dtype)
    path = tmp_path_factory.mktemp("table")
    pq.write_table(pa.table(columns), path / "a.parquet", row_group_size=9)
    assert read(path, "arrow") == read(path, "list")


def test_each_kind_of_column_has_its_arrow_type(tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["a", "bc", ""],
            "blob": [b"x", b"", b"yz"],
            "lengths": pa.array([[1], [], [2, 3]], pa.list_(pa.uint16())),
            "maybe": pa.array([1, None, 3], pa.int64()),
            "fixed": pa.array([1, 2, 3], pa.int32()),
            "words": pa.array([["a"], [], ["b", "c"]], pa.list_(pa.string())),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with hr.Loader(tmp_path, batch_size=3, shuffle=False, ragged="arrow", **OPTIONS) as loader:
        batch = next(iter(loader))
        assert {name: batch[name].type for name in ("text", "blob", "lengths", "maybe")} == {
            "text": pa.large_string(),
            "blob": pa.large_binary(),
            "lengths": pa.large_list(pa.uint16()),
            "maybe": pa.int64(),
        }
        assert isinstance(batch["fixed"], np.ndarray)
        assert batch["words"] == [["a"], [], ["b", "c"]]
        assert "text: arrow large_string" in repr(batch)


COLUMNS: dict[str, pa.Array] = {
    "lists": pa.array([[2**60 + 1, None], [1, 2], [3], [4], None, [5], [], [6]], pa.list_(pa.int64())),
    "floats": pa.array([[0.5], [None], None, [1.5], [2.5], [], [3], [4]], pa.list_(pa.float32())),
    "flags": pa.array([[True], [None], None, [False], [True], [], [True], [False]], pa.list_(pa.bool_())),
    "number": pa.array([1, 2, 3, 4, None, 2**60 + 1, 6, 7], pa.int64()),
    "half": pa.array([1, 2, 3, 4, None, 5, 6, 7], pa.float32()),
    "small": pa.array([1, 2, 3, 4, None, 5, 6, 7], pa.uint8()),
    "flag": pa.array([True, False, True, False, None, True, False, True]),
    "text": pa.array(["a", None] * 4),
}


def described(sample: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (type(value), getattr(value, "dtype", None), plain([value])) for name, value in sample.items()
    }


class Seeing:
    def __init__(self, seen: list[dict[str, Any]]) -> None:
        self.seen = seen

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        self.seen.append(described(sample))
        return {"row": 1}


@pytest.mark.parametrize("ragged", ["list", "arrow"])
def test_a_sample_of_functions_does_not_depend_on_the_others_of_its_batch(
    tmp_path: Path, ragged: str
) -> None:
    pq.write_table(pa.table(COLUMNS), tmp_path / "a.parquet")
    by_size: list[list[dict[str, Any]]] = []
    for batch_size in (8, 4, 3, 1):
        seen: list[dict[str, Any]] = []
        options: dict[str, Any] = {"batch_size": batch_size, "shuffle": False, "ragged": ragged, **OPTIONS}
        with hr.Loader(tmp_path, **options).map(Seeing(seen)) as loader:
            list(loader)
        by_size.append(seen)
    assert all(seen == by_size[0] for seen in by_size)
    assert [sample[name][2] for name in COLUMNS for sample in by_size[0]] == [
        [value] for column in COLUMNS.values() for value in column.to_pylist()
    ]
    first, fifth, sixth = (by_size[0][row] for row in (0, 4, 5))
    assert first["lists"][0] is list
    assert {fifth[name][0] for name in ("lists", "number", "flag")} == {type(None)}
    assert [sixth[name][:2] for name in ("lists", "number", "flag")] == [
        (np.ndarray, np.int64),
        (np.int64, np.int64),
        (np.bool_, np.bool_),
    ]


def test_values_lie_in_the_batch_and_outlive_everything(tmp_path: Path) -> None:
    write_mds(tmp_path / "d", {"t": ("str", None)}, [{"t": b"value %d" % i} for i in range(300)])
    kept: list[tuple[list[int], pa.Array]] = []
    with hr.Loader(tmp_path / "d", batch_size=50, ragged="arrow", **OPTIONS) as loader:
        for batch in loader:
            kept.append((batch.ids.tolist(), batch["t"].slice(10, 30)))
        assert loader.stats()["pool.used_bytes"] > 0  # What is kept counts.
    del batch, loader
    gc.collect()
    for ids, values in kept:
        assert values.to_pylist() == [f"value {i}" for i in ids[10:40]]
    # The last owner may go on any thread.
    values = None
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    gc.collect()


def test_a_list_array_lets_go_of_its_items(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": pa.array([[1, 2], [3]], pa.list_(pa.int32()))}), tmp_path / "a.parquet")
    with hr.Loader(tmp_path, batch_size=2, shuffle=False, ragged="arrow", **OPTIONS) as loader:
        items = next(iter(loader))["v"].values
    gc.collect()
    assert items.to_pylist() == [1, 2, 3]


def test_text_that_is_no_utf8_is_an_error_with_its_place(tmp_path: Path) -> None:
    write_mds(tmp_path / "d", {"t": ("str", None)}, [{"t": b"ok"}, {"t": b"\xff\xfe"}])
    with hr.Loader(tmp_path / "d", batch_size=2, shuffle=False, ragged="arrow", **OPTIONS) as loader:
        with pytest.raises(hr.CorruptError, match=r"sample 1, column t: not a valid str"):
            next(iter(loader))
        assert loader.batches_left == 1  # It was not received.


def test_arguments_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mds(tmp_path / "d", {"t": ("str", None)}, [{"t": b"ok"}])
    with pytest.raises(hr.InvalidArgumentError, match="ragged='jagged' is unknown; there are list, arrow"):
        hr.Loader(tmp_path / "d", batch_size=1, ragged="jagged")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(hr.UnsupportedError, match="pip install pyarrow"):
        hr.Loader(tmp_path / "d", batch_size=1, ragged="arrow")
