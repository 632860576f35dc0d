"""Writing a model as Hugging Face's sharded safetensors: once, in place, by all ranks together
(docs/design/0050)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import _native
from headrace.base.units import parse_bytes
from headrace.checkpoint.arrays import Array, describe
from headrace.checkpoint.group import Group, find_group
from headrace.checkpoint.place import Place
from headrace.checkpoint.plan import Planned
from headrace.checkpoint.safetensors.exchange import PartExchange, Pieces
from headrace.checkpoint.safetensors.files import END, INDEX, SINGLE
from headrace.checkpoint.safetensors.layout import FileLayout, Share, lay_out, name_files
from headrace.checkpoint.safetensors.states import as_bytes, is_float4, values_of
from headrace.checkpoint.safetensors.ties import without_ties
from headrace.checkpoint.saving import Planner
from headrace.checkpoint.told import raise_first, told
from headrace.errors import (
    ChangedError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from headrace.store.store import Store

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from headrace.store.store import StoreOptions

__all__ = ["save_sharded"]

_NUMBERED = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")


def save_sharded(
    url: str | os.PathLike[str],
    state: Any,
    *,
    max_shard_bytes: int | str = "5GB",
    fqn_to_file: Mapping[str, str | int] | None = None,
    metadata: Mapping[str, str] | None = None,
    overwrite: bool = False,
    check: str = "auto",
    part_bytes: int = 16 << 20,
    memory: int | str = "1GiB",
    group: Group | None = None,
    rank_timeout: float = 600.0,
    progress: Callable[[int, int], None] | None = None,
    **options: Unpack[StoreOptions],
) -> dict[str, str]:
    """Writes a model as ``from_pretrained`` reads it: ``model.safetensors``, or ``model-00001-of-0000N`` and
    so on and ``model.safetensors.index.json``.

    >>> headrace.checkpoint.safetensors.save_sharded("s3://bucket/llama", model)  # doctest: +SKIP

    With torch.distributed initialised all ranks call it together, with whatever part of each tensor they
    have: every byte is copied once, sent to the rank that writes its part of the file where that is another,
    and uploaded. The index comes last, when all files were completed and proved. Blocks until then; the state
    must not change meanwhile.

    :param url: a directory of a store, or of a disk that all ranks see.
    :param state: a model, or arrays by name: torch, DTensor (FSDP2), numpy, JAX. Names that are one memory
        (tied weights) are written once, under the first of them.
    :param max_shard_bytes: of the tensors of a file; a larger tensor has a file of its own.
    :param fqn_to_file: the file of each tensor instead: a name, or a number from 1 on. ``model.safetensors``
        only for all of them.
    :param metadata: texts, for the header of each file, besides ``format: pt``.
    :param overwrite: a model that is there is taken away first; else it is a ChangedError.
    :param check: as :class:`Checkpointer` has it: ``"auto"``, ``"read"`` or ``"none"``.
    :param part_bytes: of the uploads' parts; stores want at least 5 MiB.
    :param memory: bytes on their way to the store, on each rank.
    :param group: the ranks that write together; default: those of torch.distributed.
    :param rank_timeout: seconds that a rank may be later than the others.
    :param progress: called with (bytes done, bytes of all files) after each part of this rank.
    :param options: of the store, as :class:`headrace.Store` takes them.
    :returns: the file of each tensor.
    :raises InvalidArgumentError: a state that has no place there; ranks that contradict one another.
    :raises ChangedError: a model is there.
    :raises UnavailableError: a rank could not write its part; it is named. No index is there then.

    Threads: one at a time, the same on all ranks.
    """
    if check not in ("auto", "read", "none"):
        raise InvalidArgumentError(f"check={check!r}: expected 'auto', 'read' or 'none'")
    if os.fspath(url).endswith(END):
        raise InvalidArgumentError(f"{os.fspath(url)}: expected a directory for the files")
    limit = parse_bytes(max_shard_bytes, "max_shard_bytes")
    group = group or find_group(rank_timeout)
    place = Place(Store(url, memory=memory, **options))
    try:
        model = _Model(group, state, limit, fqn_to_file, dict(metadata or {}), part_bytes)
        return _Writing(place, group, model, check, progress).run(overwrite)
    finally:
        place.close()


class _Model:
    """What is written, as all ranks see it."""

    def __init__(
        self,
        group: Group,
        state: Any,
        limit: int,
        fqn_to_file: Mapping[str, str | int] | None,
        metadata: dict[str, str],
        part_bytes: int,
    ) -> None:
        self.arrays: dict[str, Array] = {}
        values: dict[str, Any] = {}
        failure = {"error": ""}
        try:
            values = values_of(state)
            self.arrays = {name: describe(name, as_bytes(value)) for name, value in values.items()}
            _check_metadata(metadata)
        except Exception as raised:
            if group.world_size == 1:
                raise
            failure = told(raised, names_kind=False)
        token = os.urandom(8).hex()
        halves = [name for name, value in values.items() if is_float4(value)]
        said = group.gather("safetensors state", {**failure, "token": token, "float4": halves})
        raise_first("its state cannot be written", said, InvalidArgumentError)
        float4 = {name for each in said for name in each["float4"]}
        self.tied = without_ties(group, values)
        for name in self.tied:
            self.arrays.pop(name, None)
        plan = Planner(group).plan(self.arrays, said[0]["token"])
        if not plan.arrays:
            raise InvalidArgumentError("the state has no arrays")
        self.planned = {array.name: array for array in plan.arrays}
        self.files: dict[str, str] = {}
        self.layouts: list[FileLayout] = []
        error = ""
        try:
            self.files = name_files(plan.arrays, limit, fqn_to_file)
            self.layouts = self._layouts(plan.arrays, metadata, part_bytes, group.world_size, float4)
        except InvalidArgumentError as raised:
            if group.world_size == 1:
                raise
            error = str(raised)
        self._check_agreed(group, error)

    def _check_agreed(self, group: Group, error: str) -> None:
        """Ranks that lay files out otherwise would write one another's bytes to wrong places."""
        rows = [[each.key, each.part_bytes, each.writers] for each in self.layouts]
        digest = hashlib.sha256(json.dumps([self.files, rows]).encode())
        for layout in self.layouts:
            digest.update(layout.header)
        said = group.gather("safetensors layout", {"error": error, "digest": digest.hexdigest()})
        raise_first("its state cannot be written", said, InvalidArgumentError)
        if len({each["digest"] for each in said}) > 1:
            raise InvalidArgumentError(
                "ranks were given different max_shard_bytes=, fqn_to_file=, metadata= or part_bytes="
            )

    @property
    def is_single(self) -> bool:
        return set(self.files.values()) == {SINGLE}

    def _layouts(
        self,
        arrays: list[Planned],
        metadata: dict[str, str],
        part_bytes: int,
        world_size: int,
        float4: set[str],
    ) -> list[FileLayout]:
        by_file: dict[str, list[Planned]] = defaultdict(list)
        for array in arrays:
            by_file[self.files[array.name]].append(array)
        order = {name: number for number, name in enumerate(self.files)}
        layouts = []
        for key, some in sorted(by_file.items()):
            some.sort(key=lambda array: order[array.name])
            notes = {name: kept for name, kept in self.tied.items() if self.files[kept] == key}
            layouts.append(
                lay_out(key, some, {"format": "pt", **metadata, **notes}, part_bytes, world_size, float4)
            )
        return layouts

    def index(self) -> bytes:
        total = sum(array.size_bytes for array in self.planned.values())
        notes: dict[str, Any] = {"total_size": total} | ({"tied": self.tied} if self.tied else {})
        return (json.dumps({"metadata": notes, "weight_map": self.files}, indent=2) + "\n").encode()


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    if not all(isinstance(text, str) for pair in metadata.items() for text in pair):
        raise InvalidArgumentError("metadata: expected texts by name, as safetensors files have them")


