"""Saves trees of JAX's own classes and those of others, and loads them: checkpoint_pytrees.py PART DIRECTORY.
Ends with 77 where the part's package is not there."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.checkpoint import Checkpointer
from headrace.errors import InvalidArgumentError


def is_same(one: Any, other: Any) -> bool:
    """Bit for bit, and of the same classes."""
    (ones, structure), (others, other_structure) = map(jax.tree_util.tree_flatten, (one, other))
    return structure == other_structure and all(
        type(a) is type(b) and np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(ones, others, strict=True)
    )


def zeroed(tree: Any) -> Any:
    return jax.tree_util.tree_map(lambda leaf: leaf * 0, tree)


def comes_back(directory: str, state: Any, plain: Any = None) -> None:
    """``plain``: what is loaded without a state to load into."""
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(1, state).result()
        got = checkpointer.load(into=zeroed(state))
        assert is_same(got, state), got
        assert not is_same(zeroed(state), state)
        if plain is not None:
            assert is_same(checkpointer.load(), plain)


def weights() -> dict[str, Any]:
    return {"w": jnp.arange(12.0).reshape(3, 4) + 1, "b": jnp.ones(4, jnp.bfloat16)}


def registered(directory: str) -> None:
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Layer:
        w: Any
        inner: Any
        name: str = dataclasses.field(metadata={"static": True}, default="")

    class Pair:
        """With keys, but without fields."""

        def __init__(self, one: Any, two: Any) -> None:
            self.one, self.two = one, two

    class Unnamed(Pair):
        """Without keys."""

    keys = jax.tree_util.DictKey(1), jax.tree_util.DictKey(2)
    jax.tree_util.register_pytree_with_keys(
        Pair,
        lambda pair: (list(zip(keys, (pair.one, pair.two), strict=True)), None),
        lambda _, both: Pair(*both),
    )
    jax.tree_util.register_pytree_node(
        Unnamed, lambda pair: ((pair.one, pair.two), None), lambda _, both: Unnamed(*both)
    )
    x = jnp.arange(3.0)
    state = {"layer": Layer(x, Pair(x + 1, [Unnamed(x + 2, 7)]), "saved")}
    plain = {"layer": {"w": x, "inner": {1: x + 1, 2: [{0: x + 2, 1: 7}]}}}
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(1, state).result()
        names = [array.name for array in checkpointer.info(1).arrays]
        assert names == ["layer.inner.1", "layer.inner.2.0.0", "layer.w"], names
        assert is_same(checkpointer.load(), plain)
        into = {"layer": Layer(x * 0, Pair(x * 0, [Unnamed(x * 0, 0)]), "here")}
        got = checkpointer.load(into=into)
        assert is_same(got, {"layer": dataclasses.replace(state["layer"], name="here")})
        other = {"layer": {"w": x * 0, "inner": {1: x * 0, 3: [{0: x * 0, 1: 0}]}}}
        text = refused(lambda: checkpointer.load(into=other))
        assert "layer.inner.3" in text, text
        # What is no pytree is none because JAX is there.
        text = refused(lambda: checkpointer.save(2, {"x": object()}))
        assert "is a builtins.object" in text, text
    comes_back(f"{directory}-root", Layer(x, x + 1))


def refused(call: Callable[[], Any]) -> str:
    try:
        call()
    except InvalidArgumentError as error:
        return str(error)
    return "it was taken"


def optax(directory: str) -> None:
    """States of optimizers, and a run that goes on bit by bit."""
    import optax

    optimizers: dict[str, Any] = {
        "adamw": optax.adamw(1e-3),
        "chain": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9)),
        "hyper": optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
        "masked": optax.masked(optax.adam(0.1), {"w": True, "b": False}),
        "steps": optax.MultiSteps(optax.adam(0.1), 2),
        "partition": optax.multi_transform({"a": optax.adam(0.1), "b": optax.sgd(0.1)}, {"w": "a", "b": "b"}),
        "schedule": optax.adam(optax.cosine_decay_schedule(0.1, 100)),
    }
    for name, optimizer in optimizers.items():
        begin = jax.tree_util.tree_map(lambda value: value.astype(jnp.float32), weights())
        values, moments = trained(optimizer, begin, optimizer.init(begin), 2)
        with Checkpointer(f"{directory}-{name}") as checkpointer:
            checkpointer.save(2, {"weights": values, "optimizer": moments}).result()
            fresh = {"weights": zeroed(values), "optimizer": optimizer.init(begin)}
            got = checkpointer.load(into=fresh)
        assert is_same(got["optimizer"], moments), name
        on, again = (
            trained(optimizer, *both, 3) for both in ((values, moments), (got["weights"], got["optimizer"]))
        )
        assert is_same(on, again), name


def trained(optimizer: Any, values: Any, moments: Any, steps: int) -> tuple[Any, Any]:
    def loss(values: Any) -> Any:
        return (values["w"] @ values["b"]).sum() ** 2

    for _ in range(steps):
        changes, moments = optimizer.update(jax.grad(loss)(values), moments, values)
        values = jax.tree_util.tree_map(lambda value, change: value + change, values, changes)
    return values, moments


def flax(directory: str) -> None:
    import flax
    from flax.core import freeze
    from flax.training.train_state import TrainState

    if importlib.util.find_spec("optax") is None:
        raise ModuleNotFoundError
    import optax

    @flax.struct.dataclass
    class Layer:
        w: Any
        name: str = flax.struct.field(pytree_node=False, default="")

    x = jnp.arange(3.0) + 1
    comes_back(f"{directory}-struct", {"layer": Layer(x, "a"), "frozen": freeze({"a": {"b": x}})})
    state = TrainState.create(apply_fn=print, params=weights(), tx=optax.adam(0.1))
    state = state.apply_gradients(grads=weights())
    comes_back(f"{directory}-state", state)


def equinox(directory: str) -> None:
    import equinox

    model = equinox.nn.MLP(2, 3, 4, 2, key=jax.random.PRNGKey(0))
    values, rest = equinox.partition(model, equinox.is_array)
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(1, values).result()
        got = equinox.combine(checkpointer.load(into=zeroed(values)), rest)
    x = jnp.ones(2)
    assert is_same(got(x), model(x))


def from_torch(directory: str) -> None:
    """Loads what torch has saved, into arrays of JAX and of numpy, and saves it as step 2."""
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(jax.devices()), ("x",))
    rows = np.arange(48, dtype=np.float32).reshape(8, 6)
    half = np.asarray(jnp.arange(16, dtype=jnp.bfloat16))
    like = {
        "rows": jax.device_put(rows * 0, NamedSharding(mesh, P("x"))),
        "half": jax.device_put(half * 0, NamedSharding(mesh, P("x"))),
        "numbers": np.zeros(5, np.int64),
        "step": 0,
    }
    with Checkpointer(directory) as checkpointer:
        got = checkpointer.load(1, into=like)
        assert isinstance(got["rows"], jax.Array)
        assert got["rows"].sharding == like["rows"].sharding
        assert is_same([np.asarray(got["rows"]), np.asarray(got["half"])], [rows, half])
        assert got["numbers"].tolist() == [0, 1, 2, 3, 4]
        assert got["step"] == 1
        checkpointer.save(2, got).result()


PARTS: dict[str, Callable[[str], None]] = {
    part.__name__: part for part in (registered, optax, flax, equinox, from_torch)
}

if __name__ == "__main__":
    name, directory = sys.argv[1:]
    if name in ("optax", "flax", "equinox") and importlib.util.find_spec(name) is None:
        sys.exit(77)
    PARTS[name](directory)
