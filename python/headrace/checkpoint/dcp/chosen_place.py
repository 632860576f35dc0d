"""Where a reader or writer of DCP reads or writes: a URL that may change, opened when it is needed."""

from __future__ import annotations

import os
from typing import Any

from headrace.checkpoint.place import Place, read_key
from headrace.errors import InvalidArgumentError
from headrace.store.store import Store
from headrace.store.urls import absolute_url


class ChosenPlace:
    """:param missing: what to say where no URL is known yet.
    :param options: of the store.
    :param encryption_key: where the key is; None: nothing is encrypted.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None,
        missing: str,
        options: dict[str, Any],
        encryption_key: str | None,
    ) -> None:
        self.url = None if url is None else absolute_url(url)
        self._missing = missing
        self._options = options
        self._key = encryption_key
        self._place: Place | None = None

    def choose(self, url: str | os.PathLike[str] | None) -> None:
        """From here on; None: the same."""
        if url is not None and absolute_url(url) != self.url:
            self.close()
            self.url = absolute_url(url)

    def open(self) -> Place:
        if self.url is None:
            raise InvalidArgumentError(self._missing)
        if self._place is None:
            self._place = Place(Store(self.url, **self._options), read_key(self._key))
        return self._place

    def close(self) -> None:
        """It may be opened again."""
        place, self._place = self._place, None
        if place is not None:
            place.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_place": None}
