"""Numbers as Mosaic's arguments abbreviate them."""

from __future__ import annotations

_NUMBERS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_BYTES = {
    "kb": 2**10,
    "mb": 2**20,
    "gb": 2**30,
    "tb": 2**40,
    "pb": 2**50,
    "eb": 2**60,
    "zb": 2**70,
    "yb": 2**80,
}


def _parse(text: str, units: dict[str, int]) -> int:
    text = text.lower().strip()
    for suffix, unit in units.items():
        if text.endswith(suffix):
            try:
                return int(float(text.removesuffix(suffix)) * unit)
            except ValueError:
                break
    if text.isdigit():
        return int(text)
    raise ValueError(f"Unsupported value/suffix {text}. Supported suffix are {list(units)}.")


def number_abbrev_to_int(value: int | float | str) -> int:
    """``"64M"`` -> 64,000,000."""
    return _parse(value, _NUMBERS) if isinstance(value, str) else int(value)


def bytes_to_int(value: int | float | str) -> int:
    """``"64mb"`` -> 67,108,864."""
    if not isinstance(value, str):
        return int(value)
    text = value.lower().strip()
    return int(text[:-1]) if text.endswith("b") and text[:-1].isdigit() else _parse(text, _BYTES)
