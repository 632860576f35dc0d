"""Runs the jobs of a copy and shows how they go. Imports nothing that is slow to import."""

from __future__ import annotations

import sys
import time
from typing import Any, NamedTuple

from headrace import _native
from headrace.base.units import format_bytes
from headrace.cli.bar import Bar
from headrace.cli.base import (
    CANCELLED,
    fail,
    note,
    print_json,
    reader_left,
    refuse_folder,
    shown,
    stop_if_asked,
    together,
)
from headrace.cli.dead_links import LEADS_NOWHERE, dead_links
from headrace.cli.moving import Arrived, check_moves
from headrace.cli.plan import Job
from headrace.errors import HeadraceError, NotFoundError

SHOWN_FAILURES = 50


class Settings(NamedTuple):
    """How one of them runs and shows what it does."""

    job: dict[str, Any]
    """Options of the engine's CopyJob."""
    dry_run: bool
    verbose: bool
    json: bool
    quiet: bool
    moves: bool = False
    """Sources are removed when they have arrived."""


class Totals:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.failures: list[tuple[str, str, str]] = []
        self.started = time.monotonic()

    def add(self, progress: dict[str, int]) -> None:
        for name, value in progress.items():
            self.counts[name] = self.counts.get(name, 0) + value

    def fail(self, failures: list[tuple[str, str, str]]) -> None:
        """Adds (key, code, message) of objects that the engine does not count."""
        self.failures += failures
        self.add({"failed": len(failures)})

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


class _Watch:
    """What is done while a job runs: events become lines, sources of a move are removed, a bar is drawn."""

    def __init__(self, native: _native.CopyJob, job: Job, settings: Settings) -> None:
        self._native = native
        self._settings = settings
        self._urls = (job.source.url, job.target.url)
        self.arrived = Arrived(job) if settings.moves and not settings.dry_run else None
        self._bar = None if settings.quiet or settings.dry_run or together.stores else Bar(job)

    def tick(self) -> None:
        stop_if_asked()
        self._take_events()
        if self._bar is not None:
            self._bar.show(self._native.progress())

    def _take_events(self) -> None:
        events = self._native.take_events()
        if self.arrived is not None:
            self.arrived.add(events)
        if not (self._settings.verbose or self._settings.dry_run):
            return
        try:
            for event in events:
                self._print(*event)
        except BrokenPipeError:  # `| head`: who asked for the copy still wants it
            reader_left()

    def _print(self, kind: str, from_key: str, to_key: str, size: int, _: str) -> None:
        source, target = self._urls
        if self._settings.json:
            if kind == "copy" and self._settings.moves:
                kind = "move"
            row = {"action": kind, "from": f"{source}/{from_key}", "to": f"{target}/{to_key}", "bytes": size}
            print_json(row)
        elif kind == "copy":
            sys.stdout.write(shown(f"{source}/{from_key} -> {target}/{to_key} ({format_bytes(size)})") + "\n")
        else:
            sys.stdout.write(shown(f"delete {target}/{to_key}") + "\n")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        self._take_events()


def _run_job(job: Job, settings: Settings, totals: Totals) -> None:
    options = dict(settings.job)
    options["events"] = settings.verbose or settings.moves
    names = _native.NameFilter(options["include"], options["exclude"])
    dead = list(dead_links(job, names))
    # The target's copies of what links stand for are not superfluous.
    if any(what == LEADS_NOWHERE for _, what in dead):
        options["delete"] = False
    native = _native.CopyJob(job.source._native, job.target._native, job.tasks, options)
    watch = _Watch(native, job, settings)
    has_ended = False
    try:
        native.run(watch.tick)
        has_ended = True
    except HeadraceError as error:
        failed = native.failures()
        # Where it gave up, what failed before says the same.
        if all(message != str(error) for _, _, message in failed):
            totals.failures += failed
        if isinstance(error, NotFoundError):
            _refuse_folders(job, error)
        raise
    finally:
        watch.close()
        counts = native.progress()
        totals.add(counts)
        if watch.arrived is not None:
            is_filtered = bool(options["include"] or options["exclude"] or dead)
            is_whole = has_ended and not is_filtered and not counts["failed"] and not counts["skipped"]
            totals.fail(watch.arrived.finish(is_whole))
            totals.add({"deleted": watch.arrived.removed})
    totals.failures += native.failures()
    totals.fail(
        [
            (
                key,
                "not_found" if what == LEADS_NOWHERE else "unsupported",
                f"{job.source.url}/{key}: {what}",
            )
            for key, what in dead
        ]
    )


