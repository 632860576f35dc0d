"""JPEGs as few programs write them: every sampling, coding and order of scans by cjpeg, markers by hand."""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from image_tools import Pixels, cjpeg
from PIL import Image

__all__ = ["broken", "jpegs", "photograph", "saved", "with_orientation"]

Files = Iterator[tuple[str, bytes]]

SIDES = ((1, 1), (8, 8), (17, 33), (61, 93), (130, 50))
"""Height, width: less than a block, one block, more than one, several of every sampling."""
SAMPLINGS = (
    "1x1",  # 4:4:4
    "2x1",  # 4:2:2
    "2x2",  # 4:2:0
    "1x2",  # 4:4:0
    "4x1",  # 4:1:1
    "4x2",  # 4:1:0
    "1x4",
    "3x1",
    "2x2,2x1,1x2",
    "2x2,1x2,2x1",
    "1x1,2x2,1x1",  # More of a colour than of brightness.
)
CODINGS: dict[str, tuple[str, ...]] = {
    "baseline": (),
    "optimized": ("-optimize",),
    "progressive": ("-progressive",),
    "arithmetic": ("-arithmetic",),
    "arithmetic-progressive": ("-arithmetic", "-progressive"),
    "restarts": ("-restart", "1"),
    "restart-blocks": ("-restart", "3B"),
    "coarse": ("-quality", "2"),  # Tables of 16 bits.
    "fine": ("-quality", "100"),
}
SCANS = {
    "one-by-one": "0;\n1;\n2;\n",
    "colours-first": "1 2;\n0;\n",
    "only-means": "0 1 2: 0-0, 0, 0;\n",
    "never-refined": "0 1 2: 0-0, 0, 1;\n0: 1-63, 0, 2;\n1: 1-63, 0, 2;\n",
    "many": "0 1 2: 0-0, 0, 0;\n"
    + "".join(f"{c}: {k}-{k + 2}, 0, 0;\n" for c in range(3) for k in range(1, 64, 3)),
}


