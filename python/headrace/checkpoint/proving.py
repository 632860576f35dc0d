"""Which bytes of a checkpoint are not what was saved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headrace import _native
from headrace.checkpoint.earlier import verify_earlier
from headrace.checkpoint.manifest import Index, Manifest, Piece
from headrace.checkpoint.place import Place
from headrace.errors import CorruptError, NotFoundError

__all__ = ["Damage", "find_damage"]

_RUN_BYTES = 8 << 20


class Damage(NamedTuple):
    """A range of bytes that cannot be proved."""

    key: str
    """Of the file, relative to the URL."""
    array: str
    """Whose values they are; empty: the file's header, or all of it."""
    offsets: tuple[int, ...]
    """Where the piece that has them begins in the array."""
    begin: int
    end: int
    """Bytes of the file, ``[begin, end)``."""
    why: str


def find_damage(place: Place, manifest: Manifest) -> list[Damage]:
    """Reads all of a checkpoint and compares it with its sums. Empty: it is whole.

    Errors of the store (denied, unavailable) are raised: they say nothing about the checkpoint.
    """
    found: list[Damage] = []
    for rank, file in enumerate(manifest.files):
        try:
            index = place.index(manifest, rank)
        except CorruptError as error:
            found.append(Damage(file.index_key, "", (), 0, 0, str(error)))
            index = None
        if index is not None and len(index) != file.pieces:
            why = f"has {len(index)} pieces; the manifest says {file.pieces}"
            found.append(Damage(file.index_key, "", (), 0, 0, why))
            index = None
        try:
            _native.checkpoint_verify_file(place.native, file.key, file.size, file.crc32c)
            if place.key is not None and index is not None:
                held = _pieces(place, manifest, rank, index, 0)
                found += _bad_opened_pieces(place, file.key, held, file.size)
        except NotFoundError:
            found.append(Damage(file.key, "", (), 0, file.size, "is missing"))
        except CorruptError as error:
            found += _locate(place, manifest, rank, index, str(error))
        if index is not None:
            found += _damage_of_earlier(place, manifest, rank, index)
    return found


def _damage_of_earlier(place: Place, manifest: Manifest, rank: int, index: Index) -> list[Damage]:
    """Of what lies in files of earlier saves."""
    file = manifest.files[rank]
    try:
        verify_earlier(place, file, index, lambda _: None)
        return []
    except CorruptError:
        pass
    found: list[Damage] = []
    for number, earlier in enumerate(file.earlier, 1):
        try:
            size = place.store.head(earlier.key).size
        except NotFoundError:
            found.append(Damage(earlier.key, "", (), 0, earlier.size, "is missing"))
            continue
        if size < earlier.size:
            text = f"has {size} bytes instead of {earlier.size}"
            found.append(Damage(earlier.key, "", (), size, earlier.size, text))
        found += _bad_pieces(place, earlier.key, _pieces(place, manifest, rank, index, number), size)
    return found


def _locate(place: Place, manifest: Manifest, rank: int, index: Index | None, why: str) -> list[Damage]:
    """Which bytes of a data file that is not what was saved."""
    file = manifest.files[rank]
    size = place.store.head(file.key).size
    found = []
    if size != file.size:
        text = f"has {size} bytes instead of {file.size}"
        found.append(Damage(file.key, "", (), min(size, file.size), max(size, file.size), text))
    if index is None:
        return found or [Damage(file.key, "", (), 0, file.size, why)]
    held = _pieces(place, manifest, rank, index, 0)
    found += _bad_pieces(place, file.key, held, size)
    if found:
        return found
    try:
        # The first time it may have been damaged on its way here.
        _native.checkpoint_verify_file(place.native, file.key, file.size, file.crc32c)
    except CorruptError:
        first = min((each.piece.offset for each in held), default=file.size)
        return [Damage(file.key, "", (), 0, first, "the header is not what was saved")]
    return []


