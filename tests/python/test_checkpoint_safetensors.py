"""Safetensors files of others, and ours as others read them."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.checkpoint import safetensors

torch = pytest.importorskip("torch")
package = pytest.importorskip("safetensors")
of_torch = pytest.importorskip("safetensors.torch")

REFERENCE = Path(__file__).parents[2].parent / "shared/reference/safetensors"
DTYPES = [
    *("float16", "bfloat16", "float32", "float64", "complex64", "bool"),
    *("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"),
]


def raw(tensor: Any) -> bytes:
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def same(one: Any, other: Any) -> bool:
    return (one.dtype, one.shape, raw(one)) == (other.dtype, other.shape, raw(other))


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert same(found[name], value), name


def tensors(seed: int = 0, count: int = 30) -> dict[str, Any]:
    """Of all dtypes: scalars, empty ones, others."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(), (7,), (0, 4), (64, 33), (5, 3, 2), (130, 70)]
    out = {}
    for n in range(count):
        shape, dtype = shapes[n % len(shapes)], getattr(torch, DTYPES[n % len(DTYPES)])
        value = torch.randint(0, 100, shape, generator=generator)
        out[f"layers.{n}.w"] = (value % 2 if dtype == torch.bool else value).to(dtype)
    return out


def verdict(read: Callable[[], Any]) -> Any:
    """What is read; None where it is refused."""
    try:
        return read()
    except (hr.CorruptError, hr.UnsupportedError, package.SafetensorError):
        return None


# --- Reading ---


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="no reference data")
def test_files_are_judged_as_the_package_judges_them() -> None:
    verdicts = json.loads((REFERENCE / "expected.json").read_text())["files"]
    assert len(verdicts) > 50
    for name, expected in verdicts.items():
        found = verdict(lambda name=name: safetensors.load(REFERENCE / name))  # type: ignore[misc]
        assert (found is not None) == expected["ok"], name
        for tensor, row in expected.get("tensors", {}).items():
            assert str(found[tensor].dtype).removeprefix("torch.") == row["dtype"], (name, tensor)
            assert list(found[tensor].shape) == row["shape"], (name, tensor)
            assert hashlib.sha256(raw(found[tensor])).hexdigest() == row["sha256"], (name, tensor)


def changed(header: bytes, chosen: random.Random) -> bytes:
    """A header with a few characters replaced, doubled or lost."""
    out = bytearray(header)
    for _ in range(chosen.randrange(1, 3)):
        at = chosen.randrange(len(out))
        what = chosen.randrange(3)
        if what == 0:
            out[at] = chosen.choice(b'0123456789-.e{}[]",: \\nu_adtypeFU\xff')
        elif what == 1:
            out[at:at] = out[at : at + chosen.randrange(1, 12)]
        else:
            del out[at : at + chosen.randrange(1, 4)]
    return bytes(out)


def test_changed_headers_are_judged_as_the_package_judges_them(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
            "b": {"dtype": "U8", "shape": [], "data_offsets": [8, 9]},
        }
    ).encode()
    chosen = random.Random(7)
    accepted = 0
    for _ in range(3000):
        text = changed(header, chosen)
        file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(range(9)))
        expected = verdict(lambda: of_torch.load_file(file))
        found = verdict(lambda: safetensors.load(file))
        assert (found is None) == (expected is None), text
        if expected is not None:
            accepted += 1
            assert_same(found, expected)
    assert accepted > 100


