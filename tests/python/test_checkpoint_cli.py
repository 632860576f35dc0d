"""``headrace ckpt``: what it says about checkpoints, and what it does with them."""

from __future__ import annotations

import collections
import json
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.checkpoint
from headrace import _native
from headrace import sim as simulator
from headrace.checkpoint.copying import Copying
from headrace.checkpoint.keys import SaveId, data_key, fence_key
from headrace.checkpoint.leftovers import find_leftovers
from headrace.checkpoint.manifest import Manifest
from headrace.checkpoint.place import GRACE_SECONDS, Place

BLOCK = 16 << 10


def state_of(step: int) -> dict[str, Any]:
    weights = np.arange(20_000, dtype=np.float32)
    weights[7000] = step
    return {
        "model": {"w": weights, "b": np.full((3, 5), 2.5), "half": np.ones(4, np.float16)},
        "optimizer": {"lr": 0.1 / step, "betas": (0.9, 0.95), "names": ["w", None]},
        "step": step,
        "raw": b"abc",
    }


def save(url: str | Path, *steps: int, **options: Any) -> None:
    with headrace.checkpoint.Checkpointer(url, **options) as checkpointer:
        for step in steps:
            checkpointer.save(step, state_of(step), metadata={"loss": 1 / step}).result()


@pytest.fixture
def run_17(tmp_path: Path) -> Path:
    """Checkpoints of steps 1, 2 and 3 in a directory."""
    save(tmp_path / "run-17", 1, 2, 3)
    return tmp_path / "run-17"


def data_file(run: Path, step: int) -> Path:
    (found,) = run.glob(f"saves/*-{step:012}-*/*.safetensors")
    return found


def place_of(name: str, file: Path) -> tuple[int, int]:
    """Where an array lies in a safetensors file, by its own header."""
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8 : 8 + length])[name]["data_offsets"]
    return 8 + length + begin, 8 + length + end


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


# --- ls, info, cat ---


def test_ls_says_what_was_saved(cli: Any, run_17: Path) -> None:
    cli("ckpt", "pin", str(run_17), "2")
    said = cli("ckpt", "ls", str(run_17), "--json").json()
    assert (said["url"], said["latest"]) == (str(run_17), 3)
    rows = said["checkpoints"]
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [row["is_pinned"] for row in rows] == [False, True, False]
    assert all((row["ranks"], row["arrays"]) == (1, 3) for row in rows)
    assert [row["bytes"] for row in rows] == [data_file(run_17, step).stat().st_size for step in (1, 2, 3)]
    assert rows[1]["metadata"] == {"loss": 0.5}
    lines = cli("ckpt", "ls", str(run_17)).out.splitlines()
    assert lines[2].split()[-2:] == ["pinned", "loss=0.5"]
    assert "latest" in lines[3]


def test_ls_shows_a_broken_manifest_among_the_others(cli: Any, run_17: Path) -> None:
    flip(run_17 / "steps" / f"{2:012}", 20)
    done = cli("ckpt", "ls", str(run_17))
    assert done.code == 1
    lines = done.out.splitlines()
    assert "broken" in lines[2]
    assert "CRC32C" in lines[2]
    assert "latest" in lines[3]


@pytest.mark.parametrize("command", ["ls", "info", "verify"])
def test_where_there_is_none_it_says_so(cli: Any, tmp_path: Path, command: str) -> None:
    done = cli("ckpt", command, str(tmp_path / "nothing"))
    assert (done.code, done.out) == (1, "")
    assert "nothing: has no checkpoint" in done.err
    assert not (tmp_path / "nothing").exists()


def test_a_bucket_that_is_not_there_is_an_error(cli: Any, s3: simulator.Server) -> None:
    for words in (("ls",), ("info",), ("verify",), ("cat", "1"), ("gc",), ("pin", "1")):
        done = cli("ckpt", words[0], "s3://bukcet/run", *words[1:])
        assert (done.code, done.out, "the bucket does not exist" in done.err) == (1, "", True), (words, done)


def test_a_step_that_is_not_there_is_an_error_that_names_those_that_are(cli: Any, run_17: Path) -> None:
    done = cli("ckpt", "info", str(run_17), "7")
    assert done.code == 1
    assert "no checkpoint of step 7; those of 1, 2, 3" in done.err
    assert "expected a number, or latest" in cli("ckpt", "info", str(run_17), "last").err


def test_info_shows_the_tree(cli: Any, run_17: Path) -> None:
    lines = [line.split() for line in cli("ckpt", "info", str(run_17), "2").out.splitlines()]
    assert ["w", "F32[20000]", "78.1", "KiB"] in lines
    assert ["lr", "0.05"] in lines
    assert ["raw", "3", "bytes"] in lines
    shallow = cli("ckpt", "info", str(run_17), "--depth", "1").out.splitlines()
    assert any(line.split() == ["model", "3", "arrays,", "78.2", "KiB"] for line in shallow)
    assert any(line.split() == ["optimizer", "5", "values"] for line in shallow)
    table = cli("ckpt", "info", str(run_17), "--arrays").out.splitlines()
    assert [line.split()[-1] for line in table] == ["model.b", "model.half", "model.w"]


