"""What torch.load() does not take, in a line of ours."""

from __future__ import annotations

import re

__all__ = ["why_refused"]

_REASON = re.compile(r"WeightsUnpickler error:\s*(.+?)(?:\. Please use |\n|$)")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def why_refused(error: Exception) -> str:
    """Of an error of torch.load(weights_only=True): which global it wants, where the error says it among
    advice; else its first line, without escapes of terminals."""
    text = _ESCAPE.sub("", str(error)).strip()
    found = _REASON.search(text)
    return found[1].strip() if found else text.partition("\n")[0].strip() or type(error).__name__
