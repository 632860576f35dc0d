"""What a loader reads: the contract of its sources."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from headrace import _native

if TYPE_CHECKING:
    from typing import TypeAlias

    from headrace.sources.orders import OrderRequest

    SourceLike: TypeAlias = "str | os.PathLike[str] | Opened | Source"
    """A URL or path, a Dataset, or a source itself."""

__all__ = ["DatasetSource", "ForwardingSource", "Opened", "Source", "first_blocks", "first_samples"]


@runtime_checkable
class Source(Protocol):
    """A dataset that is open, in a store that is open. Whoever makes one closes it; a constructor that fails
    leaves nothing open."""

    @property
    def native(self) -> _native.Dataset: ...

    @property
    def store(self) -> _native.Store:
        """Reads the dataset's objects; its memory is the limit of what is under way."""

    @property
    def store_options(self) -> Mapping[str, Any]:
        """How its store is reached, where one is."""

    @property
    def parts(self) -> Mapping[Any, Source]:
        """Of several datasets one after the other: each, by the name that its user has for it. Else empty."""

    @property
    def part_stores(self) -> Sequence[_native.Store]:
        """Those that ``store`` hands its reads on to, whose metrics are theirs alone; none: it is one
        itself."""

    def open_store(self, memory: int | str, parts: list[_native.Store] | None = None) -> _native.Store:
        """Another store over the same objects, with a memory limit of its own. The caller closes it.

        :param parts: what ``part_stores`` would be of it is added here, and the caller closes them as well.
        """

    def order_source(self, request: OrderRequest) -> _native.OrderSource | None:
        """The order of a first run; None: one of the engine's own, by its name. Raises InvalidArgumentError
        for what the source has no order for."""

    def close(self) -> None:
        """Closes what the source has opened. May be repeated."""


@runtime_checkable
class Opened(Protocol):
    """What users open: a Dataset."""

    _source: Source


def first_blocks(source: Source) -> list[int]:
    """Of each part, among the blocks of all."""
    return _firsts([part.native.block_count for part in source.parts.values()])


def first_samples(source: Source) -> list[int]:
    """Of each part, among the samples of all."""
    return _firsts([part.native.sample_count for part in source.parts.values()])


def _firsts(counts: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(counts[:-1], initial=0)) if counts else []


class ForwardingSource:
    """Another source, which it closes: the base of those that change something about it."""

    def __init__(self, inner: Source) -> None:
        self._inner = inner

    @property
    def native(self) -> _native.Dataset:
        return self._inner.native

    @property
    def store(self) -> _native.Store:
        return self._inner.store

    @property
    def store_options(self) -> Mapping[str, Any]:
        return self._inner.store_options

    @property
    def parts(self) -> Mapping[Any, Source]:
        return self._inner.parts

    @property
    def part_stores(self) -> Sequence[_native.Store]:
        return self._inner.part_stores

    def open_store(self, memory: int | str, parts: list[_native.Store] | None = None) -> _native.Store:
        return self._inner.open_store(memory, parts)

    def order_source(self, request: OrderRequest) -> _native.OrderSource | None:
        return self._inner.order_source(request)

    def close(self) -> None:
        self._inner.close()


class DatasetSource(ForwardingSource):
    """A source that is open already and stays so. With ``memory`` it is read through a store of this one's
    own."""

    def __init__(self, inner: Source, memory: int | str | None = None) -> None:
        super().__init__(inner)
        self._own_parts: list[_native.Store] = []
        self._own = None if memory is None else inner.open_store(memory, self._own_parts)

    @property
    def store(self) -> _native.Store:
        return self._inner.store if self._own is None else self._own

    @property
    def part_stores(self) -> Sequence[_native.Store]:
        return self._inner.part_stores if self._own is None else self._own_parts

    def close(self) -> None:
        for store in (self._own, *self._own_parts):
            if store is not None:
                store.close()
