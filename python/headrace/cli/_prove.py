"""What a run delivers that is stopped and resumed on other worlds: counted sample by sample, without reading
data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace import _native
from headrace.data.dataset import Dataset
from headrace.errors import InvalidArgumentError
from headrace.sources.order_cache import order_cache

# Batches looked up at a time.
_BATCHES_AT_ONCE = 4096


class Part(NamedTuple):
    """A stretch of the run between two stops."""

    batches: int | None
    """Global batches until the stop; None: to the end of the epoch."""
    world_size: int
    batch_size: int

    @property
    def global_batch(self) -> int:
        return self.world_size * self.batch_size


def split_run(stops: Sequence[int], world_sizes: Sequence[int], batch_size: int) -> list[Part]:
    """Parts of a run that stops after these global batches (counted from the start of the epoch)."""
    if len(world_sizes) != len(stops) + 1:
        raise InvalidArgumentError(
            f"{len(stops)} stops make {len(stops) + 1} parts, but there are {len(world_sizes)} world sizes"
        )
    lengths = [b - a for a, b in zip([0, *stops], stops, strict=False)]
    if any(length <= 0 for length in lengths):
        raise InvalidArgumentError("stops rise, from 1")
    return [Part(n, world, batch_size) for n, world in zip([*lengths, None], world_sizes, strict=True)]


def _numbers(text: str, name: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise InvalidArgumentError(f"{name} {text}: expected numbers with commas between them") from None
    if any(number < 1 for number in numbers):
        raise InvalidArgumentError(f"{name} {text}: numbers start from 1")
    return numbers


def parse_run(stops: str, world_sizes: str, world_size: int, batch_size: int) -> list[Part]:
    """The options ``--stops`` and ``--world-sizes``."""
    after = _numbers(stops, "--stops")
    worlds = _numbers(world_sizes, "--world-sizes") or [world_size] * (len(after) + 1)
    return split_run(after, worlds, batch_size)


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` of ``--order-option``: numbers and booleans as such."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidArgumentError(f"--order-option {pair}: expected KEY=VALUE")
        words = {"true": True, "false": False, "none": None}
        options[name] = (
            words[value.lower()] if value.lower() in words else int(value) if value.isdecimal() else value
        )
    return options


class ListedOrder:
    """An order of another loader: made anew after each stop, from the state that loader would have saved."""

    def __init__(self, dataset: Dataset, ranks_per_node: int, workers: int) -> None:
        self._shards = [(shard.sample_count, shard.size) for shard in dataset.shards]
        self._ranks_per_node, self._workers = ranks_per_node, workers

    def _nodes(self, world_size: int) -> tuple[int, int]:
        """(nodes, ranks a node)"""
        ranks = min(self._ranks_per_node, world_size)
        if world_size % ranks:
            raise InvalidArgumentError(
                f"{world_size} ranks do not fill nodes of {ranks}; change --ranks-per-node"
            )
        return world_size // ranks, ranks

    def begin(self, part: Part) -> _native.SampleList:
        """The slots that are left when ``part`` begins."""
        raise NotImplementedError

    def end(self, part: Part, batches: int) -> None:
        """Notes that ``part`` ended after so many global batches."""
        raise NotImplementedError


class MosaicOrder(ListedOrder):
    """``mosaic:ALGO``; options are StreamingDataset's."""

    def __init__(
        self, dataset: Dataset, algo: str, seed: int | None, epoch: int, options: dict[str, Any], **world: int
    ) -> None:
        super().__init__(dataset, **world)
        shuffle = {"shuffle": False} if algo == "none" else {"shuffle": True, "shuffle_algo": algo}
        self._spec = shuffle | ({"shuffle_seed": seed} if seed is not None else {}) | options
        self._state: dict[str, Any] = {"epoch": epoch, "sample_in_epoch": 0}
        self.plan: _native.MosaicEpoch

    def begin(self, part: Part) -> _native.SampleList:
        nodes, ranks = self._nodes(part.world_size)
        streams = [([count for count, _ in self._shards], None, None, None)]
        self.plan = _native.MosaicEpoch(
            self._spec, streams, (nodes, ranks, self._workers, part.batch_size), self._state
        )
        return self.plan.open(order_cache())

    def end(self, part: Part, batches: int) -> None:
        first_nodes = self.plan.state["initial_physical_nodes"] or self._nodes(part.world_size)[0]
        self._state = self.plan.state | {"initial_physical_nodes": first_nodes}
        self._state["sample_in_epoch"] += batches * part.global_batch