def _refuse_folders(job: Job, error: NotFoundError) -> None:
    """Raises a NotFoundError with advice where the source that is missing is a folder."""
    for key, _, is_tree, _, _ in job.tasks:
        if not is_tree and f"/{key}" in str(error) and not job.source.exists(key):
            refuse_folder(job.source, key, error, "to copy everything below it add -r")


def _report(totals: Totals, settings: Settings) -> int:
    try:
        _print_totals(totals, settings)
        sys.stdout.flush()
    except BrokenPipeError:
        reader_left()
    _note_nothing(totals, settings)
    return _print_failures(totals)


def _note_nothing(totals: Totals, settings: Settings) -> None:
    """Says so where --include and --exclude left nothing: that may be meant, and may be a slip."""
    counts = totals.counts
    is_filtered = settings.job["include"] or settings.job["exclude"]
    if is_filtered and not settings.quiet and not any(counts.get(n) for n in ("found", "skipped", "failed")):
        note("nothing that --include and --exclude leave (what --exclude matches, no --include brings back)")


def _print_totals(totals: Totals, settings: Settings) -> None:
    counts = totals.as_json(settings.dry_run)
    if settings.json:
        print_json({**counts, **({"dry_run": True} if settings.dry_run else {})})
    elif not (settings.quiet or together.stores):
        seconds = max(counts["seconds"], 1e-9)
        told = ("skipped", "failed") if settings.moves else ("skipped", "deleted", "failed")
        words = {"deleted": "to delete"} if settings.dry_run else {}
        extra = "".join(f", {counts[name]:,} {words.get(name, name)}" for name in told if counts[name])
        if counts["resumed_bytes"]:
            extra += f", {format_bytes(counts['resumed_bytes'])} were there from an earlier run"
        if settings.dry_run:
            sys.stdout.write(
                f"would {'move' if settings.moves else 'copy'} {counts['objects']:,} objects, "
                f"{format_bytes(counts['bytes'])}{extra}\n"
            )
        else:
            rate = format_bytes(counts["bytes"] / seconds)
            sys.stdout.write(
                f"{counts['objects']:,} objects, {format_bytes(counts['bytes'])} in {seconds:.1f} s "
                f"({rate}/s){extra}\n"
            )


def _print_failures(totals: Totals) -> int:
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


def _take_names(jobs: list[Job], settings: Settings) -> None:
    """Where objects of several jobs may get one name at the target: takes all names, which fails before
    anything is copied, and has the jobs compare with them what they find. One job does that by itself."""
    tasks = [task for job in jobs for task in job.tasks]
    if len(jobs) == 1 or not _native.may_meet(tasks, settings.job.get("flatten", False)):
        return
    settings.job["names"] = _native.CopyNames()
    for job in jobs:
        _native.take_copy_names(job.source._native, job.target._native, job.tasks, settings.job)


def run(jobs: list[Job], settings: Settings) -> int:
    totals = Totals()
    if settings.moves:
        check_moves(jobs)
    try:
        _take_names(jobs, settings)
        for job in jobs:
            _run_job(job, settings, totals)
    except HeadraceError:
        if totals.failures:
            _print_failures(totals)
        raise
    except KeyboardInterrupt:
        fail(_how_to_go_on(totals, settings))
        return CANCELLED
    return _report(totals, settings)


def _how_to_go_on(totals: Totals, settings: Settings) -> str:
    again = "the same command"
    if settings.job["rule"] == "always" and not settings.moves:
        again += " with --if-size-differ, or headrace sync"
    return (
        f"stopped; {totals.counts.get('done', 0):,} objects are done. To go on: {again}; "
        "finished parts of large objects are kept and found"
    )