def test_what_others_have_written_is_read(tmp_path: Path) -> None:
    expected = tensors()
    of_torch.save_file(expected, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert_same(safetensors.load(tmp_path), expected)
    assert_same(safetensors.load(tmp_path / "model.safetensors"), expected)


def sharded(place: Path, expected: dict[str, Any], count: int = 3) -> None:
    """As others write it."""
    names = sorted(expected)
    weight_map = {}
    for n in range(count):
        key = f"model-{n + 1:05}-of-{count:05}.safetensors"
        some = {name: expected[name] for name in names[n::count]}
        of_torch.save_file(some, place / key)
        weight_map |= dict.fromkeys(some, key)
    (place / safetensors.INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_only_what_is_named_is_read(tmp_path: Path) -> None:
    expected = tensors()
    sharded(tmp_path, expected)
    assert_same(safetensors.load(tmp_path), expected)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    (name,) = ("layers.0.w",)
    assert_same(safetensors.load(tmp_path, names=[name]), {name: expected[name]})
    with pytest.raises(hr.NotFoundError, match="model-00002-of-00003"):
        safetensors.load(tmp_path)
    with pytest.raises(hr.NotFoundError, match=r"has no tensor layers\.x"):
        safetensors.load(tmp_path, names=["layers.x"])


def test_numpy_arrays_are_made(tmp_path: Path) -> None:
    of_torch.save_file({"x": torch.arange(6.0).reshape(2, 3)}, tmp_path / "other.safetensors")
    found = safetensors.load(tmp_path, framework="numpy")["x"]
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_arrays_are_filled_in_place(tmp_path: Path) -> None:
    expected = tensors()
    sharded(tmp_path, expected)
    into = {name: torch.zeros_like(value) for name, value in expected.items()}
    into["layers.3.w"] = torch.zeros(33, 64, dtype=into["layers.3.w"].dtype).T
    kept = into["layers.3.w"]
    assert_same(safetensors.load(tmp_path, into), expected)
    assert same(kept, expected["layers.3.w"])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda into: into.pop("b"), r"1 tensors of it are not in into= \(b\)"),
        (lambda into: into.update(c=torch.zeros(1)), r"1 tensors of into= are not in it \(c\)"),
        (lambda into: into.update(b=torch.zeros(2)), r"tensor 'b' is I64\[2\], and F32\[2\] in into="),
        (lambda into: into.update(b=torch.zeros(3, dtype=torch.int64)), r"and I64\[3\] in into="),
        (lambda into: into.update(b=3), "is a builtins.int"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, change: Callable[[Any], Any], text: str) -> None:
    of_torch.save_file(
        {"a": torch.ones(3), "b": torch.ones(2, dtype=torch.int64)}, tmp_path / "model.safetensors"
    )
    into = {"a": torch.zeros(3), "b": torch.zeros(2, dtype=torch.int64)}
    change(into)
    with pytest.raises(hr.InvalidArgumentError, match=text):
        safetensors.load(tmp_path, into)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ("[]", "is no index"),
        ("{", "is no index"),
        ('{"weight_map": []}', "not file names by tensor"),
        ('{"weight_map": {"a": 1}}', "not file names by tensor"),
        ('{"weight_map": {"a": "../a.safetensors"}}', "no safetensors file beside it"),
        ('{"weight_map": {"a": "/etc/a.safetensors"}}', "no safetensors file beside it"),
        ('{"weight_map": {"a": "a.bin"}}', "no safetensors file beside it"),
        ('{"weight_map": {"z": "a.safetensors"}}', "does not have 'z'"),
    ],
)
def test_an_index_that_makes_no_sense_is_refused(tmp_path: Path, index: str, text: str) -> None:
    of_torch.save_file({"a": torch.ones(3)}, tmp_path / "a.safetensors")
    (tmp_path / safetensors.INDEX).write_text(index)
    with pytest.raises(hr.CorruptError, match=text):
        safetensors.load(tmp_path)


def test_which_file_is_meant_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(hr.NotFoundError, match="nor any other"):
        safetensors.load(tmp_path)
    for name in ("a", "b"):
        of_torch.save_file({name: torch.ones(3)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(hr.NotFoundError, match=r"a.safetensors, b.safetensors"):
        safetensors.load(tmp_path)
    assert list(safetensors.load(tmp_path / "b.safetensors")) == ["b"]