class _Held(NamedTuple):
    """A piece of an array."""

    array: str
    offsets: tuple[int, ...]
    piece: Piece


def _pieces(place: Place, manifest: Manifest, rank: int, index: Index, file: int) -> list[_Held]:
    """Of a rank, those that lie in that file of its index."""
    return [each for each in _all_pieces(place, manifest, rank, index) if each.piece.file == file]


def _all_pieces(place: Place, manifest: Manifest, rank: int, index: Index) -> Iterator[_Held]:
    for number, array in enumerate(manifest.arrays):
        for chunk_number, (chunk, owner) in enumerate(array.chunks):
            if owner == rank:
                try:
                    yield _Held(array.name, chunk.offsets, index.piece(number, chunk_number))
                except KeyError:
                    key = manifest.files[rank].index_key
                    raise CorruptError(
                        f"{place.url}/{key}: does not have {array.name}, which the manifest says it has"
                    ) from None


def _bad_pieces(place: Place, key: str, held: list[_Held], size: int) -> list[Damage]:
    """Bytes of a file that has ``size`` bytes."""
    is_plain = place.key is None and not any(each.piece.stored for each in held)
    bad_pieces = _bad_plain_pieces if is_plain else _bad_opened_pieces
    return bad_pieces(place, key, held, size)


def _bad_plain_pieces(place: Place, key: str, held: list[_Held], size: int) -> list[Damage]:
    """Blocks of the first ``size`` bytes of a file that do not match their sums, those side by side as
    one."""
    block = _native.checkpoint_sum_block_bytes()
    runs: dict[int, int] = {}
    for number, each in enumerate(held):
        end = min(each.piece.offset + each.piece.length, size)
        runs.update(dict.fromkeys(range(each.piece.offset, end, _RUN_BYTES), number))
    ends = [min(each.piece.offset + each.piece.length, size) for each in held]
    wanted = ((key, at, min(_RUN_BYTES, ends[number] - at)) for at, number in runs.items())
    bad: dict[int, list[int]] = {}
    for result in place.store.get_ranges(wanted):
        number = runs[result.offset]
        piece = held[number].piece
        for at in range(0, len(result.data), block):
            index_of = (result.offset - piece.offset + at) // block
            said = int.from_bytes(piece.sums[4 * index_of : 4 * index_of + 4], "little")
            if _native.crc32c(result.data[at : at + block]) != said:
                bad.setdefault(number, []).append(index_of)
    found = []
    for number in sorted(bad):
        array, offsets, piece = held[number]
        for first, last in _joined(sorted(bad[number])):
            begin, end = piece.offset + first * block, piece.offset + min(piece.length, last * block)
            found.append(Damage(key, array, offsets, begin, end, "does not match its CRC32C"))
    return found


def _bad_opened_pieces(place: Place, key: str, held: list[_Held], size: int) -> list[Damage]:
    """Runs of an encrypted or compressed file's pieces of which some block cannot be opened, is not what its
    sum says, or ends behind the first ``size`` bytes."""
    memory = np.empty(_RUN_BYTES, np.uint8)
    found = []
    for each in held:
        piece = each.piece
        for at in range(0, piece.length, _RUN_BYTES):
            count = min(_RUN_BYTES, piece.length - at)
            begin, end = piece.stored_between(at, at + count)
            box = (1, [piece.length], [at], [count], memory.ctypes.data, [1])
            try:
                if end > size:
                    raise CorruptError("is missing")
                place.read(key, [(piece.offset, piece.length, piece.proofs, *box)])
            except CorruptError as error:
                found.append(Damage(key, each.array, each.offsets, begin, end, str(error)))
    return found


def _joined(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Half-open ranges of numbers that rise."""
    begin = end = -1
    for number in numbers:
        if number != end:
            if end > begin:
                yield begin, end
            begin = number
        end = number + 1
    if end > begin:
        yield begin, end
