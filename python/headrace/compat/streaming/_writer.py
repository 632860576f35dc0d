"""MDSWriter: writes MDS data sets, byte for byte as mosaicml-streaming's does; and what all writers share."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.compat.streaming._codecs import compress, compression_extension, find_hash
from headrace.compat.streaming._encodings import encoding_names, find_encoder
from headrace.compat.streaming._units import bytes_to_int
from headrace.store.store import Store

if TYPE_CHECKING:
    from typing_extensions import Self

_OPTIONS = ("progress_bar", "max_workers", "retry", "exist_ok")


class _Target:
    """Where files go: a local directory, a store, or both."""

    def __init__(self, out: str | tuple[str, str], keep_local: bool, exist_ok: bool) -> None:
        local, remote = (out, None) if isinstance(out, str) else (out[0], out[1])
        if isinstance(out, str) and "://" in out:
            local, remote = tempfile.mkdtemp(), out
        self.local, self.remote = Path(local).expanduser(), remote
        self._keep_local = keep_local or remote is None
        if isinstance(out, str) and remote is not None:
            exist_ok = False
        if self.local.exists() and any(self.local.iterdir()):
            if not exist_ok:
                raise FileExistsError(f"Directory is not empty: {self.local}")
            shutil.rmtree(self.local)
        self.local.mkdir(parents=True, exist_ok=True)
        self._store = Store(remote) if remote is not None else None

    def put(self, name: str, data: bytes) -> None:
        (self.local / name).write_bytes(data)
        if self._store is not None:
            self._store.put(name, data)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        if not self._keep_local:
            shutil.rmtree(self.local, ignore_errors=True)


class Writer:
    """Shards of samples, and their index. ``progress_bar``, ``max_workers`` and ``retry`` have no effect.

    Files go to ``out`` (a directory, a URL, or both as a tuple), the index last: a data set without one is
    not finished.
    """

    format = ""

    def __init__(
        self,
        *,
        columns: dict[str, str],
        out: str | tuple[str, str],
        keep_local: bool = False,
        compression: str | None = None,
        hashes: list[str] | None = None,
        size_limit: int | str | None = 1 << 26,
        **kwargs: Any,
    ) -> None:
        unknown = [name for name in kwargs if name not in _OPTIONS]
        if unknown:
            raise ValueError(f"Invalid Writer argument(s): {unknown} ")
        self.columns = columns
        self.compression, self.hashes = compression or None, list(hashes or [])
        self._extension = compression_extension(self.compression) if self.compression else ""
        if self.hashes != sorted(self.hashes):
            raise ValueError("Hashes must be unique and in sorted order.")
        self._hash_functions = {name: find_hash(name) for name in self.hashes}
        self.size_limit = bytes_to_int(size_limit) if size_limit else None
        if self.size_limit is not None and not 0 <= self.size_limit < 2**32:
            raise ValueError(
                f"`size_limit` must be less than 2**32, instead, found as {self.size_limit}: offsets are "
                "stored in 32 bits."
            )
        self._set_columns()
        self._config = json.dumps(self.get_config(), sort_keys=True).encode()
        self._target = _Target(out, keep_local, bool(kwargs.get("exist_ok", False)))
        self.local, self.remote = str(self._target.local), self._target.remote
        self.shards: list[dict[str, Any]] = []
        self._reset()

    def _set_columns(self) -> None:
        """Checks ``columns``, and takes from them what the encoder needs."""
        raise NotImplementedError

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        raise NotImplementedError

    def _encode_shard(self) -> dict[str, bytes]:
        """The files of the shard: ``data``, and ``meta`` where there are two."""
        raise NotImplementedError

    def _empty_shard_bytes(self) -> int:
        return 0

    def _bytes_per_sample(self) -> int:
        """What a sample takes beside itself."""
        return 0

    def get_config(self) -> dict[str, Any]:
        return {
            "version": 2,
            "format": self.format,
            "compression": self.compression,
            "hashes": self.hashes,
            "size_limit": self.size_limit,
        }

    def _reset(self) -> None:
        self._samples: list[bytes] = []
        self._shard_bytes = self._empty_shard_bytes()

    def _offsets(self, first: int) -> bytes:
        """Of the samples and their end, the first at ``first``."""
        offsets = first + np.cumsum([0, *map(len, self._samples)])
        if offsets[-1] >= 2**32:
            raise ValueError(
                f"a shard of {offsets[-1]} bytes: its offsets are stored in 32 bits; lower size_limit"
            )
        return offsets.astype(np.uint32).tobytes()

    def write(self, sample: dict[str, Any]) -> None:
        """Adds a sample; writes a shard when it would grow past ``size_limit``."""
        encoded = self.encode_sample(sample)
        size = len(encoded) + self._bytes_per_sample()
        if self.size_limit and self.size_limit < self._shard_bytes + size:
            self.flush_shard()
        self._samples.append(encoded)
        self._shard_bytes += size

    def _file_info(self, name: str, data: bytes) -> dict[str, Any]:
        return {
            "basename": name,
            "bytes": len(data),
            "hashes": {algo: digest(data) for algo, digest in self._hash_functions.items()},
        }

    def _put_file(self, part: str, raw: bytes) -> dict[str, Any]:
        name = f"shard.{len(self.shards):05}.{self.format}" + (".meta" if part == "meta" else "")
        data, raw_info, zip_info = raw, self._file_info(name, raw), None
        if self.compression:
            data, name = compress(self.compression, raw), f"{name}.{self._extension}"
            zip_info = self._file_info(name, data)
        self._target.put(name, data)
        return {f"raw_{part}": raw_info, f"zip_{part}": zip_info}

    def flush_shard(self) -> None:
        """Writes the samples collected so far as a shard."""
        shard: dict[str, Any] = {"samples": len(self._samples)}
        for part, raw in self._encode_shard().items():
            shard |= self._put_file(part, raw)
        self.shards.append(shard | self.get_config())
        self._reset()

    def finish(self) -> None:
        """Writes the last shard and the index."""
        if self._samples:
            self.flush_shard()
        index = json.dumps({"version": 2, "shards": self.shards}, sort_keys=True)
        self._target.put("index.json", index.encode())
        self._target.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()


class MDSWriter(Writer):
    """Arguments as in mosaicml-streaming."""

    format = "mds"

    def _set_columns(self) -> None:
        self.column_names = sorted(self.columns)
        self.column_encodings = [self.columns[name] for name in self.column_names]
        self._encoders = []
        for name, encoding in zip(self.column_names, self.column_encodings, strict=True):
            encoder = find_encoder(encoding)
            if encoder is None:
                raise TypeError(
                    f"MDSWriter passed column `{name}` with encoding `{encoding}` is unsupported. Supported "
                    f"encodings are {encoding_names()}"
                )
            self._encoders.append(encoder)
        self.column_sizes = [encoder.size for encoder in self._encoders]

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "column_names": self.column_names,
            "column_encodings": self.column_encodings,
            "column_sizes": self.column_sizes,
        }

    def _empty_shard_bytes(self) -> int:
        return 4 + 4 + len(self._config)

    def _bytes_per_sample(self) -> int:
        return 4

    def encode_sample(self, sample: dict[str, Any]) -> bytes:
        sizes, data = [], []
        for name, encoder in zip(self.column_names, self._encoders, strict=True):
            value = sample[name]
            payload = value if isinstance(value, bytes) else encoder.encode(value)
            if encoder.size is None:
                sizes.append(len(payload))
            elif encoder.size != len(payload):
                raise KeyError(
                    "Unexpected data size; was this data typed with the correct encoding "
                    f"({self.columns[name]})?"
                )
            data.append(payload)
        return b"".join([np.array(sizes, np.uint32).tobytes(), *data])

    def _encode_shard(self) -> dict[str, bytes]:
        count = len(self._samples)
        offsets = self._offsets(4 + 4 * (count + 1) + len(self._config))
        return {"data": b"".join([np.uint32(count).tobytes(), offsets, self._config, *self._samples])}
