"""TFRecord files written by tensorflow and by PyPI's tfrecord, and random Examples, read as columns."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import os
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def open_dataset(path: Path, **options: Any) -> hr.Dataset:
    return hr.Dataset(path, index_cache="", **options)


def write_examples(tf: Any, path: Path, rows: list[dict[str, Any]], compression: str = "") -> None:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for row in rows:
            features = {}
            for name, (kind, values) in row.items():
                lists = {
                    "bytes": lambda v: tf.train.Feature(bytes_list=tf.train.BytesList(value=v)),
                    "float": lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=v)),
                    "int64": lambda v: tf.train.Feature(int64_list=tf.train.Int64List(value=v)),
                }
                features[name] = lists[kind](values)
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_reads_what_tensorflow_writes(tf: Any, tmp_path: Path, compression: str) -> None:
    rows = [
        {
            "image": ("bytes", [os.urandom(300 + i)]),
            "label": ("int64", [i - 2]),
            "box": ("float", [i / 3, 1.5, -2.0, 0.0]),
            "ids": ("int64", list(range(-i, i * 300, 77))),
            "scores": ("float", [0.5] * (i % 3)),
            "words": ("bytes", [b"w" * j for j in range(i % 4)]),
        }
        for i in range(20)
    ]
    write_examples(tf, tmp_path / "a.tfrecord", rows, compression)
    with open_dataset(tmp_path) as dataset:
        assert dataset.format == "tfrecord"
        schema = dataset.schema
        assert (schema["label"].dtype, schema["label"].shape) == ("int64", ())
        assert (schema["box"].dtype, schema["box"].shape) == ("float32", (4,))
        assert schema["image"].encoding == "bytes"
        for row, sample in zip(rows, dataset, strict=True):
            assert sample["image"] == row["image"][1][0]
            assert sample["label"] == row["label"][1][0]
            np.testing.assert_array_equal(sample["box"], np.float32(row["box"][1]))
            np.testing.assert_array_equal(sample["ids"], np.int64(row["ids"][1]))
            np.testing.assert_array_equal(sample["scores"], np.float32(row["scores"][1]))
            assert sample["words"] == row["words"][1]


PYPI_WRITER = """
import sys
from tfrecord.writer import TFRecordWriter
writer = TFRecordWriter(sys.argv[1])
for i in range(10):
    writer.write({"image": (bytes([i]) * 50, "byte"), "label": (i, "int"), "weight": (i / 4, "float")})
