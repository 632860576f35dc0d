"""Verification: every sample and checksum of a dataset, SHA-256 manifests, comparison of two datasets."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace import _native
from headrace._native import ObjectInfo
from headrace.base.batches import batches
from headrace.base.packages import find_missing_package, telling_missing_package
from headrace.base.progress import progress_bar
from headrace.data.dataset import Dataset
from headrace.data.rows import CutEnd, samples_at_once
from headrace.data.tables.arrow import arrow
from headrace.errors import ChangedError, CorruptError, HeadraceError, InvalidArgumentError, UnsupportedError
from headrace.sources.splits import INDEX_KEY
from headrace.sources.url import UrlSource
from headrace.store.store import Store, StoreOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "DiffReport",
    "ManifestReport",
    "Problem",
    "VerifyReport",
    "check_manifest",
    "create_manifest",
    "diff",
    "format_manifest",
    "parse_manifest",
    "verify",
]

MANIFEST_KEY = "MANIFEST.sha256"


class Problem(NamedTuple):
    """Something that is wrong."""

    key: str
    """Object, relative to the root; "" for the dataset as a whole."""
    position: int
    """Dataset position of the sample, or of the first sample of a block that cannot be read, or of a shard of
    which all is in doubt (its digest differs); -1: an object that is no shard, or one that the dataset does
    without."""
    code: str
    """``"corrupt"``, ``"changed"``, ``"not_found"``, ..."""
    message: str
    samples: int = 0
    """Samples from ``position`` on that it concerns: 1, or more for a block or a shard; 0 where ``position``
    is -1."""


@dataclass
class VerifyReport:
    """What was checked and what is wrong."""

    url: str
    format: str = ""
    samples: int = 0
    """Samples in the dataset."""
    samples_ok: int = 0
    """Samples that were read and cut without a complaint, in shards whose digests are right."""
    bytes_read: int = 0
    shards: int = 0
    """Shards in the dataset; of raw files: files."""
    shards_with_digests: int = 0
    """Those of which the format stores a digest."""
    shards_with_checksums: int = 0
    """Others whose values have checksums: of records (TFRecord, ArrayRecord) or of compressed data (gzip,
    zlib, bzip2, xz)."""
    digests_compared: int = 0
    """Stored digests (hashes of MDS shards) that were computed and compared."""
    second_reads: int = 0
    """Reads made again because what came made no sense; what then came right is no problem (a bit had flipped
    on the way)."""
    cut_ends: list[CutEnd] = field(default_factory=list)
    """What was passed over because the options are lenient."""
    fingerprint: str = ""
    """Of a dataset that broken shards have left with fewer samples: positions in ``problems`` count in it."""
    problem_count: int = 0
    problems: list[Problem] = field(default_factory=list)
    """The first of them, by position."""

    @property
    def ok(self) -> bool:
        """Every sample was read and cut, and nothing is wrong."""
        return self.problem_count == 0 and self.samples_ok == self.samples

    @property
    def shards_unchecked(self) -> int:
        """Shards of which nothing tells whether their values are what was written: only lengths and structure
        were compared."""
        return self.shards - self.shards_with_digests - self.shards_with_checksums

    def add(self, problem: Problem) -> None:
        self.problem_count += 1
        self.problems.append(problem)


def verify(
    url: str | os.PathLike[str],
    *,
    format: str = "auto",
    use_index: bool = False,
    workers: int = 0,
    memory: int | str = "512MiB",
    most_problems: int = 1000,
    dataset_options: Mapping[str, Any] | None = None,
    **options: Unpack[StoreOptions],
) -> VerifyReport:
    """Reads a dataset from end to end and checks lengths, versions, stored digests, record checksums,
    offsets, and the fit of every sample.

    :param use_index: trust the index beside the dataset or in the cache. Default: the shards are scanned
        anew, nothing is trusted, and the index stored beside a folder is a problem too when it does not
        describe it (one object, a pattern or ``keys`` are no folder).
    :param workers: threads; 0: one a core.
    """
    more: dict[str, Any] = dict(dataset_options or {})
    report = VerifyReport(url=os.fspath(url))
    try:
        trusted: dict[str, Any] = {} if use_index else {"use_stored_index": False, "index_cache": ""}
        dataset = Dataset(
            url,
            format=format,
            memory=memory,
            **{"on_broken_shard": "leave_out", **trusted, **more},
            **options,
        )
    except CorruptError as error:
        report.add(Problem("", -1, error.code, str(error)))
        if use_index:
            return report
        older = _open_older(url, {"format": format, "memory": memory, **more, **options})
        if older is None:
            return report
        dataset = older
    for shard in dataset.broken_shards:
        position = shard.first_sample if shard.sample_count else -1
        report.add(Problem(shard.key, position, shard.code, shard.message, shard.sample_count))
    if not use_index and any(not shard.sample_count for shard in dataset.broken_shards):
        older = _open_older(url, {"format": format, "memory": memory, **more, **options})
        if older is not None:
            dataset.close()
            dataset = older
    with dataset:
        if any(not shard.sample_count for shard in dataset.broken_shards):
            report.fingerprint = dataset.fingerprint
        report.cut_ends = dataset.cut_ends
        report.url, report.format, report.samples = dataset.url, dataset.format, len(dataset)
        _count_shards(dataset, report)
        if dataset.format == "table":
            with telling_missing_package(report.url):
                arrow()  # Without it no block could be read, which says nothing about them.
        if not use_index and _is_folder(dataset):
            _compare_stored_index(dataset, report)
        with progress_bar("verifying", "bytes") as bar:
            found = _native.verify_dataset(
                dataset._native, dataset._store, workers=workers, most_problems=most_problems, progress=bar
            )
        problems = _with_samples([Problem(*row) for row in found["problems"]], dataset)
    for problem in problems:
        if missing := find_missing_package(report.url, problem.message):
            raise missing
    report.samples_ok = min(found["sample_count"], report.samples - _count_bad(problems))
    report.bytes_read = found["read_bytes"]
    report.digests_compared, report.second_reads = found["stored_digest_count"], found["second_read_count"]
    report.problem_count += found["problem_count"]
    report.problems += problems
    return report


def _with_samples(problems: list[Problem], dataset: Dataset) -> list[Problem]:
    """Those of a shard as a whole with its samples: none can be told from the others."""
    keys = {problem.key for problem in problems if problem.position < 0}
    shards = {s.key: s for s in dataset.shards if s.key in keys and s.sample_count} if keys else {}
    return [
        problem._replace(position=shard.first_sample, samples=shard.sample_count)
        if problem.position < 0 and (shard := shards.get(problem.key))
        else problem
        for problem in problems
    ]


def _count_bad(problems: Iterable[Problem]) -> int:
    """Samples that some problem concerns."""
    count = end = 0
    for _, first, _, _, samples in sorted(problems, key=lambda problem: problem.position):
        if first >= 0:
            count += max(first + samples - max(first, end), 0)
            end = max(end, first + samples)
    return count


def _open_older(url: str | os.PathLike[str], options: dict[str, Any]) -> Dataset | None:
    """By an index that was made when all was well: it still finds the samples that are."""
    try:
        return Dataset(url, **{**options, "on_broken_shard": "raise"})
    except HeadraceError:
        return None


_CHECKED_FORMATS = frozenset({"tfrecord", "arrayrecord"})
_CHECKED_CODINGS = frozenset({"gz", "zlib", "bz2", "xz"})
"""Whose checksums are no choice of the writer, as those of zstd frames and Parquet pages are."""


def _count_shards(dataset: Dataset, report: VerifyReport) -> None:
    if dataset.format == "raw":  # One shard of all files.
        report.shards = len(dataset)
        return
    for shard in dataset.shards:
        report.shards += 1
        if shard.hashes:
            report.shards_with_digests += 1
        elif dataset.format in _CHECKED_FORMATS or shard.compression in _CHECKED_CODINGS:
            report.shards_with_checksums += 1


def _is_folder(dataset: Dataset) -> bool:
    """Whether nothing chose the objects: the index beside a folder says nothing about some of its objects."""
    return isinstance(dataset._source, UrlSource) and dataset._source.chosen.get("keys") is None


def _compare_stored_index(fresh: Dataset, report: VerifyReport) -> None:
    try:
        _native.compare_stored_index(fresh._native, fresh._store)
    except (CorruptError, ChangedError, UnsupportedError) as error:
        report.add(Problem(INDEX_KEY, -1, error.code, str(error)))


# --- manifests ---


def format_manifest(digests: Mapping[str, str]) -> str:
    """The text that ``sha256sum`` writes and checks: ``<hex> <key>``, one line an object, keys in byte
    order."""
    return "".join(_manifest_line(key, digests[key]) for key in sorted(digests, key=os.fsencode))


def _manifest_line(key: str, digest: str) -> str:
    escaped = key.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    mark = "\\" if escaped != key else ""
    return f"{mark}{digest}  {escaped}\n"


def parse_manifest(text: str) -> dict[str, str]:
    """Digest by key. Raises InvalidArgumentError naming the line."""
    digests: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line:
            continue
        is_escaped = line.startswith("\\")
        digest, gap, key = line[is_escaped:].partition(" ")
        if (
            len(digest) != 64
            or set(digest) - set("0123456789abcdef")
            or not gap
            or key[:1] not in (" ", "*")
            or len(key) < 2
        ):
            raise InvalidArgumentError(
                f"line {number} of the manifest is not '<sha256>  <key>': {line[:100]!r}"
            )
        name = _unescape(key[1:]) if is_escaped else key[1:]
        name = name.removeprefix("./")  # as `find -exec sha256sum` names them
        if name in digests:
            raise InvalidArgumentError(f"line {number} of the manifest names {name!r} again")
        digests[name] = digest
    return digests


def _unescape(text: str) -> str:
    parts = iter(text)
    return "".join(
        {"n": "\n", "r": "\r"}.get(follower := next(parts, ""), follower) if c == "\\" else c for c in parts
    )


def create_manifest(
    url: str | os.PathLike[str],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    workers: int = 0,
    memory: int | str = "256MiB",
    **options: Unpack[StoreOptions],
) -> tuple[dict[str, str], int]:
    """SHA-256 of every object below a URL, by key, and the bytes that were read. A manifest at the root is
    left out. Patterns: only objects that one of ``include`` matches, if there are any, and none of
    ``exclude``; as ``--include`` and ``--exclude`` of the command line."""
    accepts = _native.NameFilter(include, exclude).accepts
    with Store(url, memory=memory, **options) as store:
        report = _digest(store, (info for info in _objects(store) if accepts(info.key)), workers)
    if report["problems"]:
        raise _first_failure(report)
    return {key: hexes[0] for key, _, hexes in report["objects"]}, report["read_bytes"]


_ERRORS = {kind.code: kind for kind in HeadraceError.__subclasses__()}


def _first_failure(report: Mapping[str, Any]) -> HeadraceError:
    problem = Problem(*report["problems"][0])
    count = report["problem_count"]
    error = _ERRORS[problem.code](
        f"{problem.key}: {problem.message} ({count:,} object{'s' if count > 1 else ''} could not be read)"
    )
    error.key = problem.key
    return error


def _objects(store: Store) -> Iterator[ObjectInfo]:
    """What a manifest covers."""
    return (info for info in store.list() if info.key != MANIFEST_KEY and not info.key.endswith("/"))


def _digest(store: Store, objects: Iterable[ObjectInfo], workers: int) -> dict[str, Any]:
    rows = [(info.key, info.size, info.etag or "") for info in objects]
    with progress_bar("hashing", "bytes") as bar:
        return _native.digest_objects(store._native, rows, digests=["sha256"], workers=workers, progress=bar)


@dataclass
class ManifestReport:
    """How objects compare with a manifest."""

    matching: int = 0
    bytes_read: int = 0
    missing: list[str] = field(default_factory=list)
    """In the manifest, not there."""
    different: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    """There, not in the manifest."""
    unreadable: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why, by key of the unreadable."""

    @property
    def ok(self) -> bool:
        return not (self.missing or self.different or self.extra or self.unreadable)


