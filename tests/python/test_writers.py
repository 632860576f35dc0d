"""Writers against the packages whose formats they write."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import prepare
from headrace.errors import (
    ChangedError,
    HeadraceError,
    InvalidArgumentError,
    UnavailableError,
    UnsupportedError,
)
from headrace.prepare.target import PackTarget
from headrace.prepare.writers import writer_class

FEW = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# Strategy of the values of each encoding.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=200),
    "str": st.text(max_size=40),
    "int": st.integers(-(2**63), 2**63 - 1),
    "json": st.recursive(
        st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=5),
        lambda x: st.lists(x, max_size=3),
    ).map(lambda v: {"v": v}),
    "float32": st.floats(width=32, allow_nan=False).map(np.float32),
    "float64": st.floats(allow_nan=False).map(np.float64),
    "uint8": st.integers(0, 255).map(np.uint8),
    "int32": st.integers(-(2**31), 2**31 - 1).map(np.int32),
    "ndarray:int16": st.lists(st.integers(-9, 9), min_size=1, max_size=300).map(
        lambda v: np.array(v, np.int16)
    ),
    "ndarray:float32:2,3": st.lists(st.floats(width=32, allow_nan=False), min_size=6, max_size=6).map(
        lambda v: np.array(v, np.float32).reshape(2, 3)
    ),
}
NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8).filter(
    lambda name: not name.startswith("_")
)


Table = tuple[dict[str, str], list[dict[str, Any]]]


@st.composite
def tables(draw: Callable[[Any], Any], encodings: tuple[str, ...] = tuple(VALUES)) -> Table:
    """Columns, and samples that have them."""
    columns = draw(st.dictionaries(NAMES, st.sampled_from(encodings), min_size=1, max_size=5))
    row = st.fixed_dictionaries({name: VALUES[encoding] for name, encoding in columns.items()})
    return columns, draw(st.lists(row, min_size=1, max_size=20))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (np.ndarray, np.generic)) or isinstance(b, (np.ndarray, np.generic)):
        return bool(np.array_equal(np.asarray(a), np.asarray(b)))
    return bool(a == b)


def assert_same(got: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        for name, value in theirs.items():
            assert same(ours[name], value), (name, ours[name], value)


def fresh(tmp_path: Path) -> Path:
    return tmp_path / f"out{len(list(tmp_path.iterdir()))}"


def written(tmp_path: Path, table: Table, format: str, **options: Any) -> Path:
    """A directory of these samples."""
    columns, samples = table
    out = fresh(tmp_path)
    prepare.write(samples, out, format=format, columns=columns, **options)
    return out


@pytest.mark.parametrize("format", ["mds", "webdataset", "litdata", "parquet"])
def test_whole_numbers_are_not_rounded(format: str, tmp_path: Path) -> None:
    exact = [0, -5, 2**53, 2**60, -(2**63), np.int64(3), np.uint64(2**63), True]
    wrong = [2**53 + 1, -(2**53) - 1, 2**63 - 1, np.int64(2**53 + 1), np.uint64(2**64 - 1)]
    with writer_class(format)(tmp_path, {"x": "float64", "y": "ndarray:float64:1"}) as out:
        for number in exact:
            out.write({"x": number, "y": np.array([number])})
        for number in wrong:
            with pytest.raises(InvalidArgumentError, match="does not fit a column of float64"):
                out.write({"x": number, "y": np.zeros(1)})
            with pytest.raises(InvalidArgumentError, match="whole numbers that float64 has not"):
                out.write({"x": 0.5, "y": np.array([number])})
    with hr.Dataset(tmp_path) as dataset:
        assert len(dataset) == len(exact)
        if format != "webdataset":
            assert [int(sample["x"]) for sample in dataset] == [int(number) for number in exact]
            assert [int(sample["y"][0]) for sample in dataset] == [int(number) for number in exact]
    column = prepare.writers.encoder("float32")
    assert struct.unpack("<f", column(1 << 24)) == (1 << 24,)
    assert column(0.1) == struct.pack("<f", 0.1)
    with pytest.raises(InvalidArgumentError, match="16777217 does not fit a column of float32"):
        column((1 << 24) + 1)


@FEW
@given(table=tables())
def test_mds_bytes_are_those_of_the_reference_writer(tmp_path: Path, table: Table) -> None:
    streaming = pytest.importorskip("streaming")
    columns, samples = table
    ours, theirs = fresh(tmp_path), tmp_path / f"reference{len(list(tmp_path.iterdir()))}"
    with streaming.MDSWriter(out=str(theirs), columns=columns, size_limit=2000, hashes=["sha1"]) as writer:
        for sample in samples:
            writer.write(sample)
    prepare.write(samples, ours, format="mds", columns=columns, shard_bytes=2000, hash="sha1")
    expected = {p.name: p.read_bytes() for p in theirs.iterdir()}
    assert {p.name: p.read_bytes() for p in ours.iterdir() if not p.name.startswith(".")} == expected


@FEW
@given(table=tables())
def test_litdata_reads_what_we_write(tmp_path: Path, table: Table) -> None:
    pytest.importorskip("litdata")
    from litdata.streaming.config import ChunkedIndex
    from litdata.streaming.reader import BinaryReader

    columns, samples = table
    out = written(tmp_path, table, "litdata", shard_bytes=2000)
    index = json.loads((out / "index.json").read_text())
    reader = BinaryReader(cache_dir=str(out), max_cache_size=None, remote_input_dir=None)
    position, got = 0, []
    for chunk, info in enumerate(index["chunks"]):
        for _ in range(info["chunk_size"]):
            got.append(reader.read(ChunkedIndex(index=position, chunk_index=chunk, is_last_index=False)))
            position += 1
    expected = [
        {n: json.dumps(v) if columns[n] == "json" else v for n, v in sample.items()} for sample in samples
    ]
    assert_same(got, expected)


@FEW
@given(
    table=tables(
        ("bytes", "str", "int", "json", "float32", "uint8", "int32", "ndarray:int16", "ndarray:float32:2,3")
    )
)
def test_tfrecord_reads_what_we_write(tmp_path: Path, table: Table) -> None:
    if "tensorflow" in sys.modules:
        pytest.skip("tensorflow is loaded, and registers the same messages as tfrecord")
    reader = pytest.importorskip("tfrecord.reader")
    from tfrecord import example_pb2

    columns, samples = table
    out = written(tmp_path, table, "tfrecord", shard_bytes=2000)
    features = []
    for shard in sorted(out.glob("*.tfrecord")):
        for record in reader.tfrecord_iterator(str(shard)):
            example = example_pb2.Example()
            example.ParseFromString(bytes(record))
            features.append(example.features.feature)
    assert len(features) == len(samples)
    for feature, sample in zip(features, samples, strict=True):
        for name, encoding in columns.items():
            value = sample[name]
            if encoding in ("bytes", "str", "json"):
                text = json.dumps(value) if encoding == "json" else value
                assert list(feature[name].bytes_list.value) == [
                    text if isinstance(text, bytes) else text.encode()
                ]
            elif "float" in encoding:
                assert list(feature[name].float_list.value) == np.asarray(value).reshape(-1).tolist()
            else:
                assert list(feature[name].int64_list.value) == np.asarray(value).reshape(-1).tolist()


@FEW
@given(table=tables())
def test_webdataset_reads_what_we_write(tmp_path: Path, table: Table) -> None:
    wds = pytest.importorskip("webdataset")
    columns, samples = table
    out = written(tmp_path, table, "webdataset", shard_bytes=8000)
    got = list(wds.WebDataset(sorted(map(str, out.glob("*.tar"))), shardshuffle=False).decode())
    assert len(got) == len(samples)
    for ours, sample in zip(got, samples, strict=True):
        for name, encoding in columns.items():
            suffix = {
                "bytes": "",
                "str": ".txt",
                "int": ".cls",
                "json": ".json",
                "uint8": ".cls",
                "int32": ".cls",
                "float32": ".txt",
                "float64": ".txt",
            }.get(encoding, ".npy")
            value = ours[name + suffix] if name + suffix in ours else ours[name]
            if encoding in ("float32", "float64"):
                value = np.dtype(encoding).type(value)
            assert same(value, sample[name]), name


@FEW
@given(table=tables())
def test_pyarrow_reads_what_we_write(tmp_path: Path, table: Table) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    columns, samples = table
    out = written(tmp_path, table, "parquet", shard_bytes=2000, compression="zstd")
    rows = [row for file in sorted(out.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    expected = [
        {
            n: json.dumps(v) if columns[n] == "json" else v.reshape(-1) if isinstance(v, np.ndarray) else v
            for n, v in sample.items()
        }
        for sample in samples
    ]
    assert_same(rows, expected)


SAMPLES = [
    {"text": f"sample {i}", "label": i, "weight": i / 3, "blob": bytes([i]) * i, "tags": ["a", i]}
    for i in range(40)
]


@pytest.mark.parametrize(
    ("format", "compression"),
    [
        ("mds", ""),
        ("mds", "zstd"),
        ("webdataset", ""),
        ("tfrecord", ""),
        ("litdata", ""),
        ("litdata", "zstd:5"),
        ("parquet", ""),
    ],
)
def test_we_read_what_we_write(tmp_path: Path, format: str, compression: str) -> None:
    result = prepare.write(SAMPLES, tmp_path / "out", format=format, shard_bytes=900, compression=compression)
    assert result["sample_count"] == len(SAMPLES)
    assert result["shard_count"] > 2
    with hr.Dataset(tmp_path / "out", index_cache="") as dataset:
        assert len(dataset) == len(SAMPLES)
        first = dataset[7]
        text = first.get("text", first.get("text.txt"))
        assert text in ("sample 7", b"sample 7")


def test_the_columns_are_those_of_the_first_sample(tmp_path: Path) -> None:
    with prepare.MDSWriter(tmp_path / "out") as writer:
        writer.write(
            {"a": 1, "b": True, "c": 0.5, "d": np.int16(3), "e": np.zeros((2, 2), np.float16), "f": {"x": 1}}
        )
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert index["shards"][0]["column_encodings"] == [
        "int",
        "uint8",
        "float64",
        "int16",
        "ndarray:float16",
        "json",
    ]
    with pytest.raises(UnsupportedError, match="'x'"), prepare.MDSWriter(tmp_path / "other") as writer:
        writer.write({"x": object()})


@pytest.mark.parametrize(
    ("columns", "sample", "message"),
    [
        ({"x": "int"}, {"x": None}, "leave a value out"),
        ({"x": "int"}, {"x": 2**63}, "x"),
        ({"x": "int"}, {"x": 1, "y": 2}, "'y'"),
        ({"x": "ndarray:int8:2"}, {"x": np.zeros(3, np.int8)}, "shape"),
        ({"x": "ndarray:int8"}, {"x": np.zeros(3, np.int32)}, "int32"),
        ({"x": "ndarray:int8"}, {"x": np.zeros(0, np.int8)}, "without"),
        ({"x": "str"}, {"x": b"\xff", "z": 1}, "'z'"),
    ],
)
def test_values_that_do_not_fit_are_refused(
    tmp_path: Path, columns: dict[str, str], sample: dict[str, Any], message: str
) -> None:
    with pytest.raises(HeadraceError, match=message), prepare.MDSWriter(tmp_path / "out", columns) as writer:
        writer.write(sample)
    assert not (tmp_path / "out" / "index.json").exists()


CHANGED = [
    *[
        ("uint8", np.int64(300)),
        ("int8", 128),
        ("int32", 7.9),
        ("int64", 2**63),
        ("uint64", -1),
        ("int16", np.float32(1)),
        ("uint8", "1"),
        ("int", 2**63),
    ],
    *[
        ("bool", 2),
        ("bool", 0.5),
        ("bool", "yes"),
        ("float16", 1e6),
        ("float32", 1e300),
        ("float32", np.float64(-1e300)),
        ("float64", 10**400),
    ],
    *[("float64", "1.5"), ("str", b"\xff"), ("str", 5), ("str", "\ud800"), ("ndarray:int8", np.array([300]))],
]


@pytest.mark.parametrize("format", ["mds", "parquet"])
@pytest.mark.parametrize(("encoding", "value"), CHANGED)
def test_no_value_is_changed_to_fit(tmp_path: Path, format: str, encoding: str, value: Any) -> None:
    with writer_class(format)(tmp_path / "out", {"x": encoding}) as writer:
        with pytest.raises(InvalidArgumentError, match="column 'x'"):
            writer.write({"x": value})
        writer.abandon()


KEPT = [
    *[
        ("uint8", np.int64(255), 255),
        ("int8", -128, -128),
        ("uint64", 2**64 - 1, 2**64 - 1),
        ("int32", True, 1),
        ("bool", np.True_, True),
        ("bool", 0, False),
    ],
    *[
        ("float16", 65504, 65504.0),
        ("float32", np.float64(0.5), 0.5),
        ("float32", float("inf"), float("inf")),
        ("float64", 3, 3.0),
    ],
    *[("str", b"\xc3\xa4", "ä"), ("str", "ä", "ä"), ("bytes", bytearray(b"x"), b"x")],
]


@pytest.mark.parametrize("format", ["mds", "parquet"])
@pytest.mark.parametrize(("encoding", "value", "expected"), KEPT)
def test_values_that_fit_are_taken(
    tmp_path: Path, format: str, encoding: str, value: Any, expected: Any
) -> None:
    prepare.write([{"x": value}], tmp_path / "out", format=format, columns={"x": encoding})
    with hr.Dataset(tmp_path / "out", index_cache="") as dataset:
        assert dataset[0]["x"] == expected


@pytest.mark.parametrize(
    "arguments",
    [
        {"columns": {"x": "pkl"}},
        {"columns": {"x": "int"}, "compression": "gz"},
        {"columns": {"x": "int"}, "hash": "md4"},
    ],
)
def test_what_is_not_written_is_refused_at_once(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError):
        prepare.MDSWriter(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("format", "is_refused"), [("mds", True), ("litdata", True), ("webdataset", False), ("parquet", False)]
)
def test_shards_beyond_the_offsets_are_refused_at_once(tmp_path: Path, format: str, is_refused: bool) -> None:
    prepare.write(SAMPLES[:1], tmp_path / "out", format=format, shard_bytes=2**32 - 1)
    for way in (
        lambda: prepare.write(SAMPLES[:1], tmp_path / "written", format=format, shard_bytes="4GiB"),
        lambda: prepare.convert(
            tmp_path / "out", tmp_path / "converted", format=format, shard_bytes="4GiB", memory="20GiB"
        ),
    ):
        if is_refused:
            with pytest.raises(InvalidArgumentError, match=r"shard_bytes of .* is not in 1 \.\. 2\^32 - 1"):
                way()
        else:
            way()
    assert (tmp_path / "converted").exists() == (tmp_path / "written").exists() == (not is_refused)


def test_float64_is_never_narrowed_in_silence(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="float64"):
        prepare.write([{"x": 0.1}], tmp_path / "a", format="tfrecord", columns={"x": "float64"})
    prepare.write([{"x": 0.1}], tmp_path / "b", format="tfrecord", columns={"x": "float32"})


def test_an_exception_leaves_no_index_and_the_same_write_goes_on(tmp_path: Path) -> None:
    def interrupted() -> Iterator[dict[str, Any]]:
        yield from SAMPLES[:30]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        prepare.write(interrupted(), tmp_path / "out", shard_bytes=700)
    assert not (tmp_path / "out" / "index.json").exists()
    shards = sorted((tmp_path / "out").glob("shard*"))
    assert shards
    before = shards[0].stat().st_mtime_ns
    prepare.write(SAMPLES, tmp_path / "out", shard_bytes=700)
    prepare.write(SAMPLES, tmp_path / "whole", shard_bytes=700)
    assert shards[0].stat().st_mtime_ns == before, "a shard that came out the same is not written again"
    files = {p.name: p.read_bytes() for p in (tmp_path / "whole").iterdir() if p.is_file()}
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir() if p.is_file()} == files
    with pytest.raises(InvalidArgumentError, match="another source or other options"):
        prepare.write(SAMPLES, tmp_path / "out", shard_bytes=701)


class Unwell:
    """Fails every second put of a shard, before or after it happened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_late: bool) -> None:
        self._real, self._is_late, self._count = PackTarget.put_part, is_late, 0
        monkeypatch.setattr(PackTarget, "put_part", lambda *arguments: self._put(*arguments))

    def _put(self, *arguments: Any) -> None:
        self._count += 1
        if self._count % 2 == 0 or self._is_late:
            self._real(*arguments)
        if self._count % 2 == 1:
            raise UnavailableError("the store is unwell")


