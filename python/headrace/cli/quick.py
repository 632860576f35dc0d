"""Runs the commands on objects without loading the command-line library, whose import takes longer than most
copies.

Only plain, complete and correct command lines are taken; everything else (help, mistakes) goes the long way,
which answers in full. Both parsers are made of what the commands' functions declare (``declare.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.cli import listing, packing, reading, remove, transfer
from headrace.cli.base import guard
from headrace.cli.complete import completion
from headrace.cli.declare import Argument, Option, Parameter, call, parameters, without_aliases
from headrace.cli.run_file import run_file

COMMANDS: dict[str, Callable[..., int]] = {
    "ls": listing.list_objects,
    "du": listing.du,
    "stat": listing.stat,
    "cat": reading.cat,
    "cp": transfer.cp,
    "mv": transfer.mv,
    "sync": transfer.sync,
    "rm": remove.rm,
    "presign": reading.presign,
    "pack": packing.pack,
}
COMMANDS["completion"] = completion


MOST_DIGITS = 30
"""Of a number: Python refuses to read very long ones."""


class _NotPlainError(Exception):
    """The command-line library must look at this line."""


def parse(arguments: list[str]) -> tuple[Callable[..., int], list[Any], dict[str, Any]] | None:
    """(function, arguments, options) of a plain command line, else None."""
    if not arguments or arguments[0] not in COMMANDS:
        return None
    function = COMMANDS[arguments[0]]
    declared = parameters(function)
    flags = {flag: row for row in declared if isinstance(row.given, Option) for flag in row.given.flags}
    words: list[str] = []
    options: dict[str, Any] = {}
    rest = iter(without_aliases(arguments[1:], flags))
    try:
        for word in rest:
            if word.startswith("-") and word != "-":
                _take(word, rest, flags, options)
            else:
                words.append(word)
        return function, _arguments(words, declared), options
    except _NotPlainError:
        return None


def _take(word: str, rest: Iterator[str], flags: dict[str, Parameter], options: dict[str, Any]) -> None:
    """Takes an option, with its value from ``rest`` where it has one."""
    word, equals, value = word.partition("=")
    # "-rn" is "-r -n".
    given = [f"-{c}" for c in word[1:]] if len(word) > 2 and word[1] != "-" and not equals else [word]
    for flag in given:
        row = flags.get(flag)
        if row is None:
            raise _NotPlainError
        if row.kind is bool:
            if equals:
                raise _NotPlainError
            options[row.name] = not row.default
        elif len(given) == 1:
            text = value if equals else next(rest, None)
            if row.kind in (str, int, float):
                options[row.name] = _value(row, text)
            else:
                options.setdefault(row.name, []).append(_value(row, text))
        else:
            raise _NotPlainError


def _value(row: Parameter, text: str | None) -> str | int | float:
    assert isinstance(row.given, Option)
    if text is None:
        raise _NotPlainError
    if row.kind not in (int, float):
        return text
    if not (text if row.kind is int else text.replace(".", "", 1)).isdecimal():
        raise _NotPlainError
    if len(text) > MOST_DIGITS:
        raise _NotPlainError
    number = int(text) if row.kind is int else float(text)
    if row.given.least is not None and number < row.given.least:
        raise _NotPlainError
    return number


def _arguments(words: list[str], declared: list[Parameter]) -> list[Any]:
    wanted = [row for row in declared if isinstance(row.given, Argument)]
    if wanted[0].kind is str:
        if len(words) != len(wanted):
            raise _NotPlainError
        return words
    assert isinstance(wanted[0].given, Argument)
    if len(words) < wanted[0].given.least:
        raise _NotPlainError
    return [words]


def run(arguments: list[str]) -> int | None:
    """The exit code; None when the command line is not plain."""
    parsed = parse(arguments)
    if parsed is None:
        return None
    function, words, options = parsed
    return guard(lambda: call(function, words, options))


COMMANDS["run"] = run_file(
    {name: each for name, each in COMMANDS.items() if name not in ("pack", "completion")}, parse
)