def check_manifest(
    url: str | os.PathLike[str],
    digests: Mapping[str, str],
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    workers: int = 0,
    memory: int | str = "256MiB",
    **options: Unpack[StoreOptions],
) -> ManifestReport:
    """Compares every object below a URL with a manifest. ``include`` and ``exclude`` as of
    :func:`create_manifest`: what they leave out is neither missing nor extra."""
    accepts = _native.NameFilter(include, exclude).accepts
    digests = {key: digest for key, digest in digests.items() if accepts(key)}
    with Store(url, memory=memory, **options) as store:
        listed = {info.key: info for info in _objects(store) if accepts(info.key)}
        report = _digest(store, [listed[key] for key in digests if key in listed], workers)
    found = {key: hexes[0] for key, _, hexes in report["objects"]}
    why = {problem.key: problem.message for problem in (Problem(*row) for row in report["problems"])}
    result = ManifestReport(bytes_read=report["read_bytes"], extra=sorted(listed.keys() - digests.keys()))
    for key, digest in digests.items():
        if key not in listed:
            result.missing.append(key)
        elif key not in found:
            result.unreadable.append(key)
            result.reasons[key] = why[key]
        elif found[key] != digest:
            result.different.append(key)
        else:
            result.matching += 1
    return result


# --- comparison ---


