"""Several datasets mixed by weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import _native
from headrace.base import live
from headrace.base.option_names import named_options
from headrace.base.recipe import Recipe, lasting, lasting_options
from headrace.base.units import parse_bytes, whole_number
from headrace.data.dataset import Dataset, reopen
from headrace.errors import InvalidArgumentError
from headrace.sources.concat import ListSource, is_open
from headrace.sources.mixed import MixedSource, Shares, as_weight, weights_list
from headrace.sources.options import dataset_names
from headrace.sources.orders import OrderRequest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from headrace.sources.source import SourceLike

__all__ = ["Mixture", "MixtureSource", "describe"]


class MixtureSource(NamedTuple):
    """One source of a :class:`Mixture`. At most one of the three numbers."""

    dataset: SourceLike
    weight: float | None = None
    """Share of the samples, relative to the other weights."""
    repeat: float | None = None
    """Epochs of it in each epoch of the mixture."""
    choose: int | None = None
    """Samples of it in each epoch of the mixture."""


class Mixture:
    """Several datasets mixed by weights; a source of :class:`headrace.Loader`.

    >>> mix = hr.Mixture({"web": ("s3://b/web", 0.7), "code": ("s3://b/code", 0.3)})  # doctest: +SKIP
    >>> loader = hr.Loader(mix, batch_size=64)  # doctest: +SKIP

    Values are ``(dataset, weight)``, a dataset alone (its size is its weight), or :class:`MixtureSource` for
    ``repeat=`` and ``choose=``, which count samples of each epoch exactly; then all sources have one of them.

    :param temperature: weights are ``size ** (1 / temperature)``: 1 keeps the sizes, larger ones come closer
        to equal shares.
    :param batching: ``"proportional"``: sources alternate as evenly as weights allow; ``"stratified"``: each
        batch has the same whole number of samples of each; ``"per_source"``: each global batch is of one
        source.
    :param schedule: ``[(global batch, {name: weight}), ...]``: weights from those batches of the run on.
        Names left out have 0.
    :param samples_per_epoch: rounded down to whole global batches, one at least. Default: the sum of the
        sizes, likewise.
    :param columns: ``"equal"`` (default) wants the same columns in all, ``"common"`` takes those that all
        have, ``"union"`` those that any has; values are None where a source lacks them. Names: these alone,
        which all have; what the others are does not matter.
    :param groups: parts of a global batch that read different data: a power of two up to 16; 0: chosen.
    :param options: of :class:`Dataset`, for sources given as URLs.
    """

    def __init__(
        self,
        sources: Mapping[str, SourceLike | MixtureSource | tuple[SourceLike, float]],
        *,
        temperature: float | None = None,
        batching: str = "proportional",
        schedule: Sequence[tuple[int, Mapping[str, float]]] = (),
        samples_per_epoch: int | None = None,
        columns: str | Sequence[str] = "equal",
        groups: int = 0,
        **options: Any,
    ) -> None:
        _NAMES.check(options)
        if not isinstance(sources, Mapping):
            raise InvalidArgumentError(
                f"a mixture is of a dict, {{'name': (dataset, weight), ...}}, not of a "
                f"{type(sources).__name__}"
            )
        if not sources:
            raise InvalidArgumentError("a mixture needs at least one source")
        self._given = {name: _as_source(name, value) for name, value in sources.items()}
        self._arguments: dict[str, Any] = {
            "temperature": temperature,
            "batching": batching,
            "schedule": _checked_schedule(schedule),
            "samples_per_epoch": samples_per_epoch,
            "columns": columns,
            "groups": whole_number("groups", groups, 32),
        }
        if samples_per_epoch is not None and not whole_number("samples_per_epoch", samples_per_epoch, 48):
            raise InvalidArgumentError("samples_per_epoch=0: an epoch of no samples")
        self._options = options
        lasting_sources = {name: _lasting(source) for name, source in self._given.items()}
        self._recipe = Recipe(type(self), (lasting_sources,), {**self._arguments, **lasting_options(options)})
        datasets = {name: source.dataset for name, source in self._given.items()}
        opened = ListSource(datasets, columns=columns, growing=True, options=options)
        try:
            self._sizes = [part.native.sample_count for part in opened.parts.values()]
            self._mixed = MixedSource(opened, self._shares())
        except BaseException:
            opened.close()
            raise
        self._dataset = Dataset._over(opened)

    def _shares(self) -> Shares:
        given = self._arguments
        shares = _epoch_shares(self._given, self._sizes, given)
        return Shares(
            schedule=[] if shares else self._make_schedule(),
            epoch_shares=shares,
            epoch_samples=given["samples_per_epoch"] or 0,
            batching=given["batching"],
            groups=given["groups"],
        )

    def _make_schedule(self) -> list[tuple[int, list[float]]]:
        temperature = self._arguments["temperature"]
        first = [source.weight for source in self._given.values()]
        if temperature is not None:
            if not (isinstance(temperature, int | float) and temperature > 0 and math.isfinite(temperature)):
                raise InvalidArgumentError(f"temperature={temperature!r}: expected a number above 0")
            if any(weight is not None for weight in first):
                raise InvalidArgumentError("temperature= makes weights of the sizes: give no other weights")
            # Shares of the largest: powers of the sizes themselves leave the range of floats.
            largest = max(self._sizes) or 1
            first = [(size / largest) ** (1 / temperature) for size in self._sizes]
            gone = [
                name
                for name, share, size in zip(self.names, first, self._sizes, strict=True)
                if size and not share
            ]
            if gone:
                raise InvalidArgumentError(
                    f"temperature={temperature!r}: source {gone[0]!r} would never come, so much smaller is "
                    "it than the largest: raise temperature, or leave the source out"
                )
        elif all(weight is None for weight in first):
            first = [float(size) for size in self._sizes]
        elif any(weight is None for weight in first):
            raise InvalidArgumentError("give a weight to all sources, or to none")
        begin = (0, [as_weight(name, weight) for name, weight in zip(self.names, first, strict=True)])
        given = [(step, weights_list(self.names, weights)) for step, weights in self._arguments["schedule"]]
        return given if given and given[0][0] == 0 else [begin, *given]

    @property
    def names(self) -> list[str]:
        return list(self._given)

    @property
    def sizes(self) -> dict[str, int]:
        """Samples of each source."""
        return dict(zip(self._given, self._sizes, strict=True))

    @property
    def dataset(self) -> Dataset:
        """All sources one after the other: what ``batch.ids`` are positions of."""
        return self._dataset

    def sources_of(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Index in ``names`` of the source of each id of a batch."""
        import numpy as np

        return np.searchsorted(np.cumsum(self._sizes), ids, side="right")

    def locate(self, ids: npt.NDArray[np.int64]) -> list[tuple[str, int]]:
        """(source, position in that source) of each id of a batch."""
        firsts = [0]
        for size in self._sizes:
            firsts.append(firsts[-1] + size)
        return [
            (self.names[s], int(i) - firsts[s])
            for s, i in zip(self.sources_of(ids).tolist(), ids, strict=True)
        ]

    def describe(self, *, global_batch: int = 256, memory: int | str = "4GiB") -> dict[str, Any]:
        """What the mixture gives: shares of a batch and epochs of each source in an epoch of the mixture."""
        request = OrderRequest(
            order=None,
            options={},
            seed=0,
            shuffle=True,
            batch_size=global_batch,
            world_size=1,
            memory_bytes=parse_bytes(memory),
            window_blocks=0,
            lane_count=0,
        )
        return describe(self, self._mixed.order_source(request))

    def with_source(
        self,
        name: str,
        source: SourceLike | MixtureSource,
        schedule: Sequence[tuple[int, Sequence[float]]] | None = None,
    ) -> Mixture:
        """The same with one more source, of weight 0, and the weights of a run (default: the mixture's own).

        A source given as URL belongs to the new mixture: close() that.
        """
        if name in self._given:
            raise InvalidArgumentError(f"there is a source {name!r} already")
        if self._mixed.shares.epoch_shares:
            raise InvalidArgumentError("sources can be added where there are weights, not repeat= or choose=")
        (_, first), *later = self._mixed.shares.schedule if schedule is None else schedule
        given: dict[str, Any] = {
            n: (part, weight) for (n, part), weight in zip(self._mixed.parts.items(), first, strict=True)
        }
        added, *numbers = _as_source(name, source)
        if any(number is not None for number in numbers):
            raise InvalidArgumentError(
                f"source {name!r}: the weights of a run say how much of it comes: give none of weight, "
                "repeat and choose with it"
            )
        given[name] = (added, 0.0)
        arguments = {
            **self._arguments,
            "temperature": None,
            "schedule": [(step, dict(zip(self._given, weights, strict=True))) for step, weights in later],
        }
        grown = Mixture(given, **arguments, **({} if is_open(added) else self._options))
        grown._options = self._options
        grown._recipe = Recipe(
            Mixture.with_source, (self, name, _lasting(_as_source(name, source)), schedule), {}
        )
        return grown

    def close(self) -> None:
        """Ends the threads of sources that were given as URLs. May be repeated."""
        self._dataset.close()

    def __reduce__(self) -> Any:
        """How it was made, and the fingerprint of its sources."""
        if self._dataset.closed:
            raise InvalidArgumentError("a closed Mixture is not pickled: it is no more to be opened")
        return reopen, (self._recipe.checked("the Mixture"), self._dataset.fingerprint)

    def __repr__(self) -> str:
        return live.describe(
            self, lambda: f"Mixture({', '.join(f'{name}: {size}' for name, size in self.sizes.items())})"
        )


