"""Checkpoints of torch.distributed.checkpoint, read without running them."""

from __future__ import annotations

import io
import pickle
import random
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from framework_ranks import Job, run_jobs

import headrace as hr
from headrace.checkpoint import dcp_format

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")

DTYPES = [
    "float32",
    "bfloat16",
    "float16",
    "float64",
    "int64",
    "uint8",
    "bool",
    "complex64",
    "float8_e4m3fn",
    "uint16",
]


def state() -> dict[str, Any]:
    weights = {name: torch.arange(60).reshape(3, 20).to(getattr(torch, name)) for name in DTYPES}
    return {
        "model": {
            **weights,
            "scalar": torch.tensor(3),
            "empty": torch.zeros(0, 4),
            "view": torch.arange(12.0).reshape(3, 4).T,
        },
        "optimizer": {
            "state": [{"exp_avg": torch.ones(70_000), "step": torch.tensor(5.0)}],
            "groups": [{"lr": 0.1, "betas": (0.9, 0.99)}],
        },
        "step": 7,
        "text": "ü",
        "raw": b"\x00\xff",
        "none": None,
        "ordered": OrderedDict(a=1),
        "dtype": torch.float32,
        "set": {1, 2},
    }


def save(place: Path, value: dict[str, Any], **options: Any) -> None:
    dcp.save(value, storage_writer=dcp.FileSystemWriter(place, **options), no_dist=True)


def assert_equal(found: Any, expected: Any, path: str = "") -> None:
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), path
        raw = [value.contiguous().reshape(-1).view(torch.uint8) for value in (found, expected)]
        assert torch.equal(*raw), path
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key, value in expected.items():
            assert_equal(found[key], value, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), path
        for number, value in enumerate(expected):
            assert_equal(found[number], value, f"{path}.{number}")
    else:
        assert found == expected, path
        assert type(found) is type(expected), path


@pytest.mark.parametrize(
    "options", [{}, {"thread_count": 3}, {"single_file_per_rank": False}], ids=["one", "threads", "items"]
)
def test_what_dcp_has_saved_is_read(tmp_path: Path, options: dict[str, Any]) -> None:
    save(tmp_path, state(), **options)
    assert_equal(dcp_format.load(tmp_path), state())
    found = dcp_format.load(tmp_path, flat=True)
    assert_equal(found["optimizer.state.0.exp_avg"], torch.ones(70_000))
    names = ["model.view", "step"]
    assert list(dcp_format.load(tmp_path, names=names, flat=True)) == names
    with pytest.raises(hr.NotFoundError, match=r"has no model\.other"):
        dcp_format.load(tmp_path, names=["model.other"])


def test_tensors_within_values_are_read(tmp_path: Path) -> None:
    """Those that DCP does not take out: in tuples."""
    expected = {"pair": (torch.arange(6).reshape(2, 3).T, torch.ones(3, dtype=torch.float8_e5m2), 5)}
    save(tmp_path, expected)
    found = dcp_format.load(tmp_path)["pair"]
    assert_equal(list(found), list(expected["pair"]))


def test_views_that_conjugate_or_negate_have_their_own_values(tmp_path: Path) -> None:
    """Their storage has other numbers."""
    numbers = torch.tensor([[1 + 2j, 3 - 4j], [5j, -6]])
    views = {
        "conj": numbers.conj(),
        "turned": numbers.T.conj(),
        "neg": torch._neg_view(torch.arange(3)),
        "imag": numbers.clone().conj().imag,
        "both": torch._neg_view(numbers.conj()),
        "bfloat16": torch._neg_view(torch.ones(3, dtype=torch.bfloat16)),
    }
    save(tmp_path, {**views, "in_a_value": tuple(views.values())})
    found = dcp_format.load(tmp_path)
    plain = {name: view.resolve_conj().resolve_neg() for name, view in views.items()}
    assert_equal({name: found[name] for name in views}, plain)
    assert_equal(list(found["in_a_value"]), list(plain.values()))


