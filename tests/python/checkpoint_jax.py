"""Saves trees of JAX arrays, sharded over four devices, and loads them sharded otherwise: checkpoint_jax.py
DIRECTORY."""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from headrace.checkpoint import Checkpointer
from headrace.errors import InvalidArgumentError

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
VALUES = {
    "w": np.arange(48, dtype=np.float32).reshape(8, 6),
    "half": np.asarray(jnp.arange(16, dtype=jnp.bfloat16)),
    "b": np.float32(2.5),
}


def tree(specs: dict[str, Any], values: dict[str, Any]) -> Any:
    return {name: jax.device_put(value, NamedSharding(mesh, specs[name])) for name, value in values.items()}


def check(found: Any, like: Any | None = None) -> None:
    for name, value in VALUES.items():
        array = found["params"][name]
        assert isinstance(array, jax.Array), type(array)
        assert array.dtype == value.dtype
        assert np.array_equal(np.asarray(array), value), name
        assert like is None or array.sharding == like["params"][name].sharding
    assert found["step"] == 7


def main(directory: str) -> None:
    saved = {"params": tree({"w": P("x", "y"), "half": P(("x", "y")), "b": P()}, VALUES), "step": 7}
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(7, saved).result()
        assert checkpointer.info(7).size < 8192, "what several devices have is written once"
        check(checkpointer.load())
        zeros = {name: np.zeros_like(value) for name, value in VALUES.items()}
        for specs in (
            {"w": P("x", "y"), "half": P(("x", "y")), "b": P()},
            {"w": P("y"), "half": P(), "b": P()},
            {"w": P(None, "x"), "half": P("y"), "b": P()},
        ):
            like = {"params": tree(specs, zeros), "step": 0}
            check(checkpointer.load(into=like), like)
            assert not np.asarray(like["params"]["w"]).any(), "arrays of JAX do not change"
    wide(directory)


def wide(directory: str) -> None:
    """Arrays of 64 bits, which JAX makes only where it is told so."""
    with Checkpointer(f"{directory}-wide") as checkpointer:
        jax.config.update("jax_enable_x64", True)
        checkpointer.save(1, {"n": jnp.asarray([2**40]), "f": jnp.zeros(2, jnp.float32)}).result()
        assert checkpointer.load()["n"].tolist() == [2**40]
        jax.config.update("jax_enable_x64", False)
        try:
            checkpointer.load()
        except InvalidArgumentError as error:
            text = str(error)
        assert text.startswith("n: was saved as an array of JAX of int64"), text
        assert "of int32" in text, text
        assert 'jax.config.update("jax_enable_x64", True)' in text, text
        into = {"n": np.zeros(1, np.int64), "f": np.zeros(2, np.float32)}
        assert checkpointer.load(into=into)["n"].tolist() == [2**40]


main(sys.argv[1])
