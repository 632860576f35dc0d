"""Images of every odd kind, made here: without a resize bit for bit what the libraries' own programs make of
them, with one within 1 of Pillow's resize of that, and of broken ones what djpeg says of them."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_jpeg import Files, broken, jpegs, photograph, saved
from image_others import gifs, pngs, tiffs, webps
from image_tools import Pixels, decoded_files, djpeg, need, pixels_of, program
from PIL import Image

import headrace as hr

MAKERS: dict[str, tuple[tuple[str, ...], Callable[[Path], Files], int]] = {
    "jpeg": (("cjpeg", "djpeg"), jpegs, 700),
    "png": (("pngtopam",), lambda _: pngs(), 140),
    "webp": (("dwebp",), lambda _: webps(), 30),
    "gif": ((), lambda _: gifs(), 60),
    "tiff": (("tifftopnm",), lambda _: tiffs(), 120),
}
"""By kind: programs that it takes, who makes the files, and at least how many."""


class Corpus:
    """Files of one kind in a directory, and what we make of them."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self.root.mkdir()
        self.files = dict(files)
        for name, data in self.files.items():
            (root / name).write_bytes(data)

    def decoded(self, **arguments: Any) -> dict[str, Pixels]:
        """By name; files that are no good are missing."""
        return decoded_files(self.root, hr.decode.image(**arguments), batch_size=16, memory="512MiB")

    def each(self, reference: Callable[[bytes], Any]) -> dict[str, Any]:
        with ThreadPoolExecutor(2) as pool:
            return dict(zip(self.files, pool.map(reference, self.files.values()), strict=True))


_made: dict[str, Corpus] = {}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Corpus]:
    """The files of a kind, made once; skips where the programs for it are missing."""

    def find(kind: str) -> Corpus:
        programs, make, least = MAKERS[kind]
        need(*programs)
        if kind not in _made:
            directory = tmp_path_factory.mktemp(kind)
            _made[kind] = Corpus(directory / "files", make(directory))
            assert len(_made[kind].files) >= least
        return _made[kind]

    _made.clear()
    return find


def same(ours: dict[str, Pixels], theirs: dict[str, Any]) -> None:
    """Every file, bit for bit."""
    wrong = [
        name
        for name, pixels in theirs.items()
        if name not in ours or ours[name].shape != pixels.shape or not np.array_equal(ours[name], pixels)
    ]
    assert not wrong, f"{len(wrong)} of {len(theirs)} differ: {wrong[:20]}"


def in_colour(pixels: Pixels) -> Pixels:
    return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels


def by_djpeg(data: bytes, *arguments: str) -> Pixels:
    """It warns (2) of versions and transforms that it does not know; nothing is lost by them."""
    code, pixels = djpeg(data, "-pnm", *arguments)
    assert code in (0, 2)
    assert pixels is not None
    return pixels


def by_program(*command: str) -> Callable[[bytes], Pixels]:
    def reference(data: bytes) -> Pixels:
        code, out = program(*command, data=data)
        assert code == 0, command
        return pixels_of(out)

    return reference


def by_pillow(mode: str) -> Callable[[bytes], Pixels]:
    def reference(data: bytes) -> Pixels:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert(mode))

    return reference


def test_jpegs_are_those_of_djpeg(corpus: Any) -> None:
    files = corpus("jpeg")
    same(files.decoded(orient=False), files.each(lambda data: in_colour(by_djpeg(data))))


def test_grey_of_jpegs_is_that_of_djpeg(corpus: Any) -> None:
    """Their brightness as it is stored. Of inks djpeg makes none, and RGB is mixed with other weights."""
    files = corpus("jpeg")
    names = [name for name in files.files if not name.startswith(("cmyk", "ycck", "rgb", "marker-rgb"))]
    assert len(names) > 600
    theirs = {name: by_djpeg(files.files[name], "-grayscale") for name in names}
    same(files.decoded(orient=False, mode="L"), theirs)


