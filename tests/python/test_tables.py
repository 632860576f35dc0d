"""Parquet, Arrow and Lance tables: the reference files, random tables by pyarrow, exact resume, damaged
files."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import io
import json
import pickle
import random
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.data import unischema

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "parquet"
KINDS = {"int64": "<q", "int32": "<i", "uint16": "<H", "float": "<f", "double": "<d"}


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_INDEX_CACHE", "")


def rows_of(path: Any, **options: Any) -> list[dict[str, Any]]:
    with hr.Dataset(path, **options) as dataset:
        return list(dataset)


def plain(value: Any) -> Any:
    """A delivered value as pyarrow's to_pylist() has it."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


# ---- the reference files ----


def pack_value(value: Any, kind: Any) -> bytes:
    """A value as expected.json digests it."""
    if value is None:
        return b"\x00"
    if pa.types.is_dictionary(kind):
        return pack_value(value, kind.value_type)
    if pa.types.is_struct(kind):
        return b"\x01" + b"".join(pack_value(value[f.name], f.type) for f in kind)
    if pa.types.is_list(kind):
        return (
            b"\x01"
            + struct.pack("<I", len(value))
            + b"".join(pack_value(item, kind.value_type) for item in value)
        )
    if pa.types.is_boolean(kind):
        return b"\x01" + bytes([value])
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return b"\x01" + struct.pack("<I", len(value)) + value
    return b"\x01" + struct.pack(KINDS[str(kind)], value)


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference cases here")
@pytest.mark.parametrize(
    "name", [p.stem for p in sorted(REFERENCE.glob("*.parquet"))] if REFERENCE.is_dir() else []
)
def test_reference(name: str, tmp_path: Path) -> None:
    path = REFERENCE / f"{name}.parquet"
    expected = json.loads((REFERENCE / "expected.json").read_text())["files"][path.name]
    (tmp_path / path.name).write_bytes(path.read_bytes())
    rows = [{key: plain(value) for key, value in row.items()} for row in rows_of(tmp_path)]
    assert len(rows) == expected["rows"]
    schema = pq.read_schema(path)
    for column, facts in expected["columns"].items():
        kind = schema.field(column).type
        if pa.types.is_struct(kind):
            # A struct that is null and one whose fields are: the same when flattened. Compared field by
            # field.
            source = pq.read_table(path, columns=[column])[column].to_pylist()
            for i in range(kind.num_fields):
                field = kind.field(i).name
                assert [row[f"{column}.{field}"] for row in rows] == [
                    None if v is None else v[field] for v in source
                ]
            continue
        packed = b"".join(pack_value(row[column], kind) for row in rows)
        assert hashlib.sha256(packed).hexdigest() == facts["digest"], column


# ---- random tables ----

SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.uint32(), st.integers(0, 2**32 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=8)),
    (pa.large_string(), st.text(max_size=8)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.dictionary(pa.int16(), pa.string()), st.sampled_from(["a", "bb", ""])),
    (pa.decimal128(9, 2), st.decimals(-9999, 9999, places=2)),
]
LISTS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (pa.list_(pa.int32()), st.lists(st.none() | st.integers(-9, 9), max_size=4)),
    (pa.large_list(pa.float64()), st.lists(st.floats(allow_nan=False), max_size=4)),
    (pa.list_(pa.bool_()), st.lists(st.none() | st.booleans(), max_size=9)),
    (pa.list_(pa.float32(), 3), st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3)),
    (pa.list_(pa.string()), st.lists(st.none() | st.text(max_size=4), max_size=3)),
    (
        pa.list_(pa.list_(pa.int16())),
        st.lists(st.none() | st.lists(st.integers(-9, 9), max_size=2), max_size=3),
    ),
]


@st.composite
def tables(draw: st.DrawFn) -> Any:
    count = draw(st.integers(1, 40))
    kinds = draw(st.lists(st.sampled_from(SCALARS + LISTS), min_size=1, max_size=5))
    columns = {}
    for i, (kind, values) in enumerate(kinds):
        nullable = draw(st.booleans())
        cells = draw(st.lists(st.none() | values if nullable else values, min_size=count, max_size=count))
        columns[f"c{i}"] = pa.array(cells, kind)
    if draw(st.booleans()):
        cells = draw(
            st.lists(
                st.none()
                | st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.text(max_size=3)}),
                min_size=count,
                max_size=count,
            )
        )
        columns["s"] = pa.array(cells, pa.struct([("a", pa.int32()), ("b", pa.string())]))
    return pa.table(columns)


