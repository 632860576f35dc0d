"""LitData: its own data sets of both layouts, ones written here by the installed package, and encrypted
ones."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "litdata"
CLASSIC = [
    "arrays",
    "image",
    "ints",
    "mixed",
    "mixed_bytes",
    "mixed_zstd",
    "text",
    "text_zstd",
    "tokens",
    "tokens_u16",
    "tokens_zstd",
    "tuple",
    "vector",
    "workers",
]
CURRENT = [
    *CLASSIC,
    "mixed_zstd_batch4",
    "mixed_zstd_chunk",
    "mixed_zstd_sample",
    "nested",
    "nested_with_array",
    "nested_zstd",
]
CASES = [f"classic/{name}" for name in CLASSIC] + [f"current/{name}" for name in CURRENT]
BLOCK = 16

needs_reference = pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference cases here")


def describe(value: Any, expected: dict[str, Any]) -> dict[str, Any]:
    """A value in the words of expected.json, with the fields that ``expected`` has. Lists of numbers in Arrow
    rows come as arrays."""
    if isinstance(value, np.ndarray) and expected["type"] == "list":
        value = value.tolist()
    if isinstance(value, (bool, type(None))):
        return {"type": "null"} if value is None else {"type": "bool", "value": value}
    if isinstance(value, int):
        return {"type": "int", "value": str(value)}
    if isinstance(value, float):
        return {"type": "float", "bits": struct.pack(">d", value).hex()}
    if isinstance(value, str):
        return (
            {"type": "str", "value": value}
            if "value" in expected
            else {"type": "str", "sha256": hashlib.sha256(value.encode()).hexdigest()}
        )
    if expected["type"] == "image":
        return describe_image(value)
    if isinstance(value, bytes):
        return {"type": "bytes", "length": len(value), "sha256": hashlib.sha256(value).hexdigest()}
    if isinstance(value, np.ndarray):
        return {
            "type": expected["type"],
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "sha256": hashlib.sha256(value.tobytes()).hexdigest(),
        }
    if isinstance(value, list):
        return {
            "type": "list",
            "items": [describe(item, want) for item, want in zip(value, expected["items"], strict=True)],
        }
    assert isinstance(value, dict), value
    return {
        "type": "dict",
        "items": {key: describe(item, expected["items"][key]) for key, item in value.items()},
    }


def describe_image(value: Any) -> dict[str, Any]:
    return {
        "type": "image",
        "mode": value.mode,
        "size": list(value.size),
        "sha256": hashlib.sha256(value.tobytes()).hexdigest(),
    }


def trim(expected: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that are for readers (``hex``, the text of a float)."""
    kept = {
        key: value
        for key, value in expected.items()
        if key != "hex" and not (key == "value" and expected["type"] == "float")
    }
    if expected["type"] == "str" and "value" in kept:
        kept = {"type": "str", "value": kept["value"]}
    if isinstance(kept.get("items"), list):
        kept["items"] = [trim(item) for item in kept["items"]]
    elif isinstance(kept.get("items"), dict):
        kept["items"] = {key: trim(item) for key, item in kept["items"].items()}
    return kept


def leaf(expected: dict[str, Any], column: str, names: list[str]) -> dict[str, Any]:
    """The expectation of a column, by its path."""
    if names == ["data"] and expected["type"] not in ("dict", "list", "tuple"):
        return expected
    for part in column.split("."):
        items = expected["items"]
        expected = items[int(part)] if isinstance(items, list) else items[part]
    return expected


