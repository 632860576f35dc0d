"""decode=: tf.train.Example and msgpack, against protobuf (by the tfrecord package) and msgpack."""

from __future__ import annotations

import datetime
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import headrace as hr
from headrace.compat.streaming import MDSWriter

msgpack = pytest.importorskip("msgpack")
TFRecordWriter = pytest.importorskip("tfrecord.writer").TFRecordWriter


def png(seed: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def write_files(root: Path, values: list[bytes]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for i, value in enumerate(values):
        (root / f"{i:04}.rec").write_bytes(value)
    return root


def example(i: int, **more: Any) -> bytes:
    """A record as TensorFlow's protobuf classes write it."""
    features = {
        "image/encoded": (png(i), "byte"),
        "label": (i, "int"),
        "box": ([i / 2, 0.25, -1.0, 3.0], "float"),
        "tokens": (list(range(-1, i % 5)), "int"),
        "parts": ([b"x" * k for k in range(i % 3)], "byte"),
        "name": (f"näme {i}".encode(), "byte"),
        "meta": (msgpack.packb({"i": i}), "byte"),
        "unasked": ([1.0] * i, "float"),
        **more,
    }
    return bytes(TFRecordWriter.serialize_tf_example(features))


FEATURES = {
    "label": "int64",
    "box": hr.decode.feature("float32", shape=(2, 2)),
    "tokens": hr.decode.feature("int64", shape=None),
    "parts": hr.decode.feature("bytes", shape=None),
    "name": "str",
    "meta": hr.decode.msgpack(),
    "image/encoded": hr.decode.image(resize=(12, 10)),
    "weight": hr.decode.feature("float32", default=1.5),
}


def check_examples(batch: Any) -> None:
    assert list(batch) == [*FEATURES, "key"]
    assert batch["label"].dtype == np.int64
    assert batch["box"].shape == (len(batch.ids), 2, 2)
    for row, i in enumerate(map(int, batch.ids)):
        assert batch["label"][row] == i
        assert batch["box"][row].tolist() == [[i / 2, 0.25], [-1.0, 3.0]]
        assert list(batch["tokens"][row]) == list(range(-1, i % 5))
        assert batch["parts"][row] == [b"x" * k for k in range(i % 3)]
        assert batch["name"][row] == f"näme {i}"
        assert batch["meta"][row] == {"i": i}
        assert np.array_equal(batch["image/encoded"][row], np.asarray(Image.open(io.BytesIO(png(i)))))
        assert batch["weight"][row] == 1.5


def test_examples_become_columns(tmp_path: Path, open_loader: Any) -> None:
    write_files(tmp_path / "files", [example(i) for i in range(23)])
    loader = open_loader(
        tmp_path / "files", batch_size=4, epoch_end="uneven", decode={"data": hr.decode.tf_example(FEATURES)}
    )
    seen = []
    for batch in loader:
        check_examples(batch)
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(23))


def test_other_columns_stay_where_they_are(tmp_path: Path, open_loader: Any) -> None:
    with MDSWriter(out=str(tmp_path / "mds"), columns={"a": "int", "ex": "bytes", "z": "str"}) as writer:
        for i in range(9):
            writer.write({"a": i, "ex": example(i), "z": str(i)})
    decode = {"ex": hr.decode.tf_example({"name": "bytes", "label": "int64"})}
    batch = next(iter(open_loader(tmp_path / "mds", batch_size=9, decode=decode)))
    assert list(batch) == ["a", "name", "label", "z"]
    assert batch["a"].tolist() == batch["label"].tolist() == [int(z) for z in batch["z"]]
    wrong = {"ex": hr.decode.tf_example({"name": "bytes", "a": "int64"})}
    with pytest.raises(hr.InvalidArgumentError, match="two columns would be named 'a'"):
        open_loader(tmp_path / "mds", decode=wrong)


def test_whole_records_of_tfrecord_files(tmp_path: Path, open_loader: Any) -> None:
    root = tmp_path / "records"
    root.mkdir()
    writer = TFRecordWriter(str(root / "a.tfrecord"))
    for i in range(12):
        writer.write({"label": (i, "int"), **({"odd": (i, "int")} if i % 2 else {})})
    writer.close()
    features = {"label": "int64", "odd": hr.decode.feature("int64", default=-1)}
    loader = open_loader(root, columns=["record"], decode={"record": hr.decode.tf_example(features)})
    for batch in loader:
        assert batch["odd"].tolist() == [i if i % 2 else -1 for i in batch["label"].tolist()]


def test_a_missing_feature_is_a_bad_sample(tmp_path: Path, open_loader: Any) -> None:
    values = [example(i) for i in range(20)]
    values[7] = bytes(TFRecordWriter.serialize_tf_example({"other": (1, "int")}))
    values[11] = example(11, label=([1, 2], "int"))
    write_files(tmp_path / "files", values)
    decode = {"data": hr.decode.tf_example({"label": "int64", "tokens": FEATURES["tokens"]})}
    with pytest.raises(hr.CorruptError, match=r"sample 7 .*column 'label'.* is missing, and has no default"):
        for _ in open_loader(tmp_path / "files", shuffle=False, decode=decode):
            pass
    loader = open_loader(tmp_path / "files", decode=decode, on_bad_sample="replace")
    with pytest.warns(RuntimeWarning, match="replaced"):
        labels = [i for batch in loader for i in batch["label"].tolist()]
    assert sorted(bad.position for bad in loader.bad_samples) == [7, 11]
    assert set(labels) == set(range(20)) - {7, 11}


def test_ragged_columns_in_arrow(tmp_path: Path, open_loader: Any) -> None:
    pytest.importorskip("pyarrow")
    write_files(tmp_path / "files", [example(i) for i in range(10)])
    decode = {"data": hr.decode.tf_example({"tokens": FEATURES["tokens"], "label": "int64"})}
    batch = next(iter(open_loader(tmp_path / "files", ragged="arrow", decode=decode)))
    assert batch["tokens"].to_pylist() == [list(range(-1, i % 5)) for i in batch["label"].tolist()]


def test_a_decoding_says_what_it_is() -> None:
    decoding = hr.decode.tf_example(FEATURES)
    assert repr(decoding).startswith("headrace.decode.tf_example(features={'label': 'int64', 'box': headrace")
    assert pickle.loads(pickle.dumps(decoding)) == decoding
    assert pickle.loads(pickle.dumps(hr.decode.msgpack(numpy=True))) == hr.decode.msgpack(numpy=True)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({}, "no feature"),
        ({"a": "int32"}, "expected int64"),
        ({"a": hr.decode.feature("int64", default=1.5)}, "not int64"),
        ({"a": hr.decode.feature("int64", shape=3, default=[1, 2])}, "default"),
        ({"a": hr.decode.feature("int64", shape=None, default=1)}, "any number"),
        ({"a": hr.decode.feature("bytes", default=1)}, "of bytes"),
        ({"a": hr.decode.feature("bytes", shape=2)}, "no shape"),
        ({"a": hr.decode.feature("str", shape=None)}, "given as"),
    ],
)
def test_features_that_contradict_themselves(features: Any, message: str) -> None:
    with pytest.raises(hr.InvalidArgumentError, match=message):
        hr.decode.tf_example(features)


