"""The command line: ``headrace``. Thin over the package; every command has ``--json`` and one-line errors."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from headrace.cli import base, encoding, quick
from headrace.cli.base import guard
from headrace.cli.complete import ASK, answer

if TYPE_CHECKING:
    import typer

    app: typer.Typer

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    # Its libraries are slow to import: only when something asks for it.
    if name != "app":
        raise AttributeError(name)
    from headrace.cli.commands import app

    return app


def _load_commands() -> Any:
    from headrace.cli.commands import app
    from headrace.cli.library import click_command

    return click_command(app)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == [ASK]:
        return guard(lambda: answer(arguments[1:], _load_commands))
    code = quick.run(arguments)
    if code is not None:
        return code
    from headrace.cli import common
    from headrace.cli.commands import app

    return common.run(app, arguments)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """As other messages: where in the package it comes from says nothing to whoever types a command."""
    base.note(str(message))


def main(arguments: list[str] | None = None) -> Any:
    """Entry point: runs a command and ends the process with its exit code."""
    encoding.open_closed()
    encoding.prepare()
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        code = guard(lambda: _run(sys.argv[1:] if arguments is None else arguments))
    # What is left in stdout's buffer may have no reader (`headrace ls | head`): that is no error of ours.
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        base.reader_left()
    except OSError as error:
        base.drop_output()
        code = code or base.fail(f"the output: {error.strerror}")  # Where the command has not said so itself.
    sys.exit(code)
