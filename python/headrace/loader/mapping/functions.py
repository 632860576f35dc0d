"""A user's functions on their way into another process."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from types import FunctionType
from typing import Any

from headrace.errors import InvalidArgumentError
from headrace.loader.mapping.steps import Plan

__all__ = ["pack"]

_WAY_OUT = (
    "Move it to a module that can be imported, or pip install cloudpickle, which takes functions of the main "
    "program, lambdas and closures "
    'with what they refer to; workers=0 and where="thread" need neither'
)


# What multiprocessing calls the main program in processes that it spawns.
_SPAWNED_MAIN = "__mp_main__"


class _Strict(pickle.Pickler):
    """By reference only; what workers cannot import is an error here and not there. They do not run the main
    program again, so it needs no ``if __name__ == "__main__"``."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, FunctionType | type) and value.__module__ in ("__main__", _SPAWNED_MAIN):
            raise pickle.PicklingError(f"{value.__qualname__} is of the main program")
        return NotImplemented


def _strictly(plan: Plan) -> bytes:
    out = io.BytesIO()
    _Strict(out, pickle.HIGHEST_PROTOCOL).dump(plan)
    return out.getvalue()


def _by_value(plan: Plan, cloudpickle: Any) -> bytes:
    """With what is of the main program, under both of its names."""
    main = sys.modules.get(_SPAWNED_MAIN)
    if main is None or _SPAWNED_MAIN in cloudpickle.list_registry_pickle_by_value():
        return bytes(cloudpickle.dumps(plan))
    cloudpickle.register_pickle_by_value(main)
    try:
        return bytes(cloudpickle.dumps(plan))
    finally:
        cloudpickle.unregister_pickle_by_value(main)


def pack(plan: Plan) -> bytes:
    """A plan as bytes that ``pickle.loads`` takes in a worker.

    With cloudpickle, where it is installed: functions of the main program, lambdas and closures by value,
    others by reference. Raises InvalidArgumentError, chained from what was wrong, for what cannot be sent.
    """
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError:
        cloudpickle = None
    names = ", ".join(step.name for step in plan.steps)
    try:
        return _strictly(plan) if cloudpickle is None else _by_value(plan, cloudpickle)
    except Exception as error:
        hint = _WAY_OUT if cloudpickle is None else 'workers=0 and where="thread" need no copy of it'
        raise InvalidArgumentError(
            f"{names}: a function cannot be sent to worker processes ({error}). {hint}"
        ) from error
