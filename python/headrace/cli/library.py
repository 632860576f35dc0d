"""Commands for the command-line library, made of their declarations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

from headrace.cli.declare import Argument, Option, Parameter, call, option_sets, parameters

__all__ = ["add", "click_command"]


def add(app: typer.Typer, function: Callable[..., Any], name: str | None = None) -> None:
    """Makes a function with declared parameters a command of the library's app."""
    signature = inspect.signature(function, eval_str=True)
    declared = {row.name: row for row in parameters(function)}
    sets = option_sets(function)
    rows: list[inspect.Parameter] = []
    for row in signature.parameters.values():
        if row.name in sets:
            rows += [_parameter(each) for each in parameters(sets[row.name])]
        elif row.name in declared:
            rows.append(row.replace(annotation=_annotation(declared[row.name])))
        else:
            rows.append(row)

    def command(**given: Any) -> Any:
        return call(function, [], given)

    command.__signature__ = signature.replace(parameters=rows)  # type: ignore[attr-defined]
    command.__annotations__ = {row.name: row.annotation for row in rows}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    app.command(name)(command)


def click_command(app: typer.Typer) -> Any:
    """The app's commands as objects with names and parameters."""
    return typer.main.get_command(app)


def _parameter(row: Parameter) -> inspect.Parameter:
    """One that a set declares."""
    return inspect.Parameter(
        row.name, inspect.Parameter.KEYWORD_ONLY, default=row.default, annotation=_annotation(row)
    )


def _annotation(row: Parameter) -> Any:
    base, given = get_args(row.annotation)[0], row.given
    if isinstance(given, Argument):
        return Annotated[base, typer.Argument(metavar=given.metavar, help=given.help)]
    return Annotated[
        base,
        typer.Option(
            *_flags(given, row.default),
            help=given.help,
            metavar=given.metavar,
            min=given.least,
            # Of a flag that turns something off it would say the opposite.
            show_default=row.default is not True,
            rich_help_panel=given.panel,
        ),
    ]


def _flags(given: Option, default: Any) -> tuple[str, ...]:
    # "on/off", where what turns it on is left out.
    return tuple(f" /{flag}" for flag in given.flags) if default is True else given.flags
