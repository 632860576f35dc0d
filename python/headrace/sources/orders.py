"""Orders of other loaders: their options, and the source that a Loader takes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace import _native
from headrace.base.units import whole_number
from headrace.errors import InvalidArgumentError
from headrace.sources.order_cache import order_cache

__all__ = ["ORDERS", "OrderRequest", "check_order", "default_seed", "is_foreign", "listed_order"]

_MOSAIC = "mosaic:"
_ALGORITHMS = ("py1e", "py1s", "py1br", "py2s", "naive")
ORDERS = ("headrace", "sequential", *(f"{_MOSAIC}{name}" for name in _ALGORITHMS), "litdata")
"""What ``order=`` takes."""
_WORLD_OPTIONS = ("num_workers", "ranks_per_node")
# What values are: text, a flag, or a whole number of so many bits.
_MOSAIC_OPTIONS: dict[str, type | int] = {
    "batching_method": str,
    "epoch_size": 64,
    "num_canonical_nodes": 32,
    "partition_algo": str,
    "sampling_granularity": 64,
    "sampling_method": str,
    "shuffle_block_size": 64,
}
_LITDATA_OPTIONS: dict[str, type | int] = {
    "drop_last": bool,
    "item_shuffle_window": 32,
    "max_cache_size": 64,
    "window": 32,
}


class OrderRequest(NamedTuple):
    """What decides the order of a run, beside the data."""

    order: str | None
    """As the caller names it; None: left out."""
    options: Mapping[str, Any]
    """Of the orders of other loaders."""
    seed: int
    shuffle: bool
    batch_size: int
    world_size: int
    memory_bytes: int
    window_blocks: int
    lane_count: int


def check_order(order: Any) -> None:
    """Raises InvalidArgumentError for what is no name of an order, with all that there are."""
    if order is None or order in ORDERS:
        return
    hint = "; left out, samples are shuffled" if order in ("random", "shuffle", "shuffled") else ""
    if order in _ALGORITHMS:
        hint = f"; that of Mosaic is {_MOSAIC}{order}"
    raise InvalidArgumentError(f"order={order!r} is unknown; there are {', '.join(ORDERS)}{hint}")


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
            raise InvalidArgumentError(
                f"order_options[{name!r}]: order {order!r} has the options {', '.join(sorted(known))}"
            )


def _count(options: Mapping[str, Any], name: str, default: int) -> int:
    value = options.get(name)
    return default if value is None else whole_number(f"order_options[{name!r}]", value, 32)


def _value(label: str, value: Any, kind: type | int) -> Any:
    if value is None:
        return None
    if isinstance(kind, int):
        return whole_number(label, value, kind)
    if not isinstance(value, kind):
        raise InvalidArgumentError(
            f"{label}={value!r}: expected {'True or False' if kind is bool else 'a name'}"
        )
    return value


_SHUFFLES = ("none", "full", "window")


def _litdata_shuffle(value: Any) -> str:
    """LitData's own argument is a flag."""
    if isinstance(value, bool):
        return "full" if value else "none"
    if value not in _SHUFFLES:
        raise InvalidArgumentError(
            f"order_options['shuffle']={value!r}: expected True, False or one of {', '.join(_SHUFFLES)}"
        )
    return str(value)


def _values(options: Mapping[str, Any], known: Mapping[str, type | int]) -> dict[str, Any]:
    """Those of ``known`` that are given."""
    return {
        name: _value(f"order_options[{name!r}]", options[name], kind)
        for name, kind in known.items()
        if name in options
    }


def _ranks_per_node(options: Mapping[str, Any], world_size: int) -> int:
    """As given, else LOCAL_WORLD_SIZE as torchrun sets it, else all ranks."""
    given = _count(options, "ranks_per_node", 0)
    if given:
        return given
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(local) if local.isdigit() and int(local) > 0 and world_size % int(local) == 0 else world_size


def _grid(request: OrderRequest) -> tuple[int, int, int, int]:
    return (
        request.world_size,
        _ranks_per_node(request.options, request.world_size),
        max(_count(request.options, "num_workers", 1), 1),
        request.batch_size,
    )


def _stream_row(stream: Mapping[str, Any]) -> tuple[list[int], float | None, float | None, int | None]:
    if (
        not isinstance(stream, Mapping)
        or not isinstance(stream.get("shard_samples"), Iterable)
        or not set(stream) <= {"shard_samples", "proportion", "repeat", "choose"}
    ):
        raise InvalidArgumentError(
            'order_options["streams"]: each has "shard_samples", and one of "proportion", "repeat", "choose"'
        )
    label = 'order_options["streams"]: '
    for name in ("proportion", "repeat"):
        if not isinstance(stream.get(name), int | float | None):
            raise InvalidArgumentError(f"{label}{name}={stream[name]!r}: expected a number")
    choose = stream.get("choose")
    shards = [whole_number(f"{label}shard_samples", samples, 64) for samples in stream["shard_samples"]]
    return (
        shards,
        stream.get("proportion"),
        stream.get("repeat"),
        None if choose is None else whole_number(f"{label}choose", choose, 64),
    )


def listed_order(dataset: _native.Dataset, request: OrderRequest) -> _native.OrderSource | None:
    """The order of another loader over a dataset; None: the request is for one of the engine's. Raises
    InvalidArgumentError for an unknown option."""
    order, options = request.order, request.options
    if order is None or not is_foreign(order):
        return None
    if order == "litdata":
        _check_names(order, options, (*_LITDATA_OPTIONS, "shuffle", *_WORLD_OPTIONS))
        shuffle = options.get("shuffle")
        spec = {
            "shuffle": _litdata_shuffle(request.shuffle if shuffle is None else shuffle),
            "seed": whole_number("seed", request.seed, 32),
            **_values(options, _LITDATA_OPTIONS),
        }
        return _native.litdata_source(dataset, spec, _grid(request))
    algorithm = order.removeprefix(_MOSAIC)
    _check_names(order, options, (*_MOSAIC_OPTIONS, "streams", *_WORLD_OPTIONS))
    spec = {
        "shuffle": request.shuffle,
        "shuffle_algo": algorithm,
        "shuffle_seed": whole_number("seed", request.seed, 63),
        **_values(options, _MOSAIC_OPTIONS),
    }
    streams = options.get("streams") or ()
    if not isinstance(streams, Sequence):
        raise InvalidArgumentError(f"order_options['streams']={streams!r}: expected a list")
    rows = [_stream_row(stream) for stream in streams]
    return _native.mosaic_source(dataset, spec, rows, _grid(request), order_cache())
