"""What a conversion makes: which part of a dataset becomes which shard, of which columns; and its parts."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headrace import _native
from headrace.data.dataset import Dataset
from headrace.errors import (
    ChangedError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
    UserCodeError,
)
from headrace.prepare.target import PackTarget, content_digest
from headrace.prepare.writers import (
    FILE_COLUMN,
    HAVE_NO_EMPTY_SHARDS,
    ColumnSpec,
    check_column_name,
    check_shard_bytes,
    encoding_of_column,
    file_group,
    infer_columns,
    make_shards,
    names_files,
    stage,
    writer_class,
)
from headrace.sources.url import UrlSource
from headrace.store.urls import public_url

__all__ = ["Job", "PartMaker", "load_callable", "parse_columns", "plan_job", "samples_of"]

READ_BYTES = 8 << 20
"""Stored bytes of the samples decoded at once on the way through Python; as many are read ahead."""

# Bytes of a sample in a shard beyond its values: for planning alone.
_OVERHEAD = {"mds": 8, "litdata": 8, "tfrecord": 32, "webdataset": 768, "parquet": 4}

_SUFFIX_ENCODINGS = {
    **dict.fromkeys(("txt", "text", "transcript"), "str"),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id"), "ascii:int"),
    **dict.fromkeys(("json", "jsn"), "json"),
}


def load_callable(name: str, folder: str | None = None) -> Callable[..., Any]:
    """The object behind ``"module:function"``. Imports the module: code that the caller named runs.

    :param folder: looked into first, as ``python -m`` does with the working directory, which is the default.
        It stays on ``sys.path``: the function may import what lies beside it.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise InvalidArgumentError(f"{name!r}: expected module:function")
    folder = os.getcwd() if folder is None else folder
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidArgumentError(f"{name!r}: {error} (looked in {folder} and sys.path)") from error
    if not callable(found):
        raise InvalidArgumentError(f"{name!r} is not callable")
    return found  # type: ignore[no-any-return]


def source_digest(name: str, function: Callable[..., Any]) -> str:
    """SHA-256 of the files of the module that was named and of the one that defines the function: of its code
    where there is none. What these import is not seen."""
    found = hashlib.sha256()
    for module in dict.fromkeys((name.partition(":")[0], getattr(function, "__module__", None) or "")):
        try:
            with open(getattr(sys.modules.get(module), "__file__", None) or "", "rb") as file:
                found.update(file.read())
        except OSError:  # Out of an archive, or made by a program.
            try:
                found.update(inspect.getsource(function).encode())
            except (OSError, TypeError):
                found.update(getattr(getattr(function, "__code__", None), "co_code", b""))
    return found.hexdigest()


def call_user(name: str, position: int, call: Callable[..., Any], *arguments: Any) -> Any:
    """What the caller's own code returns for a sample; UserCodeError says for which one it failed."""
    try:
        return call(*arguments)
    except Exception as error:
        raise UserCodeError(f"sample {position}: {name}: {type(error).__name__}: {error}") from error


def _as_sample(name: str, position: int, made: Any) -> Mapping[str, Any]:
    if isinstance(made, Mapping):
        return made
    raise InvalidArgumentError(f"sample {position}: {name}: expected a dict, not a {type(made).__name__}")


def samples_of(name: str) -> Iterator[Mapping[str, Any]]:
    """Those that the function ``"module:function"`` returns when it is called."""
    function, end, position = load_callable(name), object(), 0
    samples = call_user(name, position, lambda: iter(function()))
    while (made := call_user(name, position, next, samples, end)) is not end:
        yield _as_sample(name, position, made)
        position += 1


