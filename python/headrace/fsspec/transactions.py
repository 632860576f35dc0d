"""Files that become visible together."""

from __future__ import annotations

from typing import Any

from fsspec.transaction import Transaction as FsspecTransaction

from headrace.errors import InvalidArgumentError

NESTED = (
    "a transaction of this file system is open; it shows all files at its end, also those of functions that "
    "it calls: begin no other in it"
)


class Transaction(FsspecTransaction):  # type: ignore[misc]
    """fsspec's, but a file that cannot be made visible takes those after it along: they are discarded, and
    the file system is out of the transaction."""

    fs: Any
    files: Any

    def start(self) -> None:
        # fsspec's forgets the files of the one that is open.
        if self.fs._intrans:
            raise InvalidArgumentError(NESTED)
        super().start()

    def complete(self, commit: bool = True) -> None:
        files, self.files = list(self.files), type(self.files)()
        try:
            while files and commit:
                files[0].commit()
                files.pop(0)
        finally:
            for file in files:
                file.discard()
            if self.fs is not None:
                self.fs._intrans = False
                self.fs._transaction = None
            self.fs = None