def test_info_as_json_holds_the_state_but_for_the_values_of_arrays(cli: Any, run_17: Path) -> None:
    said = cli("ckpt", "info", str(run_17), "--json").json()
    assert said["step"] == 3
    assert [row["name"] for row in said["arrays"]] == ["model.b", "model.half", "model.w"]
    assert said["tree"]["model"]["b"] == {"array": "model.b", "dtype": "F64", "shape": [3, 5]}
    assert said["tree"]["optimizer"] == {"lr": 0.1 / 3, "betas": [0.9, 0.95], "names": ["w", None]}
    assert cli("ckpt", "cat", str(run_17), "latest").json() == said["tree"]


def test_cat_gives_arrays_that_numpy_loads(cli: Any, run_17: Path, tmp_path: Path) -> None:
    file = tmp_path / "w.npy"
    assert cli("ckpt", "cat", str(run_17), "2", "model.w", "-o", str(file)).code == 0
    expected = state_of(2)["model"]["w"]
    loaded = np.load(file)
    assert loaded.dtype == expected.dtype
    assert np.array_equal(loaded, expected)
    piped = subprocess.run(
        [sys.executable, "-m", "headrace.cli", "ckpt", "cat", str(run_17), "2", "model.w"],
        capture_output=True,
        check=False,
    )
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert piped.stdout == file.read_bytes()


def test_cat_sums_up(cli: Any, run_17: Path) -> None:
    said = cli("ckpt", "cat", str(run_17), "2", "model.w", "--json").json()
    values = state_of(2)["model"]["w"].astype(np.float64)
    assert (said["min"], said["max"], said["zeros"], said["nan"]) == (0, 19999, 1, 0)
    assert said["mean"] == pytest.approx(values.mean())
    assert said["std"] == pytest.approx(values.std())


def test_cat_of_an_array_that_is_not_there_names_those_alike(cli: Any, run_17: Path) -> None:
    done = cli("ckpt", "cat", str(run_17), "2", "model.ww")
    assert done.code == 1
    assert "no array 'model.ww'; there is model.w" in done.err


def test_cat_proves_what_it_gives(cli: Any, run_17: Path) -> None:
    file = data_file(run_17, 2)
    flip(file, place_of("model.b", file)[0])
    done = cli("ckpt", "cat", str(run_17), "2", "model.b", "--summary")
    assert done.code == 1
    assert "do not match their CRC32C" in done.err


def test_what_numpy_has_not_keeps_its_values(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from headrace.checkpoint.widened import read_array

    kinds = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
    bits = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    state = {kind: bits.clone().view(getattr(torch, kind)) for kind in kinds}
    state["bfloat16"] = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    with headrace.checkpoint.Checkpointer(tmp_path) as checkpointer:
        manifest = checkpointer.save(1, state).result()
    place = Place(hr.Store(tmp_path))
    for name, saved in state.items():
        expected = saved.to(torch.float32).numpy()
        got = read_array(place, manifest, name)
        assert got.dtype == np.float32
        assert np.array_equal(got, expected, equal_nan=True), name
        assert np.array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(expected[~np.isnan(expected)])), (
            name
        )


# --- verify ---


def test_verify_of_what_is_whole(cli: Any, run_17: Path) -> None:
    done = cli("ckpt", "verify", "--all", str(run_17))
    assert done.code == 0
    assert [line.split(",")[0] for line in done.out.splitlines()] == [f"step {n}: whole" for n in (1, 2, 3)]


def test_verify_names_file_array_and_bytes(cli: Any, run_17: Path) -> None:
    file = data_file(run_17, 2)
    begin, end = place_of("model.w", file)
    for at in (begin + BLOCK, begin + 3 * BLOCK - 1, end - 1):
        flip(file, at)
    done = cli("ckpt", "verify", str(run_17), "2", "--json")
    assert done.code == 1
    (row,) = json.loads(done.out)["checkpoints"]
    key = str(file.relative_to(run_17))
    assert [(each["key"], each["array"], each["begin"], each["end"]) for each in row["damage"]] == [
        (key, "model.w", begin + BLOCK, begin + 3 * BLOCK),
        (key, "model.w", begin + 4 * BLOCK, end),
    ]
    text = cli("ckpt", "verify", str(run_17), "2").out
    assert f"{key}: bytes {begin + BLOCK} to {begin + 3 * BLOCK}: model.w: does not match its CRC32C" in text
    assert cli("ckpt", "verify", str(run_17)).code == 0, "another step's"


def damaged_header(file: Path) -> str:
    flip(file, 9)
    return "header is not what was saved"


def cut(file: Path) -> str:
    os.truncate(file, file.stat().st_size - 100)
    return "bytes instead of"


def lost(file: Path) -> str:
    file.unlink()
    return "is missing"


def damaged_index(file: Path) -> str:
    flip(file.with_suffix(".index"), 30)
    return "is not what was saved"


def lost_index(file: Path) -> str:
    file.with_suffix(".index").unlink()
    return "is missing"


def lost_index_and_damaged(file: Path) -> str:
    flip(file, file.stat().st_size - 1)
    return lost_index(file)