def flat_rows(table: Any) -> list[dict[str, Any]]:
    """What Headrace delivers of a table."""
    out = []
    for row in table.to_pylist():
        flat = {}
        for name, value in row.items():
            if pa.types.is_struct(table.schema.field(name).type):
                for field in ("a", "b"):
                    flat[f"{name}.{field}"] = None if value is None else value[field]
            else:
                flat[name] = value
        out.append(flat)
    return out


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    table=tables(),
    row_group=st.integers(1, 50),
    codec=st.sampled_from(["none", "zstd", "snappy"]),
    arrow=st.booleans(),
)
def test_random_tables(
    tmp_path_factory: pytest.TempPathFactory, table: Any, row_group: int, codec: str, arrow: bool
) -> None:
    root = tmp_path_factory.mktemp("table")
    if arrow:
        buffers = None if codec != "zstd" else "zstd"
        with pa.ipc.new_file(
            root / "t.arrow", table.schema, options=pa.ipc.IpcWriteOptions(compression=buffers)
        ) as writer:
            writer.write_table(table, max_chunksize=row_group)
    else:
        pq.write_table(table, root / "t.parquet", row_group_size=row_group, compression=codec)
    assert [{k: plain(v) for k, v in row.items()} for row in rows_of(root)] == flat_rows(table)


# ---- types ----


@pytest.mark.parametrize("items", ["numbers", "booleans", "texts"])
def test_views_of_lists_are_lists(tmp_path: Path, items: str) -> None:
    make, kind = {
        "numbers": (int, pa.int32()),
        "booleans": (lambda i: i % 3 == 0, pa.bool_()),
        "texts": (str, pa.string()),
    }[items]
    rows = [None if r == 2 else [make(i) for i in range(r % 4)] for r in range(9)]
    # The second column's views lie in another order than its rows, and overlap.
    values = pa.array([make(i) for i in range(5)], kind)
    views = pa.ListViewArray.from_arrays(
        pa.array([3, 0, 1] * 3, pa.int32()), pa.array([2, 3, 0] * 3, pa.int32()), values
    )
    table = pa.table({"a": pa.array(rows, pa.list_view(kind)), "b": views})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    assert [{k: plain(v) for k, v in row.items()} for row in rows_of(tmp_path)] == table.to_pylist()


def test_dates_and_times_are_their_integers(tmp_path: Path) -> None:
    moment = datetime.datetime(2024, 2, 3, 4, 5, 6, 7, tzinfo=datetime.timezone.utc)
    table = pa.table(
        {
            "us": pa.array([moment], pa.timestamp("us", tz="UTC")),
            "ns": pa.array([moment], pa.timestamp("ns")),
            "day": pa.array([moment.date()], pa.date32()),
            "time": pa.array([datetime.time(1)], pa.time64("us")),
            "span": pa.array([5], pa.duration("ms")),
            "half": pa.array([np.float16(1.5)], pa.float16()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    with hr.Dataset(tmp_path) as dataset:
        assert {c.name: (c.encoding, c.dtype) for c in dataset.schema.values()} == {
            "us": ("timestamp[us, tz=UTC]", "int64"),
            "ns": ("timestamp[ns]", "int64"),
            "day": ("date32[day]", "int32"),
            "time": ("time64[us]", "int64"),
            "span": ("duration[ms]", "int64"),
            "half": ("float16", "float16"),
        }
        row = dataset[0]
    assert np.datetime64(int(row["us"]), "us") == np.datetime64("2024-02-03T04:05:06.000007")
    assert np.datetime64(int(row["ns"]), "ns") == np.datetime64("2024-02-03T04:05:06.000007")
    assert np.datetime64(int(row["day"]), "D") == np.datetime64("2024-02-03")
    assert (row["time"], row["span"], row["half"]) == (3_600_000_000, 5, 1.5)


def test_arrays_of_one_size_come_as_arrays(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(16, dtype=np.int16).reshape(4, 2, 2))
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(values.reshape(-1), 3), "t": tensor})
    pq.write_table(table, tmp_path / "t.parquet")
    with hr.Dataset(tmp_path) as dataset:
        assert dataset.schema["v"].shape == (3,)
        assert dataset.schema["t"].shape == (2, 2)
        rows = list(dataset)
    assert np.array_equal(np.stack([row["v"] for row in rows]), values)
    assert np.array_equal(rows[3]["t"], np.array([[12, 13], [14, 15]], np.int16))


def test_nulls_inside_float_arrays_are_nan(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"v": pa.array([[1.0, None], None, [3.0, 4.0]], pa.list_(pa.float64(), 2))}),
        tmp_path / "t.parquet",
    )
    rows = rows_of(tmp_path)
    assert rows[0]["v"][0] == 1.0
    assert np.isnan(rows[0]["v"][1])
    assert rows[1]["v"] is None
    assert rows[2]["v"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_what_a_list_is_depends_on_no_other_row(tmp_path: Path, format: str) -> None:
    lists = [[1, 2], [], [3, None], None, [4]]
    table = pa.table({"v": pa.array(lists, pa.list_(pa.int64()))})
    if format == "parquet":
        pq.write_table(table, tmp_path / "t.parquet")
    else:
        with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
            writer.write_table(table)
    values = [row["v"] for row in rows_of(tmp_path)]
    assert [plain(value) for value in values] == lists
    assert [getattr(value, "dtype", type(value)) for value in values] == [
        np.int64,
        np.int64,
        list,
        type(None),
        np.int64,
    ]


def test_nulls_inside_integer_arrays_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": pa.array([[1, None]], pa.list_(pa.int32(), 2))}), tmp_path / "t.parquet")
    with pytest.raises(hr.UnsupportedError, match="'v': nulls inside"):
        rows_of(tmp_path)


def test_maps_and_nested_lists_are_json(tmp_path: Path) -> None:
    table = pa.table(
        {
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
            "n": pa.array(
                [[{"x": b"\x01", "y": decimal.Decimal("1.5")}], []],
                pa.list_(pa.struct([("x", pa.binary()), ("y", pa.decimal128(4, 1))])),
            ),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    rows = rows_of(tmp_path)
    assert rows == [{"m": [["k", 1]], "n": [{"x": "AQ==", "y": "1.5"}]}, {"m": None, "n": []}]


def test_hugging_face_media(tmp_path: Path) -> None:
    media = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = {"info": {"features": {"image": {"_type": "Image"}}}}
    table = pa.table(
        {"image": pa.array([{"bytes": b"\xff\xd8", "path": "a.jpg"}, None], media), "label": [1, 2]}
    )
    pq.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps(features)}), tmp_path / "t.parquet"
    )
    assert rows_of(tmp_path) == [
        {"image": b"\xff\xd8", "image.path": "a.jpg", "label": 1},
        {"image": None, "image.path": None, "label": 2},
    ]


