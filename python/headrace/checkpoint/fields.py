"""Classes of others that are saved by the names of their fields: named tuples, and what is registered with
JAX as a pytree (dataclasses, flax.struct, equinox). No class is named in a checkpoint: a state to load into
has it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.errors import InvalidArgumentError

__all__ = ["Fields", "Remaking", "fields_of"]


class Remaking(NamedTuple):
    """How an object is made anew of other values of its fields."""

    kind: str
    names: Sequence[Any]
    make: Callable[[list[Any]], Any]
    """Of a value for each name."""

    def of(self, values: Mapping[Any, Any]) -> Any:
        """Raises InvalidArgumentError where there are others than its fields."""
        if values.keys() != set(self.names):
            here, there = (", ".join(map(str, names)) or "none" for names in (self.names, values))
            raise InvalidArgumentError(
                f"a {self.kind} of the state has the fields {here}, and there are {there} in the checkpoint"
            )
        return self.make([values[name] for name in self.names])


class Fields(NamedTuple):
    values: Sequence[Any]
    remaking: Remaking


def fields_of(value: Any) -> Fields | None:
    """None: it has none that could be told."""
    kind = type(value)
    names = getattr(kind, "_fields", None)
    if isinstance(value, tuple) and isinstance(names, tuple) and len(names) == len(value):
        return Fields(value, Remaking(kind.__qualname__, names, kind._make))
    if kind.__module__ == "torch.return_types":
        return Fields(value, Remaking(kind.__qualname__, kind.__match_args__, kind))
    return _of_jax(value)


def _of_jax(value: Any) -> Fields | None:
    """Of a class that is registered with JAX, which whoever has an instance of it has imported."""
    util = sys.modules.get("jax.tree_util")
    if util is None:
        return None
    children, structure = util.tree_flatten_with_path(value, is_leaf=lambda each: each is not value)
    if any(not path for path, _ in children):
        return None  # It is a leaf.
    names = [_name_of(path[0]) for path, _ in children]
    remaking = Remaking(
        type(value).__qualname__, names, lambda values: util.tree_unflatten(structure, values)
    )
    return Fields([child for _, child in children], remaking)


def _name_of(entry: Any) -> Any:
    """Of a key of JAX: GetAttrKey; DictKey and FlattenedIndexKey; SequenceKey."""
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return str(entry)
