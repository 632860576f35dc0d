"""What a checkpoint consists of: the manifest, one a save, and the index, one a data file.

Both end in a CRC32C of all before. The manifest is JSON in columns, so that 100,000 arrays are read at once;
layouts (which chunks an array has, and in whose file) stand in it once, however many arrays have them.
"""

from __future__ import annotations

import gc
import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from headrace import _native
from headrace.checkpoint.arrays import Chunk
from headrace.checkpoint.keys import copied_key, data_key, index_key, save_of
from headrace.checkpoint.plan import Planned
from headrace.checkpoint.tree import Node, paths_of
from headrace.errors import CorruptError, UnsupportedError

__all__ = [
    "DataFile",
    "EarlierFile",
    "Index",
    "Manifest",
    "Piece",
    "decode_index",
    "encode_index",
    "index_sum",
    "stored_length",
]

_FORMAT, _VERSION, _COMPRESSED_VERSION = "headrace-checkpoint", 1, 2
_COMPRESSIONS = ("zstd",)
_TAG_BYTES, _STORED_BYTES = 16, 2


class _IndexKind(NamedTuple):
    """What an index has of each block besides its sum."""

    has_tags: bool
    is_compressed: bool


_INDEX_KINDS = {
    b"HRCKPIX1": _IndexKind(False, False),
    b"HRCKPIX2": _IndexKind(True, False),
    b"HRCKPIX3": _IndexKind(False, True),
    b"HRCKPIX4": _IndexKind(True, True),
}
_MAGIC_BYTES = 8
_CHUNK_BITS = 32
_ROWS = np.dtype([("array", "<u4"), ("chunk", "<u4"), ("file", "<u4"), ("offset", "<u8"), ("length", "<u8")])


class EarlierFile(NamedTuple):
    """A data file of an earlier save that has pieces which were not written again."""

    key: str
    size: int
    crc32c: int
    needed: int
    """Bytes that those pieces have there."""


class DataFile(NamedTuple):
    """What one rank has written."""

    key: str
    size: int
    crc32c: int
    index_key: str
    index_crc32c: int
    """See index_sum()."""
    pieces: int
    """In the index."""
    sums_crc32c: int
    """CRC32C of the sums of all pieces: equal for equal bytes, wherever they lie."""
    earlier: tuple[EarlierFile, ...] = ()

    @classmethod
    def of(cls, row: Sequence[Any]) -> DataFile:
        """From JSON."""
        made = cls(*row)
        return made._replace(earlier=tuple(EarlierFile(*each) for each in made.earlier))

    def key_of(self, piece: Piece) -> str:
        """The data file that a piece of the index lies in."""
        return self.key if piece.file == 0 else self.earlier[piece.file - 1].key


