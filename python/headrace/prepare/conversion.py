"""Conversions: parts of a dataset made into shards, in threads or on Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from headrace.base.machine import available_cores
from headrace.base.option_names import named_options
from headrace.base.progress import progress_bar
from headrace.base.units import parse_bytes
from headrace.data.dataset import Dataset
from headrace.errors import (
    ChangedError,
    ExhaustedError,
    InvalidArgumentError,
    UnsupportedError,
)
from headrace.prepare import on_ray
from headrace.prepare.job import Job, PartMaker, plan_job
from headrace.prepare.option_names import writing_names
from headrace.prepare.target import PackTarget
from headrace.prepare.writers import (
    DEFAULT_SHARD_BYTES,
    need_packages,
    writer_class,
)
from headrace.sources.options import DatasetOptions
from headrace.sources.url import UrlSource
from headrace.store.store import StoreOptions, open_native
from headrace.store.urls import refuse_inside, refuse_memory

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["convert", "write"]

READ_SAMPLES = 256
"""A program's samples between two reports of progress."""


def write(
    samples: Iterable[Mapping[str, Any]],
    url: str | os.PathLike[str],
    *,
    format: str = "mds",
    columns: Mapping[str, str] | None = None,
    shard_bytes: int | str = DEFAULT_SHARD_BYTES,
    compression: str = "",
    hash: str = "",
    memory: int | str = "256MiB",
    **options: Unpack[StoreOptions],
) -> dict[str, Any]:
    """Writes the samples of an iterable; see the writer classes. Returns counts of samples, shards and
    bytes."""
    _WRITE_NAMES.check(options)
    writer = writer_class(format)(
        url, columns, shard_bytes=shard_bytes, compression=compression, hash=hash, memory=memory, **options
    )
    with writer, progress_bar("writing", "samples") as report:
        for count, sample in enumerate(samples, 1):
            writer.write(sample)
            if report is not None and count % READ_SAMPLES == 0:
                report(count, 0, 0)
    return _summary(writer.shard_facts)


_WRITE_NAMES = writing_names("prepare.write()", named_options(write))


def _shard_count(facts: Iterable[Mapping[str, Any]]) -> int:
    """Without the parts of which nothing is stored."""
    return sum(part["bytes"] > 0 for part in facts)


def _summary(facts: Sequence[Mapping[str, Any]], resumed: int = 0) -> dict[str, Any]:
    return {
        "sample_count": sum(part["samples"] for part in facts),
        "shard_count": _shard_count(facts),
        "written_bytes": sum(part["bytes"] for part in facts),
        "resumed_shard_count": resumed,
    }


def _places(dataset: Dataset, target: str | os.PathLike[str], writing: StoreOptions) -> on_ray.Places:
    opened = dataset._source
    if not isinstance(opened, UrlSource):
        raise UnsupportedError(
            "ray=True: a list of datasets is not sent to other machines; convert them one by one, or without "
            "ray"
        )

    def sent(url: str) -> str:
        return os.path.abspath(url) if "://" not in url else url

    return on_ray.Places(
        sent(os.fspath(opened.root)),
        sent(os.fspath(target)),
        dict(opened.chosen),
        opened.store_options,
        writing,
        os.getcwd(),
    )


