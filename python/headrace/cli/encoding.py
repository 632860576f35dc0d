"""Output anywhere: what the encoding of a stream cannot say is said in ASCII, and what has no stream goes
nowhere; no output fails for it."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TextIO

_PLAIN = {
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", ""),
    **dict.fromkeys("•●·", "*"),
    **dict.fromkeys("─━╸╺╴╶", "-"),
    **dict.fromkeys("–—", "-"),
    "◀": "<",
    "→": "->",
    "…": "...",
    "×": "x",
    "±": "+-",
    "µ": "u",
    "✓": "ok",
    "✗": "x",
}


def _spell(error: UnicodeError) -> tuple[str | bytes, int]:
    """For an encoder: bytes of names that are not UTF-8 as they are, signs of ours in ASCII, the rest as
    ``\\u1234``."""
    if not isinstance(error, UnicodeEncodeError):
        return codecs.lookup_error("surrogateescape")(error)
    character = error.object[error.start]
    if 0xDC80 <= ord(character) <= 0xDCFF:  # PEP 383: a byte that is not UTF-8
        return bytes([ord(character) - 0xDC00]), error.start + 1
    if 0x2800 <= ord(character) <= 0x28FF:  # of a spinner
        return "*", error.start + 1
    plain = _PLAIN.get(character)
    return character.encode("ascii", "backslashreplace").decode() if plain is None else plain, error.start + 1


def open_closed() -> None:
    """Gives standard streams that are closed (`>&-`) to /dev/null: else the next file or socket that is
    opened would have the number of one, and get its output."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        if opened != descriptor:
            os.dup2(opened, descriptor)
            os.close(opened)
        setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


def prepare(*streams: TextIO) -> None:
    """Makes every write to the streams (default: stdout and stderr) succeed, whatever their encoding."""
    codecs.register_error("headrace", _spell)
    for stream in streams or (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="headrace")