class Difference(NamedTuple):
    """One sample that differs."""

    position_a: int
    position_b: int
    column: str
    what: str


@dataclass
class DiffReport:
    """How two datasets compare, sample by sample."""

    compared: int = 0
    equal: int = 0
    different: int = 0
    only_a: int = 0
    """Samples without a partner in B."""
    only_b: int = 0
    columns_only_a: list[str] = field(default_factory=list)
    columns_only_b: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    """The first of them."""

    @property
    def ok(self) -> bool:
        return not (
            self.different or self.only_a or self.only_b or self.columns_only_a or self.columns_only_b
        )


_CHUNK = 512
_CHUNK_BYTES = 64 << 20


def diff(
    a: Dataset | str | os.PathLike[str],
    b: Dataset | str | os.PathLike[str],
    *,
    key: str | None = None,
    columns: list[str] | None = None,
    most: int = 100,
) -> DiffReport:
    """Compares two datasets, of any formats, sample by sample. They may be open, with options of their own,
    or URLs.

    :param key: column whose values pair the samples (each must come once); default: samples pair by position.
    :param columns: columns to compare; default: those of both.
    :param most: differences to keep; all are counted.
    """
    with ExitStack() as opened:
        left, right = (
            given if isinstance(given, Dataset) else opened.enter_context(Dataset(given)) for given in (a, b)
        )
        return _diff_open(left, right, key, columns, most)


