"""Writers of datasets: samples in, shards out. One class a format; what is hot is done in C++."""

from __future__ import annotations

import json
import math
import operator
import os
import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace import _native
from headrace.base.option_names import named_options
from headrace.base.units import parse_bytes
from headrace.data.mds_values import TYPE_BYTES, save_image, save_pil, save_shape
from headrace.data.rows import Column
from headrace.data.tables.arrow import arrow
from headrace.errors import CorruptError, InvalidArgumentError, UnsupportedError
from headrace.prepare.option_names import writing_names
from headrace.prepare.target import PackTarget, content_digest
from headrace.store.store import StoreOptions, open_native
from headrace.store.urls import refuse_memory

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = [
    "LitDataWriter",
    "MDSWriter",
    "ParquetWriter",
    "TFRecordWriter",
    "WebDatasetWriter",
    "writer_class",
]

DEFAULT_SHARD_BYTES = "64MiB"

HAVE_NO_EMPTY_SHARDS = ("mds", "tfrecord", "litdata")
"""Formats that have readers which fail on a shard without samples, or warn, or take it for one that was cut
off: among others it is not stored. A tar and a Parquet file may be empty."""

MOST_OFFSET_BYTES = {"mds": (1 << 32) - 1, "litdata": (1 << 32) - 1}
"""Shards of these formats have offsets of 32 bits: ``shard_bytes`` is not more."""

FILE_COLUMN = "__file__"
"""A column of str that names the member of a tar that its sample becomes: kFileName of headrace/pack.h."""

# Scalars and how struct writes them.
_SCALARS = {
    "int8": "<b",
    "int16": "<h",
    "int32": "<i",
    "int64": "<q",
    "uint8": "<B",
    "uint16": "<H",
    "uint32": "<I",
    "uint64": "<Q",
    "float16": "<e",
    "float32": "<f",
    "float64": "<d",
    "bool": "<?",
}


class ColumnSpec(NamedTuple):
    """A column of the samples that a writer is given."""

    name: str
    encoding: str
    """An MDS encoding (``"int"``, ``"str"``, ``"jpeg"``, ``"ndarray:float32"``, ...), or ``"bool"``."""


def names_files(format: str, columns: Sequence[ColumnSpec]) -> bool:
    """Whether what is written are files, of which those of one file_group() are one sample."""
    return format == "webdataset" and ColumnSpec(FILE_COLUMN, "str") in columns


