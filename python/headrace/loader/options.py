"""What a Loader is told, beside what it reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from headrace import _native
from headrace.base.option_names import OptionNames
from headrace.base.packages import missing_package
from headrace.base.units import parse_bytes, whole_number
from headrace.errors import InvalidArgumentError
from headrace.loader.peer_names import LOADER_PEERS
from headrace.loader.quarantine import Quarantine
from headrace.sources import orders
from headrace.sources.filling import check_cache_mode, without_cache
from headrace.sources.options import DatasetOptions, column_names, dataset_names, given_columns
from headrace.store.store import StoreOptions

if TYPE_CHECKING:
    from headrace.base.ranks import Rank
    from headrace.decode.decoding import Decoding

__all__ = ["LOADER_NAMES", "LoaderOptions", "Options", "loader_names", "split_options"]


class LoaderOptions(DatasetOptions, StoreOptions, total=False):
    """Keyword arguments of :class:`headrace.Loader`, which says what they mean."""

    shuffle: bool
    seed: int | None
    order: str | None
    order_options: Mapping[str, Any] | None
    epoch_end: str
    ragged: str
    memory: int | str
    keep_in_memory: bool
    epochs: int
    prefetch: int
    workers: int
    window: int
    lanes: int
    read_timeout: float
    decode: Mapping[str, Decoding] | str | None
    on_bad_sample: str
    progress: bool
    cache_mode: str
    cache_decoded: str
    quarantine: Quarantine | Mapping[str, Quarantine] | Mapping[int, Quarantine] | None
    format: str
    block_bytes: int | str | None
    index_cache: str | os.PathLike[str] | None
    use_stored_index: bool


class Options(NamedTuple):
    """Those of :class:`LoaderOptions` that are not about opening, with their defaults. What only the engine
    can judge, it does."""

    batch_size: int
    shuffle: bool = True
    seed: int | None = None
    order: str | None = None
    order_options: Mapping[str, Any] | None = None
    epoch_end: str = "pad"
    columns: Sequence[str] | str | None = None
    ragged: str = "list"
    memory: int | str = "4GiB"
    keep_in_memory: bool = True
    epochs: int = 0
    prefetch: int = 16
    workers: int = 0
    window: int = 0
    lanes: int = 0
    read_timeout: float = 120.0
    decode: Mapping[str, Decoding] | str | None = None
    on_bad_sample: str = "raise"
    quarantine: Any = None
    progress: bool = False
    cache_mode: str = "cache"
    cache_decoded: str = "auto"

    def checked(self) -> Options:
        """With whole numbers for what is counted and the order's own seed where none is given. Raises
        InvalidArgumentError for what contradicts itself."""
        for name in ("shuffle", "keep_in_memory", "progress"):
            if getattr(self, name) not in (True, False):
                raise InvalidArgumentError(f"{name}={getattr(self, name)!r}: expected True or False")
        for name in ("epoch_end", "on_bad_sample", "cache_decoded"):  # The engine knows which there are.
            if not isinstance(getattr(self, name), str):
                raise InvalidArgumentError(f"{name}={getattr(self, name)!r}: expected a str")
        is_number = isinstance(self.read_timeout, int | float) and not isinstance(self.read_timeout, bool)
        if not is_number or not 0 < self.read_timeout <= 365 * 86400:
            raise InvalidArgumentError(
                f"read_timeout={self.read_timeout!r}: expected seconds above 0, at most a year"
            )
        orders.check_order(self.order)
        if orders.is_foreign(self.order):
            if self.window or self.lanes:
                raise InvalidArgumentError(
                    f"window= and lanes= belong to order headrace; order {self.order} has neither"
                )
        elif self.order_options:
            raise InvalidArgumentError("order_options= belongs to the orders mosaic:* and litdata")
        if self.order == "headrace" and not self.shuffle:
            raise InvalidArgumentError(
                'order="headrace" shuffles: leave out shuffle=False, or use order="sequential"'
            )
        _find_to_arrow(self.ragged)
        seed = orders.default_seed(self.order) if self.seed is None else self.seed
        counts: dict[str, Any] = {
            name: whole_number(name, getattr(self, name), 32, least=least, most=most)
            for name, (least, most) in _COUNTS.items()
        }
        columns = given_columns(self.columns)
        return self._replace(seed=whole_number("seed", seed, 64), columns=columns, **counts)

    def for_engine(self) -> dict[str, Any]:
        """Arguments of the engine's Loader, but for the rank and what the source decides."""
        return {
            "batch_size": self.batch_size,
            "order": self.order or ("headrace" if self.shuffle else "sequential"),
            "seed": self.seed,
            "epoch_end": self.epoch_end,
            "window_blocks": self.window,
            "lane_count": self.lanes,
            "epochs": self.epochs,
            "keep_in_memory": self.keep_in_memory,
            "prefetch": self.prefetch,
            "workers": self.workers,
            "columns": self.column_names(),
            "order_memory_bytes": parse_bytes(self.memory),
            "read_timeout": self.read_timeout,
            "on_bad_sample": self.on_bad_sample,
            "cache_decoded": self.cache_decoded,
            "to_arrow": _find_to_arrow(self.ragged),
        }

    def column_names(self) -> list[str]:
        """Those to deliver; empty: all."""
        return column_names(self.columns)

    def order_request(self, rank: Rank) -> orders.OrderRequest:
        assert self.seed is not None
        return orders.OrderRequest(
            order=self.order,
            options=self.order_options or {},
            seed=self.seed,
            shuffle=self.shuffle,
            batch_size=self.batch_size,
            world_size=rank.world_size,
            memory_bytes=parse_bytes(self.memory),
            window_blocks=self.window,
            lane_count=self.lanes,
        )


_COUNTS: dict[str, tuple[int, int | None]] = {
    "batch_size": (1, None),
    "epochs": (0, None),
    "prefetch": (1, 1024),
    "workers": (0, 1024),
    "window": (0, None),
    "lanes": (0, None),
}
"""Least and most of each; the engine has the same bounds."""


def loader_names(owner: str, *more: str) -> OptionNames:
    """The options of a loader that has ``more`` of them."""
    return dataset_names(owner, (*Options._fields, "rank", "world_size", *more), LOADER_PEERS)


LOADER_NAMES = loader_names("Loader")


def split_options(batch_size: int, given: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
    """A Loader's options, checked, and those that open what it reads."""
    LOADER_NAMES.check(given)
    own = {name: value for name, value in given.items() if name in Options._fields}
    rest = {name: value for name, value in given.items() if name not in Options._fields}
    options = Options(batch_size, **own).checked()
    check_cache_mode(options.cache_mode, rest)
    return options, without_cache(rest) if options.cache_mode == "none" else rest


def _find_to_arrow(ragged: str) -> Callable[[_native.ArrowColumn], object] | None:
    if ragged not in ("list", "arrow"):
        raise InvalidArgumentError(f"ragged={ragged!r} is unknown; there are list, arrow")
    if ragged == "list":
        return None
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_package('ragged="arrow" needs', "pyarrow", error) from None
    return cast("Callable[[_native.ArrowColumn], object]", pa.array)
