"""Pipelines of Albumentations, which draw from generators of their own: no seed of a global one reaches them,
and workers that unpickle one pipeline would all draw the same. Here they get a generator that is seeded like
the global ones."""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from headrace.loader.mapping.steps import ALBUMENTATIONS, is_pipeline

__all__ = ["adopt", "seed"]

_DEPTH = 4
"""From a function to an object, to its list, to a pipeline in it, and one more."""
_MOST_ITEMS = 100
"""Longer collections are data."""

_numbers = np.random.Philox(key=0)
_state: Any = _numbers.state
_numpy, _python = np.random.Generator(_numbers), random.Random(0)


def adopt(functions: Iterable[Callable[..., Any]]) -> None:
    """Lets the pipelines that these functions refer to draw from this process's one generator. Those that a
    function makes or imports when it is called are not found."""
    if ALBUMENTATIONS not in sys.modules:
        return
    for pipeline in _pipelines(functions):
        pipeline.set_random_state(_numpy, _python)


def seed(number: int) -> None:
    """What adopted pipelines draw next follows from these 64 bits."""
    if ALBUMENTATIONS not in sys.modules:
        return
    _python.seed(number)
    _state["state"]["key"][0] = number
    _numbers.state = _state


def _pipelines(roots: Iterable[Any]) -> Iterator[Any]:
    """What can be reached from them without calling anything."""
    seen: dict[int, Any] = {}  # The objects too, so that none goes and leaves its number to another.
    level = list(roots)
    for _ in range(_DEPTH):
        below: list[Any] = []
        for value in level:
            if id(value) in seen:
                continue
            seen[id(value)] = value
            if is_pipeline(value):
                yield value
            else:
                below.extend(_parts(value))
        level = below


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, FunctionType):
        yield from _used_by(value)
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, dict | list | tuple | set | frozenset):
        if len(value) <= _MOST_ITEMS:
            yield from value.values() if isinstance(value, dict) else value
    elif not isinstance(value, type | ModuleType):
        yield from getattr(value, "__dict__", {}).values()
        call = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(call, FunctionType):
            yield call


def _used_by(function: FunctionType) -> Iterator[Any]:
    """Its defaults, what it closes over, and globals it names, those of modules it names too."""
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
    names = set(_names(function.__code__))
    for name in names & function.__globals__.keys():
        value = function.__globals__[name]
        yield value
        if isinstance(value, ModuleType):
            yield from (vars(value)[each] for each in names & vars(value).keys())


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
