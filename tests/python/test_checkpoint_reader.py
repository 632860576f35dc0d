"""The reader in docs/checkpoint-formats.md reads checkpoints, and proves them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from framework_ranks import Job, run_jobs

from headrace.checkpoint import Checkpointer

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs/checkpoint-formats.md"


class Pair(NamedTuple):
    one: int
    two: str


@pytest.fixture(scope="module")
def reader() -> dict[str, Any]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert set(re.findall(r"^import (.*)$", code, re.M)) == {"json, os, struct", "numpy as np"}
    names: dict[str, Any] = {}
    exec(compile(code, PAGE.name, "exec"), names)
    return names


def test_the_page_reads_what_is_saved(tmp_path: Path, reader: dict[str, Any]) -> None:
    state = {
        "w": np.random.default_rng(0).random((70, 60)),
        "bf": torch.arange(5.0).to(torch.bfloat16),
        "i": np.arange(3, dtype=np.int16),
        "b": torch.tensor([True, False]),
        "c": np.array([1 + 2j], np.complex64),
        "scalar": torch.tensor(7),
        "nested": [{"a": (1, None, "ü")}, 2.5],
        "named": Pair(1, "x"),
        "counter": Counter("aab"),
        3: True,
    }
    with Checkpointer(tmp_path) as checkpointer:
        for step in (1, 2):
            checkpointer.save(step, {**state, "step": step}).result()
    assert reader["read_state"](tmp_path, 1)["step"] == 1
    found = reader["read_state"](tmp_path)
    assert found["step"] == 2
    for name in ("w", "i", "c"):
        assert found[name].dtype == state[name].dtype  # type: ignore[union-attr]
        assert np.array_equal(found[name], state[name])  # type: ignore[arg-type]
    assert found["bf"].tobytes() == bytes(state["bf"].view(torch.uint8).numpy())  # type: ignore[union-attr]
    assert (found["b"].tolist(), found["scalar"].item()) == ([True, False], 7)
    assert (found["nested"], found[3]) == (state["nested"], True)
    assert found["counter"] == state["counter"]
    assert found["named"] == {"one": 1, "two": "x"}


def test_the_page_reads_what_was_not_written_again(tmp_path: Path, reader: dict[str, Any]) -> None:
    state = {"frozen": np.random.default_rng(0).random(9000), "x": np.zeros(5)}
    with Checkpointer(tmp_path, differential=True) as checkpointer:
        for step in (1, 2):
            state["x"] += 1
            assert bool(checkpointer.save(step, state).result().earlier) == (step == 2)
    found = reader["read_state"](tmp_path)
    assert all(np.array_equal(found[name], value) for name, value in state.items())


def test_the_page_puts_shards_together(tmp_path: Path, reader: dict[str, Any]) -> None:
    from checkpoint_ways import value_of

    run_jobs(
        Path(__file__).with_name("checkpoint_ways.py"), [Job("save", str(tmp_path), 4, options={"seed": 1})]
    )
    found = reader["read_state"](tmp_path)["tensors"]
    for n in range(30):
        expected = value_of(n)
        assert found[f"t{n}"].shape == tuple(expected.shape)
        assert found[f"t{n}"].tobytes() == bytes(expected.reshape(-1).view(torch.uint8).numpy())


def test_the_page_finds_damage(tmp_path: Path, reader: dict[str, Any]) -> None:
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"w": np.arange(9000)}).result()
    for pattern, place in (("steps/*", 30), ("saves/*/*.index", 30), ("saves/*/*.safetensors", -9)):
        (file,) = tmp_path.glob(pattern)
        whole = file.read_bytes()
        data = bytearray(whole)
        data[place] ^= 1
        file.write_bytes(data)
        with pytest.raises(AssertionError, match="is damaged"):
            reader["read_state"](tmp_path)
        file.write_bytes(whole)
    assert reader["read_state"](tmp_path)["w"].sum() == sum(range(9000))
