"""PNGs of every colour type, depth, filter and order of rows, which Pillow does not all write."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["CHANNELS", "DEPTHS", "png"]

Samples = npt.NDArray[np.uint16]

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By colour type: grey, colour, palette, grey and alpha, colour and alpha."""
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}

_ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
"""First row, first column, steps down and across of each pass."""


def png(
    samples: Samples,
    kind: int,
    depth: int,
    *,
    interlaced: bool = False,
    filters: Iterable[int] = (0, 1, 2, 3, 4),
    chunks: Iterable[tuple[bytes, bytes]] = (),
) -> bytes:
    """A file of (height, width, channels) numbers below 2 ** depth.

    :param filters: of rows, in turn.
    :param chunks: names and contents, between the header and the pixels: a palette, transparency.
    """
    height, width, channels = samples.shape
    assert channels == CHANNELS[kind]
    assert depth in DEPTHS[kind]
    filters = tuple(filters)
    passes = _ADAM7 if interlaced else ((0, 0, 1, 1),)
    rows = b"".join(
        _rows(samples[top::down, left::across], depth, filters) for top, left, down, across in passes
    )
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(name, content)
        for name, content in ((b"IHDR", head), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


def _chunk(name: bytes, content: bytes) -> bytes:
    check = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)


def _rows(samples: Samples, depth: int, filters: tuple[int, ...]) -> bytes:
    """The filtered rows of one pass."""
    if samples.size == 0:
        return b""
    packed = _packed(samples, depth)
    step = max(1, samples.shape[2] * depth // 8)
    above = np.zeros(packed.shape[1], np.int64)
    out = []
    for y, row in enumerate(packed.astype(np.int64)):
        kind = filters[y % len(filters)]
        out.append(bytes([kind]) + (row - _foretold(kind, row, above, step)).astype(np.uint8).tobytes())
        above = row
    return b"".join(out)


def _packed(samples: Samples, depth: int) -> npt.NDArray[np.uint8]:
    height = len(samples)
    flat = samples.reshape(height, -1)
    if depth == 16:
        return flat.astype(">u2").view(np.uint8).reshape(height, -1)
    if depth == 8:
        return flat.astype(np.uint8)
    bits = (flat[:, :, None] >> np.arange(depth)[::-1]) & 1
    return np.packbits(bits.reshape(height, -1).astype(np.uint8), axis=1)


def _foretold(
    kind: int, row: npt.NDArray[np.int64], above: npt.NDArray[np.int64], step: int
) -> npt.NDArray[np.int64]:
    """What a filter takes from each byte: of its neighbours to the left, above, and between them."""
    a = np.concatenate([np.zeros(step, np.int64), row])[: len(row)]
    c = np.concatenate([np.zeros(step, np.int64), above])[: len(row)]
    if kind == 4:
        guess = a + above - c
        distances = np.abs(np.stack([a, above, c]) - guess)
        return np.choose(distances.argmin(axis=0), [a, above, c])
    return (np.zeros_like(row), a, above, (a + above) // 2)[kind]