def photograph(height: int, width: int, seed: int = 0) -> Pixels:
    """Something smooth with edges, and noise in a corner."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin((x * (1 + seed % 3) + y * c) / (7.0 + c + seed % 5)) for c in range(3)]
    pixels = np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8)
    pixels[height // 3 : height // 2, width // 4 : width // 2] = (seed * 37 % 256, 200, 30)
    noise = np.random.default_rng(seed).integers(0, 256, (height // 4, width // 3, 3), np.uint8)
    pixels[: height // 4, : width // 3] = noise
    return pixels


def saved(pixels: Any, format: str, mode: str | None = None, **options: Any) -> bytes:
    """By Pillow."""
    out = io.BytesIO()
    image = Image.fromarray(pixels) if not isinstance(pixels, Image.Image) else pixels
    (image if mode is None else image.convert(mode)).save(out, format, **options)
    return out.getvalue()


def jpegs(directory: Path) -> Files:
    """Names and contents; scripts of scans go into the directory."""
    yield from _samplings()
    yield from _scans(directory)
    yield from _colours()
    yield from _markers()
    yield from _extremes()


def _samplings() -> Files:
    for i, (sampling, (name, coding), (height, width)) in enumerate(
        itertools.product(SAMPLINGS, CODINGS.items(), SIDES)
    ):
        ppm = saved(photograph(height, width, i), "PPM")
        yield (
            f"{sampling.replace(',', '-')}-{name}-{height}x{width}",
            cjpeg(ppm, "-sample", sampling, *coding),
        )


def _scans(directory: Path) -> Files:
    for (name, script), sampling in itertools.product(SCANS.items(), ("1x1", "2x2", "2x1")):
        path = directory / f"{name}.scans"
        path.write_text(script)
        ppm = saved(photograph(61, 93, len(name)), "PPM")
        yield f"scans-{name}-{sampling}", cjpeg(ppm, "-sample", sampling, "-scans", str(path))


def _colours() -> Files:
    for i, (height, width) in enumerate(SIDES):
        pixels, side = photograph(height, width, i), f"{height}x{width}"
        ppm = saved(pixels, "PPM")
        for name, coding in CODINGS.items():
            yield f"grey-{name}-{side}", cjpeg(ppm, "-grayscale", *coding)
        yield f"rgb-{side}", cjpeg(ppm, "-rgb")
        yield f"rgb-progressive-{side}", cjpeg(ppm, "-rgb", "-progressive")
        inks = np.dstack([255 - pixels, pixels[:, :, :1] // 3])
        image = Image.frombytes("CMYK", (width, height), inks.tobytes())
        for subsampling, progressive in itertools.product((0, 1, 2), (False, True)):
            options: dict[str, Any] = {"subsampling": subsampling, "progressive": progressive, "quality": 85}
            data = saved(image, "JPEG", **options)
            name = f"{subsampling}-{'progressive' if progressive else 'baseline'}-{side}"
            yield f"cmyk-{name}", data
            yield f"ycck-{name}", with_transform(data, 2)
            yield f"cmyk-unmarked-{name}", without(data, 0xEE)


def _markers() -> Files:
    pixels = photograph(40, 52, 3)
    data = saved(pixels, "JPEG", quality=90)
    progressive = saved(pixels, "JPEG", quality=90, progressive=True)
    for orientation in range(10):
        for order in "<>":
            yield (
                f"exif-{orientation}-{'little' if order == '<' else 'big'}",
                with_orientation(data, orientation, order),
            )
        yield f"exif-{orientation}-progressive", with_orientation(progressive, orientation)
        small = cjpeg(saved(photograph(21, 34, orientation), "PPM"), "-sample", "2x2")
        yield f"exif-{orientation}-odd", with_orientation(small, orientation)
    rgb = cjpeg(saved(pixels, "PPM"), "-rgb", "-sample", "1x1")
    changes: dict[str, Callable[[], bytes]] = {
        "rgb-read-as-ycc": lambda: with_transform(rgb, 1),
        "rgb-by-ids": lambda: without(rgb, 0xEE),
        "unmarked": lambda: without(data, 0xE0),
        "adobe-after-jfif": lambda: inserted(
            data, segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 0))
        ),
        "adobe-alone": lambda: inserted(
            without(data, 0xE0), segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 0))
        ),
        "adobe-odd": lambda: inserted(
            without(data, 0xE0), segment(0xEE, b"Adobe" + struct.pack(">HHHB", 100, 0, 0, 7))
        ),
        "jfif-2": lambda: data.replace(b"JFIF\0\1", b"JFIF\0\2"),
        "comment": lambda: inserted(data, segment(0xFE, b"text \xff\xd8\xff\xda text")),
        "profile": lambda: saved(pixels, "JPEG", icc_profile=bytes(range(256)) * 600),
        "thumbnail": lambda: inserted(data, segment(0xE1, b"Exif\0\0" + saved(pixels[::2], "JPEG"))),
        "fill": lambda: inserted(data, b"\xff" * 40),
        "more-behind": lambda: data + b"more " * 100,
        "two": lambda: data + saved(photograph(9, 9), "JPEG"),
    }
    for name, change in changes.items():
        yield f"marker-{name}", change()


def _extremes() -> Files:
    for height, width in ((1, 65500), (65500, 1), (2, 30000), (3000, 7), (1500, 2000)):
        ppm = saved(photograph(height, width, 2), "PPM")
        for name in ("baseline", "progressive"):
            yield f"large-{height}x{width}-{name}", cjpeg(ppm, *CODINGS[name])


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def inserted(data: bytes, what: bytes) -> bytes:
    """Before the first table: behind what says how colours are meant."""
    at = data.index(b"\xff\xdb")
    return data[:at] + what + data[at:]


def without(data: bytes, marker: int) -> bytes:
    """A file that lacks the first such segment."""
    at = data.index(bytes([0xFF, marker]))
    (length,) = struct.unpack_from(">H", data, at + 2)
    return data[:at] + data[at + 2 + length :]


def with_transform(data: bytes, transform: int) -> bytes:
    """Adobe's segment says another transform: its last byte."""
    at = data.index(b"Adobe") + 11
    return data[:at] + bytes([transform]) + data[at + 1 :]


def exif(orientation: int, order: str) -> bytes:
    entry = struct.pack(f"{order}HHIHH", 0x112, 3, 1, orientation, 0)
    other = struct.pack(f"{order}HHII", 0x11A, 4, 1, 72)
    head = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}HI", 42, 8)
    return head + struct.pack(f"{order}H", 2) + entry + other + bytes(4)


def with_orientation(data: bytes, orientation: int, order: str = ">") -> bytes:
    return data[:2] + segment(0xE1, b"Exif\0\0" + exif(orientation, order)) + data[2:]


def broken() -> Files:
    """Cut short everywhere, and with bytes that are wrong."""
    rng = np.random.default_rng(11)
    for name, coding in CODINGS.items():
        whole = cjpeg(saved(photograph(72, 99, 1), "PPM"), *coding)
        yield f"no-end-{name}", whole[:-2]
        begin = whole.index(b"\xff\xda")
        for i, at in enumerate(np.linspace(2, len(whole) - 1, 14).astype(int)):
            yield f"cut-{name}-{i}", whole[:at]
        for i in range(24):
            changed = bytearray(whole)
            first = begin if i % 3 else 2  # Pixels more often than what comes before them.
            for at in rng.integers(first, len(whole), 1 + i % 4):
                changed[at] = rng.integers(0, 256)
            yield f"wrong-{name}-{i}", bytes(changed)
