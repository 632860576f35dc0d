"""map(), filter() and collate(), which loaders and mapped loaders have."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.base.units import whole_number
from headrace.errors import InvalidArgumentError
from headrace.loader.mapping.steps import Step, make_collate, make_filter, make_map

__all__ = ["Mappable", "Where"]


class Where(NamedTuple):
    """Where functions run, as far as it was said."""

    workers: int | None = None
    where: str | None = None

    def joined(self, other: Where) -> Where:
        """Of two calls on one loader. Raises InvalidArgumentError where they say different things."""
        for name, mine, its in zip(self._fields, self, other, strict=True):
            if mine is not None and its is not None and mine != its:
                raise InvalidArgumentError(
                    f"{name}={its!r}: an earlier function of this loader has {name}={mine!r}, and all run in "
                    "the same workers"
                )
        return Where(
            self.workers if other.workers is None else other.workers,
            self.where if other.where is None else other.where,
        )

    @classmethod
    def checked(cls, workers: int | None, where: str | None) -> Where:
        if where not in (None, "thread", "process"):
            raise InvalidArgumentError(f"where={where!r} is unknown; there are thread, process")
        return cls(None if workers is None else whole_number("workers", workers, 16), where)

    def resolved(self) -> tuple[int, str]:
        """Workers and where they are, with defaults for what was not said."""
        return self.workers or 0, self.where or "process"


_Mapped_co = TypeVar("_Mapped_co", covariant=True)


class Mappable(ABC, Generic[_Mapped_co]):
    """A loader to whose batches functions can be applied.

    Each method returns a loader that takes this one's batches from where it stands, applies the functions in
    the order in which they were given, and delivers in the loader's order. Iterate that one from then on, and
    save its state: it has the methods of a loader.

    All functions of a loader run in the same workers, one batch in one worker. ``workers=0`` (default): in
    the caller. ``where="process"`` (default): in so many processes, which are spawned at the first batch, not
    forked, and do not run the main program again. ``where="thread"``: in threads.

    A function that declares a parameter ``rng`` gets there a ``numpy.random.Generator`` of its own, which
    depends on (seed, epoch, sample) alone (of a batch: on its first sample).
    """

    @abstractmethod
    def _mapped(self, step: Step, place: Where) -> _Mapped_co:
        """The loader with one more function."""

    def map(
        self,
        fn: Callable[..., Any],
        *,
        per: str = "sample",
        workers: int | None = None,
        where: str | None = None,
    ) -> _Mapped_co:
        """Replaces each sample, or batch, by what a function makes of it.

        :param fn: takes a sample, a dict of its columns, and returns a dict with any columns; batches are
            made of these: numbers, arrays of one shape and dtype, and lists of numbers of one length become
            one array, arrays and lists of numbers of different shapes a list of arrays, everything else a
            list. Samples that are tuples make tuples of columns. Or takes a batch, and returns columns (a
            dict: delivered as a batch with the ids and mask that it had, its lists as if they were values of
            samples; or a Batch with its own) or anything else, which is delivered as it is.
        :param per: ``"sample"`` or ``"batch"``.
        """
        return self._mapped(make_map(fn, per), Where.checked(workers, where))

    def filter(
        self,
        fn: Callable[..., Any],
        *,
        holes: str = "compact",
        workers: int | None = None,
        where: str | None = None,
    ) -> _Mapped_co:
        """Leaves out the samples of which a function says False.

        :param fn: takes a sample.
        :param holes: ``"compact"``: batches get shorter, and empty ones are not delivered (on some ranks
            maybe, while others have samples). ``"mask"``: the sample stays, and ``batch.mask`` is False.
        """
        return self._mapped(make_filter(fn, holes), Where.checked(workers, where))

    def collate(
        self, fn: Callable[..., Any], *, workers: int | None = None, where: str | None = None
    ) -> _Mapped_co:
        """Makes of each batch what a function makes of the list of its samples."""
        return self._mapped(make_collate(fn), Where.checked(workers, where))