def file_group(name: str) -> str:
    """What files of one sample have in common (``d/x.jpg``, ``d/x.seg.png``): webdataset_group() of
    tar_format.h, for names that it takes."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}{base.partition('.')[0]}"


def infer_columns(sample: Mapping[str, Any], format: str) -> list[ColumnSpec]:
    """Columns for samples like this one."""
    return [ColumnSpec(name, _infer(name, value, format)) for name, value in sample.items()]


def _infer(name: str, value: Any, format: str) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    if isinstance(value, str):
        return "str"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        # tf.train.Example has no wider numbers; its own writers narrow Python floats as well.
        return "float32" if format == "tfrecord" else "float64"
    if isinstance(value, np.generic):
        return value.dtype.name
    if isinstance(value, np.ndarray):
        return f"ndarray:{value.dtype.name}"
    if isinstance(value, (dict, list, tuple)):
        return "json"
    if value is None:
        raise UnsupportedError(
            f"column {name!r}: the first sample has no value, so that nothing tells its encoding; name one "
            "in columns="
        )
    raise UnsupportedError(f"column {name!r}: no encoding for a {type(value).__name__}; name one in columns=")


def encoding_of_column(column: Column, value: Any, format: str) -> str:
    """What a dataset's column is written as: by what the dataset says of it, else by ``value``, that of its
    first sample."""
    encoding, dtype = column.encoding, column.dtype
    if encoding in ("bytes", "int", "json", "str") or encoding in _NUMBER_TEXTS:
        return encoding
    kind, _, items = encoding.partition(":")
    if kind in ("array", "list", "nullable_list") and items in _SCALARS:
        return f"ndarray:{items}"
    if dtype not in _SCALARS:
        return _infer(column.name, value, format)
    if column.shape:
        return (
            f"ndarray:{dtype}:{','.join(str(d) for d in column.shape)}"
            if all(column.shape)
            else f"ndarray:{dtype}"
        )
    return dtype


def _array_shape(value: np.ndarray[Any, Any]) -> bytes:
    if value.ndim == 0:
        raise InvalidArgumentError("arrays without dimensions cannot be written")
    return save_shape(value.shape)


def _little(value: Any, dtype: str, shape: Sequence[int] | None = None) -> np.ndarray[Any, Any]:
    """The value as an array of this type, and of this shape unless that may be any: never one that would
    change it."""
    if isinstance(value, list) and None in value:
        raise InvalidArgumentError(
            f"an element is null, which arrays of {dtype} cannot hold; write the column as json or to "
            "Parquet, or change it with a function (map=)"
        )
    array = np.asarray(value)
    if array.dtype.name != dtype:
        wider = np.can_cast(array.dtype, dtype, "safe")
        if not wider:
            raise InvalidArgumentError(f"an array of {array.dtype.name} given to a column of {dtype}")
        given, array = array, array.astype(dtype)
        if given.dtype.kind in "iu" and array.dtype.kind == "f" and _are_rounded(given, array):
            raise InvalidArgumentError(f"whole numbers that {dtype} has not given to a column of it")
    if shape is not None and array.shape != tuple(shape):
        raise InvalidArgumentError(
            f"an array of shape {array.shape} given to a column of shape {tuple(shape)}"
        )
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")


def _are_rounded(numbers: np.ndarray[Any, Any], floats: np.ndarray[Any, Any]) -> bool:
    """Whether some whole numbers are others as floats: numpy calls that safe where they have 64 bits."""
    large = np.abs(floats) >= 2.0**53
    pairs = zip(numbers[large].tolist(), floats[large].tolist(), strict=True)
    return any(number != int(rounded) for number, rounded in pairs)


def _octets(value: Any) -> Any:
    """For _native.ShardBuilder.stage(), which takes what lies in one piece as it is."""
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, str):
        return _text(value)
    view = memoryview(value)
    return value if view.c_contiguous else view.tobytes()


def _image_encoder(kind: str) -> Callable[[Any], Any]:
    def encode(value: Any) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _octets(value)
        return save_pil(value) if kind == "pil" else save_image(value, kind)

    return encode


def _whole_number(value: Any) -> int:
    number = operator.index(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidArgumentError(f"{number} does not fit 64 bits")
    return number


def _plain(value: Any) -> Any:
    """Inside of a value that becomes JSON."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidArgumentError(
            "JSON has no bytes, and a list of them is written as JSON; leave the column out, or change it "
            "with a function (map=)"
        )
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return str(value, "utf-8")
    if not value.isascii():
        value.encode()  # Fails on halves of surrogates.
    return value


def _bool_byte(value: Any) -> bytes:
    if isinstance(value, (bool, np.bool_)):
        return b"\1" if value else b"\0"
    number = operator.index(value)
    if number not in (0, 1):
        raise InvalidArgumentError(f"{number} given to a column of bool")
    return b"\1" if number else b"\0"


def _scalar_encoder(dtype: str) -> Callable[[Any], bytes]:
    scalar = struct.Struct(_SCALARS[dtype])
    is_float = dtype.startswith("float")

    def encode(value: Any) -> bytes:
        try:
            packed = scalar.pack(value)
            is_whole = is_float and isinstance(value, int | np.integer)
            is_other = is_whole and scalar.unpack(packed)[0] != int(value)
        except (struct.error, OverflowError):
            is_other = True
        if is_other:
            raise InvalidArgumentError(f"{value!r:.100} does not fit a column of {dtype}")
        return packed

    return _bool_byte if dtype == "bool" else encode


