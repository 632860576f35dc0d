"""What a state gave on a batch that never changes, when it was saved: compared after it was loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, SupportsFloat

from headrace.checkpoint.group import Group
from headrace.errors import HeadraceError, InvalidArgumentError, NotFoundError

__all__ = ["compare", "differences"]


def compare(
    group: Group,
    metadata: Mapping[str, Any],
    measured: Mapping[str, SupportsFloat],
    rtol: float,
    where: str,
) -> str:
    """What differs on which ranks, the same on all, or ``""``. Raises as differences() does on the rank that
    has the fault; on the others that is a difference."""
    error: HeadraceError | None = None
    try:
        odd = differences(metadata, measured, rtol, where)
    except HeadraceError as raised:
        odd, error = str(raised), raised
    said = group.gather("reference", odd)
    if error is not None:
        raise error
    odd = "; ".join(f"on rank {rank} {each}" for rank, each in enumerate(said) if each)
    return odd and f"{where}: {odd}. It does not compute here what it computed there"


def differences(
    metadata: Mapping[str, Any], measured: Mapping[str, SupportsFloat], rtol: float, where: str
) -> str:
    """In which numbers ``measured`` is not what ``metadata["reference"]`` says, or ``""``. Raises
    NotFoundError where the checkpoint has no reference, InvalidArgumentError where it has other names."""
    saved = metadata.get("reference")
    if saved is None:
        raise NotFoundError(
            f"{where}: was saved without a reference; save(..., metadata={{'reference': {{'loss': ...}}}})"
        )
    if not isinstance(saved, Mapping) or not all(_is_number(value) for value in saved.values()):
        raise InvalidArgumentError(f"{where}: its reference is {saved!r}, and not a number for each name")
    if saved.keys() != measured.keys():
        raise InvalidArgumentError(
            f"{where}: its reference has {', '.join(sorted(saved))}, and {', '.join(sorted(measured))} were "
            "measured"
        )
    found = {name: float(value) for name, value in measured.items()}
    return "; ".join(
        f"{name} is {found[name]:.9g}, and was {value:.9g} when it was saved"
        for name, value in sorted(saved.items())
        if not math.isclose(found[name], value, rel_tol=rtol)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