def until_it_works(call: Callable[[], None]) -> None:
    while True:
        try:
            return call()
        except UnavailableError:
            continue


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("format", ["mds", "webdataset", "parquet"])
def test_a_shard_whose_put_failed_is_put_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, is_late: bool
) -> None:
    prepare.write(SAMPLES, tmp_path / "whole", format=format, shard_bytes=900)
    Unwell(monkeypatch, is_late=is_late)
    writer = writer_class(format)(tmp_path / "out", shard_bytes=900)
    for sample in SAMPLES:
        until_it_works(lambda sample=sample: writer.write(sample))  # type: ignore[misc]
    until_it_works(writer.close)
    assert everything(tmp_path / "out") == everything(tmp_path / "whole")


def test_a_record_never_vouches_for_the_shard_of_another_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [{**sample, "label": sample["label"] + 1} for sample in SAMPLES]  # The same sizes.
    prepare.write(SAMPLES, tmp_path / "whole", shard_bytes=900)
    first = prepare.MDSWriter(tmp_path / "out", shard_bytes=900)
    for sample in SAMPLES:
        first.write(sample)
    first.abandon()
    with monkeypatch.context() as patch:

        def record(self: PackTarget, number: int, facts: dict[str, Any]) -> None:
            raise UnavailableError("killed here")

        patch.setattr(PackTarget, "record", record)
        with pytest.raises(UnavailableError):
            prepare.write(others, tmp_path / "out", shard_bytes=900)
    prepare.write(SAMPLES, tmp_path / "out", shard_bytes=900)
    assert everything(tmp_path / "out") == everything(tmp_path / "whole")


