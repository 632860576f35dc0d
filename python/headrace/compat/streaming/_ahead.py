"""Shards copied ahead of the training loop."""

from __future__ import annotations

import bisect
import logging
import threading
from collections.abc import Callable, Iterable, Sequence

logger = logging.getLogger(__name__)

_THREADS = 4


class ShardsAhead:
    """Calls ``prepare`` for the shards of the coming samples, in threads, for at most ``most`` shards that
    were not reached yet.

    An error is only logged: whoever reads the sample prepares its shard again, and gets the error himself.
    """

    def __init__(self, prepare: Callable[[int], None], first_samples: Sequence[int], most: int) -> None:
        self._prepare, self._first_samples, self._most = prepare, first_samples, most
        self._changed = threading.Condition()
        self._coming: dict[int, None] = {}  # in order
        self._taken: set[int] = set()
        self._is_closed = False
        for _ in range(_THREADS):
            threading.Thread(target=self._work, name="headrace-copies", daemon=True).start()

    def _shard_of(self, sample: int) -> int:
        return bisect.bisect_right(self._first_samples, sample) - 1

    def want(self, samples: Iterable[int]) -> None:
        """These samples come next."""
        with self._changed:
            for shard in dict.fromkeys(map(self._shard_of, samples)):
                if shard not in self._taken:
                    self._coming.setdefault(shard)
            self._changed.notify_all()

    def reached(self, sample: int) -> None:
        """This sample is read now."""
        shard = self._shard_of(sample)
        with self._changed:
            self._coming.pop(shard, None)
            if shard in self._taken:
                self._taken.discard(shard)
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or (self._coming and len(self._taken) < self._most)
            )
            if self._is_closed:
                return None
            shard = next(iter(self._coming))
            del self._coming[shard]
            self._taken.add(shard)
            return shard

    def _work(self) -> None:
        while (shard := self._take()) is not None:
            try:
                self._prepare(shard)
            except Exception as error:
                logger.info("shard %d is not copied ahead: %s", shard, error)