writer.close()
"""


def test_reads_what_pypi_tfrecord_writes(tmp_path: Path) -> None:
    if importlib.util.find_spec("tfrecord") is None:
        pytest.skip("tfrecord is not installed")
    # In a process of its own: it and tensorflow register the same messages.
    subprocess.run([sys.executable, "-c", PYPI_WRITER, str(tmp_path / "a.tfrecord")], check=True)
    with open_dataset(tmp_path) as dataset:
        assert [s["image"] for s in dataset] == [bytes([i]) * 50 for i in range(10)]
        assert [int(s["label"]) for s in dataset] == list(range(10))
        assert [float(s["weight"]) for s in dataset] == [i / 4 for i in range(10)]


def test_reads_sequence_examples(tf: Any, tmp_path: Path) -> None:
    def feature_list(features: list[Any]) -> Any:
        return tf.train.FeatureList(feature=features)

    def ints(values: list[int]) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    def floats(values: list[float]) -> Any:
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    def texts(values: list[bytes]) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for i in range(5):
            message = tf.train.SequenceExample(
                context=tf.train.Features(feature={"id": ints([i])}),
                feature_lists=tf.train.FeatureLists(
                    feature_list={
                        "step": feature_list([ints([10 * i + j]) for j in range(i)]),
                        "pair": feature_list([floats([j, j + 0.5]) for j in range(i + 1)]),
                        "ragged": feature_list([ints(list(range(j))) for j in range(i + 2)]),
                        "frame": feature_list([texts([b"f" * j]) for j in range(i)]),
                    }
                ),
            )
            writer.write(message.SerializeToString())
    with open_dataset(tmp_path) as dataset:
        assert sorted(dataset.schema) == [
            "context.id",
            "seq.frame",
            "seq.pair",
            "seq.ragged",
            "seq.ragged.lengths",
            "seq.step",
        ]
        for i, sample in enumerate(dataset):
            assert sample["context.id"] == i
            np.testing.assert_array_equal(sample["seq.step"], [10 * i + j for j in range(i)])
            np.testing.assert_array_equal(sample["seq.pair"], [[j, j + 0.5] for j in range(i + 1)])
            np.testing.assert_array_equal(sample["seq.ragged.lengths"], range(i + 2))
            np.testing.assert_array_equal(sample["seq.ragged"], [k for j in range(i + 2) for k in range(j)])
            assert sample["seq.frame"] == [b"f" * j for j in range(i)]


def test_record_is_the_whole_payload(tf: Any, tmp_path: Path) -> None:
    payloads = [os.urandom(n) for n in (0, 1, 100, 5000)]
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for payload in payloads:
            writer.write(payload)
    with open_dataset(tmp_path) as dataset:
        assert [s["record"] for s in dataset] == payloads
    write_examples(tf, tmp_path / "a.tfrecord", [{"x": ("int64", [1])}])
    with open_dataset(tmp_path, columns=["record"]) as dataset:
        assert [list(s) for s in dataset] == [["record"]]


def test_columns_choose_features(tf: Any, tmp_path: Path) -> None:
    write_examples(tf, tmp_path / "a.tfrecord", [{"x": ("int64", [1]), "y": ("float", [2.0])}])
    with open_dataset(tmp_path, columns=["y"]) as dataset:
        assert [dict(s) for s in dataset] == [{"y": 2.0}]
    with pytest.raises(hr.InvalidArgumentError, match="there are: x, y"):
        open_dataset(tmp_path, columns=["z"])


def test_a_missing_feature_is_none(tf: Any, tmp_path: Path) -> None:
    write_examples(tf, tmp_path / "a.tfrecord", [{"x": ("int64", [1])}, {"y": ("bytes", [b"b"])}])
    with open_dataset(tmp_path) as dataset:
        assert [dict(s) for s in dataset] == [{"x": 1, "y": None}, {"x": None, "y": b"b"}]


def test_reads_several_members_and_a_broken_end(tf: Any, tmp_path: Path) -> None:
    write_examples(tf, tmp_path / "plain", [{"x": ("int64", [i])} for i in range(6)])
    plain = (tmp_path / "plain").read_bytes()
    (tmp_path / "plain").unlink()
    (tmp_path / "a.tfrecord.gz").write_bytes(gzip.compress(plain[:100]) + gzip.compress(plain[100:]))
    with open_dataset(tmp_path) as dataset:
        assert [int(s["x"]) for s in dataset] == list(range(6))
    (tmp_path / "a.tfrecord.gz").write_bytes(gzip.compress(plain)[:-9])
    with pytest.raises(hr.CorruptError, match=r"a\.tfrecord\.gz"):
        open_dataset(tmp_path)
    (tmp_path / "a.tfrecord.gz").write_bytes(zlib.compress(plain[:-1]))
    with pytest.raises(hr.CorruptError, match="ends inside the record"):
        open_dataset(tmp_path)
    with open_dataset(tmp_path, lenient=True) as dataset:
        assert len(dataset) == 5


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_agrees_with_tensorflow_on_random_examples(
    tf: Any, tmp_path_factory: pytest.TempPathFactory, source: random.Random
) -> None:
    kinds = {f"f{i}": source.choice(["bytes", "float", "int64"]) for i in range(source.randint(1, 6))}
    counts = {name: source.choice([None, 0, 1, 3]) for name in kinds}

    def values(kind: str, count: int) -> list[Any]:
        if kind == "bytes":
            return [source.randbytes(source.randint(0, 20)) for _ in range(count)]
        if kind == "float":
            return [float(np.float32(source.uniform(-1e6, 1e6))) for _ in range(count)]
        return [
            source.choice([0, 1, -1, 2**63 - 1, -(2**63), source.randint(-1000, 1000)]) for _ in range(count)
        ]

    rows = []
    for _ in range(source.randint(1, 12)):
        present = [name for name in kinds if source.random() < 0.9]
        rows.append(
            {
                name: (
                    kinds[name],
                    values(kinds[name], source.randint(0, 5) if counts[name] is None else counts[name]),
                )
                for name in present
            }
        )  # type: ignore[arg-type]
    folder = tmp_path_factory.mktemp("random")
    write_examples(tf, folder / "a.tfrecord", rows)
    if not any(rows):
        return
    with open_dataset(folder) as dataset:
        for row, sample in zip(rows, dataset, strict=True):
            for name in dataset.schema:
                if name not in row:
                    assert sample[name] is None
                    continue
                found = sample[name]
                expected = row[name][1]
                if kinds[name] == "bytes":
                    assert (found if isinstance(found, list) else [found]) == expected
                else:
                    np.testing.assert_array_equal(np.atleast_1d(found), np.array(expected, found.dtype))


REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "tfrecord"
reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference cases here")
ENDS_IN_HEADER = ("cut-01.tfrecord", "cut-08.tfrecord", "cut-11.tfrecord")
"""Files that end inside the 12 bytes before a record: TensorFlow ends there without a word."""
FIRST_RUN_ONLY = {"int64 packed and unpacked mixed", "float mixed", "int64 two lists of the same kind merge"}
"""parse_single_example() returns the first run of values alone; protobuf, and we, return all."""


def load_reference(name: str) -> Any:
    return json.loads((REFERENCE / name).read_text())


def record_digests(path: Path, **options: Any) -> list[str]:
    with open_dataset(path, format="tfrecord", columns=["record"], **options) as dataset:
        return [hashlib.sha256(sample["record"]).hexdigest() for sample in dataset]


@reference
def test_gives_the_records_that_tensorflow_gives() -> None:
    for name, verdict in load_reference("tensorflow.json")["files"].items():
        if not (REFERENCE / name).stat().st_size:  # TensorFlow's no records; here only where the user says so
            with pytest.raises(hr.CorruptError, match=f"{name}: has no bytes"):
                record_digests(REFERENCE / name)
            assert record_digests(REFERENCE / name, lenient=True) == verdict["sha256"], name
        elif verdict["error"] is None and name not in ENDS_IN_HEADER:
            assert record_digests(REFERENCE / name) == verdict["sha256"], name
        else:
            with pytest.raises(hr.CorruptError, match=f"{name}: record {verdict['records']}"):
                record_digests(REFERENCE / name)
        if name in ENDS_IN_HEADER:
            assert record_digests(REFERENCE / name, lenient=True) == verdict["sha256"], name


def masked_crc32c(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def one_record(payload: bytes) -> bytes:
    head = struct.pack("<Q", len(payload))
    return head + masked_crc32c(head) + payload + masked_crc32c(payload)


def described(value: Any) -> list[Any]:
    """Values of a feature in the words of tensorflow.json."""
    if isinstance(value, bytes | list):
        return [item.hex() for item in (value if isinstance(value, list) else [value])]
    array = np.atleast_1d(value)
    return (
        [str(item) for item in array]
        if array.dtype == np.int64
        else [struct.pack(">f", item).hex() for item in array]
    )


@reference
def test_reads_messages_as_tensorflow_does(tmp_path: Path) -> None:
    messages = {
        example["name"]: bytes.fromhex(example["hex"])
        for example in load_reference("examples.json")["examples"]
    }
    verdicts = load_reference("tensorflow.json")["examples"]
    assert set(verdicts) == set(messages)
    for name, verdict in verdicts.items():
        (tmp_path / "a.tfrecord").write_bytes(one_record(messages[name]))
        with open_dataset(tmp_path) as dataset:
            features = (
                {key for key, kind in verdict["python"].items() if kind}
                if verdict["python"] != "DecodeError"
                else set()
            )
            # A message that is no Example, or an empty one, is a record as any other.
            assert set(dataset.schema) == (features or {"record"}), name
            for key, values in verdict.get("parse_single_example", {}).items():
                # Its own parser refuses unknown fields and the like; protobuf, and we, pass over them.
                if values == "InvalidArgumentError":
                    continue
                expected = [value["hex"] if isinstance(value, dict) else value for value in values]
                found = described(dataset[0][key])
                assert (found[: len(expected)] if name in FIRST_RUN_ONLY else found) == expected, name
                assert (len(found) > len(expected)) == (name in FIRST_RUN_ONLY)
