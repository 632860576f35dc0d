"""What works on batches, wherever that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from headrace import _native
    from headrace.data.batch import Batch
    from headrace.loader.loader import Loader
    from headrace.loader.mapping.outcome import Outcome

__all__ = ["Ahead", "Executor", "next_of"]


class Ahead(NamedTuple):
    """A batch under way."""

    task: int
    """Its number at the executor."""
    state: _native.LoaderState
    """Of the engine, behind this batch."""
    ids: bytes
    """int64[samples], a copy."""
    epoch: int
    number: int
    """Of the global batch in its epoch."""


class Executor(Protocol):
    """Works on batches; results are asked for in the order in which they were submitted, or dropped."""

    def wants(self, under_way: int) -> bool:
        """Whether it takes another batch, beside so many whose result was not asked for."""

    def submit(self, loader: Loader) -> Ahead | None:
        """Takes a loader's next batch, and begins to work on it; None at the end of the epoch. Waits for the
        loader, and raises what it does."""

    def is_done(self, number: int) -> bool:
        """Whether it is known that a task is done. Does not look again."""

    def wait(self, number: int, seconds: float | None) -> bool:
        """Waits for a task, at most so long (None: until it is done); whether it is done. It may come back
        early. Ctrl-C ends the wait."""

    def result(self, number: int) -> Outcome:
        """What became of a task. Where it is not done, waits for it."""

    def drop(self) -> None:
        """Forgets all tasks."""

    def close(self) -> None:
        """Ends what runs. May be repeated."""


def next_of(loader: Loader, number: int) -> tuple[Batch, Ahead] | None:
    """A loader's next batch, to become a task of this number."""
    batch = loader._read()
    if batch is None:
        return None
    state = loader._native.state_later()
    return batch, Ahead(number, state, batch.ids.tobytes(), batch.epoch, batch.index)