def empty(file: Path) -> str:
    file.write_bytes(b"")
    return "has 0 bytes instead of"


@pytest.mark.parametrize(
    "damage", [damaged_header, cut, lost, damaged_index, lost_index, lost_index_and_damaged, empty]
)
def test_verify_finds(cli: Any, run_17: Path, damage: Callable[[Path], str]) -> None:
    why = damage(data_file(run_17, 3))
    done = cli("ckpt", "verify", "--all", str(run_17))
    assert (done.code, done.err) == (1, "")
    assert why in done.out
    assert "step 2: whole" in done.out


def test_verify_goes_on_behind_a_broken_manifest(cli: Any, run_17: Path) -> None:
    flip(run_17 / "steps" / f"{2:012}", 20)
    done = cli("ckpt", "verify", "--all", str(run_17), "--json")
    assert done.code == 1
    assert [row["ok"] for row in json.loads(done.out)["checkpoints"]] == [True, False, True]


def test_every_byte_counts(cli: Any, tmp_path: Path) -> None:
    """A bit that flips anywhere in a small checkpoint's files is found."""
    with headrace.checkpoint.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"x": np.arange(3)}).result()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.parent.name != "fence"]
    assert len(files) == 4
    for file in files:
        if file.name == "LATEST":
            continue
        size = file.stat().st_size
        for at in range(0, size, 1 if size < 200 else 97):
            flip(file, at)
            assert cli("ckpt", "verify", str(tmp_path), "1").code == 1, (file, at)
            flip(file, at)
    assert cli("ckpt", "verify", str(tmp_path), "1").code == 0


# --- diff ---


def test_diff_finds_what_differs_and_nothing_else(cli: Any, run_17: Path) -> None:
    done = cli("ckpt", "diff", str(run_17), "1", "2", "--json")
    assert done.code == 1
    said = json.loads(done.out)
    assert [(row["name"], row["what"], row["changed_bytes"]) for row in said["arrays"]] == [
        ("model.w", "values", BLOCK)
    ]
    assert said["equal_arrays"] == 2
    assert {row["path"]: (row["before"], row["after"]) for row in said["values"]} == {
        "optimizer.lr": (0.1, 0.05),
        "step": (1, 2),
    }
    assert said["metadata"] == [{"path": "loss", "before": 1.0, "after": 0.5}]
    text = cli("ckpt", "diff", str(run_17), "1", "2").out
    assert "~ model.w  F32[20000]  16.0 KiB differ" in text
    assert "1 array of 3 differ; 2 other values" in text


def test_diff_reads_no_data(cli: Any, run_17: Path) -> None:
    for step in (1, 2):
        data_file(run_17, step).unlink()
    assert cli("ckpt", "diff", str(run_17), "1", "2").code == 1
    assert cli("ckpt", "diff", str(run_17), "2", "2").code == 0


def test_diff_of_structure(cli: Any, tmp_path: Path) -> None:
    with headrace.checkpoint.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"a": np.zeros(4), "b": np.zeros(4), "c": np.zeros(4), "n": 1}).result()
        after = {"b": np.zeros(4, np.float32), "c": np.zeros((2, 2)), "d": np.zeros(9), "n": True}
        checkpointer.save(2, after).result()
    said = json.loads(cli("ckpt", "diff", str(tmp_path), "1", "2", "--json").out)
    assert [(row["name"], row["what"]) for row in said["arrays"]] == [
        ("a", "removed"),
        ("b", "type"),
        ("c", "type"),
        ("d", "added"),
    ]
    assert [row["path"] for row in said["values"]] == ["n"]


def diff_of(cli: Any, run: Path, before: Any, after: Any) -> tuple[list[Any], list[Any]]:
    """What it says of two states: rows of arrays and of values. Of one with itself it says nothing."""
    shutil.rmtree(run, ignore_errors=True)
    with headrace.checkpoint.Checkpointer(run) as checkpointer:
        for step, state in enumerate((before, after)):
            checkpointer.save(step, state).result()
    for step in ("0", "1"):
        assert cli("ckpt", "diff", str(run), step, step).code == 0
    done = cli("ckpt", "diff", str(run), "0", "1", "--json")
    said = json.loads(done.out)
    assert done.code == int(bool(said["arrays"] or said["values"]))
    arrays = [(row["name"], row["what"]) for row in said["arrays"]]
    return arrays, [(row["path"], row["before"], row["after"]) for row in said["values"]]


