"""Which version an object had a moment ago."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from headrace._native import ObjectInfo

# As the cache itself remembers (docs/cache.md).
SECONDS = 1.0
MOST = 4096


class Versions:
    """What :meth:`Store.head` said of each object, for a second: for reads that name a version because the
    cache only keeps those.

    Any thread.
    """

    def __init__(self, head: Callable[[str], ObjectInfo], now: Callable[[], float] = time.monotonic) -> None:
        self._head = head
        self._now = now
        self._known: OrderedDict[str, tuple[float, ObjectInfo]] = OrderedDict()
        self._forgotten = object()  # Another one after each that was forgotten.

    def get(self, key: str) -> ObjectInfo:
        found = self._known.get(key)
        if found is not None and self._now() - found[0] < SECONDS:
            return found[1]
        return self.ask(key)

    def ask(self, key: str) -> ObjectInfo:
        """What the store says now."""
        before = self._forgotten
        info = self._head(key)
        if self._forgotten is not before:
            return info  # Perhaps this one, which was written meanwhile.
        self._known[key] = (self._now(), info)
        while len(self._known) > MOST:
            try:
                self._known.popitem(last=False)
            except KeyError:  # another thread did
                break
        return info

    def forget(self, key: str) -> None:
        """To be called once it was written or deleted: what was asked before that is not remembered."""
        self._forgotten = object()
        self._known.pop(key, None)

    def forget_below(self, key: str) -> None:
        """As :meth:`forget`, of the key and all below it; of ``""`` all."""
        self._forgotten = object()
        below = f"{key}/" if key else ""
        for one in list(self._known):
            if one == key or one.startswith(below):
                self.forget(one)
