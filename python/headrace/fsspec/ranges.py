"""Many ranges of many objects of one store, as fsspec wants them: ``bytes``, in order, cut at the end of the
object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace._native import ObjectInfo
from headrace.errors import ChangedError, CorruptError, HeadraceError
from headrace.store.store import Store


class Range(NamedTuple):
    """Half-open; ``end`` None: the object's; negative numbers count from its end."""

    key: str
    start: int | None
    end: int | None

    def needs_size(self) -> bool:
        return self.end is None or self.end < 0 or (self.start or 0) < 0

    def within(self, size: int) -> tuple[int, int]:
        begin, end, _ = slice(self.start, self.end).indices(size)
        return begin, max(end, begin)


class _Numbered(str):
    """A key that knows which range it stands for: results and errors carry the object that was asked with."""

    __slots__ = ("number",)
    number: int


class _Heads:
    """What is known of the objects of one call; an object is asked for once."""

    def __init__(self, head: Callable[[str], ObjectInfo]) -> None:
        self._head = head
        self._found: dict[str, ObjectInfo | HeadraceError] = {}

    def __call__(self, key: str) -> ObjectInfo:
        found = self._found.get(key)
        if found is None:
            try:
                found = self._head(key)
            except HeadraceError as error:
                found = error
            self._found[key] = found
        if isinstance(found, HeadraceError):
            raise found
        return found


def read_ranges(
    store: Store,
    ranges: Sequence[Range],
    *,
    head: Callable[[str], ObjectInfo],
    ask: Callable[[str], ObjectInfo],
    names_versions: bool,
    stops_at_error: bool,
) -> list[bytes | Exception]:
    """One result a range. ``head`` tells sizes, and with ``names_versions`` the version to read, as they were
    a moment ago; ``ask`` as they are. A range that is large beside the memory of the store is read in
    parts."""
    results: list[bytes | Exception] = [b""] * len(ranges)
    heads = _Heads(head)
    asked: list[tuple[str, int, int, str]] = []
    large: list[tuple[int, int, int, str]] = []
    most_bytes = store._memory_bytes // 4

    def fail(index: int, error: Exception) -> None:
        if stops_at_error:
            raise error
        results[index] = error

    for index, one in enumerate(ranges):
        begin, end, etag = one.start or 0, one.end or 0, ""
        if names_versions or one.needs_size() or end - begin > most_bytes:
            try:
                info = heads(one.key)
            except HeadraceError as error:
                fail(index, error)
                continue
            (begin, end), etag = one.within(info.size), info.etag
        if end - begin > most_bytes:
            large.append((index, begin, end, etag))
        elif begin < end:
            key = _Numbered(one.key)
            key.number = index
            asked.append((key, begin, end - begin, etag))

    again: list[int] = []
    reader = store.get_ranges(asked)
    while True:
        try:
            result = next(reader)
        except StopIteration:
            break
        except HeadraceError as error:
            if not isinstance(error.key, _Numbered):
                raise
            index = error.key.number
            if isinstance(error, CorruptError | ChangedError):
                results[index] = error
                again.append(index)
            else:
                fail(index, error)
        else:
            assert isinstance(result.key, _Numbered)
            results[result.key.number] = bytes(result.data)
            del result  # or its memory would be missing to the next one

    for index, begin, end, etag in large:
        try:
            results[index] = store.get_range(ranges[index].key, begin, end - begin, etag=etag)
        except ChangedError as error:
            results[index] = error
            again.append(index)
        except HeadraceError as error:
            fail(index, error)

    # Most often the object ends before the range, or what was known of it was old: neither is an error here.
    heads = _Heads(ask)
    for index in again:
        one, first = ranges[index], results[index]
        assert isinstance(first, Exception)
        try:
            info = heads(one.key)
            begin, end = one.within(info.size)
            if isinstance(first, CorruptError) and (begin, end) == (one.start or 0, one.end):
                raise first
            results[index] = (
                store.get_range(one.key, begin, end - begin, etag=info.etag) if begin < end else b""
            )
        except HeadraceError as error:
            fail(index, error)
    return results
