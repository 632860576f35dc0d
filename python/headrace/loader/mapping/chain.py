"""Runs the functions of a plan over one batch. The same in a worker, a thread and the caller."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from headrace.data.batch import Batch
from headrace.errors import InvalidArgumentError
from headrace.loader.mapping import pipelines
from headrace.loader.mapping.randomness import Randomness
from headrace.loader.mapping.rows import About, assemble, make_batch, split
from headrace.loader.mapping.stack import Allocate, stack
from headrace.loader.mapping.steps import Plan, Step
from headrace.loader.mapping.tensors import as_dtype, as_tensors

__all__ = ["Bad", "Chain", "Done", "StepError"]


class Bad(NamedTuple):
    """A sample whose function failed and that is replaced."""

    sample: int
    """Its dataset position."""
    message: str


class Done(NamedTuple):
    """What became of a batch."""

    value: Any
    """What is delivered; a Batch, or whatever the last function made."""
    is_empty: bool
    """All samples were filtered out; there is nothing to deliver."""
    bad: list[Bad]


class StepError(Exception):
    """A function of the user's failed; the cause is what it raised.

    :param step: number of the function.
    :param sample: dataset position of the sample; None: the function was given a batch.
    """

    def __init__(self, step: int, sample: int | None) -> None:
        super().__init__(step, sample)
        self.step, self.sample = step, sample


class _Samples(NamedTuple):
    """Samples on their way, with what is known of their rows."""

    values: list[Any]
    about: About


class Chain:
    """One thread at a time.

    :param seeds_globals: the global generators are this chain's; else they are left alone.
    :param allocate: makes the arrays of the batches that are delivered, as ``np.empty(shape, dtype)``.
    """

    def __init__(self, plan: Plan, seeds_globals: bool, allocate: Allocate = np.empty) -> None:
        self._plan, self._allocate = plan, allocate
        self.names = [step.name for step in plan.steps]
        """Of the functions, for messages."""
        self._random = Randomness(plan.seed, seeds_globals)
        if seeds_globals:
            pipelines.adopt(step.fn for step in plan.steps)
        self._batch_type = plan.batch_type
        numbered = enumerate(plan.steps)
        self._runs = [list(run) for _, run in itertools.groupby(numbered, lambda each: each[1].per)]

    def run(self, batch: Batch) -> Done:
        """Raises StepError where a function failed, and nothing stands in for its sample."""
        about = About.of(batch)
        bad: list[Bad] = []
        value: Any = self._as_seen(batch)
        for run in self._runs:
            if run[0][1].per == "sample":
                samples = _Samples(split(value, len(about.ids)), about)
                value = samples = self._run_samples(run, samples, bad)
                about = samples.about
                if not samples.values:
                    return Done(None, True, bad)
            else:
                for number, step in run:
                    value, about = self._run_batch(number, step, value, about)
        if isinstance(value, _Samples):
            value = assemble(value.values, about, self._batch_type, self._allocate)
        elif isinstance(value, Mapping):
            value = self._as_batch(value, about)
        return Done(value, False, bad)

    def _as_seen(self, batch: Batch) -> Batch:
        """With tensors, or the dtype of those columns that come as bits."""
        plan = self._plan
        if plan.is_torch:
            columns = as_tensors(batch, plan.bfloat16, plan.widens)
        elif plan.bfloat16_dtype is not None:
            columns = as_dtype(batch, plan.bfloat16, plan.bfloat16_dtype)
        else:
            return batch
        return make_batch(self._batch_type, columns, About.of(batch))

    def _as_batch(self, value: Mapping[str, Any], about: About) -> Batch:
        """A function's columns, its lists as of samples, as a batch that says what the one it was given said,
        unless it says so itself."""
        if isinstance(value, Batch) and hasattr(value, "ids"):
            return value
        columns = {
            name: stack(column) if type(column) is list and column else column
            for name, column in value.items()
        }
        return make_batch(self._batch_type, columns, about)

    def _call(self, number: int, step: Step, value: Any) -> Any:
        if step.by_keyword:
            return step.fn(**value)
        if step.takes_rng:
            return step.fn(value, rng=self._random.generator(number))
        return step.fn(value)

    def _run_batch(self, number: int, step: Step, value: Any, about: About) -> tuple[Any, About]:
        """What a function makes of a whole batch, and what is known of its rows then."""
        if step.kind == "collate":
            value = value.values if isinstance(value, _Samples) else split(value, len(about.ids))
        elif isinstance(value, _Samples):
            value = assemble(value.values, about, self._batch_type, np.empty)
        elif isinstance(value, Mapping):
            value = self._as_batch(value, about)
        self._random.begin(about.epoch, int(about.ids[0]))
        try:
            made = self._call(number, step, value)
        except Exception as error:
            raise StepError(number, None) from error
        if made is None:
            raise InvalidArgumentError(f"{step.name} returned None: return what is to be delivered")
        if isinstance(made, Batch) and hasattr(made, "ids"):
            about = About.of(made)
        return made, about

    def _run_samples(self, run: list[tuple[int, Step]], samples: _Samples, bad: list[Bad]) -> _Samples:
        """All functions of the run over one sample after the other."""
        values, about = samples
        mask = about.mask.copy()
        kept: list[int] = []
        failed: dict[int, StepError] = {}
        for row, value in enumerate(values):
            try:
                values[row], is_kept, is_shown = self._run_sample(run, value, about, row)
            except StepError as error:
                if not self._plan.replaces_bad:
                    raise
                failed[row], is_kept, is_shown = error, True, True
            if is_kept:
                kept.append(row)
            mask[row] &= is_shown
        about = about._replace(mask=mask)
        if failed:
            about = self._replace(values, about, kept, failed, bad)
        if len(kept) < len(values):
            values, about = [values[row] for row in kept], about.only(kept)
        return _Samples(values, about)

    def _run_sample(
        self, run: list[tuple[int, Step]], value: Any, about: About, row: int
    ) -> tuple[Any, bool, bool]:
        """The sample, whether it stays, and whether its mask may stay True."""
        sample, is_shown = int(about.ids[row]), True
        self._random.begin(about.epoch, sample)
        for number, step in run:
            try:
                made = self._call(number, step, value)
                is_chosen = bool(made) if step.kind == "filter" else True
            except Exception as error:
                raise StepError(number, sample) from error
            if step.kind == "filter":
                if not is_chosen and step.holes == "compact":
                    return None, False, False
                is_shown = is_shown and is_chosen
            elif made is None:
                raise InvalidArgumentError(
                    f"{step.name} returned None for sample {sample}: return the sample; filter() leaves "
                    "samples out"
                )
            else:
                value = made
        return value, True, is_shown

    def _replace(
        self, values: list[Any], about: About, kept: list[int], failed: dict[int, StepError], bad: list[Bad]
    ) -> About:
        """Puts a copy of the nearest sample that is left in the place of each that failed, masked as repeats
        are."""
        good = [row for row in kept if row not in failed]
        if not good:
            raise next(iter(failed.values()))
        ids, mask, replaced = about.ids.copy(), about.mask.copy(), dict(about.replaced)
        for row, error in failed.items():
            stand_in = min(good, key=lambda each: abs(each - row))
            name = self._plan.steps[error.step].name
            bad.append(Bad(int(ids[row]), f"{name} of sample {ids[row]}: {error.__cause__!r}"))
            replaced.setdefault(row, int(ids[row]))
            values[row], mask[row] = copy.deepcopy(values[stand_in]), False
        for row in failed:
            ids[row] = ids[min(good, key=lambda each: abs(each - row))]
        return about._replace(ids=ids, mask=mask, replaced=replaced)
