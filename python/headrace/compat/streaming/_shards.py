"""Shards as ``index.json`` names them, and their samples where their files lie in a directory."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from headrace.compat.streaming._array import Array
from headrace.compat.streaming._decodings import TEXT_DECODERS, UNSAFE, find_decoder
from headrace.errors import CorruptError

INDEX = "index.json"
_PARTS = ("meta", "data")


@dataclass
class FileInfo:
    """A file of a shard."""

    basename: str
    bytes: int
    hashes: dict[str, str]

    def __post_init__(self) -> None:
        path = PurePosixPath(self.basename)
        if not self.basename or path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{INDEX} names the file {self.basename!r}, which is not below its directory")


class Reader(Array):
    """A shard. Its samples are read from its files in ``dirname/split``: FileNotFoundError when they are not
    there."""

    def __init__(self, dirname: str, split: str | None, info: dict[str, Any]) -> None:
        if info.get("version") != 2:
            raise ValueError(
                f"Unsupported streaming data version: {info.get('version')}. Expected version 2."
            )
        self.dirname, self.split = dirname, split or ""
        self.compression: str | None = info.get("compression")
        self.hashes: list[str] = info.get("hashes") or []
        self.samples: int = info["samples"]
        self.size_limit: int | None = info.get("size_limit")
        self.file_pairs: list[tuple[FileInfo, FileInfo | None]] = []
        for part in _PARTS:
            raw, zipped = info.get(f"raw_{part}"), info.get(f"zip_{part}")
            if raw is not None:
                self.file_pairs.append((FileInfo(**raw), FileInfo(**zipped) if zipped else None))
        self.raw_data, self.zip_data = self.file_pairs[-1]
        self._allows_unsafe = False

    def validate(self, allow_unsafe_types: bool) -> None:
        """Raises ValueError for columns that run code when they are read, unless those are allowed."""
        self._allows_unsafe = allow_unsafe_types

    @property
    def size(self) -> int:
        return self.samples

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self.get_item(i) for i in range(self.samples))

    def path(self, file: FileInfo) -> str:
        return os.path.join(self.dirname, self.split, file.basename)

    def get_raw_size(self) -> int:
        """Bytes of the files as they are read."""
        return sum(raw.bytes for raw, _ in self.file_pairs)

    def get_zip_size(self) -> int | None:
        """Bytes of the compressed files, if there are any."""
        zipped = [file for _, file in self.file_pairs if file]
        return sum(file.bytes for file in zipped) if zipped else None

    def get_max_size(self) -> int:
        """Bytes of both."""
        return self.get_raw_size() + (self.get_zip_size() or 0)

    def get_persistent_size(self, keep_zip: bool) -> int:
        """Bytes that stay after decompression."""
        return self.get_max_size() if self.compression and keep_zip else self.get_raw_size()

    def evict(self) -> int:
        """Removes the files. Returns their bytes."""
        freed = 0
        for pair in self.file_pairs:
            for file in filter(None, pair):
                try:
                    os.unlink(self.path(file))
                    freed += file.bytes
                except FileNotFoundError:
                    pass
        return freed

    # Samples.

    def _open(self, file: FileInfo) -> int:
        fd = os.open(self.path(file), os.O_RDONLY | os.O_CLOEXEC)
        if os.fstat(fd).st_size == file.bytes:
            return fd
        os.close(fd)
        raise FileNotFoundError(f"{self.path(file)} is not as long as {INDEX} says: {file.bytes} bytes")

    def _offsets(self, fd: int, index: int, most: int) -> tuple[int, int]:
        begin, end = struct.unpack("<II", os.pread(fd, 8, 4 + 4 * index))
        if not begin < end <= most:
            raise self.corrupt(index, f"it lies at {begin} to {end} of {most} bytes")
        return begin, end

    def corrupt(self, index: int, what: object) -> CorruptError:
        return CorruptError(f"{self.path(self.raw_data)}: sample {index}: {what}")

    def get_sample_data(self, idx: int) -> bytes:
        """The bytes of a sample."""
        if not 0 <= idx < self.samples:
            raise IndexError(f"sample {idx} is out of range: the shard has {self.samples}")
        table, file = self.file_pairs[0][0], self.raw_data
        fd = self._open(file)
        try:
            if table is file:
                begin, end = self._offsets(fd, idx, file.bytes)
            else:
                begin, end = self._read_meta(table, idx, file.bytes)
            data = os.pread(fd, end - begin, begin)
        finally:
            os.close(fd)
        if len(data) != end - begin:
            raise self.corrupt(idx, "its file is cut off")
        return data

    def _read_meta(self, table: FileInfo, idx: int, most: int) -> tuple[int, int]:
        fd = self._open(table)
        try:
            return self._offsets(fd, idx, most)
        finally:
            os.close(fd)

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        raise NotImplementedError

    def get_item(self, idx: int) -> dict[str, Any]:
        """The sample at an index."""
        data = self.get_sample_data(idx)
        try:
            return self.decode_sample(data)
        except (ValueError, KeyError, struct.error) as error:
            raise self.corrupt(idx, error) from error


class MDSReader(Reader):
    """A shard of columns of bytes."""

    def __init__(self, dirname: str, split: str | None, info: dict[str, Any]) -> None:
        super().__init__(dirname, split, info)
        self.column_names: list[str] = info["column_names"]
        self.column_encodings: list[str] = info["column_encodings"]
        self.column_sizes: list[int | None] = info["column_sizes"]
        self._decoders = [find_decoder(encoding) for encoding in self.column_encodings]
        self._heads = struct.Struct(f"<{sum(not size for size in self.column_sizes)}I")
        self._unsafe = [
            pair for pair in zip(self.column_names, self.column_encodings, strict=True) if pair[1] in UNSAFE
        ]

    def validate(self, allow_unsafe_types: bool) -> None:
        super().validate(allow_unsafe_types)
        for name, encoding in [] if allow_unsafe_types else self._unsafe:
            raise ValueError(
                f"Column {name} contains an unsafe type: `{encoding}`. To proceed anyway, set "
                "`allow_unsafe_types=True`."
            )

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        if self._unsafe:
            self.validate(self._allows_unsafe)
        varying = iter(self._heads.unpack_from(data))
        at, sample = self._heads.size, {}
        for name, size, decode in zip(self.column_names, self.column_sizes, self._decoders, strict=True):
            end = at + (size or next(varying))
            if end > len(data):
                raise ValueError(f"column {name} ends behind it")
            try:
                sample[name] = decode(data[at:end])
            except Exception as error:
                raise ValueError(f"column {name}: {error}") from error
            at = end
        if at != len(data):
            raise ValueError(f"its columns end at {at} of {len(data)} bytes")
        return sample


class JSONReader(Reader):
    """A shard of lines of JSON."""

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        sample: dict[str, Any] = json.loads(data)
        return sample


class XSVReader(Reader):
    """A shard of lines of separated fields."""

    separator = ""

    def __init__(self, dirname: str, split: str | None, info: dict[str, Any]) -> None:
        super().__init__(dirname, split, info)
        self.column_names: list[str] = info["column_names"]
        self.column_encodings: list[str] = info["column_encodings"]
        self.newline: str = info["newline"]
        self.separator = info.get("separator") or self.separator

    def decode_sample(self, data: bytes) -> dict[str, Any]:
        fields = data.decode().removesuffix(self.newline).split(self.separator)
        columns = zip(self.column_names, self.column_encodings, fields, strict=True)
        return {name: TEXT_DECODERS[encoding](field) for name, encoding, field in columns}


class CSVReader(XSVReader):
    separator = ","


class TSVReader(XSVReader):
    separator = "\t"


_READERS: dict[str, type[Reader]] = {
    "mds": MDSReader,
    "json": JSONReader,
    "xsv": XSVReader,
    "csv": CSVReader,
    "tsv": TSVReader,
}


def reader_from_json(dirname: str, split: str | None, info: dict[str, Any]) -> Reader:
    """The shard of an entry of ``index.json``."""
    if info.get("format") not in _READERS:
        raise ValueError(
            f"Unsupported data format: {info.get('format')}. Expected one of {sorted(_READERS)}."
        )
    return _READERS[info["format"]](dirname, split, info)


def parse_index(text: bytes, where: str) -> list[dict[str, Any]]:
    """The shards of an ``index.json``. Raises json.JSONDecodeError, or ValueError for what is no index of
    version 2."""
    try:
        index = json.loads(text)
    except json.JSONDecodeError as error:
        error.args = (f"Index file at {where} is empty or corrupted. {error.args[0]}",)
        raise
    except UnicodeDecodeError as error:
        raise json.JSONDecodeError(f"Index file at {where} is empty or corrupted. {error}", "", 0) from error
    version = index.get("version") if isinstance(index, dict) else None
    if version != 2:
        raise ValueError(f"Unsupported streaming data version: {version}. Expected version 2.")
    shards = index.get("shards")
    if not isinstance(shards, list):
        raise ValueError(f"Index file at {where} has no list of shards.")
    return shards


def make_readers(
    shards: list[dict[str, Any]], dirname: str, split: str, allow_unsafe_types: bool, where: str
) -> list[Reader]:
    """Of all entries. Raises ValueError for one that is damaged or holds unsafe columns."""
    readers = []
    for number, info in enumerate(shards):
        try:
            reader = reader_from_json(dirname, split, info)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(
                f"Index file at {where} is empty or corrupted. Shard {number}: {error!r}"
            ) from error
        reader.validate(allow_unsafe_types)
        readers.append(reader)
    return readers