# ---- many files ----


def write_files(root: Path, count: int = 4, rows: int = 500, row_group: int = 60) -> list[dict[str, Any]]:
    out = []
    for f in range(count):
        ids = range(f * rows, (f + 1) * rows)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "text": [f"row {i}" * (i % 7) for i in ids],
                "x": pa.array([i / 3 for i in ids]),
            }
        )
        pq.write_table(table, root / f"part-{f}.parquet", row_group_size=row_group, compression="zstd")
        out += table.to_pylist()
    return out


def test_directories_skip_marks(tmp_path: Path) -> None:
    expected = write_files(tmp_path)
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / ".part-0.parquet.crc").write_bytes(b"crc")
    pq.write_metadata(pq.read_schema(tmp_path / "part-0.parquet"), tmp_path / "_metadata")
    assert [{k: plain(v) for k, v in row.items()} for row in rows_of(tmp_path)] == expected


def test_hive_partitions_are_columns(tmp_path: Path) -> None:
    for year in (2023, 2024):
        for town in ("a b", "c"):
            directory = tmp_path / f"year={year}" / f"town={town.replace(' ', '%20')}"
            directory.mkdir(parents=True)
            pq.write_table(pa.table({"v": [year]}), directory / "p.parquet")
    rows = rows_of(tmp_path)
    assert [(int(r["v"]), int(r["year"]), r["town"]) for r in rows] == [
        (2023, 2023, "a b"),
        (2023, 2023, "c"),
        (2024, 2024, "a b"),
        (2024, 2024, "c"),
    ]


def test_files_that_differ_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "p0.parquet")
    pq.write_table(pa.table({"a": ["1"], "b": ["x"]}), tmp_path / "p1.parquet")
    with pytest.raises(
        hr.InvalidArgumentError, match=r"p1.parquet: column 'a' is str, not int64.*p0.parquet"
    ):
        rows_of(tmp_path)
    pq.write_table(pa.table({"b": ["x"]}), tmp_path / "p1.parquet")
    with pytest.raises(hr.InvalidArgumentError, match=r"p1\.parquet: has no column 'a'"):
        rows_of(tmp_path)


def _tensors(shape: list[int]) -> Any:
    kind = pa.fixed_shape_tensor(pa.int32(), shape)
    return pa.ExtensionArray.from_storage(
        kind, pa.FixedSizeListArray.from_arrays(pa.array(range(6), pa.int32()), 6)
    )


