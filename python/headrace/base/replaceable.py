"""Whether a new file may take a name."""

from __future__ import annotations

import os
import stat

from headrace.errors import UnsupportedError

__all__ = ["check_replaceable"]


def check_replaceable(path: str) -> None:
    """Raises UnsupportedError where a new file of this name would take it from a device, a fifo, a socket, or a
    link to one: a rename asks nobody, and the machine is without its /dev/null. See base/atomic_file.h."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    # /dev/stdout leads into /proc, whatever the stream is.
    is_stream = os.path.islink(path) and os.readlink(path).startswith("/proc/")
    if is_stream or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UnsupportedError(f"{path} is no file; use `-` for stdout")
