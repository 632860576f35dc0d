"""Lists of bad samples: what ``headrace verify --quarantine`` writes and loaders leave out."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import _native
from headrace.errors import CorruptError, InvalidArgumentError
from headrace.sources.source import first_samples
from headrace.store.store import open_native
from headrace.store.urls import parent_and_key

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from headrace.sources.source import Source
    from headrace.verification.checks import Problem

__all__ = ["Quarantine", "find_quarantined", "format_quarantine", "parse_quarantine", "refuse_unlisted"]

Quarantine: TypeAlias = "str | os.PathLike[str] | Sequence[int] | npt.NDArray[np.integer[Any]]"
"""A file or URL, or dataset positions."""

_Row: TypeAlias = tuple[str, int, int]  # object, position, samples
_FINGERPRINT = "fingerprint"
_LARGEST = 1 << 62
_ABOUT_DATA = frozenset({"corrupt", "changed", "not_found"})
"""Codes of problems that lie in the data. What a store did at the time (denied, unavailable, ...) makes no
sample bad."""


def format_quarantine(problems: Iterable[Problem], fingerprint: str = "") -> tuple[str, int]:
    """The list as text, and how many problems are not in it: those of the store, and those that name no
    sample and no object.

    :param fingerprint: of the dataset whose positions these are, where they hold for no other.
    """
    rows = list(problems)
    listed = [row for row in rows if _is_about_data(row.code, row.samples) and (row.key or row.position >= 0)]
    more = {_FINGERPRINT: fingerprint} if fingerprint else {}
    # As ASCII: other programs take more characters than a line feed for the end of a line.
    text = "".join(
        f"{json.dumps({**row._asdict(), **(more if row.position >= 0 else {})})}\n" for row in listed
    )
    return text, len(rows) - len(listed)


def parse_quarantine(text: str, where: str, fingerprint: str = "") -> list[_Row]:
    """(object, position, samples) of each line: JSON objects with ``key``, ``position``, ``samples`` (default
    1).

    Lines whose ``code`` says that the store failed are passed over.

    :param fingerprint: of the dataset that it is for: positions in another one without the same shards are
        refused.
    """
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            key, position, samples = entry.get("key", ""), entry["position"], entry.get("samples", 1)
            is_about_data = _is_about_data(entry.get("code", "corrupt"), samples)
        except (ValueError, KeyError, AttributeError, TypeError):
            raise InvalidArgumentError(
                f"line {number} of {where} is no row of a quarantine list: {line[:100]!r}"
            ) from None
        if not isinstance(key, str) or not _is_count(position, -1) or not _is_count(samples, 0):
            raise InvalidArgumentError(
                f"line {number} of {where}: key, position or samples are not what verify writes: "
                f"{line[:100]!r}"
            )
        if fingerprint and entry.get(_FINGERPRINT, fingerprint) != fingerprint:
            raise InvalidArgumentError(
                f"line {number} of {where}: its positions are those of a dataset that lacked broken shards "
                f"(fingerprint {entry[_FINGERPRINT]}, here {fingerprint}): run headrace verify --quarantine "
                "again"
            )
        if is_about_data:
            rows.append((key, position, samples))
    return rows


def _is_about_data(code: object, samples: object) -> bool:
    """Of a shard as a whole, one that no parser takes is broken, too."""
    return code in _ABOUT_DATA or (code == "unsupported" and samples != 1)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < _LARGEST


def _read(given: Quarantine, store_options: Mapping[str, Any], fingerprint: str) -> list[_Row]:
    if not isinstance(given, str | os.PathLike):
        return [("", _as_position(value), 1) for value in given]
    place = parent_and_key(given)
    if place is None:
        raise InvalidArgumentError(f"quarantine={given!r} names no file")
    # How the dataset's store is reached says nothing about a file here.
    store = open_native(place[0], "64MiB", **(store_options if "://" in os.fspath(given) else {}))
    try:
        return parse_quarantine(store.get(place[1]).decode("utf-8", "replace"), os.fspath(given), fingerprint)
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
        rows = _read(given, options, source.native.fingerprint)
        ranges = _native.find_quarantined(source.native, rows)
        _refuse_all(source, ranges, rows)
        return ranges
    if not source.parts:
        raise InvalidArgumentError("quarantine: lists by source belong to a mixture or a list of datasets")
    firsts = dict(zip(source.parts, first_samples(source), strict=True))
    ranges, rows = [], []
    for name, value in given.items():
        if name not in firsts:
            raise InvalidArgumentError(
                f"quarantine: there is no source {name!r}; there are {', '.join(map(str, firsts))}"
            )
        native = source.parts[name].native
        of_part = _read(value, options, native.fingerprint)
        found = _native.find_quarantined(native, of_part)
        ranges += [(begin + firsts[name], end + firsts[name]) for begin, end in found]
        rows += of_part
    _refuse_all(source, ranges, rows)
    return ranges


def _refuse_all(source: Source, ranges: Iterable[tuple[int, int]], rows: Sequence[_Row]) -> None:
    """Raises InvalidArgumentError where nothing is left to deliver, with the rows that are most to blame."""
    native = source.native
    if sum(end - begin for begin, end in ranges) < native.sample_count:
        return
    largest = sorted(rows, key=lambda row: -row[2] if row[1] >= 0 else -_LARGEST)[:3]
    named = "; ".join(_named(*row) for row in largest)
    more = f"; and {len(rows) - len(largest):,} more" if len(rows) > len(largest) else ""
    raise InvalidArgumentError(f"quarantine: every sample of {native.url} is in it: {named}{more}")


def _named(key: str, position: int, samples: int) -> str:
    if position < 0:
        return f"all of {key}"
    what = f"sample {position:,}" if samples == 1 else f"samples {position:,} to {position + samples - 1:,}"
    return f"{what} ({key})" if key else what


def refuse_unlisted(
    source: Source, given: Quarantine | Mapping[str, Quarantine] | Mapping[int, Quarantine]
) -> None:
    """Raises CorruptError for broken shards that a dataset does without and the list does not name."""
    broken = source.native.broken_shards()
    if not broken:
        return
    assert not isinstance(given, Mapping)  # Of several datasets, which are opened strictly.
    rows = _read(given, source.store_options, source.native.fingerprint)
    listed = {(key, position, samples) for key, position, samples in rows if position >= 0}
    listed |= {(key, -1, 0) for key, position, _ in rows if position < 0}

    def is_listed(row: tuple[str, str, int, str, str, int, int]) -> bool:
        key, first, samples = row[0], row[5], row[6]
        return (key, -1, 0) in listed or (samples > 0 and (key, first, samples) in listed)

    if missing := [row for row in broken if not is_listed(row)]:
        raise CorruptError(
            f"{source.native.url}: {len(missing)} broken shard{'' if len(missing) == 1 else 's'} that "
            "quarantine= does not name: "
            + "; ".join(f"{row[0]}: {row[4]}" for row in missing)
            + '. Go on without with on_bad_sample="replace", or run headrace verify --quarantine again'
        )
