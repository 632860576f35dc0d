"""Saves global arrays of JAX from several processes, and loads them, sharded otherwise:
checkpoint_jax_ranks.py DIRECTORY PORT RANK PROCESSES."""

import sys
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from headrace.base.ranks import find_rank
from headrace.checkpoint import Checkpointer
from headrace.checkpoint.group import find_group
from headrace.errors import DeadlineError, InvalidArgumentError

VALUES = {
    "w": np.arange(4 * 1024 * 8, dtype=np.float32).reshape(-1, 8),
    "half": np.arange(16).astype(jax.numpy.bfloat16),
    "b": np.float32(2.5),
}
SPECS = {"w": P("x", "y"), "half": P(("x", "y")), "b": P()}


def tree(specs: dict[str, Any], values: dict[str, Any]) -> Any:
    mesh = Mesh(np.array(jax.devices()).reshape(2, -1), ("x", "y"))
    return {
        name: jax.make_array_from_callback(
            np.shape(value),
            NamedSharding(mesh, specs[name]),
            lambda index, value=value: np.asarray(value)[index],
        )
        for name, value in values.items()
    }


def check(found: Any) -> None:
    for name, value in VALUES.items():
        array = found["params"][name]
        assert (array.dtype, array.shape) == (value.dtype, np.shape(value))
        shards = getattr(array, "addressable_shards", None)
        if shards is None:  # load() without into= gives all of it
            assert np.array_equal(np.asarray(array), value), name
            continue
        for shard in shards:
            assert np.array_equal(np.asarray(shard.data), np.asarray(value)[shard.index]), name
    assert found["step"] == 7


def why(call: Callable[[], object], kind: type[Exception]) -> str:
    """What an error of this kind says, which the call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def load(directory: str) -> None:
    zeros = {name: np.zeros_like(value) for name, value in VALUES.items()}
    with Checkpointer(directory) as checkpointer:
        check(checkpointer.load(7))
        for specs in (
            SPECS,
            {"w": P("y"), "half": P(), "b": P()},
            {"w": P(None, "x"), "half": P("y"), "b": P()},
        ):
            like = {"params": tree(specs, zeros), "step": 0}
            found = checkpointer.load(7, into=like)
            check(found)
            assert all(found["params"][name].sharding == like["params"][name].sharding for name in VALUES)


def save(directory: str, rank: int, count: int) -> None:
    assert find_rank() == (rank, count)
    state = {"params": tree(SPECS, VALUES), "step": 7}
    with Checkpointer(directory) as checkpointer:
        manifest = checkpointer.save(7, state).result()
        assert len(manifest.files) == count
        assert manifest.size < 1.1 * VALUES["w"].nbytes + 8192, "each part is written once"
        text = why(lambda: checkpointer.save(8, {"mine": np.full(3, rank)}), InvalidArgumentError)
        assert "ranks 0 and 1 have different values" in text, text
        checkpointer.save(9, {f"rank{rank}": np.full(3, rank)}).result()
        assert sorted(checkpointer.load(9)) == [f"rank{each}" for each in range(count)]


def speak(rank: int, count: int) -> None:
    """What is too long for a message arrives, and who says nothing is named."""
    group = find_group(timeout=100)
    for length in (0, 5, 1 << 20, 9_000_000):
        assert group.gather("text", str(rank) * length) == [str(each) * length for each in range(count)]
    for number in range(5):
        assert group.gather("number", [number, rank]) == [[number, each] for each in range(count)]
    group.timeout = 0.2
    if rank == 0:
        text = why(lambda: group.gather("alone", 1), DeadlineError)
        assert "rank 1 of 2 said nothing" in text, text
    group.timeout = 100
    group.gather("end", 1)


def main(directory: str, port: str, rank: str, count: str) -> None:
    if int(count) > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", int(count), int(rank))
        speak(int(rank), int(count))
        save(directory, int(rank), int(count))
    load(directory)


if __name__ == "__main__":
    main(*sys.argv[1:])