def test_pngs_are_those_of_libpng(corpus: Any) -> None:
    files = corpus("png")
    plain = files.each(lambda data: in_colour(by_program("pngtopam")(data)))
    same(files.decoded(orient=False), plain)
    alpha = files.each(lambda data: in_colour(by_program("pngtopam", "-alpha")(data))[:, :, :1])
    for name in alpha:
        if name.startswith("2-") and name.endswith(
            "see-through"
        ):  # pngtopam passes over one colour of three.
            alpha[name] = np.where((plain[name] == plain[name][0, 0]).all(axis=2, keepdims=True), 0, 255)
    wanted = {name: np.dstack([plain[name], alpha[name]]) for name in plain}
    same(files.decoded(orient=False, mode="RGBA"), wanted)


def test_webps_are_those_of_libwebp(corpus: Any) -> None:
    files = corpus("webp")
    still = {name for name in files.files if not name.startswith("animated")}
    for mode, arguments in {"RGB": ("-ppm",), "RGBA": ("-pam",)}.items():
        theirs = files.each(
            lambda data, given=arguments: program(
                "dwebp", "-quiet", "-nodither", *given, "-o", "-", "--", "-", data=data
            )[1]
        )
        same(files.decoded(orient=False, mode=mode), {name: pixels_of(theirs[name]) for name in still})


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_gifs_are_pillows(corpus: Any, mode: str) -> None:
    files = corpus("gif")
    same(files.decoded(mode=mode), files.each(by_pillow(mode)))


def test_tiffs_are_those_of_libtiff(corpus: Any) -> None:
    files = corpus("tiff")
    # tifftopnm refuses grey with alpha, rounds palettes, and turns what is turned.
    other = {name for name in files.files if name.startswith(("LA", "P-", "orientation"))}
    by_libtiff = by_program("tifftopnm", "-byrow", "-")
    theirs = {name: in_colour(by_libtiff(data)) for name, data in files.files.items() if name not in other}
    theirs |= {name: by_pillow("RGB")(files.files[name]) for name in other}
    same(files.decoded(), theirs)


TURNS: dict[int, Callable[[Any], Any]] = {
    2: lambda p: p[:, ::-1],
    3: lambda p: p[::-1, ::-1],
    4: lambda p: p[::-1],
    5: lambda p: p.transpose(1, 0, 2),
    6: lambda p: p[::-1].transpose(1, 0, 2),
    7: lambda p: p[::-1, ::-1].transpose(1, 0, 2),
    8: lambda p: p.transpose(1, 0, 2)[::-1],
}


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff"])
def test_photographs_are_turned_as_their_exif_says(corpus: Any, kind: str) -> None:
    files = corpus(kind)
    stored = files.decoded(orient=False)
    names = [name for name in stored if name.startswith(("exif-", "orientation-"))]
    assert len(names) >= 8
    turned = files.decoded()
    numbers = {name: int(name.split("-")[1]) for name in names}
    same(turned, {name: TURNS.get(numbers[name], lambda p: p)(stored[name]) for name in names})


def by_pillows_passes(pixels: Pixels, size: tuple[int, int], interpolation: str) -> Any:
    """First across, then down, as Pillow did for all sizes up to its version 12. Newer ones take the other
    order for some, which is seen where bicubic overshoots."""
    kind = Image.Resampling[interpolation.upper()]
    across = Image.fromarray(pixels).resize((size[1], len(pixels)), kind)
    return np.asarray(across.resize(size[::-1], kind)).astype(int)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(24, 32), (70, 50)])
def test_resizes_are_within_1_of_pillows(
    corpus: Any, kind: str, interpolation: str, size: tuple[int, int]
) -> None:
    """Of bicubic at edges as hard as noise, one in 100,000 samples is 2 off: both passes are rounded."""
    files = corpus(kind)
    whole = files.decoded()
    ours = files.decoded(resize=size, interpolation=interpolation, exact=True)
    assert ours.keys() == whole.keys() == files.files.keys()
    apart = {
        name: np.abs(ours[name].astype(int) - by_pillows_passes(pixels, size, interpolation))
        for name, pixels in whole.items()
    }
    most = 2 if interpolation == "bicubic" else 1
    assert not {name: int(each.max()) for name, each in apart.items() if each.max() > most}
    total = sum(each.size for each in apart.values())
    assert sum(int((each > 1).sum()) for each in apart.values()) <= 2e-5 * total
    if interpolation == "bilinear":  # In either order.
        for name, pixels in whole.items():
            plain = Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR)
            assert np.abs(ours[name].astype(int) - np.asarray(plain)).max() <= 1, name


