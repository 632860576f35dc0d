"""What decoders make that numpy has no dtype for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.decode.decoding import Decoding
from headrace.decode.records import Feature

__all__ = ["bfloat16_columns"]


def bfloat16_columns(decode: Mapping[str, Any] | str | None) -> set[str]:
    """Names of the columns that come as bits of such numbers, by what a Loader was told. The engine tells it
    of those alone that are one array; ``"auto"`` makes none."""
    if decode is None or isinstance(decode, str):
        return set()
    return {made for name, decoding in decode.items() for made in _made_of(name, decoding)}


def _made_of(name: str, decoding: Decoding) -> Iterable[str]:
    arguments = decoding._arguments
    if "features" in arguments:
        kinds = {
            each: what.kind if isinstance(what, Feature) else what
            for each, what in arguments["features"].items()
        }
        return bfloat16_columns({each: kind for each, kind in kinds.items() if isinstance(kind, Decoding)})
    return {name} if arguments.get("dtype") == "bfloat16" else ()