def test_of_two_writers_the_first_is_stopped(tmp_path: Path) -> None:
    prepare.write(OTHERS, tmp_path / "whole", shard_bytes=900)
    first = prepare.MDSWriter(tmp_path / "out", shard_bytes=900)
    for sample in SAMPLES[:20]:
        first.write(sample)
    with prepare.MDSWriter(tmp_path / "out", shard_bytes=900) as second:
        for sample in OTHERS:
            second.write(sample)
        before = everything(tmp_path / "out")
        with pytest.raises(ChangedError, match="another write began"):
            first.close()
        assert everything(tmp_path / "out") == before
    with pytest.raises(ChangedError, match="another write began"):
        first.close()
    first.abandon()
    assert everything(tmp_path / "out") == everything(tmp_path / "whole")


def test_a_shard_that_another_writer_put_late_is_noticed(tmp_path: Path) -> None:
    writer = prepare.MDSWriter(tmp_path / "out", shard_bytes=900)
    for sample in SAMPLES:
        writer.write(sample)
    record = tmp_path / "out" / ".hrpack/done/000000.json"
    record.write_text(record.read_text().replace('"content": "', '"content": "f'))
    with pytest.raises(ChangedError, match=r"shard\.00000\.mds was written by another"):
        writer.close()
    writer.abandon()
    assert not (tmp_path / "out" / "index.json").exists()