def _number_text(parse: Callable[[str], Any]) -> Callable[[Any], str]:
    """Text that readers parse with ``parse``."""

    def encode(value: Any) -> str:
        text = str(value)
        try:
            parse(text)
        except (ValueError, ArithmeticError):
            raise InvalidArgumentError(f"{value!r:.100} is no {parse.__name__}") from None
        return text

    return encode


_NUMBER_TEXTS = {"str_int": int, "str_float": float, "str_decimal": Decimal}

ENCODINGS = (
    *("bytes", "str", "int", "json", "jpeg", "png", "pil", "ndarray", "ndarray:DTYPE", "ndarray:DTYPE:d0,d1"),
    *_SCALARS,
    *_NUMBER_TEXTS,
)
"""That encoder() takes."""


def encoder(encoding: str) -> Callable[[Any], Any]:
    """A function from a Python value to what _native.ShardBuilder.stage() takes. Never one that changes the
    value but for rounding floats."""
    if encoding == "bytes":
        return _octets
    if encoding == "str":
        return _text
    if encoding == "int":
        return _whole_number
    if encoding == "json":
        return lambda value: json.dumps(value, default=_plain)
    if encoding in _SCALARS:
        return _scalar_encoder(encoding)
    if encoding in ("jpeg", "png", "pil"):
        return _image_encoder(encoding)
    if encoding in _NUMBER_TEXTS:
        return _number_text(_NUMBER_TEXTS[encoding])
    if encoding == "ndarray":
        return _any_array
    if encoding.startswith("ndarray:"):
        dtype, shape = split_array(encoding)
        if shape is None:
            return lambda value: _array_shape(np.asarray(value)) + _little(value, dtype).tobytes()
        return lambda value: _little(value, dtype, shape).tobytes()
    raise UnsupportedError(
        f"encoding {encoding!r} is not written (pickles never are); there are {', '.join(ENCODINGS)}"
    )


def _any_array(value: Any) -> bytes:
    array = np.asarray(value)
    dtype = array.dtype.name
    if dtype not in TYPE_BYTES:
        raise InvalidArgumentError(
            f"an array of {dtype} given to a column of ndarray, which are of {', '.join(TYPE_BYTES)}"
        )
    return bytes([TYPE_BYTES[dtype]]) + _array_shape(array) + _little(array, dtype).tobytes()


MOST_ELEMENTS = (1 << 31) - 1
"""Of an array of a fixed shape: Arrow counts those of a list in 32 bits, and MDS the bytes of a shard."""


def split_array(encoding: str) -> tuple[str, list[int] | None]:
    """dtype and shape of ``"ndarray:DTYPE[:d0,d1]"``."""
    _, dtype, *rest = encoding.split(":", 2)
    if not rest or not rest[0]:
        return dtype, None
    dimensions = [d.strip() for d in rest[0].split(",")]
    if not all(re.fullmatch("[1-9][0-9]{0,9}", d) for d in dimensions):
        raise InvalidArgumentError(
            f"encoding {encoding!r:.100}: dimensions are whole numbers of at least 1, as in "
            "'ndarray:float32:2,3'"
        )
    shape = [int(d) for d in dimensions]
    if math.prod(shape) > MOST_ELEMENTS:
        raise InvalidArgumentError(f"encoding {encoding!r:.100}: more than {MOST_ELEMENTS:,} elements")
    return dtype, shape


def check_column_name(name: str) -> None:
    """Raises InvalidArgumentError for a name that shards other than Parquet have no place for."""
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(
            f"a column cannot be called {name!r}; rename it (in a conversion with columns=: 'NEW={name}')"
        )