def test_what_is_no_bytes_cannot_be_decoded_further() -> None:
    # Not among the parameters above: pytest holds those beyond the end of the module that made them, a leak.
    with pytest.raises(hr.InvalidArgumentError, match="cannot be decoded further"):
        hr.decode.tf_example({"a": hr.decode.feature(hr.decode.json(), shape=None)})


VALUES: list[Any] = [
    {"a": [1, -5, 2.5, None, True, False], "bytes": b"\xff\x00", "text": "ä" * 300},
    [0, 127, 128, 255, 256, 65535, 65536, 2**32, 2**64 - 1, -1, -32, -33, -128, -129, -(2**31), -(2**63)],
    {1: {b"k": []}, None: {}, 2.5: [[[[]]]]},
    list(range(70000)),
    {str(i): i for i in range(70000)},
    "x" * 70000,
    b"y" * 70000,
    None,
]


def test_msgpack_gives_what_the_package_gives(tmp_path: Path, open_loader: Any) -> None:
    packed = [msgpack.packb(value) for value in VALUES] + [msgpack.packb(1.5, use_single_float=True)]
    write_files(tmp_path / "files", packed)
    loader = open_loader(tmp_path / "files", batch_size=3, decode={"data": hr.decode.msgpack()})
    for batch in loader:
        for i, value in zip(batch.ids, batch["data"], strict=True):
            expected = msgpack.unpackb(packed[i], strict_map_key=False)
            assert value == expected
            assert type(value) is type(expected)


def test_msgpack_timestamps_are_exact(tmp_path: Path, open_loader: Any) -> None:
    times = [(0, 0), (5, 2), (2**33, 999_999_999), (-1, 1), (2**34, 7)]
    values = [msgpack.packb(msgpack.Timestamp(*time)) for time in times]
    write_files(tmp_path / "files", values)
    batch = next(
        iter(
            open_loader(tmp_path / "files", shuffle=False, batch_size=4, decode={"data": hr.decode.msgpack()})
        )
    )
    assert [int(value.astype("int64")) for value in batch["data"]] == [
        seconds * 10**9 + nanoseconds for seconds, nanoseconds in times[:4]
    ]
    assert batch["data"][0].astype(datetime.datetime) == 0
    with pytest.raises(hr.CorruptError, match=r"sample 4.*beyond numpy's"):
        list(
            open_loader(tmp_path / "files", shuffle=False, batch_size=1, decode={"data": hr.decode.msgpack()})
        )


