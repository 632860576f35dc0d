"""cp and sync: plans jobs for the engine, shows how they go. Imports nothing that is slow to import."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from headrace import _native
from headrace.base.units import format_bytes, parse_bytes
from headrace.cli.base import (
    CANCELLED,
    Stores,
    fail,
    is_local,
    local_path,
    print_json,
    reader_left,
    shown,
    split_url,
    split_wildcard,
    wildcard,
)
from headrace.cli.declare import DataWhere, DryRun, Json, Names, argument, option
from headrace.errors import CancelledError, HeadraceError, InvalidArgumentError

if TYPE_CHECKING:
    from headrace.store.store import Store

Task = tuple[str, str, bool, int, str]
"""(from, to, is tree, bytes to strip, pattern): see CopyTask in headrace/copy.h."""

SHOWN_FAILURES = 50
STREAM_MEMORY_SHARE = 2


class Transfer(Names):
    """What cp and sync have in common."""

    dry_run: DryRun = False
    fsync: Annotated[
        bool, option("--fsync", help="Local files survive a power failure once they have their name.")
    ] = False
    concurrency: Annotated[
        int,
        option(
            "--concurrency",
            least=1,
            metavar="N",
            help="Most requests in flight; how many there are is found by measuring.",
        ),
    ] = 512
    part_size: Annotated[
        str | None,
        option("--part-size", metavar="SIZE", help="Parts of large objects, such as 16MiB; default 8MiB."),
    ] = None
    memory: Annotated[str, option("--memory", metavar="SIZE", help="Limit of the data under way.")] = "256MiB"
    verify: Annotated[bool, option("--no-verify", help="Without checksums, sent or checked.")] = True
    verbose: Annotated[bool, option("--verbose", "-v", help="A line for each object.")] = False
    quiet: Annotated[bool, option("--quiet", "-q", help="Nothing but errors.")] = False


class Settings(NamedTuple):
    """How one of them runs and shows what it does."""

    job: dict[str, Any]
    """Options of the engine's CopyJob."""
    dry_run: bool
    verbose: bool
    json: bool
    quiet: bool


class _Job(NamedTuple):
    source: Store
    target: Store
    tasks: list[Task]


class _Totals:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.failures: list[tuple[str, str, str]] = []
        self.started = time.monotonic()

    def add(self, progress: dict[str, int]) -> None:
        for name, value in progress.items():
            self.counts[name] = self.counts.get(name, 0) + value

    def as_json(self, dry_run: bool) -> dict[str, Any]:
        counts = self.counts
        found = "found" if dry_run else "done"
        return {
            "objects": counts.get(found, 0),
            "bytes": counts.get(found + "_bytes", 0),
            "skipped": counts.get("skipped", 0),
            "deleted": counts.get("deleted", 0),
            "failed": counts.get("failed", 0),
            "resumed_bytes": counts.get("resumed_bytes", 0),
            "seconds": time.monotonic() - self.started,
            **(
                {"failures": [{"key": k, "error": c, "message": m} for k, c, m in self.failures]}
                if self.failures
                else {}
            ),
        }


# --- planning ---


def _target_is_directory(url: str) -> bool:
    return url.endswith("/") or url in (".", "..") or not split_url(url)[1]


def _join(prefix: str, name: str) -> str:
    return prefix + name if not prefix or prefix.endswith("/") else f"{prefix}/{name}"


def _open_target(stores: Stores, url: str, is_directory: bool) -> tuple[Store, str]:
    """The store, and the key or the prefix below which all goes (empty or ending in a slash)."""
    if is_local(url) and is_directory:
        return stores.open(local_path(url).rstrip("/") or "/"), ""
    store, key = stores.split(url)
    if is_directory and key and not key.endswith("/"):
        key += "/"
    return store, key


class _Shape(NamedTuple):
    """How sources are read."""

    recursive: bool
    raw: bool
    many: bool
    """More than one source."""

    def pattern(self, url: str) -> _native.Glob | None:
        return None if self.raw else wildcard(url)