def builder_row(column: ColumnSpec) -> tuple[str, str, str, list[int], str, str]:
    """A column of _native.ShardBuilder whose cells encoder() makes."""
    name, encoding = column
    check_column_name(name)
    dtype, shape = "", []
    if encoding == "int":
        dtype = "int64"
    elif encoding in _SCALARS:
        dtype = encoding
    elif encoding.startswith("ndarray:"):
        array_dtype, array_shape = split_array(encoding)
        if array_shape is not None:
            dtype, shape = array_dtype, array_shape
    return name, encoding, dtype, shape, name, ""


class SampleEncoder:
    """Samples as dicts to the values of a ShardBuilder, or to what `make` makes functions for."""

    def __init__(
        self, columns: Sequence[ColumnSpec], make: Callable[[str], Callable[[Any], Any]] = encoder
    ) -> None:
        self._columns = []
        for name, encoding in columns:
            try:
                self._columns.append((name, make(encoding)))
            except UnsupportedError as error:
                raise UnsupportedError(f"column {name!r}: {error}") from None

    def values(self, sample: Mapping[str, Any]) -> list[Any]:
        out = []
        for name, encode in self._columns:
            value = sample.get(name)
            try:
                out.append(None if value is None else encode(value))
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"column {name!r}: {error}") from None
            except (TypeError, ValueError, OverflowError, AttributeError) as error:
                raise InvalidArgumentError(f"column {name!r}: {error}") from error
        return out


def parquet_cell(encoding: str) -> Callable[[Any], Any]:
    """A function from a Python value to what pyarrow takes for _type_of() that encoding."""
    encode = encoder(encoding)
    if encoding in ("bytes", "jpeg", "png", "pil"):

        def octets(value: Any) -> bytes:
            encoded = encode(value)
            return encoded.encode() if isinstance(encoded, str) else bytes(memoryview(encoded))

        return octets
    if encoding in _SCALARS:
        unpack = struct.Struct(_SCALARS[encoding]).unpack
        return lambda value: unpack(encode(value))[0]
    if not encoding.startswith("ndarray:"):
        return encode
    dtype, shape = split_array(encoding)
    item = parquet_cell(dtype) if dtype in _SCALARS else None

    def flat(value: Any) -> Any:
        if item is not None and shape is None and isinstance(value, list) and None in value:
            return [None if part is None else item(part) for part in value]  # As Arrow has them.
        array = _little(value, dtype, shape)
        if array.ndim != 1 and shape is None:
            raise InvalidArgumentError(
                "Parquet holds arrays of one dimension, or of a shape that columns= names"
            )
        return array.reshape(-1)

    return flat


