"""The data file of a rank: pieces of arrays, staged, written, and proved, and its index behind it. Pieces
that lie in earlier files already are in the index alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from headrace import _native
from headrace.checkpoint.arrays import Chunk
from headrace.checkpoint.keys import data_key, index_key
from headrace.checkpoint.manifest import (
    DataFile,
    EarlierFile,
    Piece,
    encode_index,
    index_sum,
    stored_length,
)
from headrace.checkpoint.place import Place
from headrace.checkpoint.reuse import Comparison, Known, OwnFile, PieceName
from headrace.checkpoint.row_major import RowMajor
from headrace.checkpoint.staging import stage
from headrace.errors import HeadraceError, InvalidArgumentError

__all__ = ["DataFileWriter", "NewPiece", "SaveOptions", "check_compression"]


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
    compression: str | None = None
    """See check_compression()."""
    number: int = 0
    """See Manifest."""


def check_compression(compression: str | None) -> str | None:
    """Raises InvalidArgumentError."""
    if compression not in (None, "zstd"):
        raise InvalidArgumentError(f"compression={compression!r}: expected 'zstd' or None")
    return compression


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

    @property
    def piece_name(self) -> PieceName:
        return self.name, self.dtype, self.box


class DataFileWriter:
    """Writes one. Calls in this order: stage, then finish or discard.

    :param comparison: pieces that lie in earlier files already are not written; None: all are.

    Threads: stage and finish may be called by different ones, one after the other.
    """

    def __init__(
        self,
        place: Place,
        save: str,
        rank: int,
        pieces: Sequence[NewPiece],
        options: SaveOptions,
        comparison: Comparison | None = None,
    ) -> None:
        self.pieces = pieces
        self._place, self._save, self._rank, self._options = place, save, rank, options
        self._comparison = comparison
        self._writer: _native.CheckpointWriter | None = None
        self._new: list[int] = []  # Numbers of the pieces that are written.
        self._known: dict[int, Known] = {}  # By number: those that are not; after finish_data() all.
        self._file = OwnFile("", 0, 0, 0)

    def stage(self, parts: Sequence[RowMajor]) -> None:
        """Copies the pieces; they may change when it returns. Blocks where the memory for it is used up until
        parts have left."""
        if self._comparison is not None:
            names = [piece.piece_name for piece in self.pieces]
            self._known = self._comparison.find(names, parts, self._options.copy_threads)
        self._new = [number for number in range(len(self.pieces)) if number not in self._known]
        metadata = {"format": "pt", "headrace.save": self._save}
        names_there, offsets = self._names()
        if offsets:
            metadata |= {"DCP_SHARDING_INFO": json.dumps(offsets), "DCP_VERSION": "1.0"}
        new = [self.pieces[number] for number in self._new]
        self._writer = _native.CheckpointWriter(
            self._place.native,
            data_key(self._save, self._rank),
            [(name, piece.dtype, piece.box.sizes) for name, piece in zip(names_there, new, strict=True)],
            metadata,
            self._options.part_bytes,
            self._options.copy_threads,
            self._options.check,
            self._options.values != "ignore",
            None if self._comparison is None else self._comparison.key,
            self._place.key,
            self._options.compression is not None,
        )
        new_parts = [parts[number] for number in self._new]
        stage(self._writer, self._writer.places(), new_parts, self._options.copy_threads)

    def _names(self) -> tuple[list[str], dict[str, dict[str, list[int]]]]:
        """In the file, and where pieces lie in their arrays, as DCP's safetensors files say it."""
        names: list[str] = []
        offsets: dict[str, dict[str, list[int]]] = {}
        for number in self._new:
            piece = self.pieces[number]
            name = piece.name
            if not piece.is_whole:
                name = f"{name}@{piece.chunk}" if name in offsets else name
                offsets[name] = {"saved_offsets": list(piece.box.offsets)}
            names.append(name)
        return names, offsets

    def finish(self) -> DataFile:
        """When it is where it belongs, and was proved."""
        self.finish_data()
        return self.finish_index()

    def finish_data(self) -> None:
        """The first half of finish()."""
        assert self._writer is not None
        size, crc, _, sums, values, prints, tags, stored, places = self._writer.finish()
        key = data_key(self._save, self._rank)
        self._file = OwnFile(key, size, crc, sum(length for _, length in places))
        columns = (self._new, places, sums, prints or [b""] * len(sums), values, tags, stored)
        for number, (offset, length), *about in zip(*columns, strict=True):
            self._known[number] = Known(self._file, offset, length, *about)

    def finish_index(self) -> DataFile:
        """The second half of finish()."""
        known = [self._known[number] for number in range(len(self.pieces))]
        earlier = self._earlier(known)
        places = {file.key: number for number, file in enumerate(earlier, 1)}
        pieces = [
            Piece(places.get(each.file.key, 0), each.offset, each.length, each.sums, each.tags, each.stored)
            for each in known
        ]
        index = encode_index([(piece.array, piece.chunk) for piece in self.pieces], pieces)
        key = index_key(self._save, self._rank)
        self._place.write_index(key, index, self._options.check)
        sums_sum = _native.crc32c(b"".join(piece.sums for piece in pieces))
        file = self._file
        return DataFile(
            file.key, file.size, file.crc32c, key, index_sum(index), len(pieces), sums_sum, tuple(earlier)
        )

    def _earlier(self, known: Sequence[Known]) -> list[EarlierFile]:
        needed: dict[OwnFile, int] = defaultdict(int)
        for each in known:
            if each.file != self._file:
                needed[each.file] += stored_length(each.length, each.stored)
        files = sorted(needed, key=lambda file: file.key)
        return [EarlierFile(file.key, file.size, file.crc32c, needed[file]) for file in files]

    def written(self) -> dict[PieceName, Known]:
        """What a later save may refer to, after finish()."""
        return {piece.piece_name: self._known[number] for number, piece in enumerate(self.pieces)}

    def values(self) -> list[tuple[str, int, bool]]:
        """For ValueWatch.look(), after finish(); none where nobody wants to know."""
        if self._options.values == "ignore":
            return []
        return [(piece.name, *self._known[number].values) for number, piece in enumerate(self.pieces)]

    def discard(self) -> None:
        """Deletes what was written. What cannot be deleted is swept by a later job."""
        if self._writer is not None:
            self._writer.close()
        for key in (data_key(self._save, self._rank), index_key(self._save, self._rank)):
            try:
                self._place.store.delete(key)
            except HeadraceError:
                return
        self._place.delete_empty(self._save)
