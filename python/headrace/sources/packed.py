"""Documents packed into sequences of equal length."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from headrace import _native
from headrace.sources.orders import OrderRequest, listed_order
from headrace.sources.source import Source

__all__ = ["PackedSource"]


class PackedSource:
    """Sequences made of the documents of another source, which this one closes, also where it fails.

    :param packing: see :func:`headrace.pack_tokens`.
    """

    parts: Mapping[Any, Source] = {}

    def __init__(self, documents: Source, *, memory: int | str, **packing: Any) -> None:
        self._documents = documents
        self.store_options = documents.store_options
        with ExitStack() as opened:
            opened.callback(documents.close)
            self.part_stores: list[_native.Store] = []
            self.store = self.open_store(memory, self.part_stores)
            for store in (self.store, *self.part_stores):
                opened.callback(store.close)
            self.native = _native.pack_tokens(self.store, documents.native, **packing)
            opened.callback(self.native.close)
            self._opened = opened.pop_all()

    def open_store(self, memory: int | str, parts: list[_native.Store] | None = None) -> _native.Store:
        return self._documents.open_store(memory, parts)

    def order_source(self, request: OrderRequest) -> _native.OrderSource | None:
        return listed_order(self.native, request)

    def close(self) -> None:
        self._opened.close()