class RowShards:
    """Makes Parquet files of rows; the counterpart of _native.ShardBuilder."""

    def __init__(self, columns: Sequence[ColumnSpec], compression: str) -> None:
        self._pa = pa = arrow()
        self._encoder = SampleEncoder(columns, parquet_cell)
        self._schema = pa.schema([(c.name, self._type_of(c)) for c in columns])
        self._codec, colon, level = (compression or "none").partition(":")
        digits = level.removeprefix("-")
        if colon and not (digits.isascii() and digits.isdecimal()):
            raise InvalidArgumentError(
                f"compression {compression!r}: expected CODEC or CODEC:LEVEL, as zstd:3"
            )
        self._level = int(level) if colon else None
        self._rows: list[Mapping[str, Any]] = []
        self._bytes = 0
        # What pyarrow cannot write is said now, and not after the first samples.
        self._file(self._schema.empty_table())

    def _type_of(self, column: ColumnSpec) -> Any:
        pa, encoding = self._pa, column.encoding
        if encoding in ("str", "json") or encoding in _NUMBER_TEXTS:
            return pa.string()
        if encoding == "int":
            return pa.int64()
        if encoding in _SCALARS:
            return pa.from_numpy_dtype(np.dtype(encoding))
        if encoding.startswith("ndarray:"):
            dtype, shape = split_array(encoding)
            try:
                element = pa.from_numpy_dtype(np.dtype(dtype))
            except (TypeError, pa.ArrowException) as error:
                raise UnsupportedError(f"column {column.name!r}: arrays of {dtype}: {error}") from error
            return pa.list_(element, -1 if shape is None else math.prod(shape))
        if encoding in ("bytes", "jpeg", "png", "pil"):
            return pa.binary()
        raise UnsupportedError(f"column {column.name!r}: encoding {encoding!r} is not written to Parquet")

    @staticmethod
    def _size(value: Any) -> int:
        if isinstance(value, np.ndarray):
            return value.nbytes
        if isinstance(value, list):
            return 8 * len(value)
        return len(value) + 4 if isinstance(value, (bytes, str)) else 8

    @property
    def sample_count(self) -> int:
        return len(self._rows)

    @property
    def raw_bytes(self) -> int:
        return self._bytes

    def stage(self, sample: Mapping[str, Any], number: int) -> int:
        self._staged = dict(zip(self._schema.names, self._encoder.values(sample), strict=True))
        self._staged_bytes = sum(self._size(v) for v in self._staged.values())
        return self._bytes + self._staged_bytes

    def commit(self) -> None:
        self._rows.append(self._staged)
        self._bytes += self._staged_bytes

    def _file(self, table: Any) -> memoryview:
        import pyarrow.parquet as pq  # type: ignore[import-untyped]

        sink = self._pa.BufferOutputStream()
        try:
            pq.write_table(table, sink, compression=self._codec, compression_level=self._level)
        except (OSError, ValueError, OverflowError, self._pa.ArrowException) as error:
            raise UnsupportedError(f"parquet with compression {self._codec!r}: {error}") from error
        return memoryview(sink.getvalue())

    def take(self) -> tuple[memoryview, dict[str, Any]]:
        try:
            table = self._pa.Table.from_pylist(self._rows, schema=self._schema)
        except self._pa.ArrowException as error:
            raise InvalidArgumentError(f"parquet: {error}") from error
        data = self._file(table)
        facts = {
            "samples": len(self._rows),
            "raw_bytes": self._bytes,
            "bytes": len(data),
            "raw_hash": "",
            "zip_hash": "",
        }
        self._rows, self._bytes = [], 0
        return data, facts

    config_json = "{}"


class _NativeShards:
    """_native.ShardBuilder over dicts."""

    def __init__(
        self, format: str, columns: Sequence[ColumnSpec], shard_bytes: int, compression: str, hash: str
    ) -> None:
        self._encoder = SampleEncoder(columns)
        rows = [builder_row(column) for column in columns]
        self._builder = _native.ShardBuilder(
            format, rows, shard_bytes=shard_bytes, compression=compression, hash=hash
        )
        self.take = self._builder.take
        self.commit = self._builder.commit

    @property
    def sample_count(self) -> int:
        return self._builder.sample_count

    @property
    def raw_bytes(self) -> int:
        return self._builder.raw_bytes

    @property
    def config_json(self) -> str:
        return self._builder.config_json

    def stage(self, sample: Mapping[str, Any], number: int) -> int:
        return self._builder.stage(self._encoder.values(sample), number)


def make_shards(
    format: str, columns: Sequence[ColumnSpec], shard_bytes: int, compression: str, hash: str
) -> Any:
    """What makes shards of dicts: stage(), commit(), take()."""
    if format != "parquet":
        return _NativeShards(format, columns, shard_bytes, compression, hash)
    if hash:
        raise UnsupportedError("parquet has no place for hashes")
    return RowShards(columns, compression)


def stage(shards: Any, sample: Mapping[str, Any], number: int) -> int:
    """``shards.stage()``, whose errors name the sample. Returns the size that the shard would have."""
    try:
        return shards.stage(sample, number)  # type: ignore[no-any-return]
    except (CorruptError, InvalidArgumentError, UnsupportedError) as error:
        raise type(error)(f"sample {number}: {error}") from error