def _diff_open(a: Dataset, b: Dataset, key: str | None, columns: list[str] | None, most: int) -> DiffReport:
    report = DiffReport()
    names_a, names_b = list(a.schema), list(b.schema)
    if columns is None:
        columns = [name for name in names_a if name in names_b]
        report.columns_only_a = [name for name in names_a if name not in names_b]
        report.columns_only_b = [name for name in names_b if name not in names_a]
    if key is not None and (key not in names_a or key not in names_b):
        raise InvalidArgumentError(f"key column {key!r} is not in both datasets: {names_a} and {names_b}")
    if not columns:
        raise InvalidArgumentError(f"the datasets have no column in common: {names_a} and {names_b}")
    pairs = _pairs_by_key(a, b, key, report) if key is not None else _pairs_by_position(a, b, report)
    at_once = min(samples_at_once(each.blocks, _CHUNK, _CHUNK_BYTES) for each in (a, b))
    with progress_bar("comparing", "samples") as bar:
        for chunk in batches(pairs, at_once):
            _compare_chunk(a, b, chunk, columns, report, most)
            if bar is not None:
                bar(report.compared, min(len(a), len(b)), 0)
    return report


def _pairs_by_position(a: Dataset, b: Dataset, report: DiffReport) -> Iterator[tuple[int, int]]:
    both = min(len(a), len(b))
    report.only_a, report.only_b = len(a) - both, len(b) - both
    return ((i, i) for i in range(both))