def _source_task(stores: Stores, url: str, target: str, shape: _Shape) -> tuple[Store, Task]:
    recursive = shape.recursive
    glob = shape.pattern(url)
    if glob is not None:
        root, directory, pattern = split_wildcard(url, glob)
        listed = _native.Glob(pattern).prefix
        return stores.open(root), (
            listed,
            target,
            True,
            len(os.fsencode(directory)),
            pattern.rstrip("/") + "{,/**}" if recursive else pattern,
        )
    store, key = stores.split(url)
    if recursive:
        prefix = key if not key or key.endswith("/") else key + "/"
        if is_local(url) and key and not os.path.isdir(local_path(url)):
            raise InvalidArgumentError(f"{url} is no directory; to copy one file leave out -r")
        name = (
            os.path.basename(local_path(url).rstrip("/"))
            if is_local(url)
            else prefix.rstrip("/").rpartition("/")[2]
        )
        below = _join(target, name) + "/" if shape.many and name else target
        return store, (prefix, below, True, len(os.fsencode(prefix)), "")
    if not key or key.endswith("/"):
        raise InvalidArgumentError(f"{url} names no object; to copy everything below it add -r")
    return store, (
        key,
        _join(target, key.rpartition("/")[2]) if not target or target.endswith("/") else target,
        False,
        0,
        "",
    )


def _plan(stores: Stores, sources: list[str], target_url: str, recursive: bool, raw: bool) -> list[_Job]:
    shape = _Shape(recursive, raw, len(sources) > 1)
    is_directory = (
        recursive or shape.many or _target_is_directory(target_url) or shape.pattern(sources[0]) is not None
    )
    target, prefix = _open_target(stores, target_url, is_directory)
    jobs: dict[int, _Job] = {}
    for url in sources:
        source, task = _source_task(stores, url, prefix, shape)
        jobs.setdefault(id(source), _Job(source, target, [])).tasks.append(task)
    return list(jobs.values())


# --- running ---


class _Display:
    """What is shown while a job runs: a bar on a terminal, events as lines."""

    def __init__(self, job: _native.CopyJob, settings: Settings, urls: tuple[str, str]) -> None:
        self._job = job
        self._settings = settings
        self._urls = urls
        self._bar: Any = None
        self._is_shown = sys.stderr.isatty() and not settings.quiet and not settings.dry_run
        self._show_after = time.monotonic() + 0.3

    def tick(self) -> None:
        self.print_events()
        if self._is_shown and time.monotonic() > self._show_after:
            self._show(self._job.progress())

    def print_events(self) -> None:
        try:
            self._print_events()
        except BrokenPipeError:  # `| head`: who asked for the copy still wants it
            reader_left()

    def _print_events(self) -> None:
        source, target = self._urls
        for kind, from_key, to_key, size in self._job.take_events():
            if self._settings.json:
                print_json(
                    {
                        "action": kind,
                        "from": f"{source}/{from_key}",
                        "to": f"{target}/{to_key}",
                        "bytes": size,
                    }
                )
            elif kind == "copy":
                sys.stdout.write(
                    shown(f"{source}/{from_key} -> {target}/{to_key} ({format_bytes(size)})") + "\n"
                )
            else:
                sys.stdout.write(shown(f"delete {target}/{to_key}") + "\n")

    def _show(self, now: dict[str, int]) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(True),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("")
            self._bar.start()
        failed = f", {now['failed']:,} failed" if now["failed"] else ""
        more = "" if now["is_listing_done"] else "+"
        text = f"{now['done']:,} of {now['found']:,}{more} objects{failed}"
        total = now["found_bytes"] if now["is_listing_done"] else None
        self._bar.update(self._bar.task_ids[0], completed=now["done_bytes"], total=total, description=text)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self.print_events()


