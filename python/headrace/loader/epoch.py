"""The iterator of a loader."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Epoch"]


class Epoch:
    """Iterator of one epoch. Not ``iter(next, None)``: that breaks in Python 3.11.2 when several threads
    share it."""

    __slots__ = ("_next",)

    def __init__(self, next_batch: Callable[[], Any]) -> None:
        self._next = next_batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = self._next()
        if batch is None:
            raise StopIteration
        return batch
