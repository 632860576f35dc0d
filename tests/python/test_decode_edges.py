"""Files that ask more of a decoder than most: turned and scaled, with alpha in odd layouts, cut off."""

from __future__ import annotations

import io
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_jpeg import photograph, saved
from image_png import png
from image_tools import Pixels, decoded_files
from PIL import Image, ImageOps

import headrace as hr


def decoded(root: Path, files: dict[str, bytes], decode: Any) -> dict[str, Any]:
    """By name; bad samples are missing."""
    root.mkdir(exist_ok=True)
    for name, data in files.items():
        (root / name).write_bytes(data)
    return decoded_files(root, decode, batch_size=4, memory="64MiB")


@pytest.mark.parametrize("size", [(801, 601), (803, 595), (800, 607)])
def test_fractions_of_turned_jpegs_are_not_shifted(tmp_path: Path, size: tuple[int, int]) -> None:
    y, x = np.mgrid[0 : size[0], 0 : size[1]]
    image = Image.fromarray((128 + 60 * np.sin(x / 19) + 60 * np.sin(y / 17)).astype(np.uint8))
    files = {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[274] = orientation
        out = io.BytesIO()
        image.save(out, "JPEG", quality=95, exif=exif)
        files[f"{orientation}"] = out.getvalue()
    small = decoded(tmp_path / "files", files, hr.decode.image(resize=(40, 53), mode="L"))
    exact = decoded(tmp_path / "files", files, hr.decode.image(resize=(40, 53), mode="L", exact=True))
    assert len(small) == 8
    for name, pixels in small.items():
        theirs = ImageOps.exif_transpose(Image.open(io.BytesIO(files[name])))
        assert theirs is not None
        reduced = theirs.resize((53, 40), Image.Resampling.BILINEAR)
        for other in (exact[name][..., 0], np.asarray(reduced)):
            assert np.abs(pixels[..., 0].astype(int) - other.astype(int)).mean() < 1, name


def tiff(rgba: Pixels, *, bits: int, tile: int, planar: bool) -> bytes:
    """Uncompressed, with unassociated alpha; in tiles of so many rows and columns, or (0) one strip."""
    height, width, _ = rgba.shape
    samples = rgba.astype("<u2") * 257 if bits == 16 else rgba
    planes = [samples[..., c : c + 1] for c in range(4)] if planar else [samples]
    parts = [
        np.pad(
            plane[y : y + tile, x : x + tile],
            ((0, max(0, y + tile - height)), (0, max(0, x + tile - width)), (0, 0)),
        )
        if tile
        else plane
        for plane in planes
        for y in range(0, height, tile or height)
        for x in range(0, width, tile or width)
    ]
    chunks = [part.tobytes() for part in parts]
    offsets = [512 + sum(map(len, chunks[:i])) for i in range(len(chunks))]
    where = (322, 323, 324, 325) if tile else (None, 278, 273, 279)
    fields: dict[int, tuple[str, list[int]]] = {
        256: ("I", [width]),
        257: ("I", [height]),
        258: ("H", [bits] * 4),
        259: ("H", [1]),
        262: ("H", [2]),
        277: ("H", [4]),
        284: ("H", [2 if planar else 1]),
        338: ("H", [2]),
        where[1] or 0: ("I", [tile or height]),
        where[2] or 0: ("I", offsets),
        where[3] or 0: ("I", [len(chunk) for chunk in chunks]),
    }
    if where[0]:
        fields[where[0]] = ("I", [tile])
    directory, values = struct.pack("<H", len(fields)), b""
    values_at = 8 + 2 + 12 * len(fields) + 4
    for tag, (kind, numbers) in sorted(fields.items()):
        packed = struct.pack(f"<{len(numbers)}{kind}", *numbers)
        directory += struct.pack("<HHI", tag, 4 if kind == "I" else 3, len(numbers))
        if len(packed) > 4:
            directory += struct.pack("<I", values_at + len(values))
            values += packed
        else:
            directory += packed.ljust(4, b"\0")
    head = b"II*\0" + struct.pack("<I", 8) + directory + b"\0" * 4 + values
    assert len(head) <= 512
    return head.ljust(512, b"\0") + b"".join(chunks)


@pytest.mark.parametrize("mode", ["RGBA", "RGB"])
def test_alpha_changes_no_colour_of_a_tiff(tmp_path: Path, mode: str) -> None:
    rgba = np.random.default_rng(3).integers(0, 256, (20, 37, 4), np.uint8)
    rgba[0, 0] = 200, 100, 50, 128
    files = {
        f"{bits}-{tile}-{planar}": tiff(rgba, bits=bits, tile=tile, planar=planar)
        for bits in (8, 16)
        for tile in (0, 16)
        for planar in (False, True)
    }
    ours = decoded(tmp_path / "files", files, hr.decode.image(mode=mode))
    assert ours.keys() == files.keys()
    for name, pixels in ours.items():
        assert np.array_equal(pixels, rgba[..., : len(mode)]), name
        if name.endswith("False"):  # Pillow reads no planes of 16 bits.
            theirs = np.asarray(Image.open(io.BytesIO(files[name])).convert(mode))
            assert np.array_equal(pixels, theirs), name


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"quality": 90}),
        ("GIF", {"interlace": 0}),
        ("GIF", {"interlace": 1}),
        ("TIFF", {}),
    ],
)
def test_truncated_images_show_what_is_there(tmp_path: Path, format: str, options: dict[str, Any]) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (240, 80, 3), np.uint8)
    data = saved(noise, format, **options)
    cut = {"whole": data, "95": data[: len(data) * 95 // 100], "50": data[: len(data) // 2]}
    assert decoded(tmp_path / "files", cut, hr.decode.image()).keys() == {"whole"}
    rows = decoded(tmp_path / "files", cut, hr.decode.image(truncated="grey"))
    for name, least in (("95", 180), ("50", 70)):
        is_there = (rows[name] == rows["whole"]).all(axis=(1, 2))
        is_grey = (rows[name] == 128).all(axis=(1, 2))
        assert is_there.sum() >= (least if format != "TIFF" else 1), name
        assert (is_there | is_grey)[: -24 if format == "TIFF" else None].all(), name
        assert is_grey.sum() > 0, name


def test_a_small_png_is_not_all_grey(tmp_path: Path) -> None:
    rows = np.arange(240, dtype=np.uint8)[:, None, None] * np.ones((1, 80, 3), np.uint8)
    data = saved(rows // 8 * 37, "PNG")
    assert len(data) < 2000
    cut = decoded(tmp_path / "files", {"cut": data[: len(data) * 9 // 10]}, hr.decode.image(truncated="grey"))
    assert (cut["cut"] == rows // 8 * 37).all(axis=(1, 2)).sum() > 100


def test_a_png_is_turned_by_exif_behind_its_pixels(tmp_path: Path) -> None:
    pixels = photograph(19, 26)
    files, theirs = {}, {}
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[274] = orientation
        chunk = (b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))
        before = png(pixels.astype(np.uint16), 2, 8, chunks=[chunk])
        plain = png(pixels.astype(np.uint16), 2, 8)
        added = before[33 : 33 + len(before) - len(plain)]
        name = f"{orientation}"
        files[name] = plain[:-12] + added + plain[-12:]
        image = Image.open(io.BytesIO(files[name]))
        image.load()
        theirs[name] = np.asarray(ImageOps.exif_transpose(image))
    ours = decoded(tmp_path / "files", files, hr.decode.image())
    for name, turned in theirs.items():
        assert np.array_equal(ours[name], turned), name


@pytest.mark.parametrize("fixed", [False, True])
def test_a_sound_that_is_cut_off_is_a_bad_sample(tmp_path: Path, fixed: bool) -> None:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((np.arange(999) * 30).astype("<i2").tobytes())
    data = out.getvalue()
    cut = {f"{size:05} cut": data[:size] for size in range(0, len(data), 10)}
    # Beside each one that is whole, to stand in for it.
    whole = {f"{size:05} whole": data for size in range(0, len(data), 10)}
    for name, size in (("ffmpeg", 0xFFFFFFFF), ("sox", 0x7FFFF000), ("open", 0)):
        sizes = struct.pack("<I", size or 8), struct.pack("<I", size)
        whole[name] = data[:4] + sizes[0] + data[8:40] + sizes[1] + data[44:]
    decode = hr.decode.audio(frames=999) if fixed else hr.decode.audio()
    sounds = decoded(tmp_path / "files", cut | whole, decode)
    assert sounds.keys() == whole.keys()
    for sound in sounds.values():
        assert np.array_equal(sound, (np.arange(999) * 30 / 32768).astype(np.float32)[:, None])
