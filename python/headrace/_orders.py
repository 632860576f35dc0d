"""Orders of other loaders: their options, and the source that a Loader takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace import _native
from headrace.compat._cache import order_cache
from headrace.errors import InvalidArgumentError

__all__ = ["World", "default_seed", "is_foreign", "open_source"]

_MOSAIC = "mosaic:"
_ALGORITHMS = ("py1e", "py1s", "py1br", "py2s", "naive")
_WORLD_OPTIONS = ("num_workers", "ranks_per_node")
_MOSAIC_OPTIONS = (
    "batching_method",
    "epoch_size",
    "num_canonical_nodes",
    "partition_algo",
    "sampling_granularity",
    "sampling_method",
    "shuffle_block_size",
    "streams",
)
_LITDATA_OPTIONS = ("drop_last", "item_shuffle_window", "max_cache_size", "shuffle", "window")


class World(NamedTuple):
    world_size: int
    batch_size: int


def is_foreign(order: str | None) -> bool:
    """Whether another loader defines the order."""
    return order is not None and (order.startswith(_MOSAIC) or order == "litdata")


def default_seed(order: str | None) -> int:
    """What the loader that defines the order takes when no seed is given."""
    if order is not None and order.startswith(_MOSAIC):
        return 9176
    return 42 if order == "litdata" else 0


def _check_names(order: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in options:
        if name not in known:
            raise InvalidArgumentError(f"order_options[{name!r}]: order {order!r} has the options {', '.join(sorted(known))}")


def _count(options: Mapping[str, Any], name: str, default: int) -> int:
    value = options.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise InvalidArgumentError(f"order_options[{name!r}]={value!r}: expected a whole number")
    return value


def _ranks_per_node(options: Mapping[str, Any], world_size: int) -> int:
    """As given, else LOCAL_WORLD_SIZE as torchrun sets it, else all ranks."""
    given = _count(options, "ranks_per_node", 0)
    if given:
        return given
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(local) if local.isdigit() and int(local) > 0 and world_size % int(local) == 0 else world_size


def _grid(options: Mapping[str, Any], world: World) -> tuple[int, int, int, int]:
    return world.world_size, _ranks_per_node(options, world.world_size), max(_count(options, "num_workers", 1), 1), world.batch_size


def _stream_row(stream: Mapping[str, Any]) -> tuple[list[int], float | None, float | None, int | None]:
    if "shard_samples" not in stream or not set(stream) <= {"shard_samples", "proportion", "repeat", "choose"}:
        raise InvalidArgumentError('order_options["streams"]: each has "shard_samples", and one of "proportion", "repeat", "choose"')
    return list(stream["shard_samples"]), stream.get("proportion"), stream.get("repeat"), stream.get("choose")


def _native_call(order: str, call: Any) -> _native.OrderSource:
    try:
        source: _native.OrderSource = call()
    except TypeError as error:
        raise InvalidArgumentError(f"order_options of order {order!r}: a value of the wrong kind: {error}") from None
    except RuntimeError as error:
        if "bad_cast" not in str(error):
            raise
        raise InvalidArgumentError(f"order_options of order {order!r}: a value of the wrong kind") from None
    return source


def open_source(order: str, dataset: _native.Dataset, options: Mapping[str, Any], *, seed: int, shuffle: bool, world: World) -> _native.OrderSource:
    """The source of ``order`` over a dataset. Raises InvalidArgumentError for an unknown order or option."""
    grid = _grid(options, world)
    if order == "litdata":
        _check_names(order, options, (*_LITDATA_OPTIONS, *_WORLD_OPTIONS))
        spec = {"shuffle": "full" if shuffle else "none", "seed": seed}
        spec |= {name: value for name, value in options.items() if name in _LITDATA_OPTIONS}
        return _native_call(order, lambda: _native.litdata_source(dataset, spec, grid))
    algorithm = order.removeprefix(_MOSAIC)
    if algorithm not in _ALGORITHMS:
        raise InvalidArgumentError(f"order={order!r}: there are {', '.join(_MOSAIC + name for name in _ALGORITHMS)}")
    _check_names(order, options, (*_MOSAIC_OPTIONS, *_WORLD_OPTIONS))
    spec = {"shuffle": shuffle, "shuffle_algo": algorithm, "shuffle_seed": seed}
    spec |= {name: options[name] for name in _MOSAIC_OPTIONS if name in options and name != "streams"}
    streams = [_stream_row(stream) for stream in options.get("streams") or ()]
    return _native_call(order, lambda: _native.mosaic_source(dataset, spec, streams, grid, order_cache()))
