"""What all commands share: options, errors, output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from headrace import _native
from headrace.cli.base import (
    CANCELLED,
    Stores,
    escaped,
    fail,
    guard,
    print_json,
    reader_left,
    shown,
    split_url,
)
from headrace.cli.declare import without_aliases
from headrace.cli.library import click_command

__all__ = [
    "CANCELLED",
    "Format",
    "Stores",
    "console",
    "fail",
    "print_json",
    "reader_left",
    "run",
    "shown",
    "split_url",
    "status_line",
]

ANY_WIDTH = 10_000
"""Columns, where lines have no end: in pipes and files."""

Format = Annotated[
    str,
    typer.Option(
        "--format",
        help=(
            f"auto (found from content), {', '.join([*_native.format_names()[1:], *_native.format_kinds()])}."
        ),
    ),
]


class _Console(Console):
    """Shows names from stores and data without what a terminal would obey, and tables that are too wide for
    it row by row: a number that is cut off is another number."""

    def print(self, *objects: Any, **options: Any) -> None:
        if sys.stdout.isatty():
            objects = tuple(
                "\n".join(map(escaped, o.split("\n"))) if isinstance(o, str) else o for o in objects
            )
        objects = tuple(
            _row_by_row(o) if isinstance(o, Table) and not self._is_room_for(o) else o for o in objects
        )
        super().print(*objects, **options)

    def _is_room_for(self, table: Table) -> bool:
        whole = self.options.update(width=ANY_WIDTH)
        return Measurement.get(self, whole, table).maximum <= self.width


def _row_by_row(table: Table) -> Table:
    """A line a value, with an empty one between rows."""
    out = Table(
        title=table.title, title_justify=table.title_justify, box=None, pad_edge=False, show_header=False
    )
    out.add_column(no_wrap=True)
    out.add_column(overflow="fold")
    rows = zip(*(column.cells for column in table.columns), strict=True)
    for number, row in enumerate(rows):
        if number:
            out.add_row("", "")
        for column, cell in zip(table.columns, row, strict=True):
            out.add_row(column.header, cell)
    return out


def console() -> Console:
    """For tables and text on stdout."""
    is_terminal = sys.stdout.isatty()
    return _Console(highlight=False, soft_wrap=not is_terminal, width=None if is_terminal else ANY_WIDTH)


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Runs the command line. 0: done, 1: failed, 2: wrong usage, 130: Ctrl-C. Never lets a traceback out."""

    def call() -> int:
        command = click_command(app)
        try:
            result = command(
                args=_without_aliases(command, arguments), prog_name="headrace", standalone_mode=False
            )
            return result if isinstance(result, int) else 0
        except typer.Abort:
            return CANCELLED
        except typer.Exit as exit_:
            return exit_.exit_code
        except SystemExit as exit_:
            # The command-line library may have met the broken pipe first and made it its own exit.
            if isinstance(exit_.__context__, BrokenPipeError):
                return reader_left()
            return exit_.code if isinstance(exit_.code, int) else 1
        except Exception as error:
            if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
                raise
            if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
                return 2
            hint = getattr(error, "ctx", None)
            path = hint.command_path if hint is not None else "headrace"
            place = "" if path != "headrace" else _place_of(command, error)
            fail(f"{error.format_message()}{place} (see {path} --help)")
            return 2

    return guard(call)


def _without_aliases(command: Any, arguments: list[str]) -> list[str]:
    """The arguments with the options of the command that they name as the help shows them."""
    named = 0
    for place, word in enumerate(arguments):
        below = getattr(command, "commands", None)
        if not below:
            break
        if word in below:
            command, named = below[word], place + 1
    flags = {flag for row in command.params for flag in (*row.opts, *row.secondary_opts)}
    return [*arguments[:named], *without_aliases(arguments[named:], flags)]


def _place_of(command: Any, error: Any) -> str:
    """Of an option that stands before the command that has it."""
    typed = getattr(error, "option_name", "")
    for each in getattr(command, "commands", {}).values():
        flags = {flag for row in each.params for flag in (*row.opts, *row.secondary_opts)}
        if typed and without_aliases([typed], flags)[0] in flags:
            return "; it stands behind the command, as in: headrace ls --endpoint URL s3://"
    return ""


@contextmanager
def status_line(text: str) -> Iterator[None]:
    """Shows `text` with a spinner on stderr while something runs; nothing when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(text):
        yield