def test_diff_compares_what_is_at_a_path(cli: Any, tmp_path: Path) -> None:
    """Not what is called alike in the manifest: which of two arrays stands where, is the tree's."""
    x, y, z = np.zeros(3), np.ones(3), np.zeros(3)
    before = {"a": x, "b": y, "c": x}
    assert diff_of(cli, tmp_path, before, {"a": x, "b": y, "c": y}) == ([("c", "values")], [])
    rows = diff_of(cli, tmp_path, before, {"a": y, "b": y, "c": y})
    assert rows == ([("a", "values"), ("b", "ties")], [])
    assert diff_of(cli, tmp_path, before, {"a": x, "b": y, "c": z}) == ([("c", "ties")], [])
    text = cli("ckpt", "diff", str(tmp_path), "0", "1").out
    assert "~ c  F64[3], one with a -> F64[3]" in text
    assert "1 array of 3 differ" in text
    assert diff_of(cli, tmp_path, before, {"c": x, "b": y, "a": x}) == ([], [])
    assert diff_of(cli, tmp_path, before, {"a": x, "b": y}) == ([("c", "removed")], [])
    assert diff_of(cli, tmp_path, {"a": x}, {"a": 5}) == ([("a", "removed")], [("a", "(none)", 5)])
    assert diff_of(cli, tmp_path, x, y) == ([("state", "values")], [])


def test_diff_tells_keys_apart(cli: Any, tmp_path: Path) -> None:
    x, y = np.zeros(3), np.ones(3)
    before = {"a.b": 1, "a": {"b": 5, "c": 7}}
    rows = diff_of(cli, tmp_path, before, {"a.b": 2, "a": {"b": 5, "c": 8}})
    assert rows == ([], [('"a.b"', 1, 2), ("a.c", 7, 8)])
    assert diff_of(cli, tmp_path, before, {"a.b": 1, "a": {"b": 6, "c": 7}})[1] == [('"a"."b"', 5, 6)]
    assert diff_of(cli, tmp_path, {1: 1, "1": 5}, {1: 9, "1": 5})[1] == [("1", 1, 9)]
    assert diff_of(cli, tmp_path, {1: 1, "1": 5}, {1: 1, "1": 9})[1] == [('"1"', 5, 9)]
    assert diff_of(cli, tmp_path, {1: 5}, {"1": 5})[1] == [('"1"', "(none)", 5), ("1", 5, "(none)")]
    names = {"a.b": x, "a": {"b": y}}
    assert diff_of(cli, tmp_path, names, {"a": {"b": y}, "a.b": x}) == ([], [])
    rows = diff_of(cli, tmp_path, names, {"a": {"b": x.copy()}, "a.b": x})
    assert rows == ([('"a"."b"', "values")], [])
    assert diff_of(cli, tmp_path, {None: 1, "null": 1, True: x}, {None: 2, "null": 1, True: x})[1] == [
        ("null", 1, 2)
    ]


def test_diff_tells_lists_tuples_and_dicts_apart(cli: Any, tmp_path: Path) -> None:
    x = np.zeros(3)
    rows = diff_of(cli, tmp_path, {"t": (x,), "l": [1, 2]}, {"t": [x], "l": (1, 2)})
    assert rows == ([], [("l", "(list)", "(tuple)"), ("t", "(tuple)", "(list)")])
    assert diff_of(cli, tmp_path, {"l": [x]}, {"l": {0: x}}) == ([], [("l", "(list)", "(dict)")])
    assert diff_of(cli, tmp_path, {"l": [1]}, {"l": "(list)"})[1] == [
        ("l", "(list)", "(list)"),
        ("l.0", 1, "(none)"),
    ]
    assert diff_of(cli, tmp_path, {"l": [1], "e": {}}, {"l": [], "e": []})[1] == [
        ("e", {"dict": []}, {"list": []}),
        ("l.0", 1, "(none)"),
    ]
    assert diff_of(cli, tmp_path, {}, {"e": {}, "d": {"x": x, "n": 1}}) == (
        [("d.x", "added")],
        [("d.n", "(none)", 1), ("e", "(none)", {"dict": []})],
    )
    ordered = collections.OrderedDict(x=x, n=1, e=collections.OrderedDict())
    assert diff_of(cli, tmp_path, ordered, {"x": x, "n": 1, "e": {}}) == ([], [])


def write_in_two(run: Path, array: np.ndarray[Any, Any], step: int) -> None:
    """A checkpoint whose one array was cut in two, as two ranks would have."""
    from headrace.checkpoint.arrays import Chunk
    from headrace.checkpoint.manifest import DataFile, Piece, encode_index, index_sum
    from headrace.checkpoint.plan import Planned

    place = Place(hr.Store(run))
    save = f"000001-{step:012}-{step:08x}"
    half = len(array) // 2
    chunks = []
    files = []
    for rank, part in enumerate((array[:half], array[half:])):
        key = data_key(save, rank)
        writer = _native.CheckpointWriter(place.native, key, [("x", "F64", part.shape)], {}, 0, 1, "auto")
        writer.stage([(0, part.ctypes.data, part.nbytes, 0)], 0, writer.part_count)
        size, crc, _, (sums,), *_ = writer.finish()
        ((offset, length),) = writer.places()
        index = encode_index([(0, rank)], [Piece(0, offset, length, sums)])
        index_key = key.replace(".safetensors", ".index")
        _native.checkpoint_write_small(place.native, index_key, index)
        files.append(DataFile(key, size, crc, index_key, index_sum(index), 1, _native.crc32c(sums)))
        chunks.append((Chunk((rank * half,), part.shape), rank))
    planned = Planned("x", "numpy", "F64", array.shape, tuple(chunks))
    manifest = Manifest(step, save, 2, "", {}, {"dict": [["x", {"array": "x"}]]}, [planned], files, 1)
    place.commit(manifest, overwrite=False)
    place.close()


