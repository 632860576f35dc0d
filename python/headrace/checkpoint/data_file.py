"""The data file of a rank: pieces of arrays, staged, written, and proved, and its index behind it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from headrace import _native
from headrace.checkpoint.arrays import Chunk, Memory
from headrace.checkpoint.keys import data_key, index_key
from headrace.checkpoint.manifest import DataFile, encode_index, index_sum
from headrace.checkpoint.place import Place
from headrace.errors import HeadraceError

__all__ = ["DataFileWriter", "NewPiece", "SaveOptions"]


class SaveOptions(NamedTuple):
    allow_pickle: bool = False
    overwrite: bool = False
    part_bytes: int = 16 << 20
    copy_threads: int = 2
    check: str = "auto"
    values: str = "warn"
    """See check_mode() of values.py."""
    is_fenced: bool = True
    """Whether only the job that came last may commit there."""


class NewPiece(NamedTuple):
    """What is to be written of an array."""

    array: int
    """Its number in the manifest."""
    chunk: int
    """Number of the chunk among those of the array."""
    name: str
    dtype: str
    box: Chunk
    is_whole: bool
    """The array has no other chunk."""


class DataFileWriter:
    """Writes one. Calls in this order: stage, then finish or discard.

    Threads: stage and finish may be called by different ones, one after the other.
    """

    def __init__(
        self, place: Place, save: str, rank: int, pieces: Sequence[NewPiece], options: SaveOptions
    ) -> None:
        self.pieces = pieces
        self._place, self._save, self._rank, self._options = place, save, rank, options
        self._writer: _native.CheckpointWriter | None = None
        self._places: list[tuple[int, int]] = []
        self._values: list[tuple[int, bool]] = []

    def stage(self, memories: Sequence[Memory]) -> None:
        """Copies the pieces from where they lie, row-major; they may change when it returns. Blocks where the
        memory for it is used up until parts have left."""
        metadata = {"format": "pt", "headrace.save": self._save}
        names, offsets = self._names()
        if offsets:
            metadata |= {"DCP_SHARDING_INFO": json.dumps(offsets), "DCP_VERSION": "1.0"}
        self._writer = _native.CheckpointWriter(
            self._place.native,
            data_key(self._save, self._rank),
            [(name, piece.dtype, piece.box.sizes) for name, piece in zip(names, self.pieces, strict=True)],
            metadata,
            self._options.part_bytes,
            self._options.copy_threads,
            self._options.check,
            self._options.values != "ignore",
        )
        self._places = self._writer.places()
        sources = [
            (memory.address, length) for memory, (_, length) in zip(memories, self._places, strict=True)
        ]
        self._writer.stage(sources)

    def _names(self) -> tuple[list[str], dict[str, dict[str, list[int]]]]:
        """In the file, and where pieces lie in their arrays, as DCP's safetensors files say it."""
        names: list[str] = []
        offsets: dict[str, dict[str, list[int]]] = {}
        for piece in self.pieces:
            name = piece.name
            if not piece.is_whole:
                name = f"{name}@{piece.chunk}" if name in offsets else name
                offsets[name] = {"saved_offsets": list(piece.box.offsets)}
            names.append(name)
        return names, offsets

    def finish(self) -> DataFile:
        """When it is where it belongs, and was proved."""
        assert self._writer is not None
        size, crc, _, sums, self._values = self._writer.finish()
        numbers = [(piece.array, piece.chunk) for piece in self.pieces]
        index = encode_index(numbers, self._places, sums)
        key = index_key(self._save, self._rank)
        _native.checkpoint_write_small(self._place.native, key, index)
        self._place.check_written(key, index, self._options.check)
        return DataFile(data_key(self._save, self._rank), size, crc, key, index_sum(index), len(self.pieces))

    def values(self) -> list[tuple[str, int, bool]]:
        """For ValueWatch.look(), after finish(); none where nobody wants to know."""
        if self._options.values == "ignore":
            return []
        return [(piece.name, *seen) for piece, seen in zip(self.pieces, self._values, strict=True)]

    def discard(self) -> None:
        """Deletes what was written. What cannot be deleted is swept by a later job."""
        if self._writer is not None:
            self._writer.close()
        for key in (data_key(self._save, self._rank), index_key(self._save, self._rank)):
            try:
                self._place.store.delete(key)
            except HeadraceError:
                return
