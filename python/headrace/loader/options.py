"""What a Loader is told, beside what it reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

from headrace import _native
from headrace.base.units import parse_bytes, whole_number
from headrace.errors import InvalidArgumentError, UnsupportedError
from headrace.loader.quarantine import Quarantine
from headrace.sources import orders
from headrace.sources.options import DatasetOptions
from headrace.store.store import StoreOptions

if TYPE_CHECKING:
    from headrace.base.ranks import Rank

__all__ = ["LoaderOptions", "Options", "split_options"]


class LoaderOptions(DatasetOptions, StoreOptions, total=False):
    """Keyword arguments of :class:`headrace.Loader`, which says what they mean."""

    shuffle: bool
    seed: int | None
    order: str | None
    order_options: Mapping[str, Any] | None
    epoch_end: str
    ragged: str
    memory: int | str
    prefetch: int
    workers: int
    window: int
    lanes: int
    read_timeout: float
    on_bad_sample: str
    quarantine: Quarantine | Mapping[str, Quarantine] | Mapping[int, Quarantine] | None
    format: str
    block_bytes: int | str | None
    index_cache: str | os.PathLike[str] | None
    use_stored_index: bool


@dataclass(frozen=True)
class Options:
    """Those of :class:`LoaderOptions` that are not about opening, with their defaults. What only the engine
    can judge, it does."""

    batch_size: int
    _: KW_ONLY
    shuffle: bool = True
    seed: int | None = None
    order: str | None = None
    order_options: Mapping[str, Any] | None = None
    epoch_end: str = "pad"
    columns: Sequence[str] | str | None = None
    ragged: str = "list"
    memory: int | str = "4GiB"
    prefetch: int = 16
    workers: int = 0
    window: int = 0
    lanes: int = 0
    read_timeout: float = 120.0
    on_bad_sample: str = "raise"
    quarantine: Any = None
    for_engine: dict[str, Any] = field(init=False, repr=False)
    """Arguments of the engine's Loader, but for the rank and what the source decides."""

    def __post_init__(self) -> None:
        if not 0 < self.read_timeout <= 365 * 86400:
            raise InvalidArgumentError(
                f"read_timeout={self.read_timeout!r}: expected seconds above 0, at most a year"
            )
        if orders.is_foreign(self.order):
            if self.window or self.lanes:
                raise InvalidArgumentError(
                    f"window= and lanes= belong to order headrace; order {self.order} has neither"
                )
        elif self.order_options:
            raise InvalidArgumentError("order_options= belongs to the orders mosaic:* and litdata")
        seed = orders.default_seed(self.order) if self.seed is None else self.seed
        arguments = {
            "batch_size": whole_number("batch_size", self.batch_size, 32),
            "order": self._engine_order(),
            "seed": whole_number("seed", seed, 64),
            "epoch_end": self.epoch_end,
            "window_blocks": whole_number("window", self.window, 32),
            "lane_count": whole_number("lanes", self.lanes, 32),
            "prefetch": whole_number("prefetch", self.prefetch, 32),
            "workers": whole_number("workers", self.workers, 32),
            "columns": [self.columns] if isinstance(self.columns, str) else list(self.columns or ()),
            "read_timeout": self.read_timeout,
            "on_bad_sample": self.on_bad_sample,
            "to_arrow": _find_to_arrow(self.ragged),
        }
        object.__setattr__(self, "for_engine", arguments)

    def _engine_order(self) -> str:
        if self.order is None:
            return "headrace" if self.shuffle else "sequential"
        if self.order == "headrace" and not self.shuffle:
            raise InvalidArgumentError(
                'order="headrace" shuffles: leave out shuffle=False, or use order="sequential"'
            )
        return self.order

    def order_request(self, rank: Rank) -> orders.OrderRequest:
        engine = self.for_engine
        return orders.OrderRequest(
            order=self.order,
            options=self.order_options or {},
            seed=engine["seed"],
            shuffle=self.shuffle,
            batch_size=engine["batch_size"],
            world_size=rank.world_size,
            memory_bytes=parse_bytes(self.memory),
            window_blocks=engine["window_blocks"],
            lane_count=engine["lane_count"],
        )


_OWN = frozenset(row.name for row in fields(Options) if row.init)


def split_options(batch_size: int, given: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
    """A Loader's options, checked, and those that open what it reads."""
    for name in ("decode", "cache", "cache_limit"):
        if given.get(name) is not None:
            raise UnsupportedError(f"{name}= is not in this version of headrace; leave it out")
    own = {name: value for name, value in given.items() if name in _OWN}
    rest = {
        name: value for name, value in given.items() if name not in {*_OWN, "decode", "cache", "cache_limit"}
    }
    return Options(batch_size, **own), rest


def _find_to_arrow(ragged: str) -> Callable[[_native.ArrowColumn], object] | None:
    if ragged not in ("list", "arrow"):
        raise InvalidArgumentError(f"ragged={ragged!r} is unknown; there are list, arrow")
    if ragged == "list":
        return None
    try:
        import pyarrow as pa  # type: ignore[import-untyped]
    except ImportError:
        raise UnsupportedError('ragged="arrow" needs pyarrow: pip install pyarrow') from None
    return cast("Callable[[_native.ArrowColumn], object]", pa.array)