class LitDataOrder(ListedOrder):
    """``litdata``; options: shuffle, drop_last, item_shuffle_window, window, max_cache_size."""

    def __init__(
        self, dataset: Dataset, seed: int | None, epoch: int, options: dict[str, Any], **world: int
    ) -> None:
        super().__init__(dataset, **world)
        self._spec = {"shuffle": "full"} | ({"seed": seed} if seed is not None else {}) | options
        begins = np.cumsum([0, *(count for count, _ in self._shards)]).tolist()
        self._chunks = [
            (a, a, b, b, size) for a, b, (_, size) in zip(begins, begins[1:], self._shards, strict=False)
        ]
        self._state: dict[str, Any] = {"epoch": epoch + 1, "sample_in_epoch": 0, "num_samples_yielded": 0}
        self._first: tuple[int, int, int, int] | None = None

    def _world(self, part: Part) -> tuple[int, int, int, int]:
        return part.world_size, self._nodes(part.world_size)[0], self._workers, part.batch_size

    def begin(self, part: Part) -> _native.SampleList:
        world = self._world(part)
        if self._first is None:
            self._first = world
            self._state |= {"saved_by": world, "initial": world, "is_elastic": False}
        saved = self._state["saved_by"]
        if (saved[0], *saved[2:]) != (world[0], *world[2:]):
            # Dealt out anew: what was served before counts as dropped, the rest begins from nothing served.
            self._state |= {"is_elastic": True, "num_samples_yielded": 0}
            stride = part.global_batch
            self._state["sample_in_epoch"] -= self._state["sample_in_epoch"] % stride
            state = self._state | {"saved_by": saved}
            self._state["saved_by"] = world
            return _native.litdata_list(self._spec, self._chunks, world, state)
        return _native.litdata_list(self._spec, self._chunks, world, self._state)

    def end(self, part: Part, batches: int) -> None:
        self._state["num_samples_yielded"] += batches * part.batch_size
        self._state["sample_in_epoch"] += batches * part.global_batch


def find_listed_order(
    dataset: Dataset, order: str, seed: int | None, epoch: int, options: dict[str, Any], **world: int
) -> ListedOrder | None:
    """The order of another loader that ``order`` names; None for Headrace's own."""
    if order.startswith("mosaic:"):
        return MosaicOrder(dataset, order.removeprefix("mosaic:"), seed, epoch, options, **world)
    if order == "litdata":
        return LitDataOrder(dataset, seed, epoch, options, **world)
    if options:
        raise InvalidArgumentError(f"--order-option belongs to mosaic: and litdata orders, not {order}")
    return None


def _slots(slots: _native.SampleList, count: int, global_batch: int) -> Iterator[npt.NDArray[np.int64]]:
    step = _BATCHES_AT_ONCE * global_batch
    for start in range(0, count, step):
        yield slots.read(start, min(step, count - start))


def prove_listed(listed: ListedOrder, samples: int, parts: Sequence[Part]) -> dict[str, Any]:
    """How often each sample comes. Other loaders fill up ranks with repeats, or drop what is left: by their
    own rules."""
    counts = np.zeros(samples, np.uint32)
    batches = []
    for part in parts:
        slots = listed.begin(part)
        whole = slots.size // part.global_batch
        taken = whole if part.batches is None else min(part.batches, whole)
        for ids in _slots(slots, taken * part.global_batch, part.global_batch):
            np.add.at(counts, ids[ids >= 0], 1)
        listed.end(part, taken)
        batches.append(taken)
    return _report(int((counts == 0).sum()), int((counts > 1).sum()), parts, sum(batches))


def prove_own(dataset: Dataset, spec: dict[str, Any], epoch: int, parts: Sequence[Part]) -> dict[str, Any]:
    """The same for Headrace's orders: every rank's slots of every part."""
    missing, repeated, batches = _native.prove_order(
        dataset._native, spec, epoch, [(part.batches, part.world_size, part.batch_size) for part in parts]
    )
    return _report(missing, repeated, parts, batches)


def _report(missing: int, repeated: int, parts: Sequence[Part], batches: int) -> dict[str, Any]:
    return {
        "exactly_once": missing == 0 and repeated == 0,
        "missing": missing,
        "repeated": repeated,
        "world_sizes": [part.world_size for part in parts],
        "batches": batches,
    }