@pytest.mark.parametrize("kind", MAKERS)
def test_crops_are_parts_of_the_whole(corpus: Any, kind: str) -> None:
    """Of the middle, with a margin of zeros where the image is smaller; within 2, of a JPEG's colours at
    edges."""
    files = corpus(kind)
    for height, width in ((9, 14), (33, 21)):
        ours = files.decoded(crop=(height, width))
        wrong = {}
        for name, pixels in files.decoded().items():
            apart = int(np.abs(ours[name].astype(int) - middle(pixels, height, width)).max())
            if apart > 2:
                wrong[name] = apart
        assert not wrong


def middle(pixels: Pixels, height: int, width: int) -> Any:
    """As torchvision's CenterCrop."""
    across, down = max(0, width - pixels.shape[1]), max(0, height - pixels.shape[0])
    padded = np.pad(pixels, ((down // 2, down - down // 2), (across // 2, across - across // 2), (0, 0)))
    top, left = round((padded.shape[0] - height) / 2), round((padded.shape[1] - width) / 2)
    return padded[top : top + height, left : left + width].astype(int)


def test_broken_jpegs_are_found_where_djpeg_warns(tmp_path: Path) -> None:
    """What djpeg reads without a word is read. What it warns of is a bad sample, unless nothing is lost by
    it, and with truncated="grey" what djpeg makes of it. What it refuses before the last row is a bad sample
    either way. Whatever is read is what djpeg reads, bit for bit."""
    need("cjpeg", "djpeg")
    files = Corpus(tmp_path / "files", broken())
    with pytest.warns(RuntimeWarning, match="replaced"):
        strict = files.decoded(orient=False)
    with pytest.warns(RuntimeWarning, match="replaced"):
        lenient = files.decoded(orient=False, truncated="grey")
    found = files.each(lambda data: djpeg(data, "-pnm"))
    theirs = {name: in_colour(pixels) for name, (_, pixels) in found.items() if pixels is not None}
    same(lenient, theirs)
    assert strict.keys() <= lenient.keys() == theirs.keys()
    same(strict, {name: theirs[name] for name in strict})
    codes = {name: code for name, (code, _) in found.items()}
    assert {name for name, code in codes.items() if code == 0} <= strict.keys()
    cut = {name for name in codes if name.startswith("cut")}
    assert len(cut) > 100
    assert len(strict.keys() & cut) <= 2  # Where all but the mark of the end is there.
    assert len(lenient.keys() & cut) > 50


def claiming(kind: str) -> bytes:
    """A small file that says it is huge."""
    pixels = photograph(20, 30)
    if kind == "jpeg":
        data = saved(pixels, "JPEG")
        at = data.index(b"\xff\xc0") + 5
        return data[:at] + struct.pack(">HH", 65500, 65500) + data[at + 4 :]
    if kind == "png":
        data = saved(pixels, "PNG")
        head = b"IHDR" + struct.pack(">II", 100_000, 100_000) + data[24:29]
        return data[:12] + head + struct.pack(">I", zlib.crc32(head)) + data[33:]
    if kind == "gif":
        data = saved(pixels, "GIF")
        return data[:6] + struct.pack("<HH", 65535, 65535) + data[10:]
    data = saved(pixels, "TIFF")
    for tag in (256, 257):
        at = data.index(struct.pack("<HH", tag, 4))
        data = data[: at + 8] + struct.pack("<I", 1 << 20) + data[at + 12 :]
    return data


@pytest.mark.parametrize("kind", ["jpeg", "png", "gif", "tiff"])
def test_files_that_claim_to_be_huge_are_bad_samples(tmp_path: Path, open_loader: Any, kind: str) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / f"0.{kind}").write_bytes(claiming(kind))
    loader = open_loader(
        tmp_path / "files", format="raw", batch_size=1, decode={"data": hr.decode.image(resize=(8, 8))}
    )
    with pytest.raises(hr.CorruptError, match="more than max_pixels"):
        next(iter(loader))
    # Within the limit, but more than the memory that there is: refused with the numbers, not begun.
    loader = open_loader(
        tmp_path / "files",
        format="raw",
        batch_size=1,
        decode={"data": hr.decode.image(max_pixels=1 << 50)},
    )
    with pytest.raises(hr.ExhaustedError):
        next(iter(loader))
