"""Tables as few write them: predicates on bytes, tensors whose axes lie otherwise, another table in the same
place."""

from __future__ import annotations

import datetime
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

IDS = [uuid.UUID(int=i << 64 | i) for i in (1, 2, 3)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    columns = {
        "bytes": pa.array([b"\xff\x00", b"a", b"zz"]),
        "id": pa.array([each.bytes for each in IDS], pa.binary(16)),
        "n": pa.array([1, 2, 3]),
        "day": pa.array([datetime.date(2020, 1, day) for day in (1, 2, 3)]),
    }
    pq.write_table(pa.table(columns), folder / "x.parquet", row_group_size=1)
    return folder


@pytest.mark.parametrize(
    ("term", "count"),
    [
        (("bytes", "==", b"\xff\x00"), 1),
        (("bytes", "in", [b"a", bytearray(b"zz")]), 2),
        (("bytes", "==", "a"), 1),
        (("bytes", "<", b"b"), 1),
        (("id", "==", IDS[2]), 1),
        (("n", ">=", np.int64(2)), 2),
        (("day", "<", datetime.date(2020, 1, 2)), 1),
    ],
)
def test_row_groups_are_found_by_any_value(rows: Path, term: Any, count: int) -> None:
    assert len(hr.Dataset(rows, where=[term])) == count


def test_what_no_row_is_compared_with_is_an_error(rows: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError, match=r"where: .* is a set; expected numbers, text, bytes"):
        hr.Dataset(rows, where=[("n", "in", {1, 2})])  # type: ignore[list-item]


def test_options_of_another_format_are_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines/a.jsonl").write_bytes(b'{"a": 1}\n{"a": 9}\n')
    with pytest.raises(
        hr.InvalidArgumentError, match="where= chooses row groups of Parquet, and this is text"
    ):
        hr.Dataset(tmp_path / "lines", where=[("a", ">", 5)])
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens/a.bin").write_bytes(np.arange(16, dtype=np.uint16).tobytes())
    with pytest.raises(hr.InvalidArgumentError, match=r"tokens_per_sample= is of tokens.*format='tokens'"):
        hr.Dataset(tmp_path / "tokens", tokens_per_sample=8)
    assert len(hr.Dataset(tmp_path / "tokens", format="tokens", tokens_per_sample=8)) == 2
    for name, value in (("tokens_per_sample", 3), ("token_dtype", "uint16"), ("password", "x")):
        with pytest.raises(hr.InvalidArgumentError, match=f"{name}= is of .*, and this is text"):
            hr.Dataset(tmp_path / "lines", **{name: value})


def test_columns_of_a_dataset_are_chosen_or_refused(tmp_path: Path) -> None:
    rows = [{"a": i, "b": float(i)} for i in range(4)]
    for form in ("mds", "parquet", "tfrecord", "litdata"):
        hr.prepare.write(rows, tmp_path / form, format=form)
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv/x.csv").write_text("a,b\n1,2\n3,4\n")
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(hr.InvalidArgumentError, match="zz"):
            hr.Dataset(path, columns=["zz"])
        if path.name in ("mds", "litdata"):
            with pytest.raises(hr.InvalidArgumentError, match=r"read\(\) or to the Loader"):
                hr.Dataset(path, columns=["a"])
        else:
            with hr.Dataset(path, columns=["a"]) as dataset:
                assert list(dataset.schema) == list(dataset[1]) == ["a"]
        with hr.Dataset(path, columns=["a", "b"]) as dataset:
            assert list(dataset.schema) == ["a", "b"]
        with hr.Loader(path, batch_size=2, columns=["a"]) as loader:
            assert list(next(iter(loader))) == ["a"]


def test_columns_of_a_list_are_those_that_must_agree(tmp_path: Path) -> None:
    hr.prepare.write([{"id": i, "t": f"a{i}", "u": "x"} for i in range(3)], tmp_path / "one", format="mds")
    hr.prepare.write(
        [{"id": str(i), "t": f"b{i}", "u": "y"} for i in range(3)], tmp_path / "two", format="mds"
    )
    both = [tmp_path / "one", tmp_path / "two"]
    with pytest.raises(hr.InvalidArgumentError, match="leave it out with columns="):
        hr.Dataset(both)
    with hr.Dataset(both, columns=["t"]) as dataset:
        assert [row["t"] for row in dataset] == ["a0", "a1", "a2", "b0", "b1", "b2"]
        assert "id" not in dataset.schema


def test_columns_of_structs_are_chosen_by_their_own_name(tmp_path: Path) -> None:
    """As Hugging Face's image and audio columns are stored."""
    images = pa.array(
        [{"bytes": b"x", "path": "a"}] * 3, pa.struct({"bytes": pa.binary(), "path": pa.string()})
    )
    pq.write_table(pa.table({"image": images, "label": [1, 2, 3]}), tmp_path / "x.parquet")
    with hr.Loader(tmp_path, columns=["image"], batch_size=3) as loader:
        chosen = sorted(next(iter(loader)))
    with hr.Dataset(tmp_path, columns=["image"]) as dataset:
        assert chosen == ["image"]
        assert dataset[0]["image"] == b"x"
        assert "label" not in dataset.schema


@pytest.mark.parametrize("permutation", [[0, 1], [1, 0]])
def test_tensors_with_permuted_axes_are_refused(tmp_path: Path, permutation: list[int]) -> None:
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=permutation)
    storage = pa.array([list(range(6)), list(range(6, 12))], pa.list_(pa.int32(), 6))
    table = pa.table({"t": pa.ExtensionArray.from_storage(kind, storage)})
    pq.write_table(table, tmp_path / "x.parquet")
    if permutation == [0, 1]:
        assert hr.Dataset(tmp_path)[1]["t"].tolist() == [[6, 7, 8], [9, 10, 11]]
        return
    with pytest.raises(hr.UnsupportedError, match=r"column 't': its tensors have the permutation \[1, 0\]"):
        hr.Dataset(tmp_path)


def test_a_lance_table_in_the_place_of_another_is_read(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    place = tmp_path / "t.lance"
    for name in ("y", "z"):
        shutil.rmtree(place, ignore_errors=True)
        lance.write_dataset(pa.table({name: [5, 6]}), place)
        with hr.Dataset(place) as dataset:
            assert int(dataset[1][name]) == 6
