"""What our decoders make of files, and the libraries' own programs that they are compared with: djpeg, cjpeg,
dwebp, and netpbm's over libpng and libtiff. tools/setup test installs them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import headrace as hr

__all__ = ["Pixels", "cjpeg", "decoded_files", "djpeg", "need", "pixels_of", "program"]

Pixels = npt.NDArray[np.uint8]

PACKAGES = {
    "cjpeg": "libjpeg-turbo-progs",
    "djpeg": "libjpeg-turbo-progs",
    "dwebp": "webp",
    "pngtopam": "netpbm",
    "giftopnm": "netpbm",
    "tifftopnm": "netpbm",
}


def decoded_files(root: Path, decode: Any, **options: Any) -> dict[str, Any]:
    """What a Loader makes of the files in a directory, by name; bad samples are missing."""
    found: dict[str, Any] = {}
    with hr.Loader(
        root,
        format="raw",
        shuffle=False,
        index_cache="",
        on_bad_sample="replace",
        decode={"data": decode},
        **options,
    ) as loader:
        for batch in loader:
            for row in np.flatnonzero(batch.mask):
                if int(row) not in batch.replaced:
                    found[batch["key"][row]] = np.array(batch["data"][row])
    return found


def need(*names: str) -> None:
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed (apt: {PACKAGES[name]}; tools/setup test installs it)")


def program(name: str, *arguments: str, data: bytes) -> tuple[int, bytes]:
    """Exit code and output."""
    done = subprocess.run([name, *arguments], input=data, capture_output=True, timeout=60)
    return done.returncode, done.stdout


def cjpeg(ppm: bytes, *arguments: str) -> bytes:
    code, data = program("cjpeg", *arguments, data=ppm)
    assert code == 0, arguments
    return data


def djpeg(data: bytes, *arguments: str) -> tuple[int, Pixels | None]:
    """Exit code (0; 2: it warned; 1: it failed) and pixels (height, width, channels), where there are any."""
    code, out = program("djpeg", *arguments, data=data)
    try:
        return code, pixels_of(out)
    except ValueError:
        return code, None


def pixels_of(pnm: bytes) -> Pixels:
    """What PBM, PGM, PPM and PAM hold, at 8 bits: 16 are cut to the upper 8, fewer are spread."""
    head = re.match(rb"P7\n.*?ENDHDR\n", pnm, re.S) or _head(pnm)
    if head is None:
        raise ValueError("no PNM")
    width, height, channels, most = _sides(head[0])
    data = pnm[head.end() :]
    if head[0].startswith(b"P4"):
        packed = np.frombuffer(data, np.uint8).reshape(height, -1)
        return np.where(np.unpackbits(packed, axis=1)[:, :width, None] == 1, 0, 255).astype(np.uint8)
    samples: Any = np.frombuffer(data, ">u2" if most > 255 else np.uint8).reshape(height, width, channels)
    return (samples >> 8 if most > 255 else samples.astype(np.uint32) * 255 // most).astype(np.uint8)


def _head(pnm: bytes) -> re.Match[bytes] | None:
    numbers = 2 if pnm.startswith(b"P4") else 3
    return re.match(rb"P[456]" + rb"(?:\s+(?:#[^\n]*\n\s*)*\d+)" * numbers + rb"\s", pnm)


def _sides(head: bytes) -> tuple[int, int, int, int]:
    """Width, height, channels, largest value."""
    if head.startswith(b"P7"):
        said = dict(line.split(b" ", 1) for line in head.splitlines() if b" " in line)
        width, height, channels, most = (int(said[n]) for n in (b"WIDTH", b"HEIGHT", b"DEPTH", b"MAXVAL"))
        return width, height, channels, most
    numbers = [int(n) for n in re.sub(rb"#[^\n]*\n", b"", head).split()[1:]]
    return numbers[0], numbers[1], 3 if head.startswith(b"P6") else 1, ([*numbers, 1])[2]