def _pairs_by_key(a: Dataset, b: Dataset, key: str, report: DiffReport) -> Iterator[tuple[int, int]]:
    places: dict[Hashable, int] = {}
    for position, value in _column(b, key):
        known = _comparable(key, value)
        if known in places:
            raise InvalidArgumentError(
                f"{b.url}: {key}={value!r} at {places[known]} and {position}: a key must come once"
            )
        places[known] = position
    seen = 0
    taken: set[Hashable] = set()
    for position, value in _column(a, key):
        known = _comparable(key, value)
        if known in taken:
            raise InvalidArgumentError(
                f"{a.url}: {key}={value!r} comes twice, the second time at {position}: a key must come once"
            )
        taken.add(known)
        partner = places.get(known)
        if partner is None:
            report.only_a += 1
        else:
            seen += 1
            yield position, partner
    report.only_b = len(places) - seen


def _column(dataset: Dataset, name: str) -> Iterator[tuple[int, Any]]:
    for start in range(0, len(dataset), _CHUNK):
        positions = range(start, min(start + _CHUNK, len(dataset)))
        for position, sample in zip(positions, dataset.read(positions, columns=[name]), strict=True):
            yield position, sample[name]


def _comparable(column: str, value: Any) -> Hashable:
    """A key of dicts: the same for values that equal_values() says are equal."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, float | np.floating) and math.isnan(value):
        return math.nan  # One object: dicts look for that before they compare.
    if isinstance(value, list | tuple):
        return tuple(_comparable(column, item) for item in value)
    if isinstance(value, dict):
        return frozenset((name, _comparable(column, item)) for name, item in value.items())
    if isinstance(value, str):
        return _utf8(value)
    try:
        hash(value)
    except TypeError:
        raise InvalidArgumentError(
            f"key column {column!r}: samples are not paired by a {type(value).__name__}"
        ) from None
    return value  # type: ignore[no-any-return]


def _compare_chunk(
    a: Dataset, b: Dataset, pairs: list[tuple[int, int]], columns: list[str], report: DiffReport, most: int
) -> None:
    samples_a = a.read([i for i, _ in pairs], columns=columns)
    samples_b = b.read([j for _, j in pairs], columns=columns)
    for (i, j), left, right in zip(pairs, samples_a, samples_b, strict=True):
        report.compared += 1
        unequal = next((name for name in columns if not equal_values(left[name], right[name])), None)
        if unequal is None:
            report.equal += 1
            continue
        report.different += 1
        if len(report.differences) < most:
            report.differences.append(
                Difference(i, j, unequal, f"{describe(left[unequal])} and {describe(right[unequal])}")
            )


def equal_values(a: Any, b: Any) -> bool:
    """Whether two decoded values say the same: arrays by dtype, shape and bits (NaN equals itself), numbers
    by value, text and bytes by the text's UTF-8 (some formats have no text), the rest by ``==``."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
            return False
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float | np.floating) and isinstance(b, float | np.floating):
        return float(a) == float(b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(equal_values(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal_values(a[k], b[k]) for k in a)
    if {type(a), type(b)} == {str, bytes}:
        return _utf8(a) == _utf8(b)
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return False


def _utf8(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def describe(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, bytes) and len(value) > 24:
        return f"{len(value)} bytes {value[:12]!r}..."
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