def check(samples: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(samples) == len(expected)
    for sample, want in zip(samples, expected, strict=True):
        for column, value in sample.items():
            one = leaf(want, column, list(sample))
            assert describe(value, one) == trim(one), column


def options(case: str) -> dict[str, Any]:
    return {"tokens_per_sample": BLOCK} if "tokens" in case else {}


@needs_reference
@pytest.mark.parametrize("case", CASES)
def test_samples_are_those_that_litdata_reads(case: str) -> None:
    expected = json.loads((REFERENCE / case / "expected.json").read_text())
    with hr.Dataset(REFERENCE / case, **options(case)) as dataset:
        assert dataset.format == "litdata"
        check(dataset.read(range(len(dataset))), expected["samples"])
        check([dataset[len(dataset) - 1]], expected["samples"][-1:])


@needs_reference
@pytest.mark.parametrize("case", CASES)
def test_batches_are_those_that_litdata_reads(case: str, open_loader: Any) -> None:
    expected = json.loads((REFERENCE / case / "expected.json").read_text())
    count = 0
    with hr.Dataset(REFERENCE / case, **options(case)) as dataset:
        for batch in open_loader(dataset, batch_size=3, epoch_end="uneven", seed=3):
            for slot, position in enumerate(batch.ids):
                count += 1
                sample = {name: column[slot] for name, column in batch.items()}
                for name, value in sample.items():
                    one = leaf(expected["samples"][position], name, list(sample))
                    plain = value.item() if isinstance(value, np.generic) else value
                    assert describe(plain, one) == trim(one), name
    assert count == len(expected["samples"])


@needs_reference
def test_tokens_are_one_array_a_batch(open_loader: Any) -> None:
    with hr.Dataset(REFERENCE / "current/tokens_u16", tokens_per_sample=BLOCK) as dataset:
        batch = next(iter(open_loader(dataset, batch_size=4)))
    assert batch["data"].shape == (4, BLOCK)
    assert batch["data"].dtype == np.uint16


@needs_reference
def test_tokens_ask_for_their_length() -> None:
    with pytest.raises(hr.InvalidArgumentError, match="tokens_per_sample"):
        hr.Dataset(REFERENCE / "current/tokens")


# ---- written here -------------------------------------------------------------------------------------------------------------  # noqa: E501

FERNET_PASSWORD = "correct horse"


def write(root: Path, rows: list[Any], per_chunk: int = 4, **arguments: Any) -> Path:
    """A LitData directory by the package's own writer."""
    cache_module = pytest.importorskip("litdata.streaming.cache")
    root.mkdir(parents=True)
    cache = cache_module.Cache(str(root), chunk_size=per_chunk, **arguments)
    for index, row in enumerate(rows):
        cache[index] = row
    cache.done()
    cache.merge()
    return root


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items = {str(key): item for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        items = {str(i): item for i, item in enumerate(value)}
    else:
        return {path or "data": value}
    return {
        name: leaf
        for key, item in items.items()
        for name, leaf in flatten(item, f"{path}.{key}" if path else key).items()
    }


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b)) and a.dtype == b.dtype
    return bool(a == b) and type(a) is type(b)


LEAVES = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False),
    "str": st.text(max_size=9).filter(lambda text: not os.path.exists(text)),
    "bytes": st.binary(max_size=9),
    "bool": st.booleans(),
    "array": st.integers(0, 4).map(lambda n: np.arange(n * 2, dtype=np.float32).reshape(n, 2)),
    "vector": st.integers(1, 4).map(lambda n: np.arange(n, dtype=np.int16)),
}


@st.composite
def tables(draw: st.DrawFn) -> list[Any]:
    kinds = draw(st.lists(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=4))
    row = st.fixed_dictionaries({f"c{i}": LEAVES[kind] for i, kind in enumerate(kinds)})
    return draw(st.lists(row, min_size=1, max_size=9))