def _run_job(job: _Job, settings: Settings, totals: _Totals) -> None:
    native = _native.CopyJob(job.source._native, job.target._native, job.tasks, settings.job)
    display = _Display(native, settings, (job.source.url, job.target.url))
    shows = sys.stderr.isatty() or settings.verbose or settings.dry_run
    try:
        native.run(display.tick if shows else None)
    except HeadraceError:
        # It gave up; what failed before says the same.
        totals.failures.clear()
        raise
    finally:
        display.close()
        totals.add(native.progress())
    totals.failures += native.failures()


def _report(totals: _Totals, settings: Settings) -> int:
    try:
        _print_totals(totals, settings)
        sys.stdout.flush()
    except BrokenPipeError:
        reader_left()
    return _print_failures(totals)


def _print_totals(totals: _Totals, settings: Settings) -> None:
    counts = totals.as_json(settings.dry_run)
    if settings.json:
        print_json({**counts, **({"dry_run": True} if settings.dry_run else {})})
    elif not settings.quiet:
        seconds = max(counts["seconds"], 1e-9)
        extra = "".join(
            f", {counts[name]:,} {name}" for name in ("skipped", "deleted", "failed") if counts[name]
        )
        if counts["resumed_bytes"]:
            extra += f", {format_bytes(counts['resumed_bytes'])} were there from an earlier run"
        if settings.dry_run:
            sys.stdout.write(
                f"would copy {counts['objects']:,} objects, {format_bytes(counts['bytes'])}{extra}\n"
            )
        else:
            rate = format_bytes(counts["bytes"] / seconds)
            sys.stdout.write(
                f"{counts['objects']:,} objects, {format_bytes(counts['bytes'])} in {seconds:.1f} s ({rate}/s){extra}\n"
            )


def _print_failures(totals: _Totals) -> int:
    count = totals.counts.get("failed", 0)
    if not count:
        return 0
    failures = totals.failures
    if len(failures) > 1:
        fail(f"{count:,} objects failed:")
    for key, _, message in failures[:SHOWN_FAILURES]:
        fail(message if key in message else f"{key}: {message}")
    if len(failures) > SHOWN_FAILURES:
        fail(f"and {count - SHOWN_FAILURES:,} more (--json lists them)")
    return 1


def _run(jobs: list[_Job], settings: Settings) -> int:
    totals = _Totals()
    try:
        for job in jobs:
            _run_job(job, settings, totals)
    except KeyboardInterrupt:
        done = totals.counts.get("done", 0)
        fail(
            f"stopped; {done:,} objects are done. To go on: the same command with --if-size-differ, or headrace sync; "
            "finished parts of large objects are kept and found"
        )
        return CANCELLED
    return _report(totals, settings)


def _settings(transfer: Transfer, json: bool, **job: Any) -> Settings:
    job |= {
        "include": transfer.include or [],
        "exclude": transfer.exclude or [],
        "part_bytes": parse_bytes(transfer.part_size, "--part-size") if transfer.part_size else 0,
        "memory_bytes": parse_bytes(transfer.memory),
        "max_in_flight": transfer.concurrency,
        "dry_run": transfer.dry_run,
        "events": transfer.verbose,
        "fsync": transfer.fsync,
    }
    return Settings(job, dry_run=transfer.dry_run, verbose=transfer.verbose, json=json, quiet=transfer.quiet)


class _CopyStores(Stores):
    def options_of(self, root: str) -> dict[str, Any]:
        """Local files are copied in place: there are no requests for an access log, and no way around the
        files themselves."""
        return {**self.options, "access_log": ""} if is_local(root) else self.options


def _stores(where: DataWhere, transfer: Transfer) -> Stores:
    options: dict[str, Any] = {"max_in_flight": transfer.concurrency}
    if not transfer.verify:
        options |= {"verify_checksums": False, "upload_checksum": "none"}
    return _CopyStores(where, memory="64MiB", **options)


