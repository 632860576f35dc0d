"""Commands for the command-line library, made of their declarations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args

import typer

from headrace.cli.declare import Argument, Parameter, call, option_sets, parameters

__all__ = ["add", "click_command"]


def add(app: typer.Typer, function: Callable[..., Any], name: str | None = None) -> None:
    """Makes a function with declared parameters a command of the library's app."""
    signature = inspect.signature(function, eval_str=True)
    declared = {row.name: row for row in parameters(function)}
    sets = option_sets(function)
    rows: list[inspect.Parameter] = []
    shared = [each for kind in sets.values() for each in parameters(kind)]
    inverted = {each.name for each in (*declared.values(), *shared) if each.default is True}
    for row in signature.parameters.values():
        if row.name in sets:
            rows += [_parameter(each) for each in parameters(sets[row.name])]
        elif row.name in declared:
            rows.append(
                row.replace(annotation=_annotation(declared[row.name]), default=_default(row.default))
            )
        else:
            rows.append(row)

    def command(**given: Any) -> Any:
        for row in declared.values():
            words = given.get(row.name)
            if isinstance(row.given, Argument) and isinstance(words, list) and len(words) < row.given.least:
                raise typer.BadParameter(f"expected {row.given.metavar}")
        return call(function, [], {**given, **{name: not given[name] for name in inverted & given.keys()}})

    command.__signature__ = signature.replace(parameters=rows)  # type: ignore[attr-defined]
    command.__annotations__ = {row.name: row.annotation for row in rows}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    app.command(name)(command)


def click_command(app: typer.Typer) -> Any:
    """The app's commands as objects with names and parameters."""
    command = typer.main.get_command(app)
    _hide_kind_of_flags(command)
    return command


def _hide_kind_of_flags(command: Any) -> None:
    """The library's help says <bool> or <int>, as if a flag took a value."""
    make_help = command.get_help_option

    def help_option(context: Any) -> Any:
        option = make_help(context)
        if option is not None:
            option.metavar = ""
        return option

    command.get_help_option = help_option
    for parameter in command.params:
        if getattr(parameter, "is_flag", False) or getattr(parameter, "count", False):
            parameter.metavar = ""
    for each in getattr(command, "commands", {}).values():
        _hide_kind_of_flags(each)


def _parameter(row: Parameter) -> inspect.Parameter:
    """One that a set declares."""
    return inspect.Parameter(
        row.name, inspect.Parameter.KEYWORD_ONLY, default=_default(row.default), annotation=_annotation(row)
    )


def _annotation(row: Parameter) -> Any:
    base, given = get_args(row.annotation)[0], row.given
    if isinstance(given, Argument):
        return Annotated[base, typer.Argument(metavar=given.metavar, help=given.help)]
    return Annotated[
        base,
        typer.Option(
            *given.flags,
            help=given.help,
            metavar=given.metavar,
            min=given.least,
            rich_help_panel=given.panel,
        ),
    ]


def _default(value: Any) -> Any:
    """A flag that turns something off is one like others to the library, else its help has a column more."""
    return False if value is True else value