class _Writing:
    def __init__(
        self,
        place: Place,
        group: Group,
        model: _Model,
        check: str,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._place, self._group, self._model, self._check = place, group, model, check
        self._progress, self._done = progress, 0
        self._pieces = Pieces(model.arrays, model.planned)
        self._exchange = PartExchange(group, self._pieces)

    def run(self, overwrite: bool) -> dict[str, str]:
        self._together("the directory cannot be written", lambda: self._clear(overwrite))
        if self._group.world_size > 1:
            self._exchange.begin()
        try:
            for layout in self._model.layouts:
                self._write(layout)
                self._pieces.forget()
        finally:
            self._exchange.end()
        self._together("the index could not be written", self._commit)
        return dict(self._model.files)

    def _together(self, what: str, work: Callable[[], None]) -> None:
        """Work of rank 0 that the others wait for; what it raises, all raise."""
        said = {"error": "", "is_taken": False}
        if self._group.rank == 0:
            try:
                work()
            except Exception as raised:
                if self._group.world_size == 1:
                    raise
                is_taken = isinstance(raised, ChangedError)
                said = {"error": f"{type(raised).__name__}: {raised}", "is_taken": is_taken}
        gathered = self._group.gather("safetensors together", said)
        raise_first(what, gathered, ChangedError if gathered[0]["is_taken"] else UnavailableError)

    def _clear(self, overwrite: bool) -> None:
        """Takes away what says that a model is there, and uploads that killed jobs have left."""
        store = self._place.store
        there = [key for key in (INDEX, SINGLE) if store.exists(key)]
        if there and not overwrite:
            raise ChangedError(f"{store.url}/{there[0]}: a model is there; overwrite=True replaces it")
        for key in there:
            store.delete(key)
        keys = {layout.key for layout in self._model.layouts}
        with contextlib.suppress(UnsupportedError):
            for key, upload, _ in self._place.native.uploads(""):
                if key in keys:
                    with contextlib.suppress(NotFoundError):
                        self._place.native.abort_upload(key, upload)

    def _write(self, layout: FileLayout) -> None:
        """One file, with all ranks. Raises on every rank what went wrong on any."""
        file, error = None, ""
        if self._group.rank == 0:
            file, error = self._open(layout, "")
        said = self._group.gather(
            "safetensors begin", {"error": error, "token": file.token() if file else ""}
        )
        raise_first(f"it could not begin {layout.key}", said)
        mine = [number for number, writer in enumerate(layout.writers) if writer == self._group.rank]
        if file is None and mine:
            file, error = self._open(layout, said[0]["token"])
        try:
            self._write_parts(layout, file, mine, error)
        finally:
            if file is not None:
                file.close()

    def _write_parts(
        self, layout: FileLayout, file: _native.SharedFile | None, mine: list[int], error: str
    ) -> None:
        parts: list[Any] = []
        try:
            error = self._put_all(layout, file, error)
            if file is not None and not error:
                parts = file.settle()
        except Exception as raised:
            if self._group.world_size == 1:
                raise
            error = error or f"{type(raised).__name__}: {raised}"
        said = self._group.gather("safetensors parts", {"error": error, "parts": parts})
        raise_first(f"it could not write its part of {layout.key}", said)
        self._together(
            f"{layout.key} could not be completed",
            lambda: _publish(file, [part for each in said for part in each["parts"]]),
        )

    def _open(self, layout: FileLayout, joins: str) -> tuple[_native.SharedFile | None, str]:
        """And what went wrong."""
        try:
            file = _native.SharedFile(
                self._place.native, layout.key, layout.size, layout.part_bytes, joins, self._check
            )
        except Exception as raised:
            if self._group.world_size == 1:
                raise
            return None, f"{type(raised).__name__}: {raised}"
        return file, ""

    def _put_all(self, layout: FileLayout, file: _native.SharedFile | None, error: str) -> str:
        """Goes on sending to others where this rank itself cannot write any more. Returns what went wrong."""
        for parts in _rounds(layout):
            found = self._exchange.round(layout, parts)
            if self._group.rank not in parts:
                continue
            number = parts[self._group.rank]
            try:
                if not error and file is not None:
                    file.put(number, _rows(layout, number, found))
                    begin, end = layout.part(number)
                    self._note(end - begin)
            except Exception as raised:
                if self._group.world_size == 1:
                    raise
                error = f"{type(raised).__name__}: {raised}"
        return error

    def _note(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, sum(layout.size for layout in self._model.layouts))

    def _commit(self) -> None:
        """The index, and nothing beside it that an earlier model has left."""
        model, place = self._model, self._place
        if not model.is_single:
            data = model.index()
            try:
                _native.checkpoint_write_small(place.native, INDEX, data, True)
            except HeadraceError:  # The answer may be lost, and the object be this very one.
                with contextlib.suppress(NotFoundError):
                    if place.store.get(INDEX) == data:
                        return
                raise
            place.check_written(INDEX, data, self._check)
        keys = set(model.files.values())
        stale = [info.key for info in place.store.list(recursive=False) if _NUMBERED.fullmatch(info.key)]
        place.store.delete_many(key for key in stale if key not in keys)


def _publish(file: _native.SharedFile | None, parts: list[Any]) -> None:
    assert file is not None
    file.publish([tuple(part) for part in parts])


def _rounds(layout: FileLayout) -> list[dict[int, int]]:
    """One part a rank: its number by rank."""
    by_rank: dict[int, list[int]] = defaultdict(list)
    for number, writer in enumerate(layout.writers):
        by_rank[writer].append(number)
    most = max(map(len, by_rank.values()), default=0)
    return [
        {rank: numbers[at] for rank, numbers in sorted(by_rank.items()) if at < len(numbers)}
        for at in range(most)
    ]


def _rows(layout: FileLayout, number: int, found: list[tuple[Share, Any]]) -> Any:
    """(offset in the part, length, address) of each run of a part, in order."""
    begin, end = layout.part(number)
    tables = []
    if begin < len(layout.header):
        header = np.frombuffer(layout.header, np.uint8)
        length = min(end, len(header)) - begin
        tables.append(np.array([[0, length, header.ctypes.data + begin]], np.uint64))
    for share, data in found:
        sources = np.cumsum(share.lengths) - share.lengths + data.ctypes.data
        tables.append(np.stack([share.targets, share.lengths, sources], 1).astype(np.uint64))
    table = np.concatenate(tables)
    return np.ascontiguousarray(table[np.argsort(table[:, 0], kind="stable")])
