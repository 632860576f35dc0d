"""``headrace ckpt convert``: of each format into each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_checkpoint_dcp_format import assert_equal
from test_checkpoint_dcp_format import save as save_dcp

import headrace as hr
from headrace.checkpoint import Checkpointer, dcp_format, safetensors
from headrace.checkpoint.converting import SOURCES, Conversion, _part, find_format

torch = pytest.importorskip("torch")
of_torch = pytest.importorskip("safetensors.torch")


def weights() -> dict[str, Any]:
    return {
        "embed.weight": torch.arange(600.0).reshape(20, 30).to(torch.bfloat16),
        "head.bias": torch.arange(5),
        "scale": torch.tensor(2.5),
        "mask": torch.tensor([True, False]),
        "w8": torch.arange(4.0).to(torch.float8_e4m3fn),
    }


def state() -> dict[str, Any]:
    return {"model": weights(), "optimizer": {"lr": 0.1, "m": [torch.ones(3)]}, "step": 7}


def make(kind: str, place: Path) -> str:
    """A checkpoint; of safetensors only the weights."""
    if kind == "headrace":
        with Checkpointer(place) as checkpointer:
            for step in (6, 7):
                checkpointer.save(step, {**state(), "step": step}).result()
    elif kind == "safetensors":
        safetensors.save_sharded(place, weights(), max_shard_bytes="1kB")
    elif kind == "dcp":
        save_dcp(place, state())
    else:
        place.mkdir()
        torch.save(state(), place / "x.pt")
        return str(place / "x.pt")
    return str(place)


def read(kind: str, place: Path) -> Any:
    if kind == "headrace":
        with Checkpointer(place) as checkpointer:
            checkpointer.verify(7)
            return checkpointer.load(7)
    if kind == "dcp":
        return dcp_format.load(place)
    return safetensors.load(place)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", ["headrace", "safetensors", "dcp"])
def test_every_format_becomes_every_other(cli: Any, tmp_path: Path, source: str, target: str) -> None:
    url = make(source, tmp_path / "a")
    arguments = ["--only", "model"] if target == "safetensors" and source != "safetensors" else []
    arguments += ["--to-step", "7"] if target == "headrace" else []
    done = cli("ckpt", "convert", url, str(tmp_path / "b"), "--to", target, "--json", *arguments)
    assert (done.code, done.err) == (0, ""), done.err
    expected = weights() if "safetensors" in (source, target) else state()
    row = done.json()
    count = 5 if "safetensors" in (source, target) else 6
    assert (row["format"], row["arrays"], row["left_out"]) == (source, count, [])
    assert row["step"] == (7 if target == "headrace" else None)
    assert row["from_step"] == (7 if source == "headrace" else None)
    assert_equal(read(target, tmp_path / "b"), expected)


def test_what_the_target_cannot_hold_is_named(cli: Any, tmp_path: Path) -> None:
    url = make("dcp", tmp_path / "a")
    done = cli("ckpt", "convert", url, str(tmp_path / "b"), "--to", "safetensors")
    assert done.code == 1
    assert "2 values are none (optimizer.lr, step)" in done.err
    assert "--only model" in done.err
    assert not (tmp_path / "b").exists()
    done = cli("ckpt", "convert", url, str(tmp_path / "b"), "--to", "safetensors", "--leave-out")
    assert done.out.splitlines()[1] == "left out: optimizer.lr, step"
    assert set(safetensors.load(tmp_path / "b")) == {
        "optimizer.m.0",
        *(f"model.{name}" for name in weights()),
    }


def test_one_step_of_several_is_taken(cli: Any, tmp_path: Path) -> None:
    url = make("headrace", tmp_path / "a")
    assert cli("ckpt", "convert", url, str(tmp_path / "b"), "--to", "headrace", "--step", "6").code == 0
    with Checkpointer(tmp_path / "b") as checkpointer:
        assert checkpointer.steps() == [6]
        assert checkpointer.load()["step"] == 6
    done = cli("ckpt", "convert", url, str(tmp_path / "c"), "--to", "dcp", "--step", "5")
    assert "has no checkpoint of step 5; those of 6, 7" in done.err


@pytest.mark.parametrize(
    ("source", "arguments", "text"),
    [
        ("headrace", [], "B, step 7, of {} (headrace, step 7)"),
        ("headrace", ["--step", "6", "--to-step", "8"], "B, step 8, of {} (headrace, step 6)"),
        ("dcp", [], "B, step 0 (--to-step names another), of {} (dcp)"),
        ("dcp", ["--to-step", "0"], "B, step 0, of {} (dcp)"),
        ("headrace", ["--to", "dcp"], "B, of {} (headrace, step 7)"),
    ],
)
def test_what_was_taken_and_what_was_written_is_told(
    cli: Any, tmp_path: Path, source: str, arguments: list[str], text: str
) -> None:
    url = make(source, tmp_path / "a")
    done = cli("ckpt", "convert", url, str(tmp_path / "b"), "--to", "headrace", *arguments)
    assert done.out.startswith(f"{tmp_path / 'b'}: 6 arrays, ")
    assert done.out.endswith(f"{text.format(url)}\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--to", "onnx"], "expected one of headrace, safetensors, dcp"),
        (["--to", "dcp", "--only", "modle"], "has no modle; there is model, optimizer, step"),
        (["--to", "safetensors", "--step", "6"], "is one checkpoint of dcp"),
        (["--to", "safetensors", "--step", "x"], "expected a number, or latest"),
    ],
)
def test_errors_say_what_to_do(cli: Any, tmp_path: Path, arguments: list[str], text: str) -> None:
    done = cli("ckpt", "convert", make("dcp", tmp_path / "a"), str(tmp_path / "b"), *arguments)
    assert done.code == 1
    assert text in done.err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("target", ["headrace", "safetensors", "dcp"])
def test_what_is_there_is_replaced_only_when_told_so(tmp_path: Path, target: str) -> None:
    url = make("safetensors", tmp_path / "a")
    place = str(tmp_path / "b")
    Conversion(url, place, target, to_step=7).run()
    with pytest.raises(
        hr.ChangedError, match=r"there.*; take a directory of its own, or --overwrite replaces"
    ):
        Conversion(url, place, target, to_step=7).run()
    Conversion(url, place, target, to_step=7, overwrite=True).run()
    assert_equal(read(target, tmp_path / "b"), weights())


def test_a_copied_step_is_replaced_only_when_told_so(cli: Any, tmp_path: Path) -> None:
    """No job has saved where only copies are."""
    url, place = make("headrace", tmp_path / "a"), str(tmp_path / "b")
    assert cli("ckpt", "cp", url, place).code == 0
    assert cli("ckpt", "convert", url, place, "--to", "headrace", "--to-step", "8").code == 0
    assert cli("ckpt", "cp", url, str(tmp_path / "c")).code == 0
    done = cli("ckpt", "convert", url, str(tmp_path / "c"), "--to", "headrace")
    assert done.code == 1
    assert "c: step 7 is there; take a directory of its own, or --overwrite replaces it" in done.err


@pytest.mark.parametrize("target", ["safetensors", "dcp"])
def test_two_that_would_have_one_name_are_an_error(cli: Any, tmp_path: Path, target: str) -> None:
    torch.save({"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}, tmp_path / "x.pt")
    done = cli("ckpt", "convert", str(tmp_path / "x.pt"), str(tmp_path / "b"), "--to", target)
    assert done.code == 1
    assert "a.b" in done.err
    assert "two " in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "b").exists()


def test_an_array_that_has_no_place_is_named(cli: Any, tmp_path: Path) -> None:
    torch.save({"m": {"s": torch.ones(2).to_sparse()}}, tmp_path / "x.pt")
    done = cli("ckpt", "convert", str(tmp_path / "x.pt"), str(tmp_path / "b"), "--to", "headrace")
    assert done.code == 1
    assert "m.s: is a torch.sparse_coo tensor" in done.err


def test_a_part_is_the_one_that_is_named_though_names_have_dots(tmp_path: Path) -> None:
    tree = {"model": {"w": np.ones(1)}, "model.ema": {"w": np.ones(2)}, "model.swa.w": np.ones(3)}
    with Checkpointer(tmp_path / "a") as checkpointer:
        checkpointer.save(1, tree).result()
    sizes = {"model": 1, "model.ema": 2, "model.swa": 3}
    for only, size in sizes.items():
        Conversion(str(tmp_path / "a"), str(tmp_path / only), "safetensors", only=only).run()
        assert safetensors.load(tmp_path / only)["w"].shape == (size,)
    state = {**tree, "model.ema": {"w": {"x": 1}}}
    paths = ("model.w", "model.ema.w", "model.ema.w.x", "model.swa.w")
    found = [str(_part(state, path, "here")) for path in paths]
    assert found == ["[1.]", "{'x': 1}", "1", "[1. 1. 1.]"]
    with pytest.raises(hr.NotFoundError, match="has no y; there is w"):
        _part(state, "model.ema.y", "here")


def test_numpy_arrays_become_tensors(tmp_path: Path) -> None:
    arrays = {
        "x": np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2],
        "s": np.array(2.0),
        "e": np.zeros((0, 2)),
    }
    with Checkpointer(tmp_path / "a") as checkpointer:
        checkpointer.save(1, arrays).result()
    Conversion(str(tmp_path / "a"), str(tmp_path / "b"), "dcp").run()
    found = dcp_format.load(tmp_path / "b")
    assert {name: value.tolist() for name, value in found.items()} == {
        "x": [[0, 2], [3, 5]],
        "s": 2.0,
        "e": [],
    }


def test_nothing_of_a_torch_file_is_run(cli: Any, tmp_path: Path) -> None:
    torch.save({"x": object()}, tmp_path / "x.pt")
    done = cli("ckpt", "convert", str(tmp_path / "x.pt"), str(tmp_path / "b"), "--to", "safetensors")
    assert done.code == 1
    wanted = "Unsupported global: GLOBAL object was not an allowed global by default"
    assert f"torch.load(weights_only=True) does not take it: {wanted}\n" in done.err
    for data in (b"", b"x"):
        (tmp_path / "x.pt").write_bytes(data)
        done = cli("ckpt", "convert", str(tmp_path / "x.pt"), str(tmp_path / "b"), "--to", "safetensors")
        assert "does not take it: " in done.err
        assert "Traceback" not in done.err


def test_what_is_no_checkpoint_is_said_to_be_none(cli: Any, tmp_path: Path) -> None:
    for name in ("missing", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(hr.NotFoundError, match="no checkpoint is there: no steps/"):
            find_format(str(tmp_path / name))
    done = cli("ckpt", "convert", str(tmp_path / "x.pt"), str(tmp_path / "b"), "--to", "safetensors")
    assert "no such file" in done.err


def test_stores_are_read_and_written(cli: Any, tmp_path: Path, s3: Any) -> None:
    (tmp_path / "buckets/b").mkdir(parents=True, exist_ok=True)
    for source, target in (("torch", "safetensors"), ("dcp", "headrace")):
        local = make(source, tmp_path / source)
        remote = f"s3://b/{source}"
        cli("cp", *(["-r"] if source == "dcp" else []), local, remote + (".pt" if source == "torch" else ""))
        remote += ".pt" if source == "torch" else ""
        done = cli(
            "ckpt",
            "convert",
            remote,
            f"s3://b/out-{source}",
            "--to",
            target,
            "--only",
            "model",
            "--to-step",
            "7",
        )
        assert done.code == 0, done.err
        found: Any
        if target == "headrace":
            with Checkpointer(f"s3://b/out-{source}") as checkpointer:
                found = checkpointer.load(7)
        else:
            found = safetensors.load(f"s3://b/out-{source}")
        assert_equal(found, weights())
