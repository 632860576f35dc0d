"""Reading some files of a checkpoint at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from headrace.store.store import Store

_FILES_AT_ONCE = 4


def read_files(store: Store, read: Callable[[str], None], keys: Iterable[str]) -> None:
    """The first error ends what is under way, closes the store, and is raised."""
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        futures = [pool.submit(read, key) for key in keys]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            store.close()
            raise