def test_litdata_is_told_apart_by_its_samples(tmp_path: Path) -> None:
    """litdata names its cache directory by updated_at."""

    def updated_at(name: str, samples: list[dict[str, Any]]) -> str:
        prepare.write(samples, tmp_path / name, format="litdata", columns={"x": "int"}, shard_bytes=100)
        value: str = json.loads((tmp_path / name / "index.json").read_text())["updated_at"]
        return value

    a = updated_at("a", [{"x": i} for i in range(40)])
    assert a == updated_at("b", [{"x": i} for i in range(40)])
    assert a != updated_at("c", [{"x": i + (i == 39)} for i in range(40)])


def test_a_refused_sample_takes_no_number(tmp_path: Path) -> None:
    with prepare.WebDatasetWriter(tmp_path / "out", {"x": "int"}) as writer:
        for value in (1, 2**63, 2):
            with suppress(InvalidArgumentError):
                writer.write({"x": value})
    with hr.Dataset(tmp_path / "out", index_cache="") as dataset:
        assert [(s["__key__"], int(s["x.cls"])) for s in dataset] == [("000000000", 1), ("000000001", 2)]


@pytest.mark.parametrize("format", ["mds", "parquet"])
def test_a_refused_first_sample_decides_nothing(tmp_path: Path, format: str) -> None:
    with writer_class(format)(tmp_path / "out") as writer:
        for value in (1 << 70, "\ud800"):
            with pytest.raises(InvalidArgumentError, match="sample 0"):
                writer.write({"a": value})
        writer.write({"a": "text"})
        with pytest.raises(InvalidArgumentError):
            writer.write({"a": "\ud800"})
        writer.write({"a": "more"})
    with hr.Dataset(tmp_path / "out", index_cache="") as dataset:
        assert [sample["a"] for sample in dataset] == ["text", "more"]


