"""Data sets written by mosaicml-streaming decode to the values that it reads back (../shared/reference/mds;
skipped without it)."""

from __future__ import annotations

import decimal
import hashlib
import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "mds"
CASES = [
    "all_encodings",
    "bytes_bypass",
    "comp_br",
    "comp_br_5",
    "comp_bz2",
    "comp_bz2_1",
    "comp_gz",
    "comp_gz_3",
    "comp_none",
    "comp_snappy",
    "comp_zstd",
    "comp_zstd_19",
    "empty_columns",
    "every_hash",
    "golden",
    "merged",
    "merged_deep",
    "ndarray",
    "no_limit",
    "one_per_shard",
]
SPLIT_CASES = [
    *(
        f"split_{kind}"
        for kind in ("csv", "csv_crlf", "csv_gz", "csv_zstd", "json", "json_crlf", "json_gz", "json_zstd")
    ),
    *(f"split_{kind}" for kind in ("tsv", "tsv_gz", "tsv_zstd", "xsv", "xsv_gz", "xsv_zstd")),
]

pytestmark = pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference cases here")


def describe(value: Any) -> dict[str, Any]:
    """A value in the words of expected.json."""
    if value is None:
        return {"type": "null"}
    if isinstance(value, bool):
        return {"type": "bool", "value": value}
    if isinstance(value, int):
        return {"type": "int", "value": str(value)}
    if isinstance(value, float):
        return {"type": "float", "bits": struct.pack(">d", value).hex()}
    if isinstance(value, decimal.Decimal):
        return {"type": "decimal", "value": str(value)}
    if isinstance(value, str):
        return {"type": "str", "sha256": hashlib.sha256(value.encode()).hexdigest()}
    if isinstance(value, bytes):
        return {"type": "bytes", "length": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        return {
            "type": "array",
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
        }
    if isinstance(value, list):
        return {"type": "list", "items": [describe(item) for item in value]}
    assert isinstance(value, dict)
    return {"type": "dict", "items": {key: describe(item) for key, item in value.items()}}


def same_words(expected: dict[str, Any]) -> dict[str, Any]:
    """The fields of an expectation that describe() gives too."""
    kind = expected["type"]
    if kind == "str" and "value" in expected:
        return {"type": "str", "sha256": hashlib.sha256(expected["value"].encode()).hexdigest()}
    if kind == "list":
        return {"type": kind, "items": [same_words(item) for item in expected["items"]]}
    if kind == "dict":
        return {"type": kind, "items": {key: same_words(item) for key, item in expected["items"].items()}}
    fields = {
        "float": ("type", "bits"),
        "array": ("type", "dtype", "shape", "sha256"),
        "bytes": ("type", "length", "sha256"),
    }
    return {field: expected[field] for field in fields.get(kind, ("type", "value")) if field in expected}


def is_encoded_image(encoding: str) -> bool:
    return "jpeg" in encoding or "png" in encoding


def check_image(value: Any, expected: dict[str, Any]) -> None:
    """A Pillow image against its description."""
    assert value.mode == expected["mode"]
    assert list(value.size) == expected["size"]
    assert hashlib.sha256(value.tobytes()).hexdigest() == expected["sha256"]


def check_encoded_image(value: bytes, expected: dict[str, Any]) -> None:
    """Pixels depend on the decoder's version; size and mode do not."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(value))
    assert (image.format, image.mode, list(image.size)) == (
        expected["format"],
        expected["mode"],
        expected["size"],
    )


def check_value(value: Any, encoding: str, expected: dict[str, Any]) -> None:
    if encoding in ("jpeg", "png"):
        assert hashlib.sha256(value).hexdigest() == expected["payload"]["sha256"]
        check_encoded_image(value, expected["value"])
    elif "pil" in encoding or is_encoded_image(encoding):
        check = check_encoded_image if is_encoded_image(encoding) else check_image
        if encoding == "pil":
            check_image(value, expected["value"])
            return
        assert len(value) == len(expected["value"]["items"])
        for item, want in zip(value, expected["value"]["items"], strict=True):
            check(item, want)
    else:
        assert describe(value) == same_words(expected["value"])


@pytest.mark.parametrize("case", CASES)
def test_samples_by_position_decode_equal(case: str) -> None:
    expected = json.loads((REFERENCE / case / "expected.json").read_text())
    with hr.Dataset(REFERENCE / case) as dataset:
        assert len(dataset) == len(expected["samples"])
        samples = dataset.read(range(len(dataset)))
    for want, sample in zip(expected["samples"], samples, strict=True):
        assert sorted(sample) == sorted(want["columns"])
        for name, value in sample.items():
            check_value(value, expected["encodings"][name], want["columns"][name])


@pytest.mark.parametrize("case", CASES)
def test_batches_decode_equal(case: str, open_loader: Any) -> None:
    expected = json.loads((REFERENCE / case / "expected.json").read_text())
    encodings = expected["encodings"]
    count = 0
    for batch in open_loader(REFERENCE / case, batch_size=2, epoch_end="uneven", seed=3):
        for slot, position in enumerate(batch.ids):
            count += 1
            for name, column in batch.items():
                want = expected["samples"][position]["columns"][name]
                if isinstance(column, np.ndarray):
                    assert hashlib.sha256(column[slot].tobytes()).hexdigest() == want["payload"]["sha256"]
                else:
                    check_value(column[slot], encodings[name], want)
    assert count == len(expected["samples"])


@pytest.mark.parametrize("case", SPLIT_CASES)
def test_split_shards_decode_equal(case: str, open_loader: Any) -> None:
    expected = json.loads((REFERENCE / case / "expected.json").read_text())
    with hr.Dataset(REFERENCE / case) as dataset:
        assert dataset.format == "mds"
        samples = dataset.read(range(len(dataset)))
    assert len(samples) == len(expected["samples"])
    for want, sample in zip(expected["samples"], samples, strict=True):
        assert sorted(sample) == sorted(want["columns"])
        for name, value in sample.items():
            check_value(value, "", want["columns"][name])
    count = 0
    for batch in open_loader(REFERENCE / case, batch_size=3, epoch_end="uneven", seed=5):
        for slot, position in enumerate(batch.ids):
            count += 1
            for name, column in batch.items():
                check_value(column[slot], "", expected["samples"][position]["columns"][name])
    assert count == len(samples)


def test_scalars_have_python_types() -> None:
    with hr.Dataset(REFERENCE / "golden") as dataset:
        first = dataset[0]
    assert first == {"t": "hi", "x": 7}
    assert type(first["x"]) is int


def test_pickles_are_refused() -> None:
    with pytest.raises(hr.UnsupportedError, match="pickle"):
        hr.Dataset(REFERENCE / "unsafe_pickle")


def test_one_object_opens_alone(tmp_path: Path) -> None:
    (tmp_path / "lines.data").write_text('{"a": 1}\n{"a": 2}\n')
    (tmp_path / "other.tar").write_bytes(bytes(10240))
    with hr.Dataset(tmp_path / "lines.data") as dataset:
        assert dataset.format == "text"
        assert len(dataset) == 2
    with pytest.raises(hr.NotFoundError):
        hr.Dataset(tmp_path / "none.data")


def test_keys_choose_objects_in_their_order(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    with hr.Dataset(tmp_path, keys=["c", "a"], format="raw") as dataset:
        assert [sample["data"] for sample in dataset] == [b"c", b"a"]
    with pytest.raises(hr.NotFoundError, match="none"):
        hr.Dataset(tmp_path, keys=["none"])
    with pytest.raises(hr.InvalidArgumentError, match="keys"):
        hr.Dataset(tmp_path, keys=[])