def _memory_shares(dataset: Dataset, shard_bytes: int, memory: int, workers: int) -> tuple[int, int]:
    """(workers, memory of one for reading): a worker holds a shard up to 2.25 times (grown, compressed or
    sent) and 2.5 blocks."""
    block = dataset._native.largest_block_bytes * 5 // 2 + (8 << 20)
    needed = block + shard_bytes * 9 // 4
    if needed > memory:
        raise ExhaustedError(
            f"a worker needs {needed} bytes of memory (shards of {shard_bytes}, blocks of "
            f"{dataset._native.largest_block_bytes}), the limit is {memory}; give more memory or smaller "
            "shards"
        )
    workers = max(1, min(workers or available_cores(), memory // needed))
    return workers, memory // workers - shard_bytes * 9 // 4


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str = "mds",
    source_format: str = "auto",
    split: str = "",
    columns: str | Sequence[str] | None = None,
    map: str = "",
    shard_bytes: int | str = DEFAULT_SHARD_BYTES,
    compression: str = "",
    hash: str = "",
    workers: int = 0,
    memory: int | str = "512MiB",
    dry_run: bool = False,
    ray: bool = False,
    lease: float = 15.0,
    dataset_options: DatasetOptions | None = None,
    source_options: StoreOptions | None = None,
    **options: Unpack[StoreOptions],
) -> dict[str, Any]:
    """Converts a dataset. Returns counts; with ``dry_run`` the plan: samples and shards, and nothing is
    written.

    :param split: of a source with several splits: one of them, or ``"all"``.
    :param columns: ``"TARGET[=SOURCE][:ENCODING],..."``; default all, by their own names.
    :param map: ``"module:function"``: called with each sample (a dict), returns the sample to write, or None
        to leave it out. The module may lie in the working directory.
    :param workers: threads, or with ``ray`` tasks; 0: one a core, or one a core of the cluster.
    :param ray: run on the Ray cluster (the one that ``RAY_ADDRESS`` names or that this process is connected
        to, else one started on this machine); see docs/design/0023-convert.md.
    :param lease: with ``ray``: seconds without a sign of life after which another machine's part is made
        anew.
    :param dataset_options: what to read of the source where its format leaves a choice: ``labels``,
        ``manifest`` and so on, as :class:`headrace.Dataset` takes them.
    """
    _CONVERT_NAMES.check(options)
    refuse_memory(target)
    need_packages(format)
    size = parse_bytes(shard_bytes, "shard_bytes")
    memory_bytes = parse_bytes(memory, "memory")
    reading: dict[str, Any] = {**(dataset_options or {}), "split": _one_split(split, dataset_options or {})}
    reading.update(source_options if source_options is not None else options)
    with ExitStack() as stack:
        dataset = stack.enter_context(Dataset(source, format=source_format, memory=memory, **reading))
        refuse_inside(os.fspath(target), str(source))
        job = plan_job(dataset, format, size, compression, hash, columns, map)
        if dry_run:
            return {
                "sample_count": job.sample_count,
                "shard_count": job.part_count,
                "read_bytes": dataset.nbytes,
                "format": format,
                "by_python": job.spec["rows"] is None,
            }
        store = open_native(target, memory, **options)
        stack.callback(store.close)
        place = PackTarget(store, job.spec)
        try:
            place.load()
        except InvalidArgumentError:
            if place.differs_only_in("map_source"):
                raise InvalidArgumentError(
                    f"{target}: {map} has changed since this pack began there, and what was made before "
                    "would be mixed with what it makes now; choose another target or empty it (.hrpack.json, "
                    "too)"
                ) from None
            raise
        if (facts := place.finished()) is not None:
            return _summary(facts, _shard_count(facts))
        done = place.reopen()
        resumed = _shard_count(done.values())
        share = _memory_shares(dataset, size, memory_bytes, workers)
        probe = PartMaker(job, dataset, dataset._store, place)
        with progress_bar("converting", "shards") as report:
            if ray:
                places = _places(dataset, target, options)
                done = on_ray.run_on_ray(
                    job,
                    place,
                    done,
                    workers=workers,
                    lease=lease,
                    memory=share[1] + size * 9 // 4,
                    places=places,
                    report=report,
                )
            else:
                _run_threads(job, dataset, place, done, share, report)
        if lost := [number for number in range(job.part_count) if number not in done]:
            raise ChangedError(
                f"{target}: part {lost[0]} ({len(lost)} in all) went away during the conversion; run it again"
            )
        facts = [done[number] for number in range(job.part_count)]
        place.finish(facts, probe.config_json)
        return _summary(facts, resumed)


_CONVERT_NAMES = writing_names(
    "prepare.convert()",
    named_options(convert),
    dict.fromkeys(
        DatasetOptions.__annotations__, "what to read of the source stands in dataset_options={...}"
    ),
)


def _one_split(split: str, dataset_options: DatasetOptions) -> str:
    other = dataset_options.get("split") or ""
    if split and other and split != other:
        raise InvalidArgumentError(
            f"split={split!r} and dataset_options={{'split': {other!r}}}: give one of them"
        )
    return split or other


def _run_threads(
    job: Job,
    dataset: Dataset,
    place: PackTarget,
    done: dict[int, dict[str, Any]],
    share: tuple[int, int],
    report: Callable[[int, int, int], None] | None,
) -> None:
    """Makes what is missing; adds to `done`."""
    workers, reading_bytes = share
    numbers = iter([n for n in range(job.part_count) if n not in done])
    stores = [dataset.open_store(reading_bytes) for _ in range(workers)]
    makers = [PartMaker(job, dataset, store, place) for store in stores]
    pool = ThreadPoolExecutor(workers, thread_name_prefix="headrace-pack")
    running: dict[Future[dict[str, Any]], tuple[int, PartMaker]] = {}

    def start(maker: PartMaker) -> None:
        number = next(numbers, None)
        if number is not None:
            running[pool.submit(maker.make, number)] = (number, maker)

    try:
        for maker in makers:
            start(maker)
        while running:
            # In slices: Ctrl-C reaches the main thread between them.
            finished, _ = wait(running, timeout=0.1, return_when=FIRST_COMPLETED)
            for future in finished:
                number, maker = running.pop(future)
                done[number] = future.result()
                start(maker)
            if report is not None and finished:
                report(len(done), job.part_count, 0)
    except BaseException:
        # What is under way ends at once with its stores.
        for store in stores:
            store.close()
        place.close()
        dataset.close()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for store in stores:
            store.close()