def test_arrays_that_were_cut_otherwise_are_compared_when_asked(cli: Any, tmp_path: Path) -> None:
    array = np.arange(10_000.0)
    with headrace.checkpoint.Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"x": array}).result()
    write_in_two(tmp_path, array, 2)
    array[9_999] = -1
    write_in_two(tmp_path, array, 3)
    done = cli("ckpt", "diff", str(tmp_path), "1", "2")
    assert done.code == 1
    assert "? x" in done.out
    assert "1 array of 1" not in done.out
    assert cli("ckpt", "diff", str(tmp_path), "1", "2", "--read").code == 0
    for a in ("1", "2"):
        said = json.loads(cli("ckpt", "diff", str(tmp_path), a, "3", "--read", "--json").out)
        assert [row["what"] for row in said["arrays"]] == ["values"]
        assert 0 < said["arrays"][0]["changed_bytes"] <= BLOCK
    info = cli("ckpt", "info", str(tmp_path), "3").out
    assert "x  F64[10000]  78.1 KiB  2 shards" in info
    assert cli("ckpt", "verify", "--all", str(tmp_path)).code == 0
    (file,) = tmp_path.glob("saves/*-000000000003-*/00001.safetensors")
    flip(file, file.stat().st_size - 1)
    assert "x from [5000]: does not match" in cli("ckpt", "verify", str(tmp_path), "3").out


# --- cp ---


def test_cp_takes_a_checkpoint_to_a_store_and_back(
    cli: Any, s3: simulator.Server, run_17: Path, tmp_path: Path
) -> None:
    assert cli("ckpt", "cp", str(run_17), "s3://b/copy", "--step", "2").code == 0
    assert cli("ckpt", "diff", str(run_17), "2", "2", "--other", "s3://b/copy").code == 0
    with headrace.checkpoint.Checkpointer("s3://b/copy") as checkpointer:
        assert (checkpointer.steps(), checkpointer.latest()) == ([2], 2)
        loaded = checkpointer.load()
        assert np.array_equal(loaded["model"]["w"], state_of(2)["model"]["w"])
        assert loaded["optimizer"] == state_of(2)["optimizer"]
    rows = cli("ckpt", "cp", "--all", "s3://b/copy", str(tmp_path / "back"), "--json").json()["checkpoints"]
    assert [(row["step"], row["was_there"]) for row in rows] == [(2, False)]
    assert cli("ckpt", "verify", str(tmp_path / "back")).code == 0
    rows = cli("ckpt", "cp", str(run_17), str(tmp_path / "back"), "--all", "--json").json()["checkpoints"]
    assert [(row["step"], row["was_there"]) for row in rows] == [(1, False), (2, True), (3, False)]
    assert cli("ckpt", "ls", str(tmp_path / "back"), "--json").json()["latest"] == 3


def test_cp_goes_on_and_proves_what_an_earlier_run_has_left(cli: Any, run_17: Path, tmp_path: Path) -> None:
    """A file of the right size that holds something else is no part of a copy."""
    target = tmp_path / "copy"
    assert cli("ckpt", "cp", str(run_17), str(target)).code == 0
    (target / "steps" / f"{3:012}").unlink()  # As if stopped before the manifest.
    file = data_file(target, 3)
    flip(file, file.stat().st_size - 1)
    done = cli("ckpt", "cp", str(run_17), str(target))
    assert done.code == 1
    assert "do not match their CRC32C" in done.err
    assert not file.exists()
    assert cli("ckpt", "cp", str(run_17), str(target)).code == 0
    assert cli("ckpt", "verify", str(target)).code == 0


def test_cp_of_what_is_broken_makes_no_checkpoint(cli: Any, run_17: Path, tmp_path: Path) -> None:
    file = data_file(run_17, 3)
    flip(file, file.stat().st_size - 1)
    done = cli("ckpt", "cp", str(run_17), str(tmp_path / "copy"))
    assert done.code == 1
    assert f"headrace ckpt verify {run_17} 3" in done.err
    assert [path for path in (tmp_path / "copy").rglob("*") if path.is_file()] == []


def test_cp_does_not_replace_another_checkpoint(cli: Any, run_17: Path, tmp_path: Path) -> None:
    save(tmp_path / "other", 3)
    done = cli("ckpt", "cp", str(run_17), str(tmp_path / "other"))
    assert done.code == 1
    assert "has another checkpoint of step 3" in done.err


def test_a_job_that_begins_at_the_target_leaves_a_copy_under_way_alone(run_17: Path, tmp_path: Path) -> None:
    source, target = Place(hr.Store(run_17)), Place(hr.Store(tmp_path / "copy"))
    copying = Copying(source, source.manifest(3), target)
    copying._copy_files()
    for _ in range(3):
        target.take_fence()
    assert list(target.orphans(target.highest_fence())) == []


# --- gc and pin ---


def leave(run: Path, fence: int, step: int) -> str:
    """What a save has left that did not commit."""
    name = str(SaveId.new(fence, step))
    (run / "saves" / name).mkdir(parents=True)
    (run / data_key(name, 0)).write_bytes(b"x" * 1000)
    return name


