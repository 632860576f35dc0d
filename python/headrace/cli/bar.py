"""How far a copy is: a bar on a terminal, else a line now and then. Imports nothing that is slow to
import."""

from __future__ import annotations

import sys
import time
from typing import Any

from headrace.base.progress import StatusLine
from headrace.base.units import format_bytes
from headrace.cli.base import is_local
from headrace.cli.plan import Job

__all__ = ["Bar", "Moved"]

BAR_AFTER = 0.3
"""Seconds: what is over by then needs no bar."""


class Moved:
    """How many bytes have moved: what has arrived, or, if that is more, what went over the wire. The wire
    also carries what is no data and what is repeated, so there is a limit: all that was found."""

    def __init__(self, job: Job) -> None:
        ends = [
            (job.source, "store.received_bytes"),
            (job.target, "store.sent_bytes"),
        ]
        self._ends = [(store._native, name) for store, name in ends if not is_local(store.url)]
        self._began = self._on_the_wire()
        self._last = 0

    def _on_the_wire(self) -> list[int]:
        return [int({row[0]: row[1] for row in store.metrics()}.get(name, 0)) for store, name in self._ends]

    def bytes(self, now: dict[str, int]) -> int:
        """Of a job with this progress. Only grows."""
        wire = min(
            (there - began for there, began in zip(self._on_the_wire(), self._began, strict=True)), default=0
        )
        most = now["found_bytes"]
        self._last = max(self._last, min(most, max(now["done_bytes"], wire + now["resumed_bytes"])))
        return self._last


class Bar:
    def __init__(self, job: Job) -> None:
        self._moved = Moved(job)
        self._line = None if sys.stderr.isatty() else StatusLine()
        self._bar: Any = None
        self._show_after = time.monotonic() + BAR_AFTER

    def show(self, now: dict[str, int]) -> None:
        if self._line is not None:
            if self._line.is_due():
                self._line.show(self._as_line(now))
        elif time.monotonic() > self._show_after:
            self._draw(now)

    def _as_line(self, now: dict[str, int]) -> str:
        of = f" of {format_bytes(now['found_bytes'])}" if now["is_listing_done"] else ""
        return f"{_objects(now)}, {format_bytes(self._moved.bytes(now))}{of}"

    def _draw(self, now: dict[str, int]) -> None:
        if self._bar is None:
            self._bar = make_bar()
            self._bar.add_task("")
            self._bar.start()
        total = now["found_bytes"] if now["is_listing_done"] else None
        self._bar.update(
            self._bar.task_ids[0], completed=self._moved.bytes(now), total=total, description=_objects(now)
        )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _objects(now: dict[str, int]) -> str:
    failed = f", {now['failed']:,} failed" if now["failed"] else ""
    more = "" if now["is_listing_done"] else "+"
    return f"{now['done']:,} of {now['found']:,}{more} objects{failed}"


def make_bar() -> Any:
    """Of bytes, on stderr, gone at its end."""
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
    return Progress(*columns, console=Console(stderr=True), transient=True)
