"""The iterator of a loader, and going back to the start of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Epoch", "Epochs"]


_Convert = Callable[[Any], Any]


class Epoch:
    """Iterator of one epoch. Not ``iter(next, None)``: that breaks in Python 3.11.2 when several threads
    share it.

    :param next_batch: see :meth:`Loader._next`.
    """

    __slots__ = ("_convert", "_next")

    def __init__(self, next_batch: Callable[[_Convert | None], Any], convert: _Convert | None = None) -> None:
        self._next, self._convert = next_batch, convert

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batch = self._next(self._convert)  # A call of Python: no signal is handled behind it.
        if batch is None:
            raise StopIteration
        return batch

    def __reduce__(self) -> Any:
        raise InvalidArgumentError(
            "the iterator of a loader is not pickled: pickle the loader, whose state has the position of its "
            "loops"
        )


class Epochs(ABC):
    """What iterates epochs from a position, and can go back."""

    @abstractmethod
    def reset(self, epoch: int | None = None) -> None:
        """Goes to the first batch of an epoch (default: that of the position): the next loop delivers all of
        it.

        After a loop that was left early that is the same epoch again; after one that came to its end, or had
        all batches of this rank, the next epoch. A position that ``load_state_dict()`` chose is given up,
        unlike with ``set_epoch()``. Call it on all ranks alike.
        """

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """From the position to the end of the epoch."""

    def __getitem__(self, index: object) -> NoReturn:
        """Raises InvalidArgumentError: batches come in their order."""
        raise InvalidArgumentError(
            "a loader has no batches by number: iterate it. headrace.Dataset(url)[i] reads single samples. "
            "torch's DataLoader takes a headrace.torch.Loader, by DataLoader(loader, batch_size=None), and "
            "no other loader"
        )

    def epoch_from_start(self, epoch: int | None = None) -> Iterator[Any]:
        """All batches of an epoch, wherever a loop before this one was left: :meth:`reset`, then a loop. What
        validation wants: ``for batch in loader.epoch_from_start():``. With ``epoch=0`` in the same order each
        time."""
        self.reset(epoch)
        return iter(self)
