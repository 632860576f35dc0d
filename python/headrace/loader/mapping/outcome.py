"""What became of a batch, in the process of the training loop and on the way there."""

from __future__ import annotations

from typing import Any

from headrace.data.batch import Batch
from headrace.loader.mapping.chain import Bad, Done
from headrace.loader.mapping.failure import Failure
from headrace.loader.mapping.rows import About, make_batch

__all__ = ["Outcome", "received", "sent"]

Outcome = Done | Failure


def sent(outcome: Outcome) -> tuple[Any, ...]:
    """As a tuple that :func:`wire.write` takes; columns of a batch are a dict in it."""
    if isinstance(outcome, Failure):
        return ("failure", *outcome)
    bad = [tuple(each) for each in outcome.bad]
    if isinstance(outcome.value, Batch):
        return "batch", bad, dict(outcome.value), *About.of(outcome.value)
    return "value", bad, outcome.value, outcome.is_empty


def received(parts: list[Any], kind: type[Batch]) -> Outcome:
    """What :func:`sent` was given."""
    if parts[0] == "failure":
        return Failure(*parts[1:])
    bad = [Bad(*each) for each in parts[1]]
    if parts[0] == "batch":
        return Done(make_batch(kind, parts[2], About(*parts[3:])), False, bad)
    return Done(parts[2], parts[3], bad)