def age(run: Path, seconds: float) -> None:
    then = time.time() - seconds
    for path in run.rglob("*"):
        os.utime(path, (then, then))


def test_gc_takes_what_an_older_job_has_left(cli: Any, run_17: Path) -> None:
    old = leave(run_17, 1, 4)
    save(run_17, 5)  # Another job, with the next number.
    now = leave(run_17, 2, 6)
    said = cli("ckpt", "gc", str(run_17), "--json").json()
    assert [(row["save"], row["goes"]) for row in said["leftovers"]] == [(old, False), (now, False)]
    assert "minutes ago" in said["leftovers"][0]["why"]
    age(run_17, GRACE_SECONDS + 1)
    said = cli("ckpt", "gc", str(run_17), "--json").json()
    assert [(row["save"], row["goes"]) for row in said["leftovers"]] == [(old, True), (now, False)]
    assert (said["dry_run"], said["deleted_bytes"]) == (True, 0)
    done = cli("ckpt", "gc", str(run_17), "--dry-run", "--yes")
    assert "would delete 1,000 B" in done.out
    assert (run_17 / "saves" / old).exists()
    assert "1,000 B deleted" in cli("ckpt", "gc", str(run_17), "--yes").out
    assert not (run_17 / data_key(old, 0)).exists()
    assert (run_17 / data_key(now, 0)).exists()
    assert cli("ckpt", "verify", "--all", str(run_17)).code == 0


def test_a_directory_that_is_not_there_is_an_error(cli: Any, run_17: Path, tmp_path: Path) -> None:
    none = tmp_path / "none"
    for words in (("gc", str(none)), ("gc", f"file://{none}"), ("resume-upload", str(none), str(run_17))):
        done = cli("ckpt", *words)
        assert (done.code, "no such directory" in done.err, none.exists()) == (1, True, False), words


def test_gc_of_a_run_that_has_ended(cli: Any, run_17: Path) -> None:
    name = leave(run_17, 1, 4)
    age(run_17, 2 * 86400)
    assert cli("ckpt", "gc", str(run_17), "--older-than", "3d", "--yes").out.endswith("nothing to delete\n")
    assert "1,000 B deleted" in cli("ckpt", "gc", str(run_17), "--older-than", "1d", "--yes").out
    assert not (run_17 / data_key(name, 0)).exists()
    assert cli("ckpt", "verify", "--all", str(run_17)).code == 0
    assert "expected a time" in cli("ckpt", "gc", str(run_17), "--older-than", "soon").err


def test_gc_leaves_what_a_broken_manifest_may_name(cli: Any, run_17: Path) -> None:
    flip(run_17 / "steps" / f"{2:012}", 20)
    Place(hr.Store(run_17)).take_fence()
    age(run_17, GRACE_SECONDS + 1)
    said = cli("ckpt", "gc", str(run_17), "--yes", "--older-than", "1s", "--json").json()
    assert [(row["step"], row["goes"]) for row in said["leftovers"]] == [(2, False)]
    assert data_file(run_17, 2).exists()


def test_gc_goes_by_the_time_that_the_store_tells(run_17: Path) -> None:
    leave(run_17, 0, 4)
    fence = run_17 / fence_key(1)
    place = Place(hr.Store(run_17))
    for seconds, goes in ((GRACE_SECONDS - 1, False), (GRACE_SECONDS, True)):
        (row,) = find_leftovers(place, now=int(fence.stat().st_mtime) + seconds)
        assert row.goes is goes


def test_gc_asks_on_a_terminal(run_17: Path) -> None:
    name = leave(run_17, 0, 4)
    age(run_17, GRACE_SECONDS + 1)
    for answer, code, is_there in ((b"n\n", 1, True), (b"y\n", 0, False)):
        terminal, other = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", "ckpt", "gc", str(run_17)],
            stdin=other,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            os.write(terminal, answer)
            _, asked = process.communicate(timeout=60)
        os.close(other)
        os.close(terminal)
        assert b"Delete 1 unfinished save, 1,000 B? [y/N]" in asked
        assert process.returncode == code
        assert (run_17 / data_key(name, 0)).exists() is is_there


def test_a_pin_holds_against_keep_delete_and_overwrite(cli: Any, run_17: Path) -> None:
    assert cli("ckpt", "pin", str(run_17), "1").out == "step 1 is pinned\n"
    assert cli("ckpt", "pin", str(run_17), "2", "--json").json()["pinned"] == [1, 2]
    save(run_17, 4, 5, keep=2)
    with headrace.checkpoint.Checkpointer(run_17) as checkpointer:
        assert checkpointer.steps() == [1, 2, 4, 5]
        assert checkpointer.pinned() == [1, 2]
        with pytest.raises(hr.InvalidArgumentError, match="step 1 is pinned; headrace ckpt pin --remove"):
            checkpointer.delete(1)
        with pytest.raises(hr.InvalidArgumentError, match="step 1 is pinned"):
            checkpointer.save(1, {"x": 1}, overwrite=True).result()
        checkpointer.unpin(2)
        checkpointer.pin(4)
    assert cli("ckpt", "pin", "--remove", str(run_17), "1").code == 0
    save(run_17, 6, keep=1)
    assert cli("ckpt", "verify", "--all", str(run_17)).code == 0
    assert [row["step"] for row in cli("ckpt", "ls", str(run_17), "--json").json()["checkpoints"]] == [4, 6]