def plan_parts(dataset: Dataset, format: str, shard_bytes: int) -> list[int]:
    """Where parts end: by the size of the source's samples, taken as equal within a block. Depends on the
    source alone."""
    overhead = _OVERHEAD[format] * max(len(dataset.schema), 1)
    ends: list[int] = []
    filled = 0.0
    for block in dataset.blocks:
        each = block.raw_bytes / block.sample_count + overhead
        at, end = block.first_sample, block.first_sample + block.sample_count
        while at < end:
            room = int((shard_bytes - filled) // each)
            if room < 1 and filled > 0:
                ends.append(at)
                filled = 0.0
                continue
            take = min(max(room, 1), end - at)
            at += take
            filled += take * each
    if len(dataset) > 0:
        ends.append(len(dataset))
    return ends


def _between_groups(dataset: Dataset, ends: Sequence[int], column: str) -> list[int]:
    """The ends, moved behind files that are one sample with the last one (``x.jpg``, ``x.json``). The column
    has their names."""

    def group(sample: Mapping[str, Any]) -> str:
        name = sample.get(column) or b""  # One without a name is refused when its part is made.
        return file_group(name if isinstance(name, str) else str(name, "utf-8", "surrogateescape"))

    moved, is_moving = list(ends), list(range(len(ends)))
    while is_moving := [i for i in is_moving if moved[i] < len(dataset)]:
        positions = sorted({position for i in is_moving for position in (moved[i] - 1, moved[i])})
        step = _samples_at_once(dataset)
        groups: dict[int, str] = {}
        for start in range(0, len(positions), step):
            some = positions[start : start + step]
            groups.update(zip(some, map(group, dataset.read(some, columns=[column])), strict=True))
        is_moving = [i for i in is_moving if groups[moved[i] - 1] == groups[moved[i]]]
        for i in is_moving:
            moved[i] += 1
    return sorted(set(moved))


class Job:
    """A conversion as every worker needs it: plain values, no credentials, so that it may be written down.
    Made by plan_job()."""

    def __init__(self, spec: dict[str, Any], sample_count: int = 0) -> None:
        self.spec = spec
        self.sample_count = sample_count
        """Of the target; where a function leaves some out, or rows are files of one sample, there are fewer.
        Known to the planner alone."""

    @property
    def part_count(self) -> int:
        return len(self.spec["ends"])

    def part(self, number: int) -> tuple[int, int]:
        ends = self.spec["ends"]
        return (ends[number - 1] if number > 0 else 0), ends[number]


class PartMaker:
    """Makes parts of a job, one at a time. One owner.

    :param folder: where the module of the job's function lies; default: the working directory.
    """

    def __init__(
        self,
        job: Job,
        dataset: Dataset,
        source: _native.Store,
        target: PackTarget,
        folder: str | None = None,
    ) -> None:
        self._spec, self._job = job.spec, job
        self._dataset, self._source, self._target = dataset, source, target
        spec = self._spec
        self._builder: Any
        if spec["rows"] is not None:
            rows = [tuple(row) for row in spec["rows"]]
            self._builder = _native.ShardBuilder(
                spec["format"],
                rows,
                shard_bytes=spec["shard_bytes"],
                compression=spec["compression"],
                hash=spec["hash"],
            )
        else:
            columns = [ColumnSpec(*column) for column in spec["columns"]]
            self._names = {column.name for column in columns}
            self._builder = make_shards(
                spec["format"], columns, spec["shard_bytes"], spec["compression"], spec["hash"]
            )
            self._map = load_callable(spec["map"], folder) if spec["map"] else None
            if self._map is not None and source_digest(spec["map"], self._map) != spec["map_source"]:
                raise ChangedError(f"{spec['map']} is not the function that the conversion began with")

    @property
    def config_json(self) -> str:
        return self._builder.config_json  # type: ignore[no-any-return]

    def make(self, number: int) -> dict[str, Any]:
        """Writes one part and its record; returns the facts."""
        begin, end = self._job.part(number)
        if self._spec["rows"] is not None:
            self._builder.add_samples(self._dataset._native, self._source, begin, end)
        else:
            for position, sample in self._samples(begin, end):
                stage(self._builder, sample, position)
                self._builder.commit()
        data, facts = self._builder.take()
        facts["name"] = self._target.name_of(number)
        if facts["samples"] == 0 and self._spec["format"] in HAVE_NO_EMPTY_SHARDS:
            facts.update(bytes=0, raw_bytes=0, raw_hash="", zip_hash="")
        elif self._spec["format"] == "litdata":
            facts["content"] = content_digest(
                data
            )  # For the index; the others need no second look at each byte.
        self._target.put_part(number, facts, data)
        return facts  # type: ignore[no-any-return]

    def _samples(self, begin: int, end: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        renames = self._spec["renames"]
        wanted = None if renames is None or self._map else [source for source, _ in renames]
        for position, sample in _read_ahead(self._dataset, begin, end, wanted):
            mapped: Mapping[str, Any] = sample
            if self._map is not None:
                made = call_user(self._spec["map"], position, self._map, sample)
                if made is None:
                    continue
                mapped = _as_sample(self._spec["map"], position, made)
            if renames is None:
                self._check_keys(position, mapped)
            yield (
                position,
                mapped if renames is None else {target: mapped.get(source) for source, target in renames},
            )

    def _check_keys(self, position: int, sample: Mapping[str, Any]) -> None:
        if unknown := sample.keys() - self._names:
            raise InvalidArgumentError(
                f"sample {position}: column {min(unknown)!r} is not one of the first sample's, "
                f"{sorted(self._names)}"
            )


def _samples_at_once(dataset: Dataset) -> int:
    return max(1, min(READ_BYTES * len(dataset) // max(dataset.nbytes, 1), 1 << 16))


def _read_ahead(
    dataset: Dataset, begin: int, end: int, columns: Sequence[str] | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Samples ``begin`` to ``end`` (at least one) with their positions; while some are used, the next are
    read."""
    step = _samples_at_once(dataset)
    chunks = [range(start, min(start + step, end)) for start in range(begin, end, step)]
    with ThreadPoolExecutor(1, thread_name_prefix="headrace-read") as reader:
        ahead = reader.submit(dataset.read, chunks[0], columns=columns)
        for i, chunk in enumerate(chunks):
            samples = ahead.result()
            if i + 1 < len(chunks):
                ahead = reader.submit(dataset.read, chunks[i + 1], columns=columns)
            yield from zip(chunk, samples, strict=True)


_SHAPED = re.compile(r":ndarray:\w+:[\d,]+$")


def _items(text: str) -> list[str]:
    """Those between the commas but for the commas of shapes, as in ``x:ndarray:float32:2,3``."""
    items: list[str] = []
    for item in text.split(","):
        if items and item.isdecimal() and _SHAPED.search(items[-1]):
            items[-1] += f",{item}"
        else:
            items.append(item)
    return items


def parse_columns(text: str | Sequence[str] | None) -> list[tuple[str, str, str]] | None:
    """``TARGET[=SOURCE][:ENCODING]``, comma-separated, as (source, target, encoding)."""
    if text is None:
        return None
    out: list[tuple[str, str, str]] = []
    for item in _items(text) if isinstance(text, str) else text:
        names, _, encoding = item.strip().partition(":")
        target, has_source, source = names.partition("=")
        if not target:
            raise InvalidArgumentError(
                f"columns: {item!r}: expected NAME, NAME=SOURCE or NAME=SOURCE:ENCODING"
            )
        if any(target == known for _, known, _ in out):
            raise InvalidArgumentError(f"columns: {target!r} is named twice")
        out.append((source if has_source else target, target, encoding))
    return out


def _native_rows(
    dataset: Dataset, chosen: list[tuple[str, str, str]] | None
) -> list[tuple[str, str, str, list[int], str, str]]:
    """Columns for the native builder: what each cell is, and what it becomes. UnsupportedError: only by way
    of Python."""
    targets = (
        {source: (target, encoding) for source, target, encoding in chosen} if chosen is not None else None
    )
    if chosen is not None and targets is not None and len(targets) < len(chosen):
        raise UnsupportedError("a column that becomes two goes by way of Python")
    rows: list[tuple[str, str, str, list[int], str, str]] = []
    for column in dataset.schema.values():
        if targets is not None and column.name not in targets:
            rows.append((column.name, "bytes", "", [], "", ""))
            continue
        target, wanted = targets[column.name] if targets is not None else (column.name, "")
        check_column_name(target)
        encoding, index_encoding = column.encoding, ""
        if dataset.format == "webdataset" and encoding == "bytes":
            encoding = _SUFFIX_ENCODINGS.get(column.name.rpartition(".")[2], "bytes")
        wanted_cell = "ascii:int" if wanted == "int" and dataset.format == "webdataset" else wanted
        if wanted and wanted_cell != encoding:
            if column.encoding != "bytes" or wanted_cell not in (
                "bytes",
                "str",
                "json",
                "jpeg",
                "png",
                "ascii:int",
            ):
                raise UnsupportedError(
                    f"column {column.name!r}: {column.encoding} as {wanted} goes by way of Python"
                )
            encoding = wanted_cell
        rows.append((column.name, encoding, column.dtype, list(column.shape), target, index_encoding))
    return rows


def _chosen(
    dataset: Dataset, columns: str | Sequence[str] | None, is_mapped: bool
) -> list[tuple[str, str, str]] | None:
    chosen = parse_columns(columns)
    if chosen is not None and not is_mapped:
        for source, _, _ in chosen:
            if source not in dataset.schema:
                raise InvalidArgumentError(
                    f"columns: {dataset.url} has no column {source!r}; its columns are "
                    f"{', '.join(dataset.schema)}"
                )
    return chosen


def plan_job(
    dataset: Dataset,
    format: str,
    shard_bytes: int,
    compression: str,
    hash: str,
    columns: str | Sequence[str] | None,
    map: str,
) -> Job:
    """Decides everything that output bytes depend on."""
    if len(dataset) == 0:
        raise NotFoundError(f"{dataset.url} has no samples")
    writer_class(format)
    check_shard_bytes(format, shard_bytes)
    chosen = _chosen(dataset, columns, bool(map))
    tar_samples = 0
    if format == "webdataset" and set(dataset.schema) in ({"data", "key"}, {"data", "key", "label"}):
        tar_samples = _native.count_samples_in_tars(dataset._native)
    if chosen is None and not map and tar_samples > 0:
        chosen = [("data", "data", ""), ("key", FILE_COLUMN, "")]  # As files are packed without conversion.
        if "label" in dataset.schema:
            chosen.append(("label", "cls", ""))  # As WebDataset's decoders know it.
    sources = {target: source for source, target, _ in chosen or []}
    spec: dict[str, Any] = {
        "columns": None,
        "compression": compression,
        "ends": plan_parts(dataset, format, shard_bytes),
        "fingerprint": dataset._native.version_fingerprint,
        "format": format,
        "hash": hash,
        "map": map,
        "renames": None,
        "rows": None,
        "shard_bytes": shard_bytes,
        "source": public_url(dataset.url) if isinstance(dataset._source, UrlSource) else "",
        "source_format": dataset.format,
    }
    if not map and format != "parquet":
        try:
            rows = _native_rows(dataset, chosen)
            _native.ShardBuilder(format, rows, shard_bytes=shard_bytes, compression=compression, hash=hash)
        except UnsupportedError:
            pass  # Another way, or the error again, with Python's view of the values.
        else:
            spec["rows"] = rows
            named = [ColumnSpec(target, encoding) for _, encoding, _, _, target, _ in rows]
            return _with_whole_samples(spec, dataset, named, sources, tar_samples)
    # By way of Python values. Their encodings are those of the dataset's columns; what a function makes, and
    # what columns do not tell, is as in the first sample, whoever makes which part.
    sample = dataset[0]
    if map:
        function = load_callable(map)
        spec["map_source"] = source_digest(map, function)
        first = call_user(map, 0, function, sample)
        if first is None:
            raise InvalidArgumentError(
                f"{map}: the first sample must not be left out: its columns are those of the dataset"
            )
        sample = dict(_as_sample(map, 0, first))
    if chosen is not None:
        spec["renames"] = [(source, target) for source, target, _ in chosen]
        sample = {target: sample.get(source) for source, target, _ in chosen}
    wanted = {target: encoding for _, target, encoding in chosen or [] if encoding}
    known = {name: value for name, value in sample.items() if name not in wanted}
    if map:
        inferred = {column.name: column.encoding for column in infer_columns(known, format)}
    else:
        inferred = {
            name: encoding_of_column(dataset.schema[sources.get(name, name)], value, format)
            for name, value in known.items()
        }
    specs = [ColumnSpec(name, wanted.get(name) or inferred[name]) for name in sample]
    spec["columns"] = [tuple(column) for column in specs]
    make_shards(format, specs, shard_bytes, compression, hash)
    return _with_whole_samples(spec, dataset, specs, sources, tar_samples)


def _with_whole_samples(
    spec: dict[str, Any],
    dataset: Dataset,
    columns: Sequence[ColumnSpec],
    sources: Mapping[str, str],
    tar_samples: int,
) -> Job:
    """The job, whose parts end between samples also where each row is a file of one.

    :param tar_samples: that the objects of the source are; 0: not known.
    """
    if not names_files(spec["format"], columns):
        return Job(spec, len(dataset))
    if spec["map"]:
        if len(spec["ends"]) > 1:
            raise InvalidArgumentError(
                f"{spec['map']}: returns files of a WebDataset ({FILE_COLUMN}); those of one sample could "
                "come into two shards, which are cut before the function is called; return a sample as one "
                "dict with a column for each file (__key__ names it), write the files with prepare.write() "
                "(--from python), or give a shard_bytes that all fit in"
            )
        return Job(spec, len(dataset))
    source = sources.get(FILE_COLUMN, FILE_COLUMN)
    spec["ends"] = _between_groups(dataset, spec["ends"], source)
    return Job(spec, tar_samples if source == "key" and tar_samples else len(dataset))