_ALIKE_BUT_FOR_ARROW = {
    "durations": (
        pa.array([1], pa.duration("s")),
        pa.array([1], pa.duration("us")),
        r"duration\[us\].*not duration\[s\]",
    ),
    "tensors": (_tensors([2, 3]), _tensors([3, 2]), r"ndarray:int32:3,2 .*not ndarray:int32:2,3"),
    "lists": (
        pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
        pa.array([[1, 2, 3]], pa.list_(pa.int64(), 3)),
        r"ndarray:int64:3 .*not ndarray:int64:2",
    ),
    "binary": (
        pa.array([b"ab"], pa.binary(2)),
        pa.array([b"abc"], pa.binary()),
        r"bytes, not bytes \(2 each\)",
    ),
}


@pytest.mark.parametrize("kind", _ALIKE_BUT_FOR_ARROW)
def test_files_whose_parquet_schemas_alone_agree_are_named(tmp_path: Path, kind: str) -> None:
    first, other, message = _ALIKE_BUT_FOR_ARROW[kind]
    pq.write_table(pa.table({"a": first}), tmp_path / "p0.parquet")
    pq.write_table(pa.table({"a": other}), tmp_path / "p1.parquet")
    with pytest.raises(hr.InvalidArgumentError, match=rf"p1\.parquet: column 'a' is {message}.*p0\.parquet"):
        rows_of(tmp_path)


def test_metadata_that_change_no_column_change_no_fingerprint(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2]})
    fingerprints = set()
    for note in ("x", "y"):
        pq.write_table(
            table.replace_schema_metadata({"pandas": "x"}), tmp_path / "p0.parquet", compression=None
        )
        pq.write_table(
            table.replace_schema_metadata({"pandas": note}), tmp_path / "p1.parquet", compression=None
        )
        with hr.Dataset(tmp_path) as dataset:
            fingerprints.add(dataset.fingerprint)
            assert [row["a"] for row in dataset] == [1, 2, 1, 2]
    assert len(fingerprints) == 1


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_partitions_that_are_stored_too_are_what_is_stored(tmp_path: Path, format: str) -> None:
    table = pa.table({"a": [1, 2], "k": [datetime.date(2020, 1, 1)] * 2})
    (tmp_path / "k=2020-01-02" / "j=7").mkdir(parents=True)
    file = tmp_path / "k=2020-01-02" / "j=7" / f"p.{format}"
    if format == "parquet":
        pq.write_table(table, file)
    else:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    every = rows_of(tmp_path)
    assert [list(row) for row in every] == [["a", "k", "j"]] * 2
    with hr.Dataset(tmp_path) as dataset:
        schema = dataset.schema
    assert schema["k"].encoding == "date32[day]"
    for columns in (["a", "k"], ["k"], ["k", "j"], ["j"], ["a", "j"]):
        with hr.Dataset(tmp_path, columns=columns) as dataset:
            assert list(dataset.schema) == columns
            assert [dataset.schema[name] for name in columns] == [schema[name] for name in columns]
            assert list(dataset) == [{name: row[name] for name in columns} for row in every]
        with hr.Loader(tmp_path, columns=columns, batch_size=2, shuffle=False) as loader:
            (batch,) = loader
            assert len(batch.ids) == 2
            if "j" in columns:
                assert batch["j"].tolist() == [7, 7]
    with pytest.raises(hr.InvalidArgumentError, match="no column 'z'"):
        hr.Dataset(tmp_path, columns=["z", "j"])


def test_columns_apart(tmp_path: Path) -> None:
    write_files(tmp_path)
    with hr.Dataset(tmp_path) as every, hr.Dataset(tmp_path, columns=["x"]) as one:
        assert list(one.schema) == ["x"]
        assert one.fingerprint != every.fingerprint
        assert one.nbytes < every.nbytes
        assert [row["x"] for row in one] == [row["x"] for row in every]
    with pytest.raises(hr.InvalidArgumentError, match="no column 'y'; the columns are id, text, x"):
        hr.Dataset(tmp_path, columns=["y"])


def test_columns_over_s3(s3: Any, buckets: Path) -> None:
    """Chunks that lie far apart: several ranges a block."""
    root = buckets / "b" / "t"
    root.mkdir()
    rng = np.random.default_rng(0)
    noise = [rng.bytes(400) for _ in range(3000)]
    table = pa.table({"a": range(3000), "noise": noise, "z": [f"z{i}" for i in range(3000)]})
    pq.write_table(table, root / "p.parquet", row_group_size=1000)
    with hr.Dataset("s3://b/t", columns=["a", "z"]) as dataset:
        assert dataset.nbytes < 200_000 < (root / "p.parquet").stat().st_size
        assert [(int(row["a"]), row["z"]) for row in dataset] == [(i, f"z{i}") for i in range(3000)]
    with hr.Loader("s3://b/t", batch_size=100, columns=["z", "a"], memory="64MiB") as loader:
        pairs = [(int(a), z) for batch in loader for a, z in zip(batch["a"], batch["z"], strict=True)]
    assert sorted(pairs) == [(i, f"z{i}") for i in range(3000)]
    # Hundreds of row groups of one file, more than the tail read holds.
    pq.write_table(table, root / "p.parquet", row_group_size=5)
    with hr.Dataset("s3://b/t") as dataset:
        assert dataset[2999] == {"a": 2999, "noise": noise[2999], "z": "z2999"}
    with pytest.raises(hr.NotFoundError):
        hr.Dataset("s3://b/none", format="table")


