"""Safetensors files of others, and ours as others read them."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework_ranks import Job, run_without_errors

import headrace as hr
from headrace.checkpoint import safetensors
from headrace.checkpoint.arrays import Chunk
from headrace.checkpoint.plan import Planned
from headrace.checkpoint.safetensors.files import find_files
from headrace.checkpoint.safetensors.layout import lay_out

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


def test_a_file_that_is_replaced_meanwhile_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its header and its data."""
    file = tmp_path / "model.safetensors"
    of_torch.save_file({"a": torch.ones(3)}, file)

    def replaced(*arguments: Any) -> Any:
        found = find_files(*arguments)
        file.unlink()
        of_torch.save_file({"a": torch.zeros(3)}, file)
        return found

    monkeypatch.setattr("headrace.checkpoint.safetensors.reading.find_files", replaced)
    with pytest.raises(hr.ChangedError, match=r"model\.safetensors"):
        safetensors.load(file)


def test_which_file_is_meant_is_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(hr.NotFoundError, match="nor any other"):
        safetensors.load(tmp_path)
    for name in ("a", "b"):
        of_torch.save_file({name: torch.ones(3)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(hr.NotFoundError, match=r"a.safetensors, b.safetensors"):
        safetensors.load(tmp_path)
    assert list(safetensors.load(tmp_path / "b.safetensors")) == ["b"]


# --- Writing ---


def written(place: Path) -> dict[str, Any]:
    """What the package reads of a directory, by the index where there is one."""
    index = place / safetensors.INDEX
    if not index.exists():
        return dict(of_torch.load_file(place / safetensors.SINGLE))
    weight_map = json.loads(index.read_text())["weight_map"]
    files = {key: of_torch.load_file(place / key) for key in set(weight_map.values())}
    assert sum(map(len, files.values())) == len(weight_map)
    return {name: files[key][name] for name, key in weight_map.items()}


def test_others_read_what_was_written(tmp_path: Path) -> None:
    expected = tensors()
    safetensors.save_sharded(tmp_path / "one", expected, metadata={"step": "5"})
    assert [file.name for file in (tmp_path / "one").iterdir()] == ["model.safetensors"]
    assert_same(written(tmp_path / "one"), expected)
    with package.safe_open(tmp_path / "one/model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "step": "5"}
    files = safetensors.save_sharded(tmp_path / "many", expected, max_shard_bytes="40kB")
    assert len(set(files.values())) > 2
    for key in set(files.values()):
        held = [name for name, file in files.items() if file == key]
        assert len(held) == 1 or sum(expected[name].nbytes for name in held) <= 40_000
    assert_same(written(tmp_path / "many"), expected)
    assert_same(safetensors.load(tmp_path / "many"), expected)
    index = json.loads((tmp_path / "many" / safetensors.INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in expected.values())


def test_parts_of_any_size_make_the_same_file(tmp_path: Path) -> None:
    expected = tensors(count=60)
    safetensors.save_sharded(tmp_path / "large", expected)
    for pages in (1, 3, 16):
        safetensors.save_sharded(tmp_path / str(pages), expected, part_bytes=4096 * pages)
        one, other = (tmp_path / name / "model.safetensors" for name in ("large", str(pages)))
        assert one.read_bytes() == other.read_bytes()


def test_views_and_numpy_arrays_are_written(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    state = {"t": base.T, "row": base[1], "n": np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2]}
    safetensors.save_sharded(tmp_path, state)
    found = of_torch.load_file(tmp_path / "model.safetensors")
    assert found["t"].tolist() == base.T.tolist()
    assert found["row"].tolist() == base[1].tolist()
    assert found["n"].tolist() == [[0, 2], [3, 5]]


def test_pairs_of_4_bit_floats_are_written(tmp_path: Path) -> None:
    """Narrower than bytes, so they come last, and need no alignment."""
    pairs = torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4).view(torch.float4_e2m1fn_x2)
    expected = {"a": pairs, "b": torch.ones(3, dtype=torch.bool), "c": torch.arange(5.0)}
    safetensors.save_sharded(tmp_path, expected)
    assert_same(written(tmp_path), expected)
    assert_same(safetensors.load(tmp_path), expected)
    into = {
        name: torch.zeros_like(value.view(torch.uint8)).view(value.dtype) for name, value in expected.items()
    }
    assert_same(safetensors.load(tmp_path, into), expected)


def test_the_target_is_a_directory(tmp_path: Path) -> None:
    with pytest.raises(hr.InvalidArgumentError, match="expected a directory"):
        safetensors.save_sharded(tmp_path / "x.safetensors", tensors())


def test_files_are_as_they_are_asked_for(tmp_path: Path) -> None:
    state = {name: torch.ones(2) for name in "abc"}
    files = safetensors.save_sharded(tmp_path / "n", state, fqn_to_file={"a": 2, "b": 1, "c": 2})
    assert files == {
        "a": "model-00002-of-00002.safetensors",
        "b": "model-00001-of-00002.safetensors",
        "c": "model-00002-of-00002.safetensors",
    }
    names = {"a": "x.safetensors", "b": "y.safetensors", "c": "y.safetensors"}
    assert safetensors.save_sharded(tmp_path / "m", state, fqn_to_file=names) == names
    assert written(tmp_path / "m").keys() == state.keys()
    for bad in ("../a.safetensors", "a.bin", 0, True):
        with pytest.raises(hr.InvalidArgumentError, match="expected a file name"):
            safetensors.save_sharded(tmp_path / "x", state, fqn_to_file={"a": bad, "b": 1, "c": 1})
    with pytest.raises(hr.InvalidArgumentError, match="does not say where b, c shall be"):
        safetensors.save_sharded(tmp_path / "x", state, fqn_to_file={"a": 1})


@pytest.mark.parametrize(
    "files",
    [
        {"a": 1, "b": "extra.safetensors"},
        {"a": 2, "b": "model.safetensors"},
        {"a": "model.safetensors", "b": "extra.safetensors"},
    ],
)
def test_no_file_hides_the_others(files: dict[str, str | int], tmp_path: Path) -> None:
    """Readers take model.safetensors before an index."""
    state = {"a": torch.arange(4.0), "b": torch.arange(3.0)}
    with pytest.raises(hr.InvalidArgumentError, match="would not see the others"):
        safetensors.save_sharded(tmp_path, state, fqn_to_file=files)
    assert not list(tmp_path.iterdir())
    whole = dict.fromkeys(state, "model.safetensors")
    assert safetensors.save_sharded(tmp_path, state, fqn_to_file=whole) == whole
    assert_same(safetensors.load(tmp_path), state)


def test_a_model_is_replaced_only_when_told_so(tmp_path: Path) -> None:
    safetensors.save_sharded(tmp_path, tensors(), max_shard_bytes="40kB")
    with pytest.raises(hr.ChangedError, match=r"index\.json: a model is there; overwrite=True"):
        safetensors.save_sharded(tmp_path, tensors(1))
    assert_same(safetensors.load(tmp_path), tensors())
    (tmp_path / "config.json").write_text("{}")
    safetensors.save_sharded(tmp_path, tensors(1), overwrite=True)
    assert {file.name for file in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    safetensors.save_sharded(tmp_path, tensors(2), max_shard_bytes="99kB", overwrite=True)
    assert not (tmp_path / "model.safetensors").exists()
    assert_same(safetensors.load(tmp_path), tensors(2))


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"a": {"b": torch.ones(1)}}, r"state\['a'\] is a builtins.dict; safetensors files have arrays"),
        ({"a": 1}, "is a builtins.int"),
        ({3: torch.ones(1)}, r"state\[3\]"),
        ([], "expected a model, or arrays by name"),
        ({}, "has no arrays"),
        ({"__metadata__": torch.ones(1)}, "not be __metadata__"),
        ({"a": torch.ones(2, dtype=torch.complex128)}, "arrays of complex128"),
    ],
)
def test_states_that_have_no_place_there_are_refused(tmp_path: Path, state: Any, text: str) -> None:
    with pytest.raises(hr.InvalidArgumentError, match=text):
        safetensors.save_sharded(tmp_path, state)
    assert not list(tmp_path.iterdir())