def test_what_is_not_there_cannot_be_pinned(cli: Any, run_17: Path) -> None:
    done = cli("ckpt", "pin", str(run_17), "9")
    assert done.code == 1
    assert "no checkpoint of step 9" in done.err
    assert not (run_17 / "pins").exists()


# --- The command line itself ---


def test_all_of_it_works_on_s3(cli: Any, s3: simulator.Server, buckets: Path) -> None:
    url = "s3://b/run"
    save(url, 1, 2)
    assert len(cli("ckpt", "ls", url, "--json").json()["checkpoints"]) == 2
    assert cli("ckpt", "info", url).code == 0
    assert cli("ckpt", "cat", url, "1", "model.b", "--json").json()["max"] == 2.5
    assert cli("ckpt", "pin", url, "1").code == 0
    assert cli("ckpt", "gc", url).code == 0
    assert cli("ckpt", "diff", url, "1", "2").code == 1
    assert cli("ckpt", "verify", "--all", url).code == 0
    file = data_file(buckets / "b" / "run", 2)
    flip(file, place_of("model.w", file)[0])
    done = cli("ckpt", "verify", url)
    assert done.code == 1
    assert "model.w: does not match" in done.out


def test_help_has_an_example_of_every_command(cli: Any) -> None:
    for command in ("ls", "info", "verify", "diff", "cat", "cp", "gc", "pin"):
        assert f"headrace ckpt {command}" in " ".join(cli("ckpt", command, "--help").out.split())


