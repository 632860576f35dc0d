"""Whether this job is still the one that saves, asked while something else is waited for."""

from __future__ import annotations

import time

from headrace.base.call import Call
from headrace.checkpoint.place import Place

__all__ = ["FenceCheck"]

_FRESH_SECONDS = 5.0


class FenceCheck:
    """One answer, which is asked for anew where it has become old: ranks may be minutes apart. Another job
    may come behind any answer: the commit is compared with the fence once more when it is there."""

    def __init__(self, place: Place, number: int) -> None:
        self._place, self._number = place, number
        self._asked: tuple[float, Call[None]] | None = None

    def begin(self) -> None:
        """Asks, and does not wait."""
        self._asked = time.monotonic(), Call(lambda: self._place.check_fence(self._number))

    def end(self) -> None:
        """Raises ChangedError where a later job has taken another number."""
        if self._asked is None or time.monotonic() - self._asked[0] > _FRESH_SECONDS:
            self._place.check_fence(self._number)
        else:
            self._asked[1].result()