def test_row_groups_are_pruned(tmp_path: Path) -> None:
    write_files(tmp_path, count=2, rows=600, row_group=100)
    for where, groups in [
        ([["id", "<", 100]], 1),
        ([["id", ">=", 150], ["id", "<", 350]], 3),
        ([["id", "==", 1199]], 1),
        ([["id", "in", [5, 700]]], 2),
        ([["id", "!=", 5]], 12),
        ([["id", ">", 5000]], 0),
    ]:
        with hr.Dataset(tmp_path, where=where) as dataset:
            assert len(dataset) == 100 * groups, where
    with pytest.raises(hr.InvalidArgumentError, match="no column 'nope'"):
        hr.Dataset(tmp_path, where=[["nope", "<", 1]])
    with pytest.raises(hr.InvalidArgumentError, match="operator"):
        hr.Dataset(tmp_path, where=[["id", "~", 1]])


# ---- order and state ----


def run(path: Path, stops: list[tuple[int, int, int]], seed: int = 5) -> list[int]:
    """Ids of an epoch whose parts (steps, batch size, world size) continue one another."""
    seen: list[int] = []
    state: Any = None
    for steps, batch_size, world in stops:
        loaders = [
            hr.Loader(
                path,
                batch_size=batch_size,
                rank=rank,
                world_size=world,
                seed=seed,
                epoch_end="pad",
                memory="256MiB",
            )
            for rank in range(world)
        ]
        try:
            iterators = []
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(state)
                iterators.append(iter(loader))
            done = 0
            while steps < 0 or done < steps:
                batches = [next(iterator, None) for iterator in iterators]
                if batches[0] is None:
                    break
                for batch in batches:
                    assert batch is not None
                    for i, text, x, is_real in zip(
                        batch["id"], batch["text"], batch["x"], batch.mask, strict=True
                    ):
                        assert (text, x) == (f"row {i}" * (int(i) % 7), i / 3)
                        if is_real:
                            seen.append(int(i))
                done += 1
            state = loaders[0].state_dict()
        finally:
            for loader in loaders:
                loader.close()
    return seen


def test_each_row_once_and_again_the_same(tmp_path: Path) -> None:
    rows = write_files(tmp_path, count=3, rows=480, row_group=50)
    whole = run(tmp_path, [(-1, 16, 1)])
    assert sorted(whole) == [row["id"] for row in rows]
    assert whole != sorted(whole)
    assert run(tmp_path, [(20, 16, 1), (-1, 16, 1)]) == whole


def test_elastic(tmp_path: Path) -> None:
    rows = write_files(tmp_path, count=3, rows=480, row_group=50)
    seen = run(tmp_path, [(10, 16, 2), (7, 8, 4), (-1, 32, 1)])
    assert sorted(seen) == [row["id"] for row in rows]


def test_batches_hold_arrays(tmp_path: Path) -> None:
    write_files(tmp_path, count=1)
    with hr.Loader(tmp_path, batch_size=50) as loader:
        batch = next(iter(loader))
        assert isinstance(batch["id"], np.ndarray)
        assert batch["id"].dtype == np.int64
        assert batch["x"].shape == (50,)


def test_nulls_in_batches(tmp_path: Path) -> None:
    values = [None if i % 3 == 0 else i for i in range(100)]
    pq.write_table(
        pa.table({"id": range(100), "v": values, "b": [v is None for v in values]}), tmp_path / "t.parquet"
    )
    with hr.Loader(tmp_path, batch_size=10) as loader:
        for batch in loader:
            for i, v, b in zip(batch["id"], batch["v"], batch["b"], strict=True):
                assert (None if v is None else int(v), bool(b)) == (values[int(i)], values[int(i)] is None)


# ---- damage ----


def damaged(root: Path, data: bytes) -> str:
    for old in root.iterdir():
        old.unlink()
    (root / "t.parquet").write_bytes(data)
    with pytest.raises(hr.HeadraceError) as caught:
        rows_of(root, format="table")
    assert "t.parquet" in str(caught.value)
    return f"{caught.value.code}: {caught.value}"


