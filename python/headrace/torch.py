"""Batches as torch tensors, and the loader as an IterableDataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from headrace.base.option_names import names_before
from headrace.data.batch import Batch as _NumpyBatch
from headrace.errors import InvalidArgumentError
from headrace.loader.device.placing import Placing, pinned
from headrace.loader.facade import Facade
from headrace.loader.frameworks import (
    Batches,
    BatchIndexes,
    OwnRank,
    find_lost_in_composer,
    find_lost_state,
    find_state_left_out,
    find_uncounted,
    find_wrapper,
    is_composer_training,
    refusal,
    take_only,
)
from headrace.loader.loader import Loader as _NumpyLoader
from headrace.loader.mapping.mappable import Mappable, Where
from headrace.loader.mapping.mapped import MappedLoader
from headrace.loader.mapping.steps import Step
from headrace.loader.mapping.tensors import to_bfloat16, to_tensor, to_wide_array, to_wide_tensor, walk
from headrace.loader.options import loader_names
from headrace.loader.relay.sharing import InWorkers
from headrace.loader.trainer import find_run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from headrace.loader.facade import DatasetLike
    from headrace.loader.options import LoaderOptions

__all__ = ["Batch", "Loader"]

_NAMES = loader_names("headrace.torch.Loader", "device", "pin_memory", "transform", "unsigned")


class Batch(_NumpyBatch):
    """A batch of tensors."""

    __slots__ = ()

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The batch with its tensors on a device, ``ids`` and ``mask`` too. Lightning and Accelerate call
        this."""

        def move(value: Any) -> Any:
            return value.to(device, non_blocking=non_blocking) if isinstance(value, torch.Tensor) else value

        moved = Batch({name: move(value) for name, value in self.items()})
        for name in _NumpyBatch.__slots__:
            # Whoever converts the columns of a batch makes another of them alone (Lightning,
            # precision="64-true").
            if hasattr(self, name):
                setattr(moved, name, move(getattr(self, name)))
        return moved


def _transformed(batch: Any, transform: Callable[[Any], Any]) -> Any:
    made = transform(batch)
    if made is None:
        raise InvalidArgumentError("transform= returned None: return what is to be delivered")
    return made


@dataclass(frozen=True)
class _Conversion:
    """What a batch becomes: a batch of tensors over the same memory."""

    is_mapped: bool
    """Functions have made it, and may have made anything."""
    bfloat16: frozenset[str]
    """Columns that come as bits of such numbers."""
    widens: bool
    """Unsigned numbers of 16 and 32 bits become signed ones of twice as many."""
    transform: Callable[[Any], Any] | None = None
    """Called with the result."""

    def __call__(self, batch: Any) -> Any:
        if self.is_mapped:
            batch = walk(batch, self._tensor)
        if isinstance(batch, _NumpyBatch):
            batch = self._columns(batch)
        return batch if self.transform is None else _transformed(batch, self.transform)

    def _tensor(self, value: Any) -> Any:
        return to_wide_tensor(value) if self.widens else to_tensor(value)

    def _column(self, name: str, value: Any) -> Any:
        if name in self.bfloat16:
            return walk(value, to_bfloat16)
        # Lists stay lists of arrays, of which a DataLoader makes tensors.
        if self.widens and not self.is_mapped and isinstance(value, list):
            return walk(value, to_wide_array)
        return self._tensor(value)

    def _columns(self, batch: _NumpyBatch) -> Batch:
        converted = Batch({name: self._column(name, value) for name, value in batch.items()})
        converted.ids, converted.mask = to_tensor(batch.ids), to_tensor(batch.mask)
        converted.replaced, converted.epoch, converted.index = batch.replaced, batch.epoch, batch.index
        return converted


