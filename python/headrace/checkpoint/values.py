"""Values that are seldom meant to be saved: NaN, infinities, and arrays that have become all zero."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from headrace.errors import InvalidArgumentError

__all__ = ["ValueWatch", "check_mode"]

_SHOWN = 5


def check_mode(mode: str) -> str:
    """Raises InvalidArgumentError."""
    if mode not in ("warn", "error", "ignore"):
        raise InvalidArgumentError(f"values={mode!r}: expected 'warn', 'error' or 'ignore'")
    return mode


class ValueWatch:
    """Of what one process saves, one save after the other."""

    def __init__(self) -> None:
        self._had_values: set[str] = set()

    def look(self, pieces: Iterable[tuple[str, int, bool]]) -> str:
        """What is odd, or ``""``. ``pieces``: the array, how many of the piece's elements are NaN or
        infinite, and whether all of it is zero."""
        odd: dict[str, int] = defaultdict(int)
        zero: dict[str, bool] = {}
        for name, not_finite, is_zero in pieces:
            odd[name] += not_finite
            zero[name] = zero.get(name, True) and is_zero
        vanished = [name for name, is_zero in zero.items() if is_zero and name in self._had_values]
        self._had_values = {name for name, is_zero in zero.items() if not is_zero}
        counts = [f"{name} ({count})" for name, count in sorted(odd.items()) if count]
        return "; ".join(
            f"{what}: {_listed(names)}"
            for what, names in (
                ("values are NaN or infinite", counts),
                ("all zero, and it was not in the save before", sorted(vanished)),
            )
            if names
        )


def _listed(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more arrays" if rest > 0 else "")
