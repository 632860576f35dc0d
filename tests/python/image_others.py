"""PNG, WebP, GIF and TIFF files of odd kinds."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
from image_jpeg import Files, exif, photograph, saved
from image_png import CHANNELS, DEPTHS, png
from PIL import Image

__all__ = ["gifs", "pngs", "tiffs", "webps"]

SIDES = ((1, 1), (5, 3), (23, 37))


def pngs() -> Files:
    rng = np.random.default_rng(5)
    kinds = [(kind, depth) for kind, depths in DEPTHS.items() for depth in depths]
    for (kind, depth), (height, width), interlaced in itertools.product(kinds, SIDES, (False, True)):
        samples = _samples(rng, kind, depth, height, width)
        palette = [(b"PLTE", rng.integers(0, 256, 3 << depth, np.uint8).tobytes())] if kind == 3 else []
        name = f"{kind}-{depth}-{height}x{width}{'-interlaced' if interlaced else ''}"
        yield name, png(samples, kind, depth, interlaced=interlaced, chunks=palette)
        if see_through := _transparency(samples, kind, depth):
            yield (
                f"{name}-see-through",
                png(samples, kind, depth, interlaced=interlaced, chunks=[*palette, see_through]),
            )
    for kind, each in itertools.product((0, 2, 6), range(5)):
        yield f"filter-{kind}-{each}", png(_samples(rng, kind, 8, 30, 41), kind, 8, filters=[each])
    for height, width in ((1, 70000), (70000, 1), (900, 1300)):
        yield f"large-{height}x{width}", png(photograph(height, width).astype(np.uint16), 2, 8)
    for orientation in range(1, 9):
        chunk = (b"eXIf", exif(orientation, ">"))
        yield f"exif-{orientation}", png(photograph(19, 26).astype(np.uint16), 2, 8, chunks=[chunk])
    yield (
        "gamma",
        png(photograph(19, 26).astype(np.uint16), 2, 8, chunks=[(b"gAMA", struct.pack(">I", 100000))]),
    )
    yield "gamma-16", png(_samples(rng, 2, 16, 19, 26), 2, 16, chunks=[(b"gAMA", struct.pack(">I", 45455))])


def _samples(rng: Any, kind: int, depth: int, height: int, width: int) -> Any:
    return rng.integers(0, 1 << depth, (height, width, CHANNELS[kind]), np.uint16)


def _transparency(samples: Any, kind: int, depth: int) -> tuple[bytes, bytes] | None:
    """The first pixel's colour, or the first half of a palette."""
    if kind in (0, 2):
        return b"tRNS", b"".join(struct.pack(">H", int(c)) for c in samples[0, 0])
    return (b"tRNS", bytes(range(0, 256, 255))[: 1 << depth]) if kind == 3 else None


def webps() -> Files:
    for i, ((height, width), lossless) in enumerate(itertools.product((*SIDES, (64, 90)), (False, True))):
        pixels, name = photograph(height, width, i), f"{height}x{width}-{'exact' if lossless else 'lossy'}"
        options: dict[str, Any] = {"lossless": lossless, "quality": 60}
        yield name, saved(pixels, "WEBP", **options)
        alpha = np.dstack([pixels, pixels[:, ::-1, 0]])
        yield f"{name}-alpha", saved(alpha, "WEBP", exact=True, **options)
        yield f"{name}-fine", saved(pixels, "WEBP", lossless=lossless, quality=100, method=6)
    for orientation in range(1, 9):
        yield (
            f"exif-{orientation}",
            saved(photograph(20, 31), "WEBP", exif=b"Exif\0\0" + exif(orientation, "<")),
        )
    frames = [Image.fromarray(photograph(30, 41, seed)) for seed in range(3)]
    for lossless in (False, True):
        yield (
            f"animated-{lossless}",
            saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=lossless),
        )


def gifs() -> Files:
    for i, ((height, width), colours) in enumerate(
        itertools.product((*SIDES, (90, 64)), (2, 5, 16, 200, 256))
    ):
        image = Image.fromarray(photograph(height, width, i)).quantize(colours)
        for interlace in (0, 1):
            yield f"{height}x{width}-{colours}-{interlace}", saved(image, "GIF", interlace=interlace)
        yield f"{height}x{width}-{colours}-see-through", saved(image, "GIF", transparency=1)
    frames = [Image.fromarray(photograph(30, 41, seed)).quantize(60) for seed in range(3)]
    yield "animated", saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=40)
    yield "small-frame", small_frame(saved(frames[0], "GIF"))


def small_frame(data: bytes) -> bytes:
    """The same frame on a screen that is larger."""
    return data[:6] + struct.pack("<HH", 60, 50) + data[10:]


def tiffs() -> Files:
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        for mode, (height, width) in itertools.product(
            ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"), (*SIDES, (64, 90))
        ):
            yield (
                f"{mode.replace(';', '')}-{height}x{width}-{compression}",
                _tiff(mode, height, width, compression),
            )
    for compression in ("group3", "group4"):
        yield f"1-{compression}", _tiff("1", 40, 61, compression)
    for mode in ("L", "RGB"):
        yield f"{mode}-jpeg", _tiff(mode, 64, 90, "jpeg")
    for orientation in range(1, 9):
        yield f"orientation-{orientation}", saved(photograph(20, 31), "TIFF", tiffinfo={274: orientation})


def _tiff(mode: str, height: int, width: int, compression: str) -> bytes:
    pixels: Any = photograph(height, width, height)
    if mode == "I;16":
        image = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 257)
    elif mode == "LA":
        image = Image.merge("LA", [Image.fromarray(pixels[:, :, c].copy()) for c in range(2)])
    else:
        image = Image.fromarray(pixels).convert("RGB")
        image = image.quantize(100) if mode == "P" else image.convert(mode)
    return saved(image, "TIFF", compression=None if compression == "raw" else compression)
