"""Named tuples, and other classes that are saved by the names of their fields."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import headrace as hr
from headrace.checkpoint import Checkpointer

ROWS = np.arange(12.0).reshape(3, 4)


class Moments(NamedTuple):
    """As optax's ScaleByAdamState."""

    count: Any
    mu: Any
    nu: Any


class Nothing(NamedTuple):
    """As optax's EmptyState."""


class Schedule(NamedTuple):
    rate: float
    inner: Any


def state(value: float = 1.0) -> dict[str, Any]:
    return {
        "optimizer": (
            Moments(
                np.int32(5 * value), {"w": ROWS * value, "b": [ROWS[0] + value]}, {"w": ROWS * 2 * value}
            ),
            Nothing(),
            Schedule(0.5 * value, Moments(None, ROWS - value, "text")),
        ),
        "step": int(value),
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other)) and one.dtype == other.dtype
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def as_dicts(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return {name: as_dicts(getattr(value, name)) for name in value._fields}
    if isinstance(value, (list, tuple)):
        return type(value)(map(as_dicts, value))
    return {key: as_dicts(each) for key, each in value.items()} if isinstance(value, dict) else value


@pytest.fixture
def checkpointer(tmp_path: Path) -> Any:
    with Checkpointer(tmp_path / "run", allow_pickle=True) as opened:
        opened.save(1, state()).result()
        yield opened


def test_they_are_saved_by_names_and_load_as_dicts(checkpointer: Checkpointer, cli: Any) -> None:
    manifest = checkpointer.info(1)
    assert "pickle" not in manifest.encode().decode(), "though it is allowed"
    assert [array.name for array in manifest.arrays] == [
        "optimizer.0.mu.b.0",
        "optimizer.0.mu.w",
        "optimizer.0.nu.w",
        "optimizer.2.inner.mu",
    ]
    assert same(checkpointer.load(), as_dicts(state()))
    told = cli("ckpt", "info", checkpointer.url, "1").out
    assert "nu" in told
    assert "fields" not in told


def test_they_load_into_their_classes(checkpointer: Checkpointer) -> None:
    into = state(7.0)
    got = checkpointer.load(into=into)
    assert same(got, state())
    assert got["optimizer"][0].mu["w"] is into["optimizer"][0].mu["w"], "filled in place"


def test_a_state_may_be_one(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, Moments(1, ROWS, [ROWS + 1])).result()
        got = checkpointer.load(into=Moments(0, ROWS * 0, [ROWS * 0]))
        assert same(got, Moments(1, ROWS, [ROWS + 1]))
        assert same(checkpointer.load(), {"count": 1, "mu": ROWS, "nu": [ROWS + 1]})


def test_dicts_load_into_classes_and_classes_into_dicts(tmp_path: Path, checkpointer: Checkpointer) -> None:
    assert same(checkpointer.load(into=as_dicts(state(7.0))), as_dicts(state()))
    with Checkpointer(tmp_path / "dicts") as other:
        other.save(1, as_dicts(state())).result()
        assert same(other.load(into=state(7.0)), state())


class Reordered(NamedTuple):
    nu: Any
    count: Any
    mu: Any


class Older(NamedTuple):
    """Of a version that had a field less."""

    count: Any
    mu: Any


class Newer(NamedTuple):
    count: Any
    mu: Any
    nu: Any
    decay: float


def test_fields_go_by_their_names(tmp_path: Path) -> None:
    def saved_as(value: Any) -> str:
        with Checkpointer(tmp_path) as checkpointer:
            checkpointer.save(1, {"m": value}, overwrite=True).result()
        return str(tmp_path)

    def load(into: Any, **options: Any) -> Any:
        with Checkpointer(tmp_path) as checkpointer:
            return checkpointer.load(into={"m": into}, **options)["m"]

    saved_as(Moments(1, ROWS, 2))
    assert same(load(Reordered(0, 0, ROWS * 0)), Reordered(2, 1, ROWS))
    with pytest.raises(
        hr.InvalidArgumentError, match="a Older of the state has the fields count, mu, and there"
    ):
        load(Older(0, ROWS * 0))
    assert same(load(Older(0, ROWS * 0), partial=True), Older(1, ROWS))
    with pytest.raises(hr.InvalidArgumentError, match=r"state\['m'\]\['decay'\] is not in it"):
        load(Newer(0, ROWS * 0, 0, 0.9))
    assert same(load(Newer(0, ROWS * 0, 0, 0.9), partial=True), Newer(1, ROWS, 2, 0.9))
    saved_as((1, ROWS, 2))
    with pytest.raises(hr.InvalidArgumentError, match=r"not in it \(m.mu\), and 1 arrays of it are not"):
        load(Moments(0, ROWS * 0, 0))


class Trainer:
    """Keeps its state in named tuples."""

    def __init__(self, moments: Moments) -> None:
        self.moments = moments

    def state_dict(self) -> dict[str, Any]:
        return {"moments": self.moments, 3: [self.moments]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert same(state[3][0], state["moments"])
        self.moments = state["moments"]


def test_what_has_a_state_dict_gets_its_classes_back(tmp_path: Path) -> None:
    """Also where it holds something else by now."""
    saved, here = Moments(1, ROWS, {"a": ROWS}), Moments(2, ROWS * 0, {})
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"trainer": Trainer(saved)}).result()
        trainer = Trainer(here)
        checkpointer.load(into={"trainer": trainer})
        assert same(trainer.moments, saved)


def test_keys_that_are_alike_as_text_are_two(tmp_path: Path) -> None:
    class Pair(NamedTuple):
        a: Any
        b: Any

    state: dict[Any, Any] = {1: Pair(1, ROWS), "1": Moments(1, 2, 3)}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state).result()
        assert same(checkpointer.load(into={1: Pair(0, ROWS * 0), "1": Moments(0, 0, 0)}), state)


def test_what_torch_returns(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    best = torch.max(torch.arange(6.0).reshape(2, 3), 0)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"best": best}).result()
        plain = checkpointer.load()["best"]
        assert plain["values"].tolist() == [3, 4, 5]
        assert plain["indices"].tolist() == [1, 1, 1]
        got = checkpointer.load(into={"best": torch.max(torch.zeros(2, 3), 0)})["best"]
        assert type(got) is type(best)
        assert got.values.tolist() == [3, 4, 5]
        assert got.indices.tolist() == [1, 1, 1]


def test_jax_is_not_imported_for_it(tmp_path: Path) -> None:
    program = """
import sys
from typing import NamedTuple
from headrace.checkpoint import Checkpointer
class One(NamedTuple):
    x: int
with Checkpointer(sys.argv[1]) as checkpointer:
    checkpointer.save(1, {"one": One(1)}).result()
    assert checkpointer.load(into={"one": One(0)}) == {"one": One(1)}
assert not [name for name in sys.modules if name.split(".")[0] == "jax"]
"""
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)