_NAMES = dataset_names("Mixture", named_options(Mixture.__init__))


def _checked_schedule(schedule: Any) -> list[tuple[int, Mapping[str, float]]]:
    entries = list(schedule) if isinstance(schedule, Iterable) else [schedule]
    for entry in entries:
        if not (isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[1], Mapping)):
            raise InvalidArgumentError(
                f"schedule: {entry!r:.100} is not (global batch, {{name: weight}}); it is a list of those"
            )
        step = entry[0]
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 1 << 40:
            raise InvalidArgumentError(f"schedule: {step!r} is no number of a global batch")
    return entries


def _as_source(name: str, value: Any) -> MixtureSource:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"the name of a source is a text, not {name!r:.100}")
    if isinstance(value, MixtureSource):
        source = value
    elif isinstance(value, tuple):
        if len(value) != 2:
            raise InvalidArgumentError(f"source {name!r}: expected (dataset, weight)")
        source = MixtureSource(value[0], value[1])
    else:
        source = MixtureSource(value)
    if sum(number is not None for number in source[1:]) > 1:
        raise InvalidArgumentError(f"source {name!r}: give one of weight, repeat and choose")
    return source


def _lasting(source: MixtureSource) -> MixtureSource:
    """For a recipe."""
    return source._replace(dataset=lasting(source.dataset))


