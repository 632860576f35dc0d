"""Classes by name, so that a configuration can choose one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any


class Registry:
    """Names of classes or functions: registered here, or by an entry point of an installed package in the
    group ``group``."""

    def __init__(self, group: str, description: str = "") -> None:
        self._group, self.description = group, description
        self._registered: dict[str, Any] = {}

    def register(self, name: str, *, func: Any = None) -> Any:
        """Takes ``func``; without it, a decorator that does."""
        if func is None:
            return functools.partial(self._add, name)
        return self._add(name, func)

    def _add(self, name: str, func: Any) -> Any:
        self._registered[name] = func
        return func

    def __contains__(self, name: str) -> bool:
        return name in self._registered or any(
            point.name == name for point in entry_points(group=self._group)
        )

    def get(self, name: str) -> Any:
        """What is registered by this name. Raises LookupError."""
        for point in entry_points(group=self._group):
            if point.name == name:
                return point.load()
        if name not in self._registered:
            raise LookupError(f"{name!r} is not registered; there are {', '.join(sorted(self.get_all()))}")
        return self._registered[name]

    def get_all(self) -> dict[str, Any]:
        """Everything by its name."""
        return {**self._registered, **{point.name: point.load() for point in entry_points(group=self._group)}}


def construct_from_registry(
    name: str,
    registry: Registry,
    partial_function: bool = True,
    pre_validation_function: Callable[[Any], None] | type | None = None,
    post_validation_function: Callable[[Any], None] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Calls what is registered by a name; a function, with ``partial_function``, is bound to ``kwargs``
    instead."""
    constructor = registry.get(name)
    if isinstance(pre_validation_function, type):
        if not issubclass(constructor, pre_validation_function):
            raise ValueError(
                f"Expected {name} to be of type {pre_validation_function}, but got {type(constructor)}"
            )
    elif pre_validation_function is not None:
        pre_validation_function(constructor)
    if not callable(constructor):
        raise ValueError(f"Expected {name} to be a class or function, but got {type(constructor)}")
    build = functools.partial(constructor, **(kwargs or {}))
    built = build() if isinstance(constructor, type) or not partial_function else build
    if post_validation_function is not None:
        post_validation_function(built)
    return built