@pytest.mark.parametrize(
    ("bits", "what"),
    [
        ({"conj": True, "folded": 3}, "distcp: x: a tensor of it is marked as 'folded'"),
        ({"neg": True}, "distcp: a tensor of bool is marked as conjugated or negated"),
    ],
)
def test_a_tensor_that_is_marked_otherwise_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: dict[str, Any], what: str
) -> None:
    monkeypatch.setattr(torch._utils, "get_tensor_metadata", lambda _: bits)
    save(tmp_path, {"x": torch.ones(3, dtype=torch.bool)})
    with pytest.raises(hr.UnsupportedError, match=what):
        dcp_format.load(tmp_path)


def test_items_of_lists_keep_their_places(tmp_path: Path) -> None:
    """DCP saves nothing for an empty dict."""
    save(tmp_path, {"l": [torch.ones(1), {}, {"a": [[torch.zeros(2)], {}, [5, torch.ones(3)]]}], "n": 1})
    expected = [torch.ones(1), None, {"a": [[torch.zeros(2)], None, [5, torch.ones(3)]]}]
    assert_equal(dcp_format.load(tmp_path)["l"], expected)
    found = dcp_format.load(tmp_path, names=["l.2.a.2.0"])
    assert_equal(found, {"l": [None, None, {"a": [None, None, [5]]}]})


@pytest.mark.parametrize("place", [-1, 1 << 40])
def test_a_place_that_no_list_has_is_an_error(tmp_path: Path, place: int) -> None:
    save(tmp_path, {"l": [torch.ones(1)]})
    metadata = pickle.loads((tmp_path / ".metadata").read_bytes())
    metadata.planner_data["l.0"] = ("l", place)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(hr.CorruptError, match=r"l\.0 lies at .* which is no place in a list"):
        dcp_format.load(tmp_path)


def test_what_ranks_have_saved_is_read_whole(tmp_path: Path) -> None:
    from checkpoint_ways import value_of

    program = Path(__file__).with_name("safetensors_ways.py")
    (results,) = run_jobs(program, [Job("dcp_save", str(tmp_path), 4, options={"seed": 3})])
    assert results == [None] * 4
    assert_equal(dcp_format.load(tmp_path), {f"t{n}": value_of(n) for n in range(30)})