class Manifest(NamedTuple):
    """A checkpoint."""

    step: int
    save: str
    """Id of the save; its files lie below ``saves/<save>/``."""
    world_size: int
    created: str
    """UTC, ISO 8601, by the clock of rank 0; nothing depends on it."""
    metadata: Mapping[str, Any]
    """The caller's, JSON."""
    tree: Node
    arrays: Sequence[Planned]
    files: Sequence[DataFile]
    """By rank."""
    job: int
    """Number of the job that saved it here; 0: it was copied here from elsewhere."""
    compression: str | None = None
    """Of its data files."""
    number: int = 0
    """Of the save among those of its job, rising; 0: it is not known."""
    overwrites: bool = False
    """Whether it was to replace what had its step: whoever brings it over from the local disk does so."""

    @property
    def order(self) -> tuple[int, int, int]:
        """Checkpoints of a place sorted by it are in the order in which they were saved there. A job may go
        back to an earlier step, so that steps alone do not tell it."""
        return self.job, self.number, self.step

    def comes_after(self, other: Manifest) -> bool:
        """Whether it was saved after the other, or is it. Of copies only the step tells."""
        if 0 in (self.job, other.job):
            return self.step >= other.step
        return self.order >= other.order

    def replaces(self, other: Manifest) -> bool:
        """Whether it takes the other's place under a step that both have: saved after it, and not the same
        save. Raises UnsupportedError for another save where one was copied from elsewhere: nobody can tell
        then."""
        if self.is_same_save(other):
            return False
        if 0 in (self.job, other.job):
            raise UnsupportedError(
                f"step {other.step} is there already, as another save ({other.save}, of {other.created}): "
                "which of the two was saved later is not known, since one was copied from elsewhere"
            )
        return self.comes_after(other)

    def has_same_arrays(self, other: Manifest) -> bool:
        """Whether every array has the same bytes in both, as far as sums tell, and is at the same places of
        the state. False where there are none."""
        return (
            self.size > 0
            and self.arrays == other.arrays
            and any(array.size_bytes for array in self.arrays)
            and [file.sums_crc32c for file in self.files] == [file.sums_crc32c for file in other.files]
            and paths_of(self.tree) == paths_of(other.tree)
        )

    def is_same_save(self, other: Manifest) -> bool:
        """Whether one is the other, or a copy of it under another id."""
        return self._without_ids() == other._without_ids()

    @property
    def content(self) -> str:
        """A digest, the same of a checkpoint and of copies of it under other ids, and of no other."""
        return hashlib.sha256(self._without_ids().encode()).hexdigest()

    def _without_ids(self) -> Manifest:
        return self.renamed("")._replace(job=0, number=0, overwrites=False)

    def renamed(self, save: str) -> Manifest:
        """As it is called under another save id, with copies of earlier files of its own."""
        files = [
            file._replace(
                key=data_key(save, rank),
                index_key=index_key(save, rank),
                earlier=tuple(
                    each._replace(key=copied_key(save, rank, number))
                    for number, each in enumerate(file.earlier)
                ),
            )
            for rank, file in enumerate(self.files)
        ]
        return self._replace(save=save, files=files)

    @property
    def size(self) -> int:
        """Bytes of all that has to be read to prove it: its data files, and what it has in earlier ones."""
        return self.written + sum(each.needed for each in self.earlier)

    @property
    def written(self) -> int:
        """Bytes of its own data files."""
        return sum(file.size for file in self.files)

    @property
    def plain_size(self) -> int:
        """Bytes of its arrays."""
        return sum(array.size_bytes for array in self.arrays)

    @property
    def earlier(self) -> list[EarlierFile]:
        """Of all ranks."""
        return [each for file in self.files for each in file.earlier]

    @property
    def data_keys(self) -> list[str]:
        """Of all data files that it needs."""
        return [key for file in self.files for key in (file.key, *(each.key for each in file.earlier))]

    @property
    def index_keys(self) -> list[str]:
        return [file.index_key for file in self.files]

    @property
    def saves(self) -> set[str]:
        """Whose files it needs."""
        return {self.save} | {save_of(each.key) for each in self.earlier}

    def encode(self) -> bytes:
        layouts: dict[Any, int] = {}
        seen: dict[int, int] = {}  # By identity: a layout of 1,024 chunks is hashed once.
        numbers = []
        for array in self.arrays:
            if id(array.chunks) not in seen:
                seen[id(array.chunks)] = layouts.setdefault(array.chunks, len(layouts))
            numbers.append(seen[id(array.chunks)])
        body = {
            "format": _FORMAT,
            **_compression_fields(self.compression),
            "step": self.step,
            "save": self.save,
            "job": self.job,
            "number": self.number,
            **({"overwrites": True} if self.overwrites else {}),
            "world_size": self.world_size,
            "created": self.created,
            "metadata": self.metadata,
            "files": [list(file) for file in self.files],
            "layouts": [[[c.offsets, c.sizes, rank] for c, rank in layout] for layout in layouts],
            "names": [array.name for array in self.arrays],
            "kinds": [array.kind for array in self.arrays],
            "dtypes": [array.dtype for array in self.arrays],
            "shapes": [array.shape for array in self.arrays],
            "layout": numbers,
            "tree": self.tree,
        }
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
        return text + b"\ncrc32c:%08x\n" % _native.crc32c(text)

    @classmethod
    def decode(cls, data: bytes, where: str) -> Manifest:
        """Raises CorruptError where the bytes are not what was written, UnsupportedError for another
        version's."""
        text, _, last = data.rstrip(b"\n").rpartition(b"\n")
        if last != b"crc32c:%08x" % _native.crc32c(text):
            raise CorruptError(f"{where}: the manifest does not match its CRC32C")
        try:
            with _no_collection():
                return cls._of(json.loads(text), where)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CorruptError(f"{where}: the manifest makes no sense: {error!r}") from None

    @classmethod
    def _of(cls, body: dict[str, Any], where: str) -> Manifest:
        if body["format"] != _FORMAT or body["version"] not in (_VERSION, _COMPRESSED_VERSION):
            raise UnsupportedError(
                f"{where}: is a {body['format']} of version {body['version']}; this is for versions "
                f"{_VERSION} and {_COMPRESSED_VERSION}"
            )
        compression = body["compression"] if body["version"] == _COMPRESSED_VERSION else None
        if compression is not None and compression not in _COMPRESSIONS:
            raise UnsupportedError(
                f"{where}: is compressed by {compression!r}, which this version does not know"
            )
        layouts = [
            tuple((Chunk(tuple(offsets), tuple(sizes)), rank) for offsets, sizes, rank in layout)
            for layout in body["layouts"]
        ]
        names, kinds, dtypes, shapes, numbers = (
            body[name] for name in ("names", "kinds", "dtypes", "shapes", "layout")
        )
        chunks = map(layouts.__getitem__, numbers)
        rows = zip(names, kinds, dtypes, map(tuple, shapes), chunks, strict=True)
        arrays = [tuple.__new__(Planned, row) for row in rows]  # Planned() takes half as long again.
        return cls(
            body["step"],
            body["save"],
            body["world_size"],
            body["created"],
            body["metadata"],
            body["tree"],
            arrays,
            [DataFile.of(row) for row in body["files"]],
            body["job"],
            compression,
            body.get("number", 0),
            body.get("overwrites", False),
        )