def test_damaged_files(tmp_path: Path) -> None:
    write_files(tmp_path, count=1)
    good = (tmp_path / "part-0.parquet").read_bytes()
    assert damaged(tmp_path, good[:-1]).startswith("corrupt")
    assert damaged(tmp_path, good[: len(good) // 2]).startswith("corrupt")
    assert damaged(tmp_path, good[:4]).startswith("corrupt")
    assert damaged(tmp_path, good[:-8] + b"\xff\xff\xff\x7fPAR1").startswith("corrupt")
    assert damaged(tmp_path, good[:-4] + b"PARE").startswith("unsupported")
    # The first page header, and a page's bytes: zstd sees those.
    assert damaged(tmp_path, good[:4] + b"\xff" * 40 + good[44:]).startswith("corrupt")


def verdict(root: Path) -> str:
    try:
        rows_of(root)
    except hr.HeadraceError as error:
        return error.code
    return "ok"


def flip_bits(file: Path, mark_bytes: int, times: int) -> None:
    """One anywhere but in the format's mark: the dataset opens, or is refused for what it is."""
    good = file.read_bytes()
    rng = random.Random(3)
    for _ in range(times):
        bad = bytearray(good)
        bad[rng.randrange(mark_bytes, len(bad))] ^= 1 << rng.randrange(8)
        file.write_bytes(bad)
        assert verdict(file.parent) in ("ok", "corrupt", "unsupported")


def test_flipped_bytes_never_crash(tmp_path: Path) -> None:
    table = pa.table(
        {"i": range(200), "s": [str(i) for i in range(200)], "l": [[i] * (i % 4) for i in range(200)]}
    )
    pq.write_table(table, tmp_path / "t.parquet", compression="none", write_page_checksum=True)
    flip_bits(tmp_path / "t.parquet", mark_bytes=4, times=60)


def test_flipped_bytes_in_arrow_files_never_crash(tmp_path: Path) -> None:
    table = pa.table(
        {"i": range(50), "s": [str(i) for i in range(50)], "d": pa.array(["a", "b"] * 25).dictionary_encode()}
    )
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    flip_bits(tmp_path / "t.arrow", mark_bytes=8, times=120)


_FOLLOWED_BY_PYARROW = {
    "string_view": lambda: pa.array([f"text {i} that is not inline" for i in range(40)], pa.string_view()),
    "binary_view": lambda: pa.array(
        [b"bytes that are not inline" + bytes([i]) for i in range(40)], pa.binary_view()
    ),
    "list of texts": lambda: pa.array([["a" * i, "bc"] for i in range(40)]),
    "list of lists": lambda: pa.array([[[i], [2, 3]] for i in range(40)]),
    "list of bools": lambda: pa.array([[True, False] * (i % 3) for i in range(40)]),
    "map": lambda: pa.array([[("k", i)] for i in range(40)], pa.map_(pa.string(), pa.int32())),
    "struct": lambda: pa.array([{"a": "t" * i, "b": ["x"]} for i in range(40)]),
}


@pytest.mark.parametrize("kind", _FOLLOWED_BY_PYARROW)
def test_spoilt_offsets_in_arrow_files_lead_nowhere(tmp_path: Path, kind: str) -> None:
    table = pa.table({"c": _FOLLOWED_BY_PYARROW[kind]()})
    path = tmp_path / "t.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    good = path.read_bytes()
    # The batch, after the schema; before the footer.
    first, end = good.index(b"\xff\xff\xff\xff", 16) // 4 + 40, len(good) // 4 - 60
    rng = random.Random(1)
    seen = set()
    for _ in range(60):
        bad = bytearray(good)
        at = rng.randrange(first, end) * 4
        bad[at : at + 4] = rng.choice([0x7FFFFF00, 0x100000, 0xFFFFFFF0]).to_bytes(4, "little")
        path.write_bytes(bad)
        seen.add(verdict(tmp_path))
    assert "corrupt" in seen
    assert seen <= {"ok", "corrupt", "unsupported"}


def write_arrow(path: Path, column: Any, codec: str = "zstd") -> None:
    table = pa.table({"c": column})
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_compressed_numbers_are_charged_for_what_they_inflate_to(tmp_path: Path, codec: str) -> None:
    write_arrow(tmp_path / "t.arrow", pa.array(np.zeros(4 << 20, np.int64)), codec)
    assert (tmp_path / "t.arrow").stat().st_size < 1 << 20
    with (
        hr.Dataset(tmp_path, memory="16MiB") as dataset,
        pytest.raises(hr.HeadraceError, match=r"memory|limit"),
    ):
        dataset.read([0])
    with hr.Dataset(tmp_path, memory="128MiB") as dataset:
        assert dataset[1 << 20] == {"c": 0}


def test_texts_that_inflate_beyond_measure_are_refused(tmp_path: Path) -> None:
    write_arrow(tmp_path / "t.arrow", pa.array(["the same text, " * 100] * 60_000))
    assert (tmp_path / "t.arrow").stat().st_size < 1 << 20
    with (
        hr.Dataset(tmp_path) as dataset,
        pytest.raises(hr.UnsupportedError, match=r"inflate to \d+, .* smaller record batches"),
    ):
        dataset.read([0])


def test_compressed_texts_and_dictionaries_are_read(tmp_path: Path) -> None:
    texts = [f"text {i % 50}" * (i % 7) for i in range(5000)]
    write_arrow(tmp_path / "t.arrow", pa.array(texts).dictionary_encode())
    with hr.Dataset(tmp_path) as dataset:
        assert [sample["c"] for sample in dataset] == texts


# ---- Petastorm ----


class _Elsewhere:
    def __reduce__(self) -> Any:
        return (print, ("code ran",))


def test_schemas_that_name_code_are_refused() -> None:
    with pytest.raises(hr.UnsupportedError, match=r"builtins\.print"):
        unischema.read_codecs(pickle.dumps(_Elsewhere()))
    with pytest.raises(hr.CorruptError):
        unischema.read_codecs(b"\x80\x04not a pickle")
    with pytest.raises(hr.CorruptError):
        unischema.read_codecs(pickle.dumps({"a": 1}))
    # A memo index of 2^31 must not reserve memory.
    with pytest.raises(hr.CorruptError):
        unischema.read_codecs(b"\x80\x04Nr\xff\xff\xff\x7f.")


def _time_and_memory_bound() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))


