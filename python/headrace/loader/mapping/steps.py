"""What is done to each batch: the functions of a user, in their order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace.data.batch import Batch
from headrace.errors import InvalidArgumentError

__all__ = ["ALBUMENTATIONS", "Plan", "Step", "is_pipeline", "make_collate", "make_filter", "make_map"]

ALBUMENTATIONS = "albumentations"
"""The package whose pipelines are seeded, and called with a sample's columns by their names."""


class Step(NamedTuple):
    """One function. Everything is pickled with it."""

    kind: str
    """``"map"``, ``"filter"`` or ``"collate"``."""
    fn: Callable[..., Any]
    per: str
    """Called for each ``"sample"`` or ``"batch"``."""
    holes: str
    """Of a filter: ``"compact"`` or ``"mask"``."""
    takes_rng: bool
    by_keyword: bool = False
    """Takes the columns of a sample by their names, as Albumentations' pipelines do."""

    @property
    def name(self) -> str:
        """For messages: ``map(augment)``."""
        found = getattr(self.fn, "__qualname__", None) or type(self.fn).__qualname__
        return f"{self.kind}({found})"


class Plan(NamedTuple):
    """All that a worker needs to know."""

    steps: tuple[Step, ...]
    seed: int
    batch_type: type[Batch]
    """Of the batches that functions see: Batch, or headrace.torch's."""
    replaces_bad: bool
    """A sample whose function fails is replaced; else that is an error."""
    bfloat16: frozenset[str] = frozenset()
    """Columns whose values are such numbers, which numpy lacks: tensors of functions have the dtype."""
    bfloat16_dtype: Any = None
    """What arrays of functions have in place of the bits of such columns, where somebody has it: JAX."""
    widens: bool = False
    """Tensors of functions have signed numbers of twice the bits for uint16 and uint32."""
    columns: Sequence[tuple[Any, ...]] = ()
    """Of the loader's batches, as BatchReader wants them."""
    to_arrow: Callable[..., Any] | None = None
    """Likewise."""

    @property
    def is_torch(self) -> bool:
        """The functions see tensors of torch in place of arrays."""
        return self.batch_type is not Batch


def is_pipeline(value: Any) -> bool:
    """Whether it is a transform of Albumentations, or several together."""
    return hasattr(type(value), "set_random_state") and any(
        each.__module__.partition(".")[0] == ALBUMENTATIONS for each in type(value).__mro__
    )


def _takes_rng(fn: Callable[..., Any]) -> bool:
    """Whether a function declares the keyword ``rng``. What has no signature (some builtins) does not."""
    try:
        found = inspect.signature(fn).parameters.get("rng")
    except (TypeError, ValueError):
        return False
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)


def _chosen(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise InvalidArgumentError(f"{name}={value!r} is unknown; there are {', '.join(known)}")
    return value


def _make(kind: str, fn: Any, per: str, holes: str) -> Step:
    if not callable(fn):
        raise InvalidArgumentError(f"{kind}: {fn!r:.200} is not callable")
    by_keyword = kind == "map" and per == "sample" and is_pipeline(fn)
    return Step(kind, fn, per, holes, _takes_rng(fn), by_keyword)


def make_map(fn: Any, per: str) -> Step:
    return _make("map", fn, _chosen("per", per, ("sample", "batch")), "")


def make_filter(fn: Any, holes: str) -> Step:
    return _make("filter", fn, "sample", _chosen("holes", holes, ("compact", "mask")))


def make_collate(fn: Any) -> Step:
    return _make("collate", fn, "batch", "")