class Runs:
    """Unpickled by pickle, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def archive_of(value: Any) -> bytes:
    data = io.BytesIO()
    torch.save(value, data)
    return data.getvalue()


def replace_item(place: Path, name: str, data: bytes) -> None:
    """Puts other bytes in the place of an item, in a file of their own."""
    metadata = pickle.loads((place / ".metadata").read_bytes())
    (place / "other.distcp").write_bytes(data)
    for index, info in metadata.storage_data.items():
        if index.fqn == name:
            info.relative_path, info.offset, info.length = "other.distcp", 0, len(data)
    (place / ".metadata").write_bytes(pickle.dumps(metadata))


def test_nothing_of_a_pickle_is_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    save(tmp_path / "a", {"x": torch.ones(3), "n": 1})
    for name in ("x", "n"):
        place = tmp_path / name
        shutil.copytree(tmp_path / "a", place)
        replace_item(place, name, archive_of(Runs(made)))
        with pytest.raises(
            hr.UnsupportedError,
            match=rf"distcp: {name}: its pickle wants .*(getattr|touch), .*nothing was run",
        ):
            dcp_format.load(place)
    (tmp_path / "a/.metadata").write_bytes(pickle.dumps(Runs(made)))
    with pytest.raises(
        hr.UnsupportedError, match=r"\.metadata: its pickle wants .*(getattr|touch), .*nothing was run"
    ):
        dcp_format.load(tmp_path / "a")
    assert not made.exists()


@pytest.mark.parametrize(
    "name",
    ["builtins eval", "builtins setattr", "os system", "torch load", "torch.serialization load", "torch hub", "numpy ndarray",  # noqa: E501
     "torch _utils._rebuild_tensor_v2", "collections OrderedDict.fromkeys"],
)  # fmt: skip
@pytest.mark.parametrize("protocol", [2, 4])
def test_globals_that_no_checkpoint_needs_are_named(tmp_path: Path, name: str, protocol: int) -> None:
    save(tmp_path, {"x": torch.ones(3)})
    module, attribute = name.split()
    if protocol == 2:
        text = f"c{module}\n{attribute}\n."
        data = text.encode()
    else:
        parts = b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, attribute))
        data = b"\x80\x04" + parts + b"\x93."
    (tmp_path / ".metadata").write_bytes(data)
    with pytest.raises(hr.UnsupportedError, match=f"wants {module}.{attribute}".replace(".", r"\.")):
        dcp_format.load(tmp_path)


def test_members_of_enumerations_as_python_3_11_2_pickles_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

    monkeypatch.setattr(
        _MEM_FORMAT_ENCODING, "__reduce_ex__", lambda self, _: (getattr, (type(self), self.name))
    )
    save(tmp_path, {"x": torch.arange(3)})
    assert b"getattr" in (tmp_path / ".metadata").read_bytes()
    assert dcp_format.load(tmp_path)["x"].tolist() == [0, 1, 2]


def test_getattr_of_anything_else_is_refused(tmp_path: Path) -> None:
    save(tmp_path, {"x": torch.ones(3)})
    for owner in ("collections\nOrderedDict", "torch.distributed.checkpoint.metadata\nMetadata"):
        data = f"cbuiltins\ngetattr\n(c{owner}\nS'__init__'\ntR."
        (tmp_path / ".metadata").write_bytes(data.encode())
        with pytest.raises(hr.UnsupportedError, match=r"wants builtins\.getattr of '__init__'"):
            dcp_format.load(tmp_path)


def test_one_pickle_changes_nothing_for_the_next(tmp_path: Path) -> None:
    """BUILD sets attributes, also of a class."""
    save(tmp_path, {"x": torch.ones(3)})
    whole = (tmp_path / ".metadata").read_bytes()
    for kind in ("Metadata", "MetadataIndex"):
        poison = f"ctorch.distributed.checkpoint.metadata\n{kind}\n(N}}(S'__setstate__'\nNS'key'\nNutb."
        (tmp_path / ".metadata").write_bytes(poison.encode())
        with pytest.raises(hr.HeadraceError):
            dcp_format.load(tmp_path)
    (tmp_path / ".metadata").write_bytes(whole)
    assert torch.equal(dcp_format.load(tmp_path)["x"], torch.ones(3))


def test_damaged_metadata_and_archives_are_errors(tmp_path: Path) -> None:
    """Any byte of what is not a tensor's own: an error of ours, or values of the right types."""
    save(tmp_path, {"x": torch.ones(300), "n": 1, "t": "text"})
    chosen = random.Random(5)
    failed = 0
    for file in (tmp_path / ".metadata", tmp_path / "__0_0.distcp"):
        whole = file.read_bytes()
        for _ in range(300):
            data = bytearray(whole)
            at = chosen.randrange(len(data))
            data[at] ^= 1 << chosen.randrange(8)
            file.write_bytes(data[: len(data) - chosen.choice([0, 0, 0, 1, 500])])
            try:
                found = dcp_format.load(tmp_path)
            except hr.HeadraceError:
                failed += 1
            else:
                assert all(isinstance(name, str) for name in found)
        file.write_bytes(whole)
    assert failed > 100


def test_what_is_no_checkpoint_of_dcp_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(hr.NotFoundError, match=r"has no \.metadata: is no checkpoint of DCP"):
        dcp_format.load(tmp_path)
    (tmp_path / "__0.metadata").write_bytes(b"")
    with pytest.raises(hr.UnsupportedError, match="without collectives"):
        dcp_format.load(tmp_path)


def test_places_outside_of_the_checkpoint_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "a", {"x": torch.ones(3)})
    metadata = pickle.loads((tmp_path / "a/.metadata").read_bytes())
    for path, text in (
        ("../b.distcp", "is no file of a checkpoint"),
        ("/etc/passwd", "is no file of a checkpoint"),
    ):
        for info in metadata.storage_data.values():
            info.relative_path = path
        (tmp_path / "a/.metadata").write_bytes(pickle.dumps(metadata))
        with pytest.raises(hr.CorruptError, match=text):
            dcp_format.load(tmp_path / "a")