_NESTED = b"N" + b"\x85" * 900_000
_SHARED = b"N" + b"2\x86" * 40
_SHARED_BY_MEMO = b"(t\x94" + b"".join(
    b"h" + bytes([i]) * 1 + b"h" + bytes([i]) + b"\x86\x94" for i in range(40)
)
_BOMBS = {
    "nested key": b"}" + _NESTED + b"Ns",
    "nested keys": b"}(" + _NESTED + b"Nu",
    "nested key of a dict": b"(" + _NESTED + b"Nd",
    "nested in a set": b"\x8f(" + _NESTED + b"\x90",
    "nested in a frozen set": b"(" + _NESTED + b"\x91",
    "nested key of an ordered dict": b"ccollections\nOrderedDict\n(]](" + _NESTED + b"NeatR",
    "nested name": b"cnumpy\na\n)R}X\x07\0\0\0_fields" + _NESTED + b"sb",
    "shared key": b"}" + _SHARED + b"Ns",
    "shared key by memo": b"}" + _SHARED_BY_MEMO + b"Ns",
    "bytearray of 4 GiB": b"\x96" + (1 << 32).to_bytes(8, "little"),
    "buffer": b"\x97",
    "persistent": b"Pname\n",
    "state of a function": b"ccopyreg\n_reconstructor\n}X\x01\0\0\0aNsb",
    "one list of pairs for many": b"]("
    + b"]\x94(X\x01\0\0\0aNe" * 50_000
    + b"e\x940"
    + b"ccollections\nOrderedDict\n\x940"
    + b"j\x51\xc3\0\0j\x50\xc3\0\0\x85R0" * 30_000,
    "many arguments for many": b"(" + b"N" * 300_000 + b"t\x94cnumpy\na\n\x940" + b"h\x01h\0R\x94" * 100_000,
    "many classes": b"".join(b"cnumpy\na%d\n" % i for i in range(50_000)),
}


@pytest.mark.parametrize("what", _BOMBS)
def test_schemas_that_would_take_the_process_down_are_refused(what: str) -> None:
    script = (
        "import sys; from headrace import errors; from headrace.data import unischema\ntry: "
        "unischema.read_codecs(sys.stdin.buffer.read())\nexcept errors.HeadraceError as error: "
        "print(error.code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=b"\x80\x04" + _BOMBS[what] + b".",
        capture_output=True,
        preexec_fn=_time_and_memory_bound,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout in (b"corrupt\n", b"unsupported\n")


def test_a_python_2_schema_is_read() -> None:
    field = (
        b"cpetastorm.unischema\nUnischemaField\n(S'mat'\nNNcpetastorm.codecs\nNdarrayCodec\n)\x81I00\nt\x81"
    )
    fields = b"ccollections\nOrderedDict\n](](S'mat'\n" + field + b"ee\x85R"
    schema = b"\x80\x02cpetastorm.unischema\nUnischema\n)\x81}(S'_name'\nS's'\nS'_fields'\n" + fields + b"ub."
    assert unischema.read_codecs(schema) == {"mat": "npy"}


# pickle.dumps() of a Unischema of petastorm 0.13.1: id, img (png), jpg (jpeg), mat (NdarrayCodec), cmat
# (CompressedNdarrayCodec), name.
UNISCHEMA = Path(__file__).parent / "data" / "unischema.pkl"


def npy(value: np.ndarray[Any, Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, value)
    return out.getvalue()


def npz(value: np.ndarray[Any, Any], name: str = "arr") -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **{name: value})
    return out.getvalue()


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(3),
        np.zeros((0, 4)),
        np.array(["a", "bc"]),
        np.zeros(2, "i4,f8"),
    ],
    ids=str,
)
def test_arrays_of_petastorm_are_what_numpy_wrote(value: np.ndarray[Any, Any]) -> None:
    for read in (unischema.load_npy(npy(value)), unischema.load_npz(npz(value))):
        assert (read.dtype, read.shape, read.tolist()) == (value.dtype, value.shape, value.tolist())
        assert read.flags.writeable


