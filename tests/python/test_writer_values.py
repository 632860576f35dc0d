"""What writers refuse: columns and values that could not be read again. Each error names the column, and the
samples before it are written."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import prepare
from headrace.errors import HeadraceError, InvalidArgumentError, UnsupportedError
from headrace.prepare.writers import ENCODINGS, encoder, writer_class

FORMATS = ["mds", "litdata", "webdataset", "tfrecord", "parquet"]
NATIVE = FORMATS[:4]


def read(path: Path) -> list[dict[str, Any]]:
    with hr.Dataset(path, index_cache="") as dataset:
        return list(dataset)


@pytest.mark.parametrize("encoding", ["str", "bytes"])
def test_an_empty_key_is_refused(tmp_path: Path, encoding: str) -> None:
    """Readers of tars skip members whose name begins with the dot behind the key."""
    with prepare.WebDatasetWriter(tmp_path / "out", {"__key__": encoding, "x": "int"}) as writer:
        writer.write({"__key__": "a", "x": 1})
        with pytest.raises(InvalidArgumentError, match="__key__ of sample 1 is empty"):
            writer.write({"__key__": "", "x": 2})
        writer.write({"__key__": "b", "x": 3})
    assert [sample["__key__"] for sample in read(tmp_path / "out")] == ["a", "b"]
    prepare.write(
        [{"__key__": "a", "x": 1}, {"__key__": "", "x": 2}],
        tmp_path / "mds",
        columns={"__key__": encoding, "x": "int"},
    )
    with pytest.raises(InvalidArgumentError, match="__key__ of sample 1 is empty"):
        prepare.convert(tmp_path / "mds", tmp_path / "tars", format="webdataset")


# (encoding, good, bad): values that the column cannot hold, and what is said.
BAD_VALUES = [
    ("ndarray:int32:2", np.arange(2, dtype=np.int32), np.arange(3, dtype=np.int32), "shape"),
    ("ndarray:int32:2,3", np.zeros((2, 3), np.int32), np.zeros((3, 2), np.int32), "shape"),
    ("ndarray:int32:2,3", np.zeros((2, 3), np.int32), np.zeros(6, np.int32), "shape"),
    ("ndarray:int32:1", np.zeros(1, np.int32), np.int32(5), "shape"),
    ("ndarray:int32", np.zeros(1, np.int32), np.array(5, np.int32), "dimension"),
    ("ndarray:int32", np.zeros(1, np.int32), [object()], "object"),
    ("str_int", "12", "abc", "no int"),
    ("str_int", 12, 0.5, "no int"),
    ("str_int", 12, True, "no int"),
    ("str_float", 0.5, "x", "no float"),
    ("str_float", 1, b"1", "no float"),
    ("str_decimal", decimal.Decimal("1.50"), "\ud800", "no Decimal"),
    ("str_decimal", "1.5", "1,5", "no Decimal"),
    ("bytes", b"x", 3, "int"),
    ("bytes", b"x", object(), "object"),
    ("bytes", b"x", "\ud800", "surrogates"),
    ("jpeg", b"x", 3, "int"),
    ("json", {}, object(), "object"),
]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("encoding", "good", "bad", "message"), BAD_VALUES)
def test_a_bad_value_costs_its_own_sample_alone(
    tmp_path: Path, format: str, encoding: str, good: Any, bad: Any, message: str
) -> None:
    with writer_class(format)(tmp_path / "out", {"x": encoding}) as writer:
        writer.write({"x": good})
        with pytest.raises(InvalidArgumentError, match=f"column 'x': .*{message}"):
            writer.write({"x": bad})
        writer.write({"x": good})
    assert len(read(tmp_path / "out")) == 2


@pytest.mark.parametrize("value", [np.zeros(2, bool), np.zeros(2, complex), np.array(["a"])])
def test_an_array_of_any_type_is_one_that_mds_has(tmp_path: Path, value: Any) -> None:
    for format in NATIVE:
        with writer_class(format)(tmp_path / format, {"x": "ndarray"}) as writer:
            with pytest.raises(InvalidArgumentError, match="column 'x': an array of"):
                writer.write({"x": value})
            writer.write({"x": np.zeros(2, np.int8)})
        assert len(read(tmp_path / format)) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_bytes_need_not_lie_in_one_piece(tmp_path: Path, format: str) -> None:
    values = [memoryview(b"abcdef")[::2], memoryview(np.arange(6, dtype=np.uint8).reshape(2, 3).T)]
    prepare.write([{"x": value} for value in values], tmp_path / "out", format=format, columns={"x": "bytes"})
    got = [bytes(np.asarray(sample["x"])) for sample in read(tmp_path / "out")]
    assert got == [b"ace", bytes([0, 3, 1, 4, 2, 5])]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "shape",
    ["0", "0,3", "2,0", "-1", "x", "2,", ",2", "2:3", "1.0", "99999999999", "9" * 5000, "65536,65536"],
)
def test_shapes_are_whole_numbers_of_at_least_one(tmp_path: Path, format: str, shape: str) -> None:
    with pytest.raises(InvalidArgumentError, match="encoding 'ndarray:int32:"):
        writer_class(format)(tmp_path / "out", {"x": f"ndarray:int32:{shape}"})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("format", FORMATS)
def test_shapes_may_have_spaces(tmp_path: Path, format: str) -> None:
    value = np.arange(6, dtype=np.int32).reshape(2, 3)
    prepare.write([{"x": value}], tmp_path / "out", format=format, columns={"x": "ndarray:int32:2, 3"})
    (got,) = read(tmp_path / "out")[0].keys() - {"__key__"}
    assert got.startswith("x")


@pytest.mark.parametrize("dtype", ["zz", "str96", "complex64", "object"])
@pytest.mark.parametrize("format", FORMATS)
def test_types_without_a_place_are_refused_at_once(tmp_path: Path, format: str, dtype: str) -> None:
    with pytest.raises(UnsupportedError, match=f"column 'x': .*{dtype}"):
        writer_class(format)(tmp_path / "out", {"x": f"ndarray:{dtype}"})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [np.zeros(2, complex), np.array(["a"]), object()])
@pytest.mark.parametrize("format", FORMATS)
def test_a_first_sample_that_cannot_be_written_leaves_the_columns_open(
    tmp_path: Path, format: str, value: Any
) -> None:
    with writer_class(format)(tmp_path / "out") as writer:
        with pytest.raises(UnsupportedError, match="column 'x'"):
            writer.write({"x": value})
        writer.write({"y": 1})
    assert len(read(tmp_path / "out")) == 1


@pytest.mark.parametrize("sample", [1, None, [("x", 1)], "text"])
def test_a_sample_is_a_dict(tmp_path: Path, sample: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"a dict .*not a {type(sample).__name__}"):
        prepare.write([sample], tmp_path / "out")


@pytest.mark.parametrize("format", NATIVE)
@pytest.mark.parametrize("name", ["", 3])
def test_a_column_without_a_name_is_refused(tmp_path: Path, format: str, name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"a column cannot be called {name!r}"):
        prepare.write([{name: "y", "b": 1}], tmp_path / "out", format=format)
    with pytest.raises(InvalidArgumentError, match=f"a column cannot be called {name!r}"):
        writer_class(format)(tmp_path / "out", {name: "str", "b": "int"})
    assert not list(tmp_path.glob("out/*"))


def test_a_column_without_a_name_is_renamed(tmp_path: Path) -> None:
    prepare.write([{"": "y", "b": 1}], tmp_path / "in", format="parquet")
    for columns in (None, ["="]):
        with pytest.raises(HeadraceError, match=r"cannot be called ''|expected NAME"):
            prepare.convert(tmp_path / "in", tmp_path / "out", columns=columns)
    prepare.convert(tmp_path / "in", tmp_path / "out", columns="a=,b")
    assert read(tmp_path / "out") == [{"a": "y", "b": 1}]


@pytest.mark.parametrize("number", ["1" * 30, " 7 ", "1_000"])
def test_numbers_as_text_are_what_readers_parse(tmp_path: Path, number: str) -> None:
    prepare.write([{"x": number}], tmp_path / "out", columns={"x": "str_int"})
    assert read(tmp_path / "out") == [{"x": int(number)}]


@pytest.mark.parametrize("format", ["mds", "webdataset", "tfrecord", "litdata", "parquet"])
def test_an_encoding_that_is_none_is_told_with_those_that_there_are(tmp_path: Path, format: str) -> None:
    with pytest.raises(UnsupportedError, match=r"column 'a': encoding 'uint9' .*there are bytes, .*uint8, "):
        prepare.write([{"a": 1}], tmp_path / "x", format=format, columns={"a": "uint9"})


def test_encodings_that_are_told_are_taken() -> None:
    for encoding in ENCODINGS:
        encoder(encoding.replace("DTYPE", "int8").replace("d0,d1", "2,3"))


def test_a_sample_of_other_columns_is_told_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"sample 1: column 'b' is not one of"):
        prepare.write([{"a": 1}, {"a": 2, "b": 3}], tmp_path / "x")
