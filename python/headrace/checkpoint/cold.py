"""Which storage class each checkpoint is to lie in."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from headrace.checkpoint.retention import Kept, in_order
from headrace.errors import InvalidArgumentError

__all__ = ["Cold", "check_rules", "is_archive", "rule_of_each"]


class Cold(NamedTuple):
    """Older checkpoints of an object store move to another storage class; a checkpoint that fulfils both
    ``after`` and ``hours`` does.

    :ivar storage_class: in the vendor's word: ``"STANDARD_IA"``, ``"GLACIER_IR"``, ``"DEEP_ARCHIVE"`` (S3),
        ``"NEARLINE"``, ``"COLDLINE"``, ``"ARCHIVE"`` (GCS), ``"Cool"``, ``"Cold"``, ``"Archive"`` (Azure).
    :ivar after: so many checkpoints, those saved last, stay where they are; at least 1.
    :ivar hours: those saved within so many hours before the last one stay where they are; 0: only ``after``
        counts.
    """

    storage_class: str
    after: int = 1
    hours: float = 0


def check_rules(cold: Cold | Sequence[Cold] | None) -> Sequence[Cold]:
    """The warmest first. Raises InvalidArgumentError."""
    rules = [cold] if isinstance(cold, Cold) else list(cold or ())
    for rule in rules:
        if not isinstance(rule, Cold) or not isinstance(rule.storage_class, str) or not rule.storage_class:
            raise InvalidArgumentError(
                f'cold={rule!r}: expected a headrace.checkpoint.Cold, as in cold=Cold("STANDARD_IA", after=5)'
            )
        if rule.after < 1 or rule.hours < 0:
            raise InvalidArgumentError(
                f"cold={rule!r}: after= is 1 or more, since the last checkpoint never moves; hours= is 0 or "
                "more"
            )
    for warmer, colder in itertools.pairwise(rules):
        if colder.after < warmer.after or colder.hours < warmer.hours:
            raise InvalidArgumentError(
                f"cold: {colder} comes after {warmer}: each rule is for older checkpoints than the one before"
            )
        if is_archive(warmer.storage_class):
            raise InvalidArgumentError(
                f"cold: {warmer.storage_class} must be the last rule: what is archived cannot be moved on "
                "before it is restored"
            )
    return rules


def is_archive(storage_class: str) -> bool:
    """Whether objects of that class must be restored before they can be read. (Google's ARCHIVE need not.)"""
    return storage_class in ("GLACIER", "DEEP_ARCHIVE", "Archive")


def rule_of_each(rules: Sequence[Cold], about: Mapping[int, Kept], stay: Set[int | None]) -> dict[int, int]:
    """The number of the last rule that holds for each step, from 1 on; 0: it stays where it is, as those of
    ``stay`` and the one that was saved last do."""
    steps = in_order(about)[::-1]
    return {
        step: 0 if step in stay else _rule_of(rules, behind, about[steps[0]].seconds - about[step].seconds)
        for behind, step in enumerate(steps)
    }


def _rule_of(rules: Sequence[Cold], behind: int, seconds: float) -> int:
    """``behind``: so many were saved later; ``seconds``: so long before the last one."""
    holding = (
        number
        for number, rule in enumerate(rules, 1)
        if behind >= rule.after and seconds >= rule.hours * 3600
    )
    return max(holding, default=0)
