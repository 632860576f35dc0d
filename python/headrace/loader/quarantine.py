"""Lists of bad samples: what ``headrace verify --quarantine`` writes and loaders leave out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import _native
from headrace.errors import InvalidArgumentError
from headrace.sources.source import first_samples
from headrace.store.store import open_native
from headrace.store.urls import parent_and_key

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from headrace.sources.source import Source
    from headrace.verification.checks import Problem

__all__ = ["Quarantine", "find_quarantined", "format_quarantine", "parse_quarantine"]

Quarantine: TypeAlias = "str | os.PathLike[str] | Sequence[int] | npt.NDArray[np.integer[Any]]"
"""A file or URL, or dataset positions."""

_Row: TypeAlias = tuple[str, int, int]  # object, position, samples
_LARGEST = 1 << 62
_ABOUT_DATA = frozenset({"corrupt", "changed", "not_found"})
"""Codes of problems that lie in the data. What a store did at the time (denied, unavailable, ...) makes no
sample bad."""


def format_quarantine(problems: Iterable[Problem]) -> tuple[str, int]:
    """The list as text, and how many problems are not in it: those of the store, and those that name no
    sample and no object."""
    rows = list(problems)
    listed = [row for row in rows if row.code in _ABOUT_DATA and (row.key or row.position >= 0)]
    # As ASCII: other programs take more characters than a line feed for the end of a line.
    return "".join(f"{json.dumps(row._asdict())}\n" for row in listed), len(rows) - len(listed)


def parse_quarantine(text: str, where: str) -> list[_Row]:
    """(object, position, samples) of each line: JSON objects with ``key``, ``position``, ``samples`` (default
    1).

    Lines whose ``code`` says that the store failed are passed over.
    """
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            key, position, samples = entry.get("key", ""), entry["position"], entry.get("samples", 1)
            is_about_data = entry.get("code", "corrupt") in _ABOUT_DATA
        except (ValueError, KeyError, AttributeError, TypeError):
            raise InvalidArgumentError(
                f"line {number} of {where} is no row of a quarantine list: {line[:100]!r}"
            ) from None
        if not isinstance(key, str) or not _is_count(position, -1) or not _is_count(samples, 0):
            raise InvalidArgumentError(
                f"line {number} of {where}: key, position or samples are not what verify writes: {line[:100]!r}"
            )
        if is_about_data:
            rows.append((key, position, samples))
    return rows


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < _LARGEST


def _read(given: Quarantine, store_options: Mapping[str, Any]) -> list[_Row]:
    if not isinstance(given, str | os.PathLike):
        return [("", _as_position(value), 1) for value in given]
    place = parent_and_key(given)
    if place is None:
        raise InvalidArgumentError(f"quarantine={given!r} names no file")
    # How the dataset's store is reached says nothing about a file here.
    store = open_native(place[0], "64MiB", **(store_options if "://" in os.fspath(given) else {}))
    try:
        return parse_quarantine(store.get(place[1]).decode("utf-8", "replace"), os.fspath(given))
    finally:
        store.close()


def _as_position(value: Any) -> int:
    try:
        position = value.__index__()
    except AttributeError:
        position = -1
    if isinstance(value, bool) or not _is_count(position, 0):
        raise InvalidArgumentError(f"quarantine: {value!r} is no dataset position")
    return int(position)


def find_quarantined(
    source: Source, given: Quarantine | Mapping[str, Quarantine] | Mapping[int, Quarantine]
) -> list[tuple[int, int]]:
    """Half-open ranges of the dataset positions that a list names; of several datasets as one, also lists by
    the names of the parts."""
    options = source.store_options
    if not isinstance(given, Mapping):
        return _native.find_quarantined(source.native, _read(given, options))
    if not source.parts:
        raise InvalidArgumentError("quarantine: lists by source belong to a mixture or a list of datasets")
    firsts = dict(zip(source.parts, first_samples(source), strict=True))
    ranges = []
    for name, value in given.items():
        if name not in firsts:
            raise InvalidArgumentError(
                f"quarantine: there is no source {name!r}; there are {', '.join(map(str, firsts))}"
            )
        found = _native.find_quarantined(source.parts[name].native, _read(value, options))
        ranges += [(begin + firsts[name], end + firsts[name]) for begin, end in found]
    return ranges
