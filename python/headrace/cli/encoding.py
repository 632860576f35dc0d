"""Output in any encoding: what a stream cannot say is said in ASCII, and no output fails for it."""

from __future__ import annotations

import codecs
import io
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


def prepare(*streams: TextIO) -> None:
    """Makes every write to the streams (default: stdout and stderr) succeed, whatever their encoding."""
    codecs.register_error("headrace", _spell)
    for stream in streams or (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="headrace")
