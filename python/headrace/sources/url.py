"""A dataset at a URL or path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import _native
from headrace.errors import InvalidArgumentError
from headrace.sources.formats import check_format, refuse_part
from headrace.sources.opening import open_native_dataset, open_root
from headrace.sources.options import DatasetOptions, split_options
from headrace.sources.orders import OrderRequest, listed_order
from headrace.sources.source import Source
from headrace.store.store import open_native

__all__ = ["UrlSource"]


_OF_FORMATS = {
    "tokens_per_sample": ("tokens", "litdata"),
    "token_dtype": ("tokens",),
    "password": ("litdata",),
    "password_salt": ("litdata",),
}
"""Options that only these formats know."""


class UrlSource:
    """The dataset at a URL or path, with a store of its own.

    :param options: of :class:`DatasetOptions` and of the store.
    """

    parts: Mapping[Any, Source] = {}
    part_stores: Sequence[_native.Store] = ()

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        memory: int | str,
        format: str = "auto",
        block_bytes: int | str | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        use_stored_index: bool = True,
        **options: Any,
    ) -> None:
        if not isinstance(url, str | os.PathLike):
            raise InvalidArgumentError(f"{url!r:.200}: expected a URL, a path, or a list of them")
        check_format(format)
        self.given_url, self.format, self.block_bytes = url, format, block_bytes
        self.given, self.store_options = split_options(options)
        self.chosen: DatasetOptions = self.given
        """What is read: as given, or what the URL turned out to name."""
        self.root: str | os.PathLike[str] = url
        """Where the store is."""

        def use(store: _native.Store, chosen: DatasetOptions) -> _native.Dataset:
            if chosen is not self.given:
                self.root = store.url
            self.chosen = chosen
            keys = chosen.get("keys")
            if keys is not None and len(keys) == 1 and self.given.get("keys") is None:
                refuse_part(store, keys[0], format)
            return open_native_dataset(store, format, block_bytes, index_cache, use_stored_index, chosen)

        self.store, self.native = open_root(url, memory, self.given, self.store_options, use)
        try:
            self._check_taken()
        except InvalidArgumentError:
            self.close()
            raise

    def _check_taken(self) -> None:
        """Options that the format knows nothing of would be passed over, and all samples come."""
        found = self.native.format
        if self.given.get("where") is not None and found != "table":
            raise InvalidArgumentError(
                f"{self.given_url}: where= chooses row groups of Parquet, and this is {found}: filter() "
                "chooses samples"
            )
        for name, formats in _OF_FORMATS.items():
            if self.given.get(name) and found not in formats:
                hint = ": format='tokens' reads files so" if found == "raw" and "tokens" in formats else ""
                raise InvalidArgumentError(
                    f"{self.given_url}: {name}= is of {' and '.join(formats)}, and this is {found}{hint}"
                )

    def open_store(self, memory: int | str, parts: list[_native.Store] | None = None) -> _native.Store:
        return open_native(self.root, memory, **self.store_options)

    def order_source(self, request: OrderRequest) -> _native.OrderSource | None:
        return listed_order(self.native, request)

    def close(self) -> None:
        self.native.close()
        self.store.close()
