"""Batches as arrays of JAX, of this process or of all of them together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from headrace.base.option_names import names_before
from headrace.data.batch import Batch
from headrace.errors import InvalidArgumentError
from headrace.loader.facade import Facade
from headrace.loader.loader import Loader as _NumpyLoader
from headrace.loader.mapping.mappable import Mappable, Where
from headrace.loader.mapping.mapped import MappedLoader
from headrace.loader.mapping.tensors import as_dtype, walk
from headrace.loader.options import loader_names

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Unpack

    from headrace.loader.facade import DatasetLike
    from headrace.loader.mapping.steps import Step
    from headrace.loader.options import LoaderOptions

__all__ = ["Batch", "Loader"]

_NAMES = loader_names("headrace.jax.Loader", "device", "sharding")

_BFLOAT16 = np.dtype(jax.numpy.bfloat16)


class _Part(NamedTuple):
    """Which rows of global arrays a process has."""

    rank: int
    parts: int
    """Such parts there are. Processes may have the same one."""
    shards: int
    """Pieces that the devices of the process hold of its rows."""


def _batch_axes(sharding: NamedSharding) -> tuple[str, ...]:
    """Axes of the mesh over which rows are dealt out."""
    first, *others = tuple(sharding.spec) or (None,)
    if any(entry is not None for entry in others):
        raise InvalidArgumentError(
            f"sharding={sharding.spec}: only the first axis of a batch, its samples, may be split: "
            f"PartitionSpec({first!r})"
        )
    return (first,) if isinstance(first, str) else tuple(first or ())


def _find_part(sharding: NamedSharding) -> _Part:
    """Rows of this process, in parts of all rows. Raises InvalidArgumentError where processes do not have
    equal stretches of them."""
    shards = math.prod(sharding.mesh.shape[axis] for axis in _batch_axes(sharding))
    by_process: dict[int, set[int]] = {}
    for device, (rows, *_) in sharding.devices_indices_map((shards,)).items():
        by_process.setdefault(device.process_index, set()).update(range(*rows.indices(shards)))
    own = by_process.get(jax.process_index())
    if own is None:
        raise InvalidArgumentError("sharding: the mesh has no device of this process")
    count = len(own)
    for index, held in by_process.items():
        if held != set(range(min(held), min(held) + count)) or min(held) % count:
            raise InvalidArgumentError(
                f"sharding: process {index} would have parts {sorted(held)} of the {shards} parts of a "
                "batch, which is no stretch like those of the other processes: order the mesh's devices by "
                "process along the axes of the samples"
            )
    return _Part(min(own) // count, shards // count, count)


def _narrowed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Whole numbers of 64 bits with 32, as JAX would make them without a word about those that do not fit."""
    if array.dtype not in (np.int64, np.uint64) or jax.config.jax_enable_x64:
        return array
    kind = np.int32 if array.dtype == np.int64 else np.uint32
    limits = np.iinfo(kind)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise InvalidArgumentError(
            f"numbers between {array.min()} and {array.max()} do not fit into {np.dtype(kind)}, which JAX "
            "has in the place of "
            f'{array.dtype}: jax.config.update("jax_enable_x64", True), or leave the column out (columns=)'
        )
    return array.astype(kind)


