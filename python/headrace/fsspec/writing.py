"""Files that are open for writing: parts go off while the next one is collected, and nothing is visible
before all is there."""

from __future__ import annotations

import io
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from headrace import _native
from headrace.errors import ChangedError, UnsupportedError
from headrace.store.putting import PART_BYTES, PARTS_OF_ONE_SIZE

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

    from headrace.fsspec.filesystem import HeadraceFileSystem


class WrittenFile(io.BufferedIOBase):
    """A new object, or a new version of one. Visible when :meth:`close` has returned; in a transaction, at
    its end.

    An exception in its ``with`` block, and losing the last reference to it without ``close()``, discard what
    was written. One thread at a time.
    """

    def __init__(
        self, fs: HeadraceFileSystem, path: str, mode: str, *, part_bytes: int, autocommit: bool
    ) -> None:
        self.fs, self.path, self.mode, self.autocommit = fs, path, mode, autocommit
        self._is_new = mode == "xb"
        if self._is_new and fs.exists(path):
            raise FileExistsError(f"{path}: exists")
        self._store, self._key = fs.locate_to_write(path)
        self._part_bytes = max(part_bytes, PART_BYTES)
        self._buffer = bytearray()
        self._upload: _native.Upload | None = None
        self._part_count = 0
        self._position = 0
        self._is_pending = True  # neither visible nor discarded
        self._has_failed = False
        self._is_abandoned = False
        self._wrapper: weakref.ref[io.IOBase] | None = None
        self._lock = threading.RLock()

    def wrapped_by(self, wrapper: io.IOBase) -> None:
        """``wrapper``, what the user has instead of this one, may hold what was written to it: it is closed
        before :meth:`commit`."""
        self._wrapper = weakref.ref(wrapper)

    @property
    def name(self) -> str:
        return self.path

    def writable(self) -> bool:
        return not self.closed

    def tell(self) -> int:
        return self._position

    def write(self, data: Buffer, /) -> int:
        with self._lock:
            view = memoryview(data).cast("B")
            if self._is_abandoned:  # what wrappers flush when they are closed
                return len(view)
            self._check_open()
            at = 0
            while at < len(view):
                taken = min(len(view) - at, self._part_bytes - len(self._buffer))
                self._buffer += view[at : at + taken]
                at += taken
                if len(self._buffer) == self._part_bytes:
                    self._send()
            self._position += len(view)
            return len(view)

    def flush(self, force: bool = False) -> None:
        """Nothing: an object cannot be seen before it is complete."""

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError(f"{self.path}: the file is closed")
        if not self._is_pending:
            raise ValueError(f"{self.path}: a part of it has failed before, or it was discarded")

    def _send(self) -> None:
        try:
            if self._upload is None:
                self._upload = _native.Upload(self._store._native, self._key)
            self._upload.put(self._buffer)
        except BaseException:
            self.discard()
            self._has_failed = True
            raise
        self._buffer = bytearray()
        self._part_count += 1
        if self._part_count % PARTS_OF_ONE_SIZE == 0:
            self._part_bytes *= 2

    def close(self) -> None:
        with self._lock:
            if self.closed:
                return
            super().close()
            if self.autocommit:
                self.commit()

    def commit(self) -> None:
        """Makes it visible. Transactions call this; else :meth:`close` does."""
        with self._lock:
            wrapper = self._wrapper() if self._wrapper is not None else None
            if wrapper is not None:
                wrapper.close()
            if not self.closed:
                super().close()
            if self._has_failed:
                raise ValueError(f"{self.path}: not written, a part of it has failed before")
            if not self._is_pending:
                return
            try:
                self._complete()
            except ChangedError as error:
                if self._is_new:
                    raise FileExistsError(f"{self.path}: exists") from error
                raise
            finally:
                self.discard()
                self.fs.forget(self.path)

    def _complete(self) -> None:
        if self._upload is None:
            self._store.put(self._key, self._buffer, if_absent=self._is_new)
            return
        if self._buffer:
            self._send()
        if self._is_new and self._store.exists(self._key):
            raise FileExistsError(f"{self.path}: exists")
        self._upload.finish()

    def discard(self) -> None:
        """Drops what was written and not committed."""
        with self._lock:
            self._is_pending = False
            self._buffer = bytearray()
            upload, self._upload = self._upload, None
            if upload is not None:
                upload.abort()

    def abandon(self) -> None:
        """After an exception that goes on: drops everything, also what is written later."""
        with self._lock:
            self.discard()
            self._has_failed = False  # somebody knows
            self._is_abandoned = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_is_pending", False) and not self.closed:
            warnings.warn(
                f"{self.path} was never closed: what was written to it is discarded",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            self.abandon()

    def __reduce__(self) -> Any:
        raise UnsupportedError(f"{self.path}: a file that is open for writing cannot be pickled")


class _OverWrittenFile(io.IOBase):
    """What stands over a :class:`WrittenFile`, and discards what was written as that does."""

    _written: WrittenFile

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._written.abandon()
        self.close()

    def __del__(self) -> None:
        # The classes of io would close, and so publish.
        if hasattr(self, "_written"):
            self._written.__del__()


class TextFile(_OverWrittenFile, io.TextIOWrapper):
    """Text over a :class:`WrittenFile`, perhaps with compression between."""

    def __init__(self, binary: Any, written: WrittenFile, **options: Any) -> None:
        super().__init__(binary, **options)
        self._written = written


class CompressedFile(_OverWrittenFile, io.BufferedIOBase):
    """A compressor over a :class:`WrittenFile`, and closes both: the standard library's leave open what they
    were given."""

    def __init__(self, compressor: Any, written: WrittenFile) -> None:
        self._compressor = compressor
        self._written = written

    def writable(self) -> bool:
        return not self.closed

    def write(self, data: Buffer, /) -> int:
        size: int = memoryview(data).nbytes
        self._compressor.write(data)
        return size

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        try:
            self._compressor.close()
        except BaseException:
            self._written.abandon()
            raise
        finally:
            self._written.close()