def _compression_fields(compression: str | None) -> dict[str, Any]:
    """Who knows version 1 alone would take what is compressed for something else."""
    if compression is None:
        return {"version": _VERSION}
    return {"version": _COMPRESSED_VERSION, "compression": compression}


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without looks for cycles, of which a million new objects have none: they are half of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Piece(NamedTuple):
    """Where a chunk lies."""

    file: int
    """0: in the data file of the index; n: in the nth of its earlier ones."""
    offset: int
    length: int
    sums: bytes
    """A CRC32C (u32, little-endian) for each 16 KiB, before they were compressed or encrypted."""
    tags: bytes = b""
    """Of an encrypted file: 16 bytes for each."""
    stored: bytes = b""
    """Of a compressed file: how many bytes each has there (u16, little-endian)."""

    @property
    def proofs(self) -> bytes:
        """What _native.checkpoint_read() takes."""
        return self.sums + self.tags + self.stored

    @property
    def stored_length(self) -> int:
        """Bytes that it has in the file."""
        return stored_length(self.length, self.stored)

    def stored_between(self, begin: int, end: int) -> tuple[int, int]:
        """Where the blocks lie in the file that have the bytes ``[begin, end)`` of the piece; ``begin`` is
        that of a block."""
        block = _native.checkpoint_sum_block_bytes()
        first, last = begin // block, -(-end // block)
        if not self.stored:
            return self.offset + begin, self.offset + min(last * block, self.length)
        before = self.offset + stored_length(0, self.stored[: _STORED_BYTES * first])
        return before, before + stored_length(0, self.stored[_STORED_BYTES * first : _STORED_BYTES * last])


def stored_length(length: int, stored: bytes) -> int:
    """Bytes in a file of blocks that have ``length`` bytes; ``stored``: see Piece."""
    return int(np.frombuffer(stored, "<u2").sum(dtype=np.int64)) if stored else length