def zipped(size: int, compression: int = 8) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as packed, packed.open("arr.npy", "w") as member:
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return out.getvalue()


_ARRAY = np.arange(1000)
_BROKEN = {
    "npy": {
        "empty": b"",
        "cut": npy(_ARRAY)[:-1],
        "cut in the header": npy(_ARRAY)[:20],
        "longer": npy(_ARRAY) + b"0",
        "shape of terabytes": npy(np.zeros(10, "i1")).replace(
            b"(10,), }" + b" " * 13, b"(10000000000000,), }" + b" "
        ),
        "negative shape": npy(np.zeros(10, "i1")).replace(b"(10,)", b"(-1,)"),
        "a zip": npz(_ARRAY),
        "objects": npy(np.array([1, "a"], dtype=object)),
        "version 9": b"\x93NUMPY\x09\0" + bytes(100),
    },
    "npz": {
        "empty": b"",
        "cut": npz(_ARRAY)[:-30],
        "npy": npy(_ARRAY),
        "turned byte": npz(_ARRAY)[:80] + b"\xff\xff" + npz(_ARRAY)[82:],
        "other name": npz(_ARRAY, "other"),
        "300 MB": zipped(300 << 20),
        "lzma": zipped(1 << 20, 14),
        "no array": zipped(1 << 20),
    },
}


@pytest.mark.parametrize(
    ("kind", "what"), [(kind, what) for kind, cases in _BROKEN.items() for what in cases]
)
def test_broken_arrays_of_petastorm_are_value_errors(kind: str, what: str) -> None:
    load = {"npy": unischema.load_npy, "npz": unischema.load_npz}[kind]
    with pytest.raises(ValueError, match=r"."):
        load(_BROKEN[kind][what])


def test_petastorm_codecs(tmp_path: Path) -> None:
    matrix = np.arange(8, dtype=np.float32).reshape(2, 4)
    square = np.eye(2)
    table = pa.table(
        {
            "id": pa.array([1], pa.int32()),
            "img": [b"\x89PNG"],
            "jpg": [b"\xff\xd8"],
            "mat": [npy(matrix)],
            "cmat": [npz(square)],
            "name": ["n"],
        }
    )
    pq.write_table(table, tmp_path / "part-0.parquet")
    metadata = {unischema.KEY: UNISCHEMA.read_bytes()}
    pq.write_metadata(table.schema.with_metadata(metadata), tmp_path / "_common_metadata")
    with hr.Dataset(tmp_path) as dataset:
        assert [dataset.schema[name].encoding for name in ("img", "jpg", "mat", "cmat")] == [
            "png",
            "jpeg",
            "npy",
            "npz",
        ]
        row = dataset[0]
    assert np.array_equal(row["mat"], matrix)
    assert np.array_equal(row["cmat"], square)
    assert (row["img"], row["jpg"], row["name"]) == (b"\x89PNG", b"\xff\xd8", "n")


# ---- Lance ----


def test_lance(tmp_path: Path) -> None:
    lance = pytest.importorskip("lance")
    table = pa.table(
        {
            "id": pa.array(range(1000), pa.int64()),
            "text": [f"row {i}" * (i % 7) for i in range(1000)],
            "x": [i / 3 for i in range(1000)],
        }
    )
    path = tmp_path / "t.lance"
    lance.write_dataset(table, path, max_rows_per_file=300)
    assert [{k: plain(v) for k, v in row.items()} for row in rows_of(path)] == table.to_pylist()
    assert sorted(run(path, [(9, 16, 2), (-1, 20, 1)])) == list(range(1000))
    with hr.Dataset(path) as before:
        lance.dataset(path).delete("id < 10")
        assert [int(row["id"]) for row in before.read(range(20))] == list(range(20))
        with hr.Dataset(path, columns=["id"]) as after:
            assert after.fingerprint != before.fingerprint
            assert [int(row["id"]) for row in after] == list(range(10, 1000))