class Tied(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(8, 8)
        self.embed = torch.nn.Embedding(50, 8)
        self.head = torch.nn.Linear(8, 50, bias=False)
        self.head.weight = self.embed.weight


def test_arrays_that_share_memory_are_filled_in_whole(tmp_path: Path) -> None:
    def views(whole: Any) -> dict[str, Any]:
        return {
            "whole": whole,
            "turned": whole.t(),
            "flat": whole.view(-1),
            "some": whole[1:],
            "every": whole.view(-1)[::2],
            "first": whole.view(-1)[:6],
        }

    expected = torch.arange(12.0).reshape(3, 4)
    safetensors.save_sharded(tmp_path / "a", {name: each.clone() for name, each in views(expected).items()})
    into = torch.zeros(3, 4)
    safetensors.load(tmp_path / "a", into=views(into))
    assert torch.equal(into, expected)
    flat = torch.zeros(8)
    of_torch.save_file({"a": torch.ones(4), "b": torch.ones(4)}, tmp_path / "b.safetensors")
    safetensors.load(tmp_path / "b.safetensors", into={"a": flat[::2], "b": flat[:4]})
    assert flat.tolist() == [1, 1, 1, 1, 1, 0, 1, 0]


@pytest.mark.parametrize("views", [lambda x: (x, x.t()), lambda x: (x, x[1:]), lambda x: (x[:2], x[1:])])
def test_arrays_that_share_memory_and_differ_in_the_files_are_refused(
    views: Callable[[Any], tuple[Any, Any]], tmp_path: Path
) -> None:
    one, other = views(torch.zeros(3, 3))
    saved = {"a": torch.ones(one.shape), "b": torch.full(other.shape, 2.0)}
    of_torch.save_file(saved, tmp_path / "a.safetensors")
    with pytest.raises(hr.InvalidArgumentError, match="have memory in common in into="):
        safetensors.load(tmp_path, into={"a": one, "b": other})


def test_memory_that_is_filled_under_another_name_is_not_missing(tmp_path: Path) -> None:
    whole = torch.zeros(2, 3)
    safetensors.save_sharded(tmp_path, {"a": torch.ones(2, 3)})
    safetensors.load(tmp_path, into={"a": whole, "turned": whole.t()})
    twice = torch.zeros(12)
    with pytest.raises(hr.InvalidArgumentError, match=r"1 tensors of into= are not in it \(b\)"):
        safetensors.load(tmp_path, into={"a": twice[:6].view(2, 3), "b": twice[::2]})


@pytest.mark.parametrize("limit", ["5GB", "1kB"])
def test_tied_weights_are_written_once(tmp_path: Path, limit: str) -> None:
    model, other = Tied(), Tied()
    files = safetensors.save_sharded(tmp_path, model, max_shard_bytes=limit)
    assert list(files) == ["body.bias", "body.weight", "embed.weight"]
    safetensors.load(tmp_path, other)
    assert torch.equal(other.head.weight, model.head.weight)
    found = safetensors.load(tmp_path)
    assert found["head.weight"] is found["embed.weight"]
    apart = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    safetensors.load(tmp_path, apart)
    assert torch.equal(apart["head.weight"], model.head.weight)
    if limit == "5GB":
        of_torch.load_model(Tied(), tmp_path / safetensors.SINGLE)


# --- With transformers ---


def tiny(kind: str) -> Any:
    """A model of a few kB, with tied weights."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "llama":
        config = transformers.LlamaConfig(
            vocab_size=100,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
        )
        return transformers.AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16)
    config = transformers.T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    return transformers.T5ForConditionalGeneration(config)


@pytest.mark.parametrize("kind", ["llama", "t5"])
@pytest.mark.parametrize("limit", ["5GB", "20kB"])
def test_transformers_loads_what_was_written(tmp_path: Path, kind: str, limit: str) -> None:
    model = tiny(kind)
    files = safetensors.save_sharded(tmp_path, model, max_shard_bytes=limit)
    assert (len(set(files.values())) > 2) == (limit == "20kB")
    model.config.save_pretrained(tmp_path)
    found, notes = type(model).from_pretrained(tmp_path, torch_dtype=model.dtype, output_loading_info=True)
    assert not any(notes[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert_same(found.state_dict(), model.state_dict())


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_what_transformers_has_written_is_loaded(tmp_path: Path, kind: str) -> None:
    model = tiny(kind)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / safetensors.INDEX).exists()
    other = tiny(kind)
    with torch.no_grad():
        for value in other.parameters():
            value.zero_()
    safetensors.load(tmp_path, other)
    assert_same(other.state_dict(), model.state_dict())
    found = safetensors.load(tmp_path)
    assert_same(found, {name: value for name, value in model.state_dict().items() if name in found})


# --- On several ranks ---

PROGRAM = Path(__file__).with_name("safetensors_ways.py")


def results(jobs: list[Job]) -> list[list[Any]]:
    return run_without_errors(PROGRAM, jobs)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_any_mesh_writes_what_one_process_would(tmp_path: Path, world: int) -> None:
    """Parts of a page: nearly all have bytes of several ranks."""
    from checkpoint_ways import value_of

    expected = {f"t{n}": value_of(n) for n in range(30)}
    places = [str(tmp_path / name) for name in ("one", "many")]
    jobs = [
        Job("save", places[0], world, options={"seed": world, "part_bytes": 4096}),
        Job("save", places[1], world, options={"seed": 7, "part_bytes": 8192, "max_shard_bytes": "30kB"}),
        *(Job("load", place, 6 - world, options={"seed": 3}) for place in places),
    ]
    results(jobs)
    for place in map(Path, places):
        assert_same(written(place), expected)
    files = safetensors.save_sharded(tmp_path / "here", expected, max_shard_bytes="30kB", part_bytes=8192)
    for key in set(files.values()):
        assert (tmp_path / "here" / key).read_bytes() == (tmp_path / "many" / key).read_bytes()


@pytest.mark.parametrize("world", [2, 4])
def test_fsdp_writes_what_transformers_loads(tmp_path: Path, world: int) -> None:
    model = tiny("llama")
    model.save_pretrained(tmp_path / "before")
    job = Job("fsdp", str(tmp_path), world, options={"max_shard_bytes": "20kB", "part_bytes": 4096})
    (files,) = {tuple(sorted(result)) for result in results([job])[0]}
    assert "lm_head.weight" not in files
    model.config.save_pretrained(tmp_path / "after")
    found = type(model).from_pretrained(tmp_path / "after", torch_dtype=model.dtype)
    assert_same(found.state_dict(), model.state_dict())


def test_a_rank_that_cannot_write_fails_all_and_leaves_no_index(tmp_path: Path) -> None:
    first, second = results([Job("fails", str(tmp_path), 2)])[0]
    for result in (first, second):
        assert "UnavailableError: rank 1: it could not write its part of model-00001" in result
        assert "no room" in result
    assert list(tmp_path.iterdir()) == []


def test_no_rank_writes_more_than_its_share() -> None:
    """Even where one has all of it."""
    whole = Chunk((0,), (100_000,))
    arrays = [Planned(name, "torch", "F32", (100_000,), ((whole, 1),)) for name in "ab"]
    layout = lay_out("x", arrays, {}, 4096, 4)
    counts = Counter(layout.writers)
    assert sorted(counts) == [0, 1, 2, 3]
    assert max(counts.values()) == -(-len(layout.writers) // 4)


def test_a_model_that_is_there_is_told_to_all_ranks(tmp_path: Path) -> None:
    (tmp_path / safetensors.INDEX).write_text("{}")
    for result in results([Job("save", str(tmp_path), 2, options={"seed": 1, "expects": "ChangedError"})])[0]:
        assert "a model is there; overwrite=True replaces it" in result


def test_ranks_with_other_options_write_nothing(tmp_path: Path) -> None:
    """Each would put its bytes where the others have none."""
    given = {
        "metadata": [{"rank": "0"}, {"rank": "1000"}],
        "max_shard_bytes": ["1kB", "1GB"],
        "part_bytes": [4096, 8192],
        "fqn_to_file": [{"x": 1, "y": 1}, {"x": 1}],
    }
    jobs = [Job("different", str(tmp_path), 2, options={name: values}) for name, values in given.items()]
    for name, ranks in zip(given, results(jobs), strict=True):
        for result in ranks:
            text = "does not say where y shall be" if name == "fqn_to_file" else "ranks were given different"
            assert (
                f"InvalidArgumentError: {'rank 1: its state' if name == 'fqn_to_file' else 'ranks'}" in result
            )
            assert text in result
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_contradict_one_another_write_nothing(tmp_path: Path) -> None:
    for result in results([Job("different", str(tmp_path), 2)])[0]:
        assert "ranks 0 and 1 have different values" in result
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_killed_leaves_no_mixture(tmp_path: Path) -> None:
    ((seen,),) = results([Job("killed", str(tmp_path))])
    assert seen[0] == "old"
    assert seen[-1] == "new"
    assert set(seen) == {"old", "none", "new"}
    assert len(seen) > 15
    assert seen == sorted(seen, key=["old", "none", "new"].index)