@names_before("batch_size", _NAMES, "dataset")
class Loader(InWorkers, Mappable["Loader"], Facade, IterableDataset[Any], DataLoader[Any]):
    """A :class:`headrace.Loader` whose batches hold tensors; takes the same arguments.

    Fixed columns, ``ids`` and ``mask`` become tensors over the engine's memory, without a copy; other columns
    stay lists. Training loops of others take it as their DataLoader: Lightning, Fabric, Accelerate's
    ``prepare()``, a Trainer's ``get_train_dataloader()``. It is also an IterableDataset, for
    ``torch.utils.data.DataLoader(loader, batch_size=None)`` and torchdata's StatefulDataLoader, with any
    ``num_workers``: this process reads, and workers run ``transform`` and the functions of :meth:`map`.

    Columns of bfloat16 are tensors of that dtype.

    Arguments are those of :class:`headrace.Loader`, and:

    :param pin_memory: copy tensors to pinned memory (needs CUDA). For loops that move batches themselves.
    :param device: put tensors there, those of ``ids``, ``mask`` and of lists of tensors too. CUDA: through
        two pinned buffers of a batch's size (outside of ``memory``), by a stream of their own; the stream
        that is current when a batch is asked for waits for it, the caller does not. ``"cuda"`` is the device
        that is current at the first batch. ``"cpu"`` changes nothing.
    :param transform: called with each batch; what it returns is delivered, a dict of a model's arguments for
        example. In the caller (or a DataLoader's worker), after the functions of :meth:`map`, whose samples
        and batches hold tensors.
    :param unsigned: ``"widen"``: numbers of uint16 come as int32 and those of uint32 as int64, in copies,
        since torch indexes and computes with neither, also within lists; functions see them so too, and what
        they return is treated alike. ``"keep"``: as they are, without a copy. uint64 stays uint64, uint8
        uint8.
    """

    # What a DataLoader has. The loader assembles batches itself, so torch's constructor has nothing to do.
    num_workers = 0
    multiprocessing_context = None
    prefetch_factor = None
    drop_last = False
    timeout = 0
    worker_init_fn = None
    generator = None
    persistent_workers = False
    # Composer asks whether workers are running, and ends the epoch that a checkpoint has seen the last batch
    # of.
    _iterator = None
    _is_epoch_over = False
    collate_fn = staticmethod(take_only)
    # Accelerate: leave it as it is (each rank has its part), and save its state.
    _is_accelerate_prepared = True
    use_stateful_dataloader = True
    end_of_dataloader = False
    remainder = -1

    def __init__(
        self,
        dataset: DatasetLike,
        *,
        batch_size: int,
        rank: int | None = None,
        world_size: int | None = None,
        pin_memory: bool = False,
        device: torch.device | str | None = None,
        transform: Callable[[Batch], Any] | None = None,
        unsigned: Literal["widen", "keep"] = "widen",
        **options: Unpack[LoaderOptions],
    ) -> None:
        _NAMES.check(options)
        if unsigned not in ("widen", "keep"):
            raise InvalidArgumentError(f"unsigned={unsigned!r} is unknown; there are widen, keep")
        if pin_memory and not torch.cuda.is_available():
            raise InvalidArgumentError(
                "pin_memory=True needs CUDA, which this torch does not see; leave it out"
            )
        self._placing = None if device is None else Placing(torch.device(device))
        self._loader: _NumpyLoader | MappedLoader = _NumpyLoader(
            dataset, batch_size=batch_size, rank=rank, world_size=world_size, **options
        )
        self._pins, self._widens = pin_memory, unsigned == "widen"
        self._transform = transform
        self._converts: Callable[[Any], Any] | None = None
        self._expected_index: int | None = None  # Of a loop by index, after its first batch.
        self._share()

    def _mapped(self, step: Step, place: Where) -> Loader:
        """The same over what the numpy loader becomes."""
        mapped = object.__new__(type(self))
        vars(mapped).update(vars(self))
        mapped._converts = None
        if isinstance(self._loader, MappedLoader):
            mapped._loader = self._loader._mapped(step, place)
        else:
            mapped._loader = MappedLoader(self._loader, (step,), place, Batch, self._widens)
        mapped._share()
        return mapped

    def _recipe(self) -> Any:
        values = {name: value for name, value in vars(self).items() if name not in _OF_A_PROCESS}
        return _reopened, (type(self), values, None if self._placing is None else self._placing.device)

    def _is_on_device(self) -> bool:
        return self._pins or (self._placing is not None and self._placing.device.type != "cpu")

    def _conversion(self, transform: Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
        is_mapped = isinstance(self._loader, MappedLoader)
        # Functions have made numbers of the bits already.
        bfloat16 = frozenset[str]() if is_mapped else self._base._bfloat16_columns
        return _Conversion(is_mapped, bfloat16, self._widens, transform)

    def _worker_conversion(self) -> Callable[[Any], Any]:
        return self._conversion(self._transform)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """From the position to the end of the epoch, as :meth:`headrace.Loader.__iter__`: after a loop that
        was left early the rest of its epoch, after one that came to its end the next epoch. :meth:`reset`
        goes back to the first batch. Loops of Lightning's and Composer's that evaluate or predict always
        begin there. Lightning's epochs of training begin with an epoch: what ``limit_train_batches=`` left of
        the one before is not delivered."""
        if self._is_elsewhere or get_worker_info() is not None:
            return iter(self._in_worker())
        if error := find_wrapper() or (find_uncounted() if self._loader._may_skip else None):
            return refusal(error)
        is_at_start = self._is_at_start()
        if is_at_start and (state := find_state_left_out(self)) is not None:
            try:
                self.load_state_dict(state)
            except Exception as refused:
                return refusal(refused)
            is_at_start = False
        if error := find_lost_in_composer(is_at_start) or (find_lost_state() if is_at_start else None):
            return refusal(error)
        if self._is_epoch_over and is_composer_training():
            self._is_epoch_over = False
            return iter(())
        self._find_place()
        batches = self._begun(self._delivered)
        return self._counted(batches) if "_is_accelerate_prepared" in vars(self) else batches

    def _is_at_start(self) -> bool:
        """Nobody has loaded a state, and no batch was taken."""
        state = self._loader.state_dict()
        return not self._loader._is_placed and state["epoch"] == state["batches"] == 0

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        """As Accelerate's own loaders do: its gradient accumulation looks for the end of the loader that is
        being iterated."""
        from accelerate.state import GradientState

        state = GradientState()
        self.end_of_dataloader = False
        state._add_dataloader(self)
        try:
            yield from batches
        finally:
            state._remove_dataloader(self)

    @property
    def dataset(self) -> Batches:  # type: ignore[override]
        return Batches(self)

    @property
    def sampler(self) -> OwnRank:  # type: ignore[override]
        return OwnRank(self)

    @property
    def batch_sampler(self) -> BatchIndexes:  # type: ignore[override]
        return BatchIndexes(self)

    @property
    def pin_memory(self) -> bool:  # type: ignore[override]
        return False  # Of a DataLoader that is made like this one: the batches are pinned already.

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        return self._loader.batch_size

    def set_epoch(self, epoch: int) -> None:
        """See :meth:`headrace.Loader.set_epoch`."""
        if error := find_wrapper():
            raise error
        run = find_run(self, self._loader)
        self._loader.set_epoch(epoch if run is None else run.loader_epoch(epoch))

    def count_samples(self) -> int:
        return self._loader._dataset.sample_count

    def begin_indexed(self) -> None:
        self._expected_index = None
        find_run(self, self._loader)  # Early versions of Trainer 5 skip without a word about the epoch.

    def batch_at(self, index: int) -> Any:
        """The batch of a number in its epoch. The first of a loop may have any number; the others come one
        after the other."""
        if self._expected_index is None:
            self._loader._start_at(index)
        elif index != self._expected_index:
            raise InvalidArgumentError(
                f"batch {index} was asked for where batch {self._expected_index} comes next: batches come in "
                "their order"
            )
        batch = self._loader._next(self._delivered)
        if batch is None:  # Orders of others may leave the last batches empty.
            raise StopIteration
        self._expected_index = index + 1
        return batch

    def _delivered(self, batch: Any) -> Any:
        delivered = self._converted(batch)
        self.end_of_dataloader = self._loader._has_ended
        return delivered

    def _converted(self, batch: Any) -> Any:
        if self._converts is None:
            self._converts = self._conversion()
        converted = self._converts(batch)
        if self._placing is not None:
            converted = self._placing(converted)
        elif self._pins:
            converted = pinned(converted)
        return converted if self._transform is None else _transformed(converted, self._transform)

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`headrace.Loader.state_dict`. In a DataLoader's worker: the worker's own."""
        return self._in_worker().state_dict() if self._is_elsewhere else self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`headrace.Loader.load_state_dict`."""
        if self._is_elsewhere:
            self._in_worker().load_state_dict(state)
        else:
            self._loader.load_state_dict(state)
            self._is_epoch_over = False

    def go_on_from(self, state: Mapping[str, Any], is_epoch_over: bool) -> None:
        """As :meth:`load_state_dict`; for Composer, which after the last batch of an epoch wants one more
        loop over it."""
        self.load_state_dict(state)
        self._is_epoch_over = is_epoch_over

    def __repr__(self) -> str:
        device = "" if self._placing is None else f", device={str(self._placing.device)!r}"
        return f"headrace.torch.Loader({self._loader!r}{device})"


_OF_A_PROCESS = {"_placing", "_converts", "_expected_index", "_owner_pid", "_remote"}


def _reopened(kind: type[Loader], values: dict[str, Any], device: torch.device | None) -> Loader:
    """The loader of a pickle."""
    loader = object.__new__(kind)
    vars(loader).update(values)
    loader._placing = None if device is None else Placing(device)
    loader._converts = loader._expected_index = None
    loader._share()
    return loader