def _epoch_shares(
    given: Mapping[str, MixtureSource], sizes: Sequence[int], arguments: Mapping[str, Any]
) -> list[int]:
    """Samples of each source in an epoch, where they are given; else nothing."""
    if all(source.repeat is None and source.choose is None for source in given.values()):
        return []
    for name in ("temperature", "samples_per_epoch"):
        if arguments[name] is not None:
            raise InvalidArgumentError(
                f"{name}= does not go with repeat= and choose=, which say how long an epoch is"
            )
    if arguments["schedule"]:
        raise InvalidArgumentError("schedule= does not go with repeat= and choose=: it changes weights")
    shares = []
    for (name, source), size in zip(given.items(), sizes, strict=True):
        if source.repeat is None and source.choose is None:
            raise InvalidArgumentError(f"source {name!r}: give repeat= or choose= to all sources, or to none")
        if source.choose is not None:
            share = whole_number(f"source {name!r}: choose", source.choose, 48)
        else:
            share = _repeated(name, source.repeat, size)
        shares.append(share)
    if not sum(shares):
        raise InvalidArgumentError("an epoch of no samples")
    return shares


def _repeated(name: str, repeat: Any, size: int) -> int:
    """Samples of so many epochs of a source."""
    try:
        epochs = float(repeat)
    except (TypeError, ValueError):
        epochs = math.nan
    if not 0 <= epochs < math.inf:
        raise InvalidArgumentError(f"source {name!r}: repeat={repeat!r}: expected epochs, 0 or more")
    share = round(epochs * size)
    if share >= 1 << 48:
        raise InvalidArgumentError(f"source {name!r}: {share} samples of an epoch")
    return share


def describe(mixture: Mixture, source: _native.OrderSource) -> dict[str, Any]:
    """``source.describe()`` with what it means for each source."""
    out: dict[str, Any] = source.describe()
    counts = source.counts(0, out["samples_per_epoch"])
    for part, count, size in zip(out["sources"], counts, mixture.sizes.values(), strict=True):
        part.update(
            samples=size,
            samples_per_epoch=count,
            epochs_per_epoch=count / size,
            samples_per_batch=count * out["global_batch"] / out["samples_per_epoch"],
        )
    out["schedule"] = [
        (step, dict(zip(mixture.names, weights, strict=True))) for step, weights in out["schedule"]
    ]
    return out
