"""Pictures of measurements, by matplotlib where it is installed."""

from __future__ import annotations

from typing import Any

from headrace.errors import UnsupportedError

__all__ = ["find_figure"]


def find_figure() -> Any:
    """matplotlib's Figure, which needs no display. Raises UnsupportedError: ask before anything is measured."""
    try:
        from matplotlib.figure import Figure  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise UnsupportedError("--plot needs matplotlib: pip install matplotlib") from None
    return Figure