class Index:
    """Where the chunks that a rank has saved lie, by (array, chunk)."""

    def __init__(self, rows: np.ndarray[Any, Any], sums: bytes, tags: bytes, stored: bytes) -> None:
        self.rows, self.sums, self._tags, self._stored = rows, sums, tags, stored
        """Of all pieces: array, chunk, file, offset and length of each, and the sums of each in turn."""
        self._block = _native.checkpoint_sum_block_bytes()
        blocks = -(-rows["length"].astype(np.int64) // self._block)
        self._ends = np.cumsum(blocks).tolist()
        self._firsts = _first_blocks(rows["file"].astype(np.int64), blocks).tolist()
        self._columns = [rows[name].tolist() for name in ("file", "offset", "length")]
        numbers = rows["array"].astype(np.int64) << _CHUNK_BITS | rows["chunk"]
        self._at = dict(zip(numbers.tolist(), range(len(rows)), strict=True))
        """Row of each (array, chunk)."""
        self.files = 1 + int(rows["file"].max(initial=0))
        """So many data files it names at least, its own among them."""

    def __len__(self) -> int:
        return len(self._at)

    def piece(self, array: int, chunk: int) -> Piece:
        """Raises KeyError."""
        return self._piece_at(self._at[array << _CHUNK_BITS | chunk])

    def _piece_at(self, row: int) -> Piece:
        file, offset, length = (column[row] for column in self._columns)
        end = self._ends[row]
        first = end - -(-length // self._block)
        return Piece(file, offset, length, *self._of_blocks(first, end))

    def proofs(self, first: int, end: int) -> bytes:
        """Of blocks, by their numbers among those of all pieces: see Piece."""
        return b"".join(self._of_blocks(first, end))

    def _of_blocks(self, first: int, end: int) -> tuple[bytes, bytes, bytes]:
        """Sums, tags, and how many bytes they have in their file."""
        return (
            self.sums[4 * first : 4 * end],
            self._tags[_TAG_BYTES * first : _TAG_BYTES * end],
            self._stored[_STORED_BYTES * first : _STORED_BYTES * end],
        )

    def first_block(self, array: int, chunk: int) -> int:
        """Number of a piece's first block of 16 KiB among those of all pieces that lie in the same file, in
        the index's order. Raises KeyError."""
        return int(self._firsts[self._at[array << _CHUNK_BITS | chunk]])

    def pieces(self) -> Iterator[Piece]:
        """All, in the order in which they were saved."""
        return map(self._piece_at, self._at.values())

    @property
    def sums_crc32c(self) -> int:
        """See DataFile."""
        return _native.crc32c(self.sums)


def _first_blocks(files: Any, blocks: Any) -> Any:
    """Of each piece: see Index.first_block()."""
    order = np.argsort(files, kind="stable")
    before = np.cumsum(blocks[order]) - blocks[order]
    starts = np.flatnonzero(np.diff(files[order], prepend=-1))
    first = np.empty_like(before)
    first[order] = before - np.repeat(before[starts], np.diff(starts, append=len(order)))
    return first


def encode_index(numbers: Sequence[tuple[int, int]], pieces: Sequence[Piece]) -> bytes:
    """``numbers``: (array, chunk) of each piece."""
    rows = np.array([(*each, *piece[:3]) for each, piece in zip(numbers, pieces, strict=True)], _ROWS)
    all_sums = b"".join(piece.sums for piece in pieces)
    all_tags = b"".join(piece.tags for piece in pieces)
    all_stored = b"".join(piece.stored for piece in pieces)
    kind = _IndexKind(bool(all_tags), bool(all_stored))
    magic = next(magic for magic, each in _INDEX_KINDS.items() if each == kind)
    head = magic + struct.pack("<QQ", len(rows), len(all_sums) // 4)
    body = b"".join((head, rows.tobytes(), all_sums, all_tags, all_stored))
    return body + struct.pack("<I", _native.crc32c(body))


def index_sum(data: bytes) -> int:
    """CRC32C of an index without its own CRC32C at the end: with it the sum would be the same for all."""
    return _native.crc32c(memoryview(data)[:-4])


def decode_index(data: bytes, where: str) -> Index:
    """Raises CorruptError."""
    head = _MAGIC_BYTES + 16
    kind = _INDEX_KINDS.get(bytes(data[:_MAGIC_BYTES]))
    if len(data) < head + 4 or kind is None:
        raise CorruptError(f"{where}: is no index of a checkpoint's data file")
    rows, sums = struct.unpack_from("<QQ", data, _MAGIC_BYTES)
    tag_bytes = sums * _TAG_BYTES if kind.has_tags else 0
    stored_bytes = sums * _STORED_BYTES if kind.is_compressed else 0
    if len(data) != head + rows * _ROWS.itemsize + sums * 4 + tag_bytes + stored_bytes + 4:
        raise CorruptError(f"{where}: has another length than it says")
    if struct.unpack_from("<I", data, len(data) - 4)[0] != _native.crc32c(memoryview(data)[:-4]):
        raise CorruptError(f"{where}: the index does not match its CRC32C")
    table = np.frombuffer(data, _ROWS, rows, head)
    first = head + rows * _ROWS.itemsize
    last = first + sums * 4
    end = last + tag_bytes
    index = Index(table, data[first:last], data[last:end], data[end : end + stored_bytes])
    blocks = int((-(-table["length"].astype(np.int64) // _native.checkpoint_sum_block_bytes())).sum())
    if blocks != sums:
        raise CorruptError(f"{where}: has {sums} sums for {blocks} blocks")
    return index
