"""Files as other software writes them: datasets, polars, pyarrow, litdata, numpy, json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr


def rows_of(path: Path, **options: Any) -> list[dict[str, Any]]:
    with hr.Dataset(path, index_cache="", **options) as dataset:
        return list(dataset.read(range(len(dataset))))


def loaded(path: Path, column: str) -> dict[int, Any]:
    """Values of an epoch by position."""
    with hr.Loader(
        path, batch_size=3, rank=0, world_size=1, seed=3, index_cache="", epoch_end="uneven"
    ) as loader:
        return {int(i): value for batch in loader for i, value in zip(batch.ids, batch[column], strict=True)}


# ---- Arrow IPC ----


def test_save_to_disk_of_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {
        "i": list(range(2500)),
        "t": [f"text {i}" for i in range(2500)],
        "l": [[1.5] * (i % 3) for i in range(2500)],
    }
    datasets.Dataset.from_dict(columns).save_to_disk(str(tmp_path / "d"), num_shards=2)
    rows = rows_of(tmp_path / "d")
    assert [(int(r["i"]), r["t"], list(r["l"])) for r in rows] == list(
        zip(columns["i"], columns["t"], columns["l"], strict=True)
    )
    assert loaded(tmp_path / "d", "t") == dict(enumerate(columns["t"]))


@pytest.mark.parametrize("how", ["stream", "file", "zstd"])
def test_ipc_of_polars(tmp_path: Path, how: str) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(
        {
            "i": range(1000),
            "t": [f"x{i}" for i in range(1000)],
            "c": polars.Series(["a", "b", "c", None] * 250, dtype=polars.Categorical),
            "l": [[1, 2], []] * 500,
            "f": polars.Series([[1.0, 2.0]] * 1000, dtype=polars.Array(polars.Float32, 2)),
        }
    )
    if how == "stream":
        frame.write_ipc_stream(tmp_path / "a.arrow")
    else:
        frame.write_ipc(tmp_path / "a.arrow", compression="zstd" if how == "zstd" else "uncompressed")
    rows = rows_of(tmp_path)
    assert [(int(r["i"]), r["t"], r["c"], list(r["l"]), list(r["f"])) for r in rows] == [
        (r["i"], r["t"], r["c"], r["l"], r["f"]) for r in frame.iter_rows(named=True)
    ]


def write_stream(path: Path, batches: list[Any], **options: Any) -> bytes:
    ipc = pytest.importorskip("pyarrow.ipc")
    with ipc.new_stream(str(path), batches[0].schema, **options) as out:
        for batch in batches:
            out.write_batch(batch)
    return path.read_bytes()


def test_dictionaries_that_change_inside_a_stream(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    batches = [
        pa.record_batch({"c": pa.array(["a", f"only {b}"] * 20).dictionary_encode()}) for b in range(5)
    ]
    write_stream(tmp_path / "a.arrow", batches)
    assert [r["c"] for r in rows_of(tmp_path)] == [text for b in range(5) for text in ["a", f"only {b}"] * 20]


def test_a_stream_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    batches = [pa.record_batch({"i": pa.array(range(b * 100, b * 100 + 100))}) for b in range(20)]
    data = write_stream(tmp_path / "a.arrow", batches)
    assert [int(r["i"]) for r in rows_of(tmp_path)] == list(range(2000))
    for cut in (8, 9, 16, 100, len(data) // 2, len(data) - 64):
        (tmp_path / "a.arrow").write_bytes(data[:-cut])
        with pytest.raises(hr.CorruptError, match="Arrow stream"):
            hr.Dataset(tmp_path, index_cache="", format="table")
    (tmp_path / "a.arrow").write_bytes(data + data)
    with pytest.raises(hr.CorruptError, match="follows the end mark"):
        hr.Dataset(tmp_path, index_cache="")


def test_a_long_stream_of_small_batches(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    batches = [pa.record_batch({"i": pa.array([b]), "t": pa.array(["x" * (b % 50)])}) for b in range(3000)]
    write_stream(tmp_path / "a.arrow", batches, options=pa.ipc.IpcWriteOptions(compression="lz4"))
    assert [(int(r["i"]), r["t"]) for r in rows_of(tmp_path)] == [(b, "x" * (b % 50)) for b in range(3000)]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("item", ["float32", "int64", "bool"])
def test_null_rows_of_fixed_size_lists(tmp_path: Path, kind: str, item: str) -> None:
    pa = pytest.importorskip("pyarrow")
    values = [[True, False], None, [True, True]]
    kinds = {"float32": float, "int64": int, "bool": bool}
    stored = [None if row is None else [kinds[item](v) for v in row] for row in values]
    table = pa.table({"x": pa.array(stored, pa.list_(pa.type_for_alias(item), 2)), "i": [0, 1, 2]})
    if kind == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a.parquet")
    else:
        with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as out:
            out.write_table(table)
    assert [None if r["x"] is None else [int(v) for v in r["x"]] for r in rows_of(tmp_path)] == values
    assert {i: None if x is None else [int(v) for v in x] for i, x in loaded(tmp_path, "x").items()} == dict(
        enumerate(values)
    )


def test_null_items_of_fixed_size_lists_of_integers_are_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": pa.array([[1, None], None], pa.list_(pa.int64(), 2))})
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as out:
        out.write_table(table)
    with pytest.raises(hr.UnsupportedError, match="nulls inside"):
        rows_of(tmp_path)


# ---- LitData ----


def a_list(i: int) -> dict[str, Any]:
    return {"id": i, "c": [1.5] if i < 10 else []}


def a_list_later(i: int) -> dict[str, Any]:
    return {"id": i, "c": [] if i < 10 else [1.5, 2.5]}


def a_text(i: int) -> dict[str, Any]:
    return {"id": i, "c": f"caption {i}" if i < 10 else None}


def a_number_later(i: int) -> dict[str, Any]:
    return {"id": i, "c": None if i < 10 else i}


def nothing(i: int) -> dict[str, Any]:
    return {"id": i, "c": None}


@pytest.mark.parametrize("make", [a_list, a_list_later, a_text, a_number_later, nothing])
def test_litdata_chunks_without_a_value(tmp_path: Path, make: Any) -> None:
    litdata = pytest.importorskip("litdata")
    litdata.optimize(
        fn=make,
        inputs=list(range(15)),
        output_dir=str(tmp_path / "d"),
        chunk_size=10,
        num_workers=1,
        mode="overwrite",
    )
    theirs = [litdata.StreamingDataset(str(tmp_path / "d"))[i] for i in range(15)]
    ours = rows_of(tmp_path / "d")
    assert [int(r["id"]) for r in ours] == [int(r["id"]) for r in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert (list(our["c"]) if isinstance(their["c"], list) else our["c"]) == their["c"]


# ---- NumPy ----


def test_savez_compressed(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(3000, dtype=np.int32).reshape(1000, 3),
        "b": np.random.default_rng(3).random(1000),
    }
    np.savez_compressed(tmp_path / "0.npz", **arrays)
    np.savez(tmp_path / "1.npz", **arrays)
    rows = rows_of(tmp_path)
    assert len(rows) == 2000
    for start in (0, 1000):
        np.testing.assert_array_equal([r["a"] for r in rows[start : start + 1000]], arrays["a"])
        np.testing.assert_array_equal([r["b"] for r in rows[start : start + 1000]], arrays["b"])
    np.testing.assert_array_equal([r["b"] for r in rows_of(tmp_path, columns=["b"])][:1000], arrays["b"])
    assert len(loaded(tmp_path, "b")) == 2000


def test_a_flipped_bit_in_savez_compressed_is_found(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "0.npz", a=np.random.default_rng(3).integers(0, 9, 20000))
    data = (tmp_path / "0.npz").read_bytes()
    for at in range(200, len(data) - 200, len(data) // 40):
        (tmp_path / "0.npz").write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(hr.CorruptError):
            rows_of(tmp_path)


# ---- JSON ----


@pytest.mark.parametrize("indent", [None, 2])
def test_files_of_one_json_array(tmp_path: Path, indent: int | None) -> None:
    objects = [
        {"i": i, "t": f'a "quoted\\" [text], {{{i}}} é\n', "l": [1, [2, {"x": "]"}]], "o": {"k": i}}
        for i in range(500)
    ]
    (tmp_path / "0.json").write_text(json.dumps(objects[:200], indent=indent))
    (tmp_path / "1.json").write_text(json.dumps(objects[200:], indent=indent, ensure_ascii=False) + "\n")
    rows = rows_of(tmp_path)
    assert [(int(r["i"]), r["t"], r["l"], r["o"]) for r in rows] == [
        (o["i"], o["t"], o["l"], o["o"]) for o in objects
    ]
    assert loaded(tmp_path, "t") == {i: o["t"] for i, o in enumerate(objects)}


def test_broken_json_arrays_are_errors(tmp_path: Path) -> None:
    good = json.dumps([{"i": i} for i in range(50)], indent=1)
    for bad in (
        good[:-2],
        good[: len(good) // 2],
        good + "x",
        good.replace("},", "}", 1),
        good.replace("},", "},,", 1),
        good.replace("}\n]", "},\n]"),
    ):
        (tmp_path / "a.json").write_text(bad)
        with pytest.raises(hr.CorruptError):
            rows_of(tmp_path)


def test_json_lines_that_are_arrays_stay_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps([{"i": i}]) + "\n" for i in range(9)))
    assert [r["json"] for r in rows_of(tmp_path)] == [[{"i": i}] for i in range(9)]


def many_texts(i: int) -> dict[str, Any]:
    return {"id": i, "t": f"caption number {i} " * 5}


def test_damaged_rows_of_litdata_are_corrupt(tmp_path: Path) -> None:
    litdata = pytest.importorskip("litdata")
    root = tmp_path / "d"
    litdata.optimize(
        fn=many_texts,
        inputs=list(range(300)),
        output_dir=str(root),
        chunk_size=300,
        num_workers=1,
        mode="overwrite",
        compression="zstd",
    )
    (chunk,) = root.glob("*.bin")
    data = chunk.read_bytes()
    rng = np.random.default_rng(3)
    found = 0
    for at in rng.integers(0, len(data) - 8, 150):
        chunk.write_bytes(data[:at] + rng.bytes(8) + data[at + 8 :])
        try:
            rows_of(root)
        except (hr.CorruptError, hr.UnsupportedError):
            found += 1
    assert found > 100
