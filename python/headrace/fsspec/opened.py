"""The stores that a file system has open."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from headrace.base.recipe import lasting_options
from headrace.fsspec.versions import Versions
from headrace.store.store import Store
from headrace.store.tiers import CACHE_OPTIONS

# Web stores with a signature in the URL are one each.
MOST_STORES = 64
_OPENS_FILES = ("access_log", *CACHE_OPTIONS)


class Opened(NamedTuple):
    store: Store
    versions: Versions


class Stores:
    """A store for each bucket or host, opened when it is first used, and again in a child of ``fork()``,
    which leaves those of its parent alone. Any thread."""

    def __init__(self, memory: int | str, options: dict[str, Any]) -> None:
        # The process may work elsewhere when the first object is asked for.
        self._memory, self._options = memory, lasting_options(options)
        self._reset()
        # Wrong options are wrong now, and not when the first object is asked for.
        plain = {name: value for name, value in options.items() if name not in _OPENS_FILES}
        Store("memory://options", memory=memory, **plain).close()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Opened] = OrderedDict()

    def get(self, root: str) -> Opened:
        if self._pid != os.getpid():
            self._reset()
        with self._lock:
            found = self._open.get(root)
            if found is None or found.store.closed:
                store = Store(root, memory=self._memory, **self._options)
                found = self._open[root] = Opened(store, Versions(store.head))
            self._open.move_to_end(root)
            while len(self._open) > MOST_STORES:
                # Not closed: somebody may be reading.
                self._open.popitem(last=False)
            return found

    def forget(self) -> None:
        """What was known of versions of objects."""
        for opened in [] if self._pid != os.getpid() else list(self._open.values()):
            opened.versions.forget_below("")

    def all(self) -> dict[str, Store]:
        """Those that are open now, by URL."""
        return {} if self._pid != os.getpid() else {root: opened.store for root, opened in self._open.items()}

    def close(self) -> None:
        for store in self.all().values():
            store.close()
        self._reset()
