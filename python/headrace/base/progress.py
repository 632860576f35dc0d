"""A progress bar on stderr for calls that take long, on terminals only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[[int, int, int], None]
"""Takes (done, total, bytes); total 0 means unknown."""


@contextmanager
def progress_bar(description: str, unit: str) -> Iterator[Report | None]:
    """Yields the function to report to, or None when stderr is no terminal. The bar appears at the first
    report."""
    if not sys.stderr.isatty():
        yield None
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