def cp(
    urls: Annotated[
        list[str],
        argument(
            metavar="SRC... DST",
            help="Objects, files or patterns, - is stdin; then where to, - is stdout.",
            least=2,
        ),
    ],
    *,
    recursive: Annotated[bool, option("--recursive", "-r", help="Everything below SRC.")] = False,
    no_clobber: Annotated[bool, option("--no-clobber", "-n", help="Skip what exists at DST.")] = False,
    if_size_differ: Annotated[
        bool,
        option(
            "--if-size-differ",
            help="Skip what exists at DST with the same size: goes on with a copy that was stopped.",
        ),
    ] = False,
    keep_times: Annotated[
        bool, option("--keep-times", help="Local files get the time of their source.")
    ] = False,
    transfer: Transfer,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Copy between stores and the local disk, in parallel. What exists at DST is replaced unless -n or
    --if-size-differ.

    With -r, what is in SRC comes to lie in DST; with several SRC, in DST/name. Large objects that were
    stopped in the middle go on where they stood. Objects that fail do not stop the others; they are listed at
    the end.

    Examples:

    * `headrace cp s3://bucket/model.bin .`

    * `headrace cp -r ./shards s3://bucket/train` — ./shards/a becomes s3://bucket/train/a

    * `headrace cp 's3://bucket/train/*.tar' /data/` — quoted, so that the pattern reaches us

    * `headrace cp -r --exclude '*.tmp' s3://bucket/train gs://other/train`

    * `tar c ./src | headrace cp - s3://bucket/src.tar`
    """
    *sources, target = urls
    if not sources:
        raise InvalidArgumentError("cp needs a source and a target: headrace cp SRC... DST")
    rule = "absent" if no_clobber else "size" if if_size_differ else "always"
    settings = _settings(transfer, json, rule=rule, keep_times=keep_times)
    with _stores(where, transfer) as stores:
        if target == "-" or "-" in sources:
            return _stream(stores, sources, target, settings)
        return _run(_plan(stores, sources, target, recursive, transfer.raw), settings)


def _stream(stores: Stores, sources: list[str], target: str, settings: Settings) -> int:
    started = time.monotonic()
    memory = settings.job["memory_bytes"] // STREAM_MEMORY_SHARE
    if target == "-":
        for url in sources:
            store, key = stores.split(url)
            sys.stdout.flush()
            try:
                _native.read_stream(store._native, key, 1, memory_bytes=memory)
            except CancelledError:
                raise BrokenPipeError from None
        return 0
    if sources != ["-"] or _target_is_directory(target):
        raise InvalidArgumentError("stdin becomes one object: headrace cp - s3://bucket/key")
    store, key = stores.split(target)
    info = _native.write_stream(
        store._native, key, 0, part_bytes=settings.job["part_bytes"] or 8 << 20, memory_bytes=memory
    )
    if settings.json:
        print_json({"objects": 1, "bytes": info.size, "skipped": 0, "seconds": time.monotonic() - started})
    return 0


def sync(
    source: Annotated[str, argument(metavar="SRC", help="Prefix or directory.")],
    target: Annotated[str, argument(metavar="DST", help="What becomes equal to it.")],
    *,
    delete: Annotated[
        bool,
        option(
            "--delete",
            help="Delete what SRC does not have, once all is copied; not what --exclude keeps out.",
        ),
    ] = False,
    exact: Annotated[
        bool,
        option(
            "--exact",
            help="Also copy what has another time (local DST; copies get SRC's time) or another ETag (between stores).",
        ),
    ] = False,
    size_only: Annotated[bool, option("--size-only", help="Compare sizes only.")] = False,
    transfer: Transfer,
    where: DataWhere,
    json: Json = False,
) -> int:
    """Make DST equal to SRC: copies what is missing, has another size, or is newer in SRC.

    Examples:

    * `headrace sync ./runs s3://bucket/runs`

    * `headrace sync --delete --dry-run s3://bucket/train /data/train` — first see what would happen
    """
    if exact and size_only:
        raise InvalidArgumentError("--exact and --size-only exclude each other")
    rule = "different" if exact else "size" if size_only else "newer"
    settings = _settings(transfer, json, rule=rule, delete=delete)
    with _stores(where, transfer) as stores:
        return _run(_plan(stores, [source], target, True, transfer.raw), settings)