@names_before("batch_size", _NAMES, "dataset")
class Loader(Mappable["Loader"], Facade):
    """A :class:`headrace.Loader` whose batches hold arrays of JAX; takes the same arguments, and has the same
    methods.

    Fixed columns and ``mask`` become arrays; JAX keeps the engine's memory as long as it needs it, and on
    CPUs arrays may lie in it. Other columns stay lists, and ``ids`` numpy's int64: of this process's rows.
    Without ``jax_enable_x64`` whole numbers of 64 bits become such of 32, and floats too, as everywhere in
    JAX; whole numbers that do not fit are an error. Columns of bfloat16 have that dtype. Functions of
    :meth:`map` get numpy arrays, those of bfloat16 with that dtype too (``ml_dtypes``, which JAX brings).

    :param sharding: a ``NamedSharding`` whose first axis splits the samples. Arrays are then those of the
        global batch (``batch_size`` times the processes, or times the parts where processes have the same
        rows), of which this process reads its part: ``rank`` and ``world_size`` follow from the sharding. Not
        with ``epoch_end="uneven"``.
    :param device: where arrays go without ``sharding`` (default: JAX's default device).
    """

    def __init__(
        self,
        dataset: DatasetLike,
        *,
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        sharding: NamedSharding | None = None,
        device: Any = None,
        **options: Unpack[LoaderOptions],
    ) -> None:
        _NAMES.check(options)
        self._sharding: NamedSharding | None = None
        self._device = device
        if sharding is not None:
            rank, world_size = self._shard(
                sharding, (rank, world_size), {"batch_size": batch_size, **options}
            )
        elif rank is None and world_size is None and jax.process_count() > 1:
            rank, world_size = jax.process_index(), jax.process_count()
        self._loader: _NumpyLoader | MappedLoader = _NumpyLoader(
            dataset, batch_size=batch_size, rank=rank, world_size=world_size, **options
        )
        self._bfloat16 = self._loader._bfloat16_columns

    def _shard(
        self, sharding: NamedSharding, given: tuple[Any, Any], arguments: Mapping[str, Any]
    ) -> tuple[int, int]:
        """Takes the sharding; rank and world size that follow from it."""
        if self._device is not None:
            raise InvalidArgumentError("device= and sharding= both say where arrays go: give one of them")
        if arguments.get("epoch_end") == "uneven":
            raise InvalidArgumentError('sharding= wants batches of one size: epoch_end="pad" or "drop"')
        part = _find_part(sharding)
        if given not in ((None, None), (part.rank, part.parts)):
            raise InvalidArgumentError(
                f"rank={given[0]!r}, world_size={given[1]!r}: by its sharding this process has part "
                f"{part.rank} of {part.parts} of a batch; leave them out"
            )
        size = arguments.get("batch_size", 0)
        if isinstance(size, int) and size % part.shards:
            raise InvalidArgumentError(
                f"batch_size={size} is no multiple of the {part.shards} shards of this process"
            )
        self._part = part
        self._sharding = NamedSharding(sharding.mesh, PartitionSpec(_batch_axes(sharding) or None))
        return part.rank, part.parts

    def _mapped(self, step: Step, place: Where) -> Loader:
        mapped = object.__new__(type(self))
        vars(mapped).update(vars(self))
        if isinstance(self._loader, MappedLoader):
            mapped._loader = self._loader._mapped(step, place)
        else:
            mapped._loader = MappedLoader(self._loader, (step,), place, bfloat16_dtype=_BFLOAT16)
        mapped._bfloat16 = frozenset()  # Functions have seen numbers, and what they make is theirs.
        return mapped

    def __iter__(self) -> Iterator[Any]:
        """From the position to the end of the epoch, as :meth:`headrace.Loader.__iter__`: after a loop that
        was left early the rest of its epoch, after one that came to its end the next epoch. :meth:`reset`
        goes back to the first batch."""
        return self._begun(self._converted)

    def _converted(self, batch: Any) -> Any:
        if not isinstance(batch, Batch):
            return walk(batch, self._array)
        columns = as_dtype(batch, self._bfloat16, _BFLOAT16)
        made = Batch({name: self._array(value) for name, value in columns.items()})
        made.ids, made.mask = batch.ids.copy(), self._array(batch.mask)
        made.replaced, made.epoch, made.index = batch.replaced, batch.epoch, batch.index
        return made

    def _array(self, value: Any) -> Any:
        is_known = (
            isinstance(value, np.ndarray) and value.dtype.kind in "biufcV" and not value.dtype.hasobject
        )
        if not is_known or value.dtype.names is not None:
            return value
        value = _narrowed(value)
        if self._sharding is None:
            return jax.device_put(value, self._device)
        if value.ndim == 0 or value.shape[0] != self._loader.batch_size:
            raise InvalidArgumentError(
                f"an array of shape {value.shape} is no part of a global batch, of which each process has "
                f"{self._loader.batch_size} rows: with "
                'sharding= functions keep the number of samples (filter(holes="mask"))'
            )
        shape = (value.shape[0] * self._part.parts, *value.shape[1:])
        return jax.make_array_from_process_local_data(self._sharding, value, shape)

    def __repr__(self) -> str:
        place = "" if self._sharding is None else f", sharding={self._sharding.spec}"
        return f"headrace.jax.Loader({self._loader!r}{place})"