def test_msgpack_extensions_are_refused_by_name(tmp_path: Path, open_loader: Any) -> None:
    write_files(tmp_path / "files", [msgpack.packb(msgpack.ExtType(42, b"abc"))] * 3)
    with pytest.raises(hr.UnsupportedError, match="extension type 42"):
        next(iter(open_loader(tmp_path / "files", decode={"data": hr.decode.msgpack()})))


def test_bad_msgpack_is_a_bad_sample(tmp_path: Path, open_loader: Any) -> None:
    values = [msgpack.packb({"i": i}) for i in range(20)]
    values[3], values[9] = values[3][:-1], values[9] + b"\xc0"
    write_files(tmp_path / "files", values)
    decode = {"data": hr.decode.msgpack()}
    with pytest.raises(hr.CorruptError, match=r"sample 3 of .*0003.rec.*ends inside of a value"):
        list(open_loader(tmp_path / "files", shuffle=False, decode=decode))
    loader = open_loader(tmp_path / "files", decode=decode, on_bad_sample="replace")
    with pytest.warns(RuntimeWarning, match="replaced"):
        found = {value["i"] for batch in loader for value in batch["data"]}
    assert found == set(range(20)) - {3, 9}


def packed_array(array: Any) -> dict[bytes, Any]:
    """As msgpack-numpy 0.4.8 encodes."""
    if isinstance(array, np.ndarray):
        kind, descr = (b"V", array.dtype.descr) if array.dtype.kind == "V" else (b"", array.dtype.str)
        return {b"nd": True, b"type": descr, b"kind": kind, b"shape": array.shape, b"data": array.tobytes()}
    if isinstance(array, np.generic):
        return {b"nd": False, b"type": array.dtype.str, b"data": array.data.tobytes()}
    return {b"complex": True, b"data": repr(array)}


def test_msgpack_numpy(tmp_path: Path, open_loader: Any) -> None:
    arrays = [
        np.arange(12, dtype="<f4").reshape(3, 4),
        np.zeros((0, 5), dtype=">i2"),
        np.array(7, dtype="uint8"),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", "<f8")]),
        np.float32(2.5),
        np.bool_(True),
        1 + 2j,
    ]
    values = [msgpack.packb({"x": packed_array(array), "n": i}) for i, array in enumerate(arrays)]
    write_files(tmp_path / "files", values)
    loader = open_loader(
        tmp_path / "files", shuffle=False, batch_size=8, decode={"data": hr.decode.msgpack(numpy=True)}
    )
    for value, expected in zip(next(iter(loader))["data"], arrays, strict=True):
        assert type(value["x"]) is type(expected)
        assert np.array_equal(value["x"], expected)
        assert np.asarray(value["x"]).dtype == np.asarray(expected).dtype
    plain = open_loader(tmp_path / "files", shuffle=False, batch_size=8, decode={"data": hr.decode.msgpack()})
    assert next(iter(plain))["data"][0]["x"] == msgpack.unpackb(values[0])["x"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({b"nd": True, b"type": b"O", b"kind": b"O", b"shape": [1], b"data": b"\x80"}, "pickles"),
        ({b"nd": True, b"type": "|O", b"kind": b"", b"shape": [1], b"data": b"12345678"}, "dtype object"),
        ({b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2], b"data": b"1234"}, "reshape"),
        ({b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [1 << 62], b"data": b""}, "array"),
        ({b"nd": True, b"type": "nonsense", b"kind": b"", b"shape": [1], b"data": b"1234"}, "data type"),
        ({b"nd": True, b"type": 5, b"kind": b"", b"shape": [1], b"data": b"1234"}, "without a type"),
        ({b"nd": True, b"type": "<f4", b"shape": 1, b"data": b"1234"}, "without a shape"),
        ({b"nd": True, b"type": "<f4", b"shape": [1], b"data": "1234"}, "no bytes"),
        ({b"nd": False, b"type": "<f4", b"data": b"12345678"}, "reshape"),
        ({b"complex": True, b"data": "spam"}, "complex"),
    ],
)
def test_broken_arrays_of_msgpack_numpy(tmp_path: Path, open_loader: Any, value: Any, message: str) -> None:
    write_files(tmp_path / "files", [msgpack.packb(value)] * 2)
    with pytest.raises(hr.CorruptError, match=f"sample [01].*{message}"):
        next(iter(open_loader(tmp_path / "files", decode={"data": hr.decode.msgpack(numpy=True)})))


def test_maps_that_only_look_like_arrays_come_as_they_are(tmp_path: Path, open_loader: Any) -> None:
    values = [
        {"complex": "1abc", "x": 1},
        {"complex": 3},
        {"nd": 5, "x": 1},
        {"nd": True, "type": "<f4", "x": 1},
        {b"\xff": 5},
        {"nd": True, "data": b"1"},
    ]
    write_files(tmp_path / "files", [msgpack.packb(value) for value in values])
    decode = {"data": hr.decode.msgpack(numpy=True)}
    batch = next(iter(open_loader(tmp_path / "files", shuffle=False, batch_size=len(values), decode=decode)))
    assert list(batch["data"]) == values
