"""One way to decode a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace import _native

__all__ = ["Decoding"]


class Decoding:
    """What is made of a column's values; immutable, and may serve several columns and loaders.

    Made by the functions of :mod:`headrace.decode`. Pickled, it is its own call.
    """

    __slots__ = ("_arguments", "_make", "_native")

    def __init__(
        self, make: Callable[..., Decoding], arguments: Mapping[str, Any], native: _native.Decode
    ) -> None:
        self._make, self._arguments, self._native = make, dict(arguments), native

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._arguments.items())
        return f"headrace.decode.{self._make.__name__}({given})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decoding) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce__(self) -> Any:
        return _again, (self._make, self._arguments)


def _again(make: Callable[..., Decoding], arguments: dict[str, Any]) -> Decoding:
    return make(**arguments)