def test_it_needs_no_torch(run_17: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\nfrom headrace.cli import main; main(['ckpt', 'verify', "
        "sys.argv[1]])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run_17)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "step 3: whole" in done.stdout


# --- resume-upload ---


def left_on_disk(disk: Path, far: Path, *steps: int, overwrite: bool = True, **state: Any) -> None:
    """Saved on the disk, as a job does that is killed before it brings them over."""
    far.mkdir(exist_ok=True)
    before = far.with_name("before")
    shutil.copytree(far, before)
    with headrace.checkpoint.Checkpointer(far, local=disk, keep_local=len(steps) + 1) as checkpointer:
        for step in steps:
            rows = {"step": step, "a": np.arange(1000.0), **state}
            checkpointer.save(step, rows, overwrite=overwrite).result()
    shutil.copytree(far / "fence", before / "fence", dirs_exist_ok=True)
    shutil.rmtree(far)
    before.rename(far)


def test_what_lies_on_the_disk_alone_is_brought_over(cli: Any, tmp_path: Path) -> None:
    disk, far = tmp_path / "disk", tmp_path / "far"
    left_on_disk(disk, far, 1, 2)
    arguments = ("ckpt", "resume-upload", str(disk), str(far))
    assert "step 1: " in cli(*arguments, "--dry-run").out
    assert cli("ckpt", "ls", str(far)).code == 1, "nothing yet"
    rows = cli(*arguments, "--json").json()["checkpoints"]
    assert [(row["step"], row["done"], row["missing"]) for row in rows] == [(1, True, []), (2, True, [])]
    with headrace.checkpoint.Checkpointer(far) as checkpointer:
        assert (checkpointer.steps(), checkpointer.latest()) == ([1, 2], 2)
        checkpointer.verify(1)
        assert checkpointer.load(2)["step"] == 2
    assert cli(*arguments).out == "nothing is on the disk alone\n"
    with headrace.checkpoint.Checkpointer(disk) as checkpointer:
        assert checkpointer.steps() == [1, 2], "the disk keeps them"


def test_what_lies_on_another_node_is_named(cli: Any, tmp_path: Path) -> None:
    disk, far = tmp_path / "disk", tmp_path / "far"
    left_on_disk(disk, far, 1, 2)
    data_file(disk, 1).unlink()
    done = cli("ckpt", "resume-upload", str(disk), str(far))
    assert done.code == 1
    assert "step 1: 1 file not on this machine (saves/" in done.out
    assert "step 2: brought over and proved" in done.out
    assert "expected a directory of this machine" in cli("ckpt", "resume-upload", "s3://b/x", str(far)).err


def test_damage_on_the_disk_is_not_brought_over(cli: Any, tmp_path: Path) -> None:
    disk, far = tmp_path / "disk", tmp_path / "far"
    left_on_disk(disk, far, 1)
    flip(data_file(disk, 1), -9)
    done = cli("ckpt", "resume-upload", str(disk), str(far))
    assert done.code == 1
    assert "CRC32C" in done.err
    assert not (far / "steps").exists()


def test_what_was_saved_anew_on_the_disk_replaces_what_is_there(cli: Any, tmp_path: Path) -> None:
    disk, far = tmp_path / "disk", tmp_path / "far"
    left_on_disk(disk, far, 1, 2)
    arguments = ("ckpt", "resume-upload", str(disk), str(far))
    assert cli(*arguments).code == 0
    left_on_disk(disk, far, 1, step="anew")
    flip(far / "steps" / f"{2:012}", 9)
    assert "step 1: " in cli(*arguments, "--dry-run").out
    done = cli(*arguments)
    assert done.code == 1
    assert ", in the place of one that was saved before" in done.out
    assert "step 2: stays on the disk: " in done.out
    with headrace.checkpoint.Checkpointer(far) as checkpointer:
        assert checkpointer.load(1)["step"] == "anew"
    assert len([path for path in (far / "saves").iterdir() if list(path.iterdir())]) == 2, (
        "the old one's went"
    )
    (row,) = json.loads(cli(*arguments, "--json").out)["checkpoints"]
    assert (row["step"], row["done"], bool(row["problem"])) == (2, False, True)


def test_what_was_not_to_replace_what_is_there_stays_on_the_disk(cli: Any, tmp_path: Path) -> None:
    disk, far = tmp_path / "disk", tmp_path / "far"
    with headrace.checkpoint.Checkpointer(far) as checkpointer:
        checkpointer.save(1, {"step": "first"}).result()
    (far / "steps").rename(tmp_path / "steps")  # The job does not come to see it.
    left_on_disk(disk, far, 1, overwrite=False)
    (tmp_path / "steps").rename(far / "steps")
    done = cli("ckpt", "resume-upload", str(disk), str(far))
    assert done.code == 1
    assert "step 1: stays on the disk: the URL has another save of it, which it was not to" in done.out
    with headrace.checkpoint.Checkpointer(far) as checkpointer:
        assert checkpointer.load(1)["step"] == "first"


def test_of_two_copies_nobody_knows_which_is_later(cli: Any, tmp_path: Path) -> None:
    """Two runs of their own, brought to one URL."""
    one, two, far = (tmp_path / name for name in ("one", "two", "far"))
    save(one, 100)
    save(two, 100)
    assert cli("ckpt", "resume-upload", str(one), str(far)).code == 0
    with headrace.checkpoint.Checkpointer(far) as checkpointer:
        before = checkpointer.info(100).save
    done = cli("ckpt", "resume-upload", str(two), str(far))
    assert done.code == 1
    assert "which of the two was saved later is not known" in done.out
    with headrace.checkpoint.Checkpointer(far) as checkpointer:
        assert checkpointer.info(100).save == before


def test_a_damaged_manifest_on_the_disk_holds_up_no_other(cli: Any, tmp_path: Path) -> None:
    disk, far = tmp_path / "disk", tmp_path / "far"
    left_on_disk(disk, far, 1, 2)
    flip(disk / "steps" / f"{1:012}", 9)
    done = cli("ckpt", "resume-upload", str(disk), str(far))
    assert done.code == 1
    assert "step 1: stays on the disk: its manifest" in done.out
    assert "step 2: brought over and proved" in done.out


def test_all_of_it_works_where_little_was_written(cli: Any, tmp_path: Path) -> None:
    """Checkpoints that refer to files of earlier ones, of which the first is gone."""
    run, copy = tmp_path / "run", tmp_path / "copy"
    with headrace.checkpoint.Checkpointer(run, differential=True, keep=2) as checkpointer:
        for step in (1, 2, 3):
            state = {"base": np.arange(20_000.0), "x": np.full(500, float(step)), "step": step}
            checkpointer.save(step, state).result()
    rows = cli("ckpt", "ls", str(run), "--json").json()["checkpoints"]
    assert [(row["step"], row["bytes"] > 160_000, row["written_bytes"] < 10_000) for row in rows] == [
        (2, True, True),
        (3, True, True),
    ]
    (first,) = {path.parent.name for path in run.glob("saves/*-000000000001-*/*")}
    assert f"156.2 KiB lie in files of earlier saves: {first}" in cli("ckpt", "info", str(run)).out
    said = cli("ckpt", "info", str(run), "--json").json()
    assert said["files"][0]["earlier"][0]["needed"] == 160_000
    assert cli("ckpt", "verify", "--all", str(run)).code == 0
    found = json.loads(cli("ckpt", "diff", str(run), "2", "3", "--json").out)
    assert ([row["name"] for row in found["arrays"]], found["equal_arrays"]) == (["x"], 1)
    age(run, 10 * 86400)
    assert "nothing to delete" in cli("ckpt", "gc", str(run), "--older-than", "1d", "--yes").out
    assert cli("ckpt", "cp", "--all", str(run), str(copy)).code == 0
    assert cli("ckpt", "verify", "--all", str(copy)).code == 0
    assert (
        cli("ckpt", "convert", str(run), str(tmp_path / "model"), "--to", "safetensors", "--leave-out").code
        == 0
    )
    assert (tmp_path / "model" / "model.safetensors").stat().st_size > 160_000
    flip(next(run.glob(f"saves/{first}/*.safetensors")), 100_000)
    done = cli("ckpt", "verify", str(run))
    assert done.code == 1
    assert f"saves/{first}/00000.safetensors" in done.out
    assert "base" in done.out
