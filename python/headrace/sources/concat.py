"""Several datasets one after the other, as one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.base.units import parse_bytes
from headrace.errors import InvalidArgumentError
from headrace.sources.options import OPENING, column_names, split_options
from headrace.sources.orders import OrderRequest, listed_order
from headrace.sources.source import DatasetSource, Opened, Source
from headrace.sources.url import UrlSource

if TYPE_CHECKING:
    from headrace.sources.source import SourceLike

__all__ = ["ListSource", "is_open", "open_source"]

# Stores of parts serve reads of the one over them, which has the memory.
_PART_MEMORY = "64MiB"
# Of a dataset that is opened for others to read.
_OWN_MEMORY = "256MiB"


def is_open(given: Any) -> bool:
    """Whether nothing of it is opened by :func:`open_source`: options would have nothing to act on."""
    return isinstance(given, Opened | Source) or (
        isinstance(given, list | tuple) and all(map(is_open, given))
    )


def _chosen(options: Mapping[str, Any]) -> list[str]:
    """Those that say something about opening, and something else than what holds without them."""
    return sorted(
        name
        for name, value in options.items()
        if name != "columns" and value is not None and value != OPENING.get(name)
    )


def open_source(
    given: SourceLike | Iterable[SourceLike],
    *,
    memory: int | str = _OWN_MEMORY,
    wanted: Sequence[str] = (),
    **options: Any,
) -> Source:
    """A source that the caller owns: the dataset at a URL or of a list, opened with ``options``; or around
    what is open already, which close() then leaves open.

    :param wanted: of a list, as :class:`ListSource` has it; default: the ``columns`` of ``options``.
    """
    if isinstance(given, Opened):
        given = given._source
    elif isinstance(given, str | os.PathLike):
        return UrlSource(given, memory=memory, **options)
    elif isinstance(given, Iterable):
        wanted = wanted or column_names(options.get("columns"))
        return ListSource(list(given), wanted=wanted, memory=memory, options=options)
    elif not isinstance(given, Source):
        raise InvalidArgumentError(f"{given!r:.200}: expected a URL, a path, a Dataset, or a list of them")
    if options:
        raise InvalidArgumentError(f"{sorted(options)[0]}= belongs to the Dataset that was passed in")
    return DatasetSource(given)


class ListSource:
    """Several datasets one after the other.

    :param datasets: URLs, paths, or what is open already and stays so; by names, or in a list.
    :param columns: ``"equal"`` wants the same columns in all, ``"common"`` takes those that all have,
        ``"union"`` those that any has; values are None where a dataset lacks them. Names: these alone, which
        all have.
    :param wanted: columns that are read, empty: all. ``"equal"`` is not asked of the others: those that
        differ are left out.
    :param growing: more may be added behind these during a run.
    :param options: to open those given as URLs.
    """

    def __init__(
        self,
        datasets: Mapping[str, SourceLike] | Iterable[SourceLike],
        *,
        columns: str | Sequence[str] = "equal",
        wanted: Sequence[str] = (),
        memory: int | str = _OWN_MEMORY,
        growing: bool = False,
        options: Mapping[str, Any],
    ) -> None:
        named = dict(datasets) if isinstance(datasets, Mapping) else dict(enumerate(datasets))
        if not named:
            raise InvalidArgumentError("expected a list of datasets, URLs or paths")
        if all(map(is_open, named.values())) and (chosen := _chosen(options)):
            raise InvalidArgumentError(f"{chosen[0]}= belongs to the Datasets that were passed in")
        store_options = split_options(options)[1]
        self.store_options = {name: value for name, value in store_options.items() if name not in OPENING}
        self.parts: dict[Any, Source] = {}
        with ExitStack() as opened:
            for name, given in named.items():
                part = open_source(given, **({} if is_open(given) else options))
                opened.callback(part.close)
                self.parts[name] = part
            self.part_stores: list[_native.Store] = []
            self.store = self.open_store(memory, self.part_stores)
            for store in (self.store, *self.part_stores):
                opened.callback(store.close)
            natives = [part.native for part in self.parts.values()]
            if has_names := not isinstance(columns, str):
                columns, wanted = "equal", list(columns)
            self.native = _native.concat_datasets(
                self.store, natives, columns, wanted, only_wanted=has_names, is_growing=growing
            )
            opened.callback(self.native.close)
            self._opened = opened.pop_all()

    def open_store(self, memory: int | str, parts: list[_native.Store] | None = None) -> _native.Store:
        with ExitStack() as opened:
            stores: list[_native.Store] = []
            leaves: list[_native.Store] = []
            for part in self.parts.values():
                below: list[_native.Store] = []
                stores.append(part.open_store(_PART_MEMORY, below))
                leaves += below or stores[-1:]
                for store in dict.fromkeys((stores[-1], *below)):
                    opened.callback(store.close)
            routed = _native.route_stores(stores, parse_bytes(memory))  # It has handles of its own.
            if parts is not None:
                opened.pop_all()
                parts += leaves
                for store in stores:
                    if store not in leaves:
                        store.close()
            return routed

    def order_source(self, request: OrderRequest) -> _native.OrderSource | None:
        return listed_order(self.native, request)

    def close(self) -> None:
        self._opened.close()
