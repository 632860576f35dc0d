"""Sizes as people write them, and whole numbers."""

from __future__ import annotations

import operator
import re
from typing import Any

from headrace.errors import InvalidArgumentError

_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[f"{_letter}b"] = 1000**_power
    _UNITS[f"{_letter}ib"] = 1024**_power
_PER_SECOND = {"s": 1, "ms": 1e3, "us": 1e6}
_PATTERN = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(value: int | str, name: str = "memory") -> int:
    """Bytes of ``"256MiB"``, ``"4GiB"``, ``"2TB"``, ``"64 kB"`` or a plain number; ``name`` is the argument
    to blame."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidArgumentError(f"{name}={value!r}: expected bytes as an int or a string such as '256MiB'")
    if isinstance(value, str):
        match = _PATTERN.fullmatch(value)
        if match is None or match[2].lower() not in _UNITS:
            raise InvalidArgumentError(f"{name}={value!r}: expected bytes such as '256MiB', '4GiB' or '2TB'")
        number, unit = match[1], _UNITS[match[2].lower()]
        value = int(number) * unit if number.isdigit() else int(float(number) * unit)
    if not 0 < value < 1 << 63:
        raise InvalidArgumentError(f"{name}={value!r}: expected a positive number of bytes")
    return value


def parse_seconds(value: str, name: str) -> float:
    """Seconds of ``"20ms"``, ``"+1.5s"`` or ``"0"``; ``name`` is the argument to blame."""
    match = re.fullmatch(r"\s*\+?([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", value)
    if match is None or not (match[2] in _PER_SECOND or (not match[2] and float(match[1]) == 0)):
        raise InvalidArgumentError(f"{name} {value}: expected a time such as 20ms or 1.5s")
    return float(match[1]) / _PER_SECOND.get(match[2], 1)


def format_bytes(count: float) -> str:
    """``"1.5 GiB"``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def whole_number(label: str, value: Any, bits: int, *, least: int = 0, most: int | None = None) -> int:
    """``value``, which must be a whole number of so many bits, and within the bounds; ``label`` is the
    argument to blame."""
    last = (1 << bits) - 1 if most is None else most
    if (
        isinstance(value, bool)
        or not hasattr(value, "__index__")
        or not least <= operator.index(value) <= last
    ):
        end = f"2**{bits} - 1" if most is None else f"{most:,}"
        raise InvalidArgumentError(f"{label}={value!r}: expected a whole number from {least} to {end}")
    return operator.index(value)