def test_rows_with_their_keys_in_another_order_come_by_name(tmp_path: Path) -> None:
    rows = [
        *({"a": i, "b": float(i), "c": "x"} for i in range(4)),
        *({"c": "y", "a": i, "b": float(i)} for i in range(4, 8)),
    ]
    with hr.Dataset(write(tmp_path / "d", rows), index_cache="") as dataset:
        assert dataset.read(range(8)) == rows


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=tables(), wrap=st.sampled_from([None, "chunk", "batch", "sample"]))
def test_any_rows_come_back(
    rows: list[Any], wrap: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = write(
        tmp_path_factory.mktemp("rows") / "d",
        rows,
        **({} if wrap is None else {"compression": "zstd", "compression_level": wrap}),
    )
    with hr.Dataset(root, index_cache="") as dataset:
        samples = dataset.read(range(len(dataset)))
    assert len(samples) == len(rows)
    for sample, row in zip(samples, rows, strict=True):
        assert sample.keys() == row.keys()
        for name, value in sample.items():
            assert equal(value, row[name]), (name, value, row[name])


def encrypted(root: Path, rows: list[Any], level: str, **arguments: Any) -> tuple[Path, str]:
    encryption_module = pytest.importorskip("litdata.utilities.encryption")
    encryption = encryption_module.FernetEncryption(password=FERNET_PASSWORD, level=level)
    key = io.BytesIO()
    write(root, rows, encryption=encryption, **arguments)
    state_file = root.parent / "key.json"
    encryption.save(str(state_file))
    del key
    return root, json.loads(state_file.read_text())["salt"]


ROWS = [{"i": i, "s": "x" * i, "n": np.arange(i + 1, dtype=np.int32)} for i in range(11)]


@pytest.mark.parametrize("level", ["sample", "chunk"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_encrypted_samples_come_back(level: str, compression: str | None, tmp_path: Path) -> None:
    arguments = {} if compression is None else {"compression": compression, "compression_level": "chunk"}
    root, salt = encrypted(tmp_path / "d", ROWS, level, **arguments)
    with hr.Dataset(root, password=FERNET_PASSWORD, password_salt=salt) as dataset:
        samples = dataset.read(range(len(dataset)))
        assert dataset[5]["s"] == "xxxxx"
    for sample, row in zip(samples, ROWS, strict=True):
        assert all(equal(value, row[name]) for name, value in sample.items())
    for index in tmp_path.rglob("*.hri"):
        assert FERNET_PASSWORD.encode() not in index.read_bytes()
        assert salt.encode() not in index.read_bytes()


@pytest.mark.parametrize("level", ["sample", "chunk"])
def test_a_wrong_password_is_denied(level: str, tmp_path: Path) -> None:
    root, salt = encrypted(tmp_path / "d", ROWS, level)

    def read(**arguments: Any) -> None:
        with hr.Dataset(root, index_cache="", **arguments) as dataset:
            dataset.read([0])

    with pytest.raises(hr.DeniedError, match="password="):
        read()
    with pytest.raises(hr.DeniedError, match="does not fit") as caught:
        read(password="sesame", password_salt=salt)
    assert "sesame" not in str(caught.value)
    with pytest.raises(hr.InvalidArgumentError, match="password_salt"):
        read(password=FERNET_PASSWORD, password_salt="?")


def test_pickles_are_refused_unless_allowed(tmp_path: Path) -> None:
    root = write(tmp_path / "d", [{"a": np.zeros(1), "p": 1 + 2j}] * 3)
    with pytest.raises(hr.UnsupportedError, match="pickle"):
        hr.Dataset(root)
    with hr.Dataset(root, allow_unsafe=True) as dataset:
        assert isinstance(dataset[0]["p"], bytes)
    # The index that was cached then does not let others in.
    with pytest.raises(hr.UnsupportedError, match="pickle"):
        hr.Dataset(root)


def test_nested_trees_name_their_leaves(tmp_path: Path) -> None:
    row = {"a": {"x": 1, "y": np.zeros((2, 2))}, "b": (np.ones(2), {"k": "v"})}
    root = write(tmp_path / "d", [row])
    with hr.Dataset(root) as dataset:
        sample = dataset[0]
    flat = flatten(row)
    assert sample.keys() == flat.keys()
    assert all(equal(sample[name], value) for name, value in flat.items())


def test_json_leaves_are_values(tmp_path: Path) -> None:
    rows = [
        {
            "strs": ["a", 'é\n"\\'],
            "ints": [1, -(2**63)],
            "floats": [1.0, 1e300, -0.0],
            "bools": [True, False],
            "recs": [],
            "any": [1, "x", None],
        },
        {
            "strs": [],
            "ints": [],
            "floats": [0.1],
            "bools": [],
            "recs": [{"r": 1, "s": "t", "u": None, "v": 2.5, "w": True}],
            "any": [[], {"k": 1}],
        },
    ]
    root = write(tmp_path / "d", [{"a": np.zeros(1)} | row for row in rows])
    with hr.Dataset(root) as dataset:
        samples = dataset.read(range(len(rows)))
    assert [{name: value for name, value in sample.items() if name != "a"} for sample in samples] == rows


def test_damage_is_named(tmp_path: Path) -> None:
    root = write(tmp_path / "d", ROWS[:3])
    chunk = next(root.glob("chunk-*.bin"))
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-1])
    with pytest.raises(hr.CorruptError, match=chunk.name):
        hr.Dataset(root, index_cache="")
    chunk.write_bytes(whole[:24] + b"\xff" + whole[25:])
    with pytest.raises(hr.CorruptError, match=chunk.name), hr.Dataset(root, index_cache="") as dataset:
        dataset.read(range(3))