class DatasetWriter:
    """Writes samples (dicts) as shards of about ``shard_bytes``; use it in a ``with`` block.

    The index is written at the end of the block; when the block ends with an exception there is none. A
    target that already holds a dataset is refused, also one of ours (of formats without an index: one with
    any file that may hold samples); one that holds the beginning of a write with the same options is gone
    over again: shards that come out the same are not sent again, shards beyond the new end are removed. Of
    two writers on one target the one that began first ends with ChangedError.

    :param url: directory or prefix to write to.
    :param columns: encoding of each column by name: MDS names such as ``"int"``, ``"str"``, ``"json"``,
        ``"jpeg"``, ``"ndarray:float32"``, also ``"bool"``. Default: by the values of the first sample.
    :param compression: MDS, LitData: ``"zstd[:LEVEL]"``; WebDataset, TFRecord: ``"gzip[:LEVEL]"``; Parquet: a
        codec of pyarrow.
    :param hash: MDS: ``"sha1"``, ``"sha256"``, ``"xxh64"`` or ``"xxh3_64"``.
    """

    format = ""

    def __init__(
        self,
        url: str | os.PathLike[str],
        columns: Mapping[str, str] | None = None,
        *,
        shard_bytes: int | str = DEFAULT_SHARD_BYTES,
        compression: str = "",
        hash: str = "",
        memory: int | str = "256MiB",
        **options: Unpack[StoreOptions],
    ) -> None:
        writing_names(type(self).__name__, ["columns", *named_options(DatasetWriter.__init__)]).check(options)
        self._shard_bytes = parse_bytes(shard_bytes, "shard_bytes")
        check_shard_bytes(self.format, self._shard_bytes)
        self._compression, self._hash = compression, hash
        self._columns: list[ColumnSpec] | None = None
        self._shards: Any = None
        self._facts: list[dict[str, Any]] = []
        self._unsent: tuple[dict[str, Any], Any] | None = None
        self._names_files = False
        self._group: str | None = None
        """Of the file that was written last."""
        self._is_closed = False
        self._count = 0
        self._run = uuid.uuid4().hex
        refuse_memory(url)
        need_packages(self.format)
        if columns is not None:
            self._make_shards([ColumnSpec(name, encoding) for name, encoding in columns.items()])
        self._store = open_native(url, memory, **options)
        self._target: PackTarget | None = None

    def _make_shards(self, columns: list[ColumnSpec]) -> None:
        self._shards = make_shards(self.format, columns, self._shard_bytes, self._compression, self._hash)
        self._columns = columns
        self._names_files = names_files(self.format, columns)

    def _begin(self) -> PackTarget:
        """Looks at the target, once the columns are known."""
        if self._target is None:
            plan = {
                "columns": self._columns,
                "compression": self._compression,
                "format": self.format,
                "hash": self._hash,
                "shard_bytes": self._shard_bytes,
                "source": "samples of a program",
            }
            target = PackTarget(self._store, plan)
            self._done = target.begin_write(self._run)
            self._target = target
        return self._target

    def write(self, sample: Mapping[str, Any]) -> None:
        """Adds one sample. Values that the columns' encodings cannot hold raise InvalidArgumentError or
        UnsupportedError.

        After any error this sample is not part of the dataset, all before it are, and writing may go on.
        """
        if self._is_closed:
            raise InvalidArgumentError("the writer is closed")
        self._send()
        if not isinstance(sample, Mapping):
            raise InvalidArgumentError(f"a sample is a dict of columns, not a {type(sample).__name__}")
        columns = self._columns
        if columns is None:
            self._make_shards(infer_columns(sample, self.format))
        elif unknown := sample.keys() - {c.name for c in columns}:
            raise InvalidArgumentError(
                f"sample {self._count}: column {min(unknown)!r} is not one of {[c.name for c in columns]}"
            )
        try:
            size = stage(self._shards, sample, self._count)
        except BaseException:
            if columns is None:  # The next sample decides.
                self._columns = self._shards = None
            raise
        group = file_group(_text(sample[FILE_COLUMN])) if self._names_files else None
        is_same_sample = self._names_files and group == self._group
        if self._shards.sample_count > 0 and size > self._shard_bytes and not is_same_sample:
            self._flush()
        self._shards.commit()
        self._group = group
        self._count += 1

    def _flush(self) -> None:
        target = self._begin()
        data, facts = self._shards.take()
        facts["name"] = target.name_of(len(self._facts))
        facts["content"] = content_digest(data)
        self._unsent = facts, data
        self._send()

    def _send(self) -> None:
        """Puts the shard that was made last unless it is there. One whose put failed goes before anything
        else."""
        if self._unsent is None:
            return
        facts, data = self._unsent
        target, number = self._begin(), len(self._facts)
        if self._done.get(number) != facts:
            target.check_run(self._run)
            put = target.replace_part if number in self._done else target.put_part
            put(number, facts, data)
        self._facts.append(facts)
        self._unsent = None

    def close(self) -> None:
        """Writes the last shard and the index. May be repeated, also after an error of the store."""
        if self._is_closed:
            return
        if self._shards is None:
            raise InvalidArgumentError("no sample was written: there is no dataset without columns")
        is_empty = not (self._shards.sample_count or self._unsent or self._facts)
        if is_empty and self.format in HAVE_NO_EMPTY_SHARDS:
            raise InvalidArgumentError(
                f"no sample was written: there is no shard of {self.format} without samples"
            )
        self._send()
        if self._shards.sample_count > 0 or not self._facts:
            self._flush()
        self._begin().finish_write(self._run, self._facts, self._shards.config_json)
        self.abandon()

    def abandon(self) -> None:
        """Ends without an index. What was written stays; the same write goes over it again."""
        self._is_closed = True
        self._store.close()

    @property
    def shard_facts(self) -> list[dict[str, Any]]:
        """Name, samples, bytes and hashes of each shard written."""
        return list(self._facts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self.close()
        finally:
            self.abandon()


class MDSWriter(DatasetWriter):
    """Mosaic's shards: byte for byte what mosaicml-streaming's MDSWriter makes of the same samples."""

    format = "mds"


class WebDatasetWriter(DatasetWriter):
    """Tar files. A column ``__key__`` (str) names the samples; else they are numbered. With a column
    ``__file__`` (str) each dict is a file of that name, and files that follow one another and differ in their
    extensions alone are one sample, which lies in one shard."""

    format = "webdataset"


class TFRecordWriter(DatasetWriter):
    """Records of tf.train.Example."""

    format = "tfrecord"


class LitDataWriter(DatasetWriter):
    """LitData chunks in the layout that every release reads."""

    format = "litdata"


class ParquetWriter(DatasetWriter):
    """Parquet files, by pyarrow."""

    format = "parquet"


def check_shard_bytes(format: str, shard_bytes: int) -> None:
    """Raises InvalidArgumentError for shards that could not be written once they are full."""
    if shard_bytes > MOST_OFFSET_BYTES.get(format, shard_bytes):
        raise InvalidArgumentError(f"shard_bytes of {format} is not in 1 .. 2^32 - 1")


def need_packages(format: str) -> None:
    """Raises UnsupportedError where a package that writes a format is not there: before anything is read."""
    if format == "parquet":
        arrow()


def writer_class(format: str) -> type[DatasetWriter]:
    """The writer of a format by name."""
    for kind in (MDSWriter, WebDatasetWriter, TFRecordWriter, LitDataWriter, ParquetWriter):
        if kind.format == format:
            return kind
    raise UnsupportedError(f"format {format!r}: known are mds, webdataset, tfrecord, litdata, parquet")
