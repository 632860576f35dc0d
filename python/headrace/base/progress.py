"""Progress on stderr: a bar for calls that take long, where there is no terminal a line now and then; a line
about what goes on for hours."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.base.units import format_bytes

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[[int, int, int], None]
"""Takes (done, total, bytes); total 0 means unknown."""


@contextmanager
def progress_bar(description: str, unit: str) -> Iterator[Report]:
    """Yields the function to report to. The bar appears at the first report; where stderr is no terminal,
    there is a line every half a minute."""
    if not sys.stderr.isatty():
        yield _plain(description, unit)
        return
    bar: Progress | None = None

    def report(done: int, total: int, _bytes: int = 0) -> None:
        nonlocal bar
        if bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
            bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            bar.add_task(description, total=None)
            bar.start()
        bar.update(bar.task_ids[0], completed=done, total=total or None)

    try:
        yield report
    finally:
        if bar is not None:
            bar.stop()


def _plain(description: str, unit: str) -> Report:
    line = StatusLine()

    def amount(number: int) -> str:
        return format_bytes(number) if unit == "bytes" else f"{number:,}"

    def report(done: int, total: int, _bytes: int = 0) -> None:
        if not line.is_due():
            return
        of = f" of {amount(total)}" if total else ""
        line.show(f"{description}: {amount(done)}{of}{'' if unit == 'bytes' else ' ' + unit}")

    return report


class StatusLine:
    """A line that says how something goes: one that is written anew four times a second on a terminal; else
    one every 30 s, by the logger ``headrace.progress`` where somebody listens to it, or plainly on stderr."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._is_terminal = sys.stderr.isatty()
        self._seconds = 0.25 if self._is_terminal else 30.0
        self._due = clock() + self._seconds
        self._is_open = False  # On a terminal: the line has no end yet.

    def now(self) -> float:
        return self._clock()

    @property
    def is_live(self) -> bool:
        """It is written anew, so that a last word costs no line of its own."""
        return self._is_terminal

    @property
    def window(self) -> float:
        """Seconds over which rates are worth telling: longer than between two lines on a terminal."""
        return 5.0 if self._is_terminal else self._seconds

    def is_due(self) -> bool:
        return self._clock() >= self._due

    def show(self, text: str) -> None:
        self._due = self._clock() + self._seconds
        if not self._is_terminal:
            self._tell(text)
            return
        width = (
            shutil.get_terminal_size().columns - 1
        )  # A full line would wrap, and could not be written anew.
        self._write(f"\r{text[:width]}\x1b[K")
        self._is_open = True

    def end(self) -> None:
        """What is shown stays, and what comes next begins a line of its own."""
        if self._is_open:
            self._is_open = False
            self._write("\n")

    def _tell(self, text: str) -> None:
        logger = logging.getLogger("headrace.progress")
        if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
            logger.info("%s", text)
        else:
            self._write(text + "\n")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # Closed, or nobody reads it: no reason to end what goes on.
            self._is_open = False
