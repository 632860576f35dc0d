"""Directories that go with who made them, also where a signal comes while they are made."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import weakref

__all__ = ["ScratchDirectory"]


class ScratchDirectory:
    """A directory of its own below the system's for temporary files; removed by :meth:`cleanup`, or with this
    object, or at exit.

    ``tempfile.TemporaryDirectory`` makes the directory and then notes that it is to be removed: Ctrl-C in
    between leaves it behind. Here it is noted first.
    """

    def __init__(self, prefix: str) -> None:
        self.name = os.path.join(tempfile.gettempdir(), prefix + secrets.token_hex(8))
        self._remove = weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)
        try:
            os.mkdir(self.name, 0o700)
        except FileExistsError:
            self._remove.detach()
            raise

    def cleanup(self) -> None:
        """May be repeated."""
        self._remove()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()
