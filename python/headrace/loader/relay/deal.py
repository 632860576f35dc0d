"""The books of one loop of a DataLoader over its workers. Pure.

Batch i of the loop goes to worker i modulo their number, which is the turn in which a DataLoader takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import InvalidArgumentError

__all__ = ["Deal", "Start", "place_of"]


class Start(NamedTuple):
    """Where a worker goes on, by its own state."""

    next: int
    """Its next batch, counted over all workers from the beginning of the loop."""
    state: str
    """Of the engine, behind its last batch; where it has had none, at the beginning of the loop."""


def place_of(starts: Sequence[Start]) -> Start:
    """Where all workers together go on: the first batch that was not delivered, and the state before it.

    Raises InvalidArgumentError for states that are not of one moment.
    """
    count = len(starts)
    first = min(start.next for start in starts)
    for worker, start in enumerate(starts):
        if start.next != first + (worker - first) % count:
            raise InvalidArgumentError(
                f"the states of the {count} workers are not of one moment (their next batches are "
                f"{', '.join(str(each.next) for each in starts)}): load the DataLoader's state as it was "
                "saved"
            )
    # The batch before it was the last one of this worker. At the beginning all have the same state.
    return Start(first, starts[first - 1 if first == 0 else (first - 1) % count].state)


class Deal:
    """What was dealt, and what of it has arrived.

    :param first: number of the first batch; not 0 where a loop goes on.
    :param state: of the engine before it.
    """

    def __init__(self, workers: int, first: int, state: str) -> None:
        self.workers, self.first = workers, first
        self.dealt = self.delivered = first
        self.credits = [1] * workers
        """Batches that each worker may still be sent: one more than it has asked for, so that a worker that
        is busy with one does not keep the others from theirs."""
        self.is_over = False
        """Nothing will be dealt any more."""
        self._states = {first: state}  # Of the engine behind so many batches.

    @property
    def turn(self) -> int:
        """The worker that gets the next batch."""
        return self.dealt % self.workers

    @property
    def can_deal(self) -> bool:
        return not self.is_over and self.credits[self.turn] > 0

    @property
    def is_ahead(self) -> bool:
        """Whether the engine stands behind what was delivered."""
        return self.dealt > self.delivered

    def note_dealt(self, state: str) -> None:
        """The worker whose turn it is has got a batch; the engine's state behind it."""
        self.credits[self.turn] -= 1
        self.dealt += 1
        self._states[self.dealt] = state

    def note_delivered(self) -> None:
        """The training loop is about to get the next batch."""
        self._states.pop(self.delivered - 1, None)  # That one it has got: nothing goes back before it.
        self.delivered += 1

    @property
    def state(self) -> str:
        """Of the engine, behind what was delivered."""
        return self._states[self.delivered]