def test_a_dataset_of_refused_samples_alone_is_none(tmp_path: Path) -> None:
    with prepare.WebDatasetWriter(tmp_path / "out") as writer:
        with pytest.raises(InvalidArgumentError, match="64 bits"):
            writer.write({"a": 1 << 70})
        with pytest.raises(InvalidArgumentError, match="no sample was written"):
            writer.close()
        writer.abandon()


def test_files_of_one_sample_stay_together(tmp_path: Path) -> None:
    names = ["a.jpg", "a.json", "d.1/b.jpg", b"d.1/b.seg.png", "d.1/c.json"]
    with prepare.WebDatasetWriter(
        tmp_path / "out", {"data": "bytes", "__file__": "str"}, shard_bytes=4000
    ) as writer:
        for name in names:
            writer.write({"data": bytes(3000), "__file__": name})
            with pytest.raises(InvalidArgumentError, match="would not take it"):
                writer.write({"data": bytes(3000), "__file__": name})
    assert [facts["samples"] for facts in writer.shard_facts] == [1, 1, 1]
    with hr.Dataset(tmp_path / "out", index_cache="") as dataset:
        assert [sample["__key__"] for sample in dataset] == ["a", "d.1/b", "d.1/c"]


@pytest.mark.parametrize("format", ["mds", "webdataset", "litdata", "parquet", "tfrecord"])
def test_a_dataset_without_samples_opens_or_is_refused(tmp_path: Path, format: str) -> None:
    kind = prepare.writers.writer_class(format)
    if format in prepare.writers.HAVE_NO_EMPTY_SHARDS:
        refusal = pytest.raises(InvalidArgumentError, match=f"shard of {format} without")
        with refusal, kind(tmp_path, {"a": "int"}):
            pass
        assert not list(tmp_path.iterdir())
        return
    with kind(tmp_path, {"a": "int"}):
        pass
    with hr.Dataset(tmp_path, index_cache="") as dataset:
        assert len(dataset) == 0


def test_a_refused_target_stays_refused(tmp_path: Path) -> None:
    prepare.write(SAMPLES, tmp_path / "out")
    before = everything(tmp_path / "out")
    with prepare.MDSWriter(tmp_path / "out") as writer:
        writer.write(SAMPLES[0])
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="finished dataset"):
                writer.close()
        writer.abandon()
    assert everything(tmp_path / "out") == before


FORMATS = [
    ("mds", ""),
    ("mds", "zstd"),
    ("webdataset", ""),
    ("webdataset", "gzip"),
    ("tfrecord", ""),
    ("litdata", ""),
    ("litdata", "zstd"),
    ("parquet", ""),
]
OTHERS = [{**sample, "text": f"another {i}"} for i, sample in enumerate(SAMPLES[:15])]


def everything(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize(("format", "compression"), FORMATS)
def test_a_finished_dataset_is_left_alone(tmp_path: Path, format: str, compression: str) -> None:
    prepare.write(SAMPLES, tmp_path / "out", format=format, shard_bytes=900, compression=compression)
    before = everything(tmp_path / "out")
    with pytest.raises(InvalidArgumentError, match="finished dataset"):
        prepare.write(OTHERS, tmp_path / "out", format=format, shard_bytes=900, compression=compression)
    assert everything(tmp_path / "out") == before
    # Also one whose plan went away.
    (tmp_path / "out" / ".hrpack.json").unlink()
    with pytest.raises(InvalidArgumentError, match="already holds"):
        prepare.write(OTHERS, tmp_path / "out", format=format, shard_bytes=900, compression=compression)


@pytest.mark.parametrize(("format", "compression"), FORMATS)
def test_a_shorter_write_leaves_nothing_of_a_longer_one_that_broke_off(
    tmp_path: Path, format: str, compression: str
) -> None:
    def interrupted() -> Iterator[dict[str, Any]]:
        yield from SAMPLES
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        prepare.write(
            interrupted(), tmp_path / "out", format=format, shard_bytes=900, compression=compression
        )
    (tmp_path / "out" / "shard.note").write_text("not a shard")
    result = prepare.write(OTHERS, tmp_path / "out", format=format, shard_bytes=900, compression=compression)
    shards = len(list((tmp_path / "out").glob("*[0-9]*")))
    assert shards == result["shard_count"]
    (tmp_path / "out" / "shard.note").unlink()
    prepare.write(OTHERS, tmp_path / "whole", format=format, shard_bytes=900, compression=compression)
    assert everything(tmp_path / "out") == everything(tmp_path / "whole")


def test_the_index_of_a_write_that_broke_off_goes_before_its_shards(tmp_path: Path) -> None:
    writer = prepare.MDSWriter(tmp_path / "out", shard_bytes=900)
    for sample in SAMPLES:
        writer.write(sample)
    (tmp_path / "out" / ".hrpack.done.json" / "in the way").mkdir(parents=True)
    with pytest.raises(HeadraceError, match=r"hrpack\.done\.json"):
        writer.close()
    writer.abandon()
    shutil.rmtree(tmp_path / "out" / ".hrpack.done.json")
    assert (tmp_path / "out" / "index.json").exists()
    with pytest.raises(InvalidArgumentError, match="unknown"):
        prepare.write([*OTHERS, {"unknown": 1}], tmp_path / "out", shard_bytes=900)
    assert not (tmp_path / "out" / "index.json").exists()


FILES_OF_OTHERS = ["index.json", "train-00000-of-00001.parquet", "train-000.tar", "data.tfrecord", "x"]


@pytest.mark.parametrize(
    ("format", "name"),
    [("mds", "index.json"), ("litdata", "chunk-0-0.bin")]
    + [(format, name) for format in ("webdataset", "tfrecord", "parquet") for name in FILES_OF_OTHERS],
)
def test_a_foreign_dataset_is_left_alone(tmp_path: Path, format: str, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("{}")
    with pytest.raises(InvalidArgumentError, match=f"{name}, which is not from a pack"):
        prepare.write(SAMPLES, tmp_path / "out", format=format)
    assert [p.name for p in (tmp_path / "out").iterdir()] == [name]


def test_tfrecord_golden(tmp_path: Path) -> None:
    """Of docs: tf.train.Example {a: [1, 300], b: ["xy"]}, framed."""
    prepare.write([{"a": np.array([1, 300]), "b": b"xy"}], tmp_path / "out", format="tfrecord")
    data = (tmp_path / "out" / "shard-000000.tfrecord").read_bytes()
    body = bytes.fromhex("0a1b0a0c0a016112071a050a0301ac020a0b0a016212060a040a027879")
    assert data[:12] == struct.pack("<Q", len(body)) + bytes.fromhex("602fdf23")
    assert data[12:-4] == body
    assert data[-4:] == bytes.fromhex("61121eb2")
