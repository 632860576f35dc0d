"""How commands declare their arguments: once, in their signatures, for both parsers.

``recursive: Annotated[bool, option("--recursive", "-r", help="...")] = False``. The quick parser (``quick.py``)
reads these by itself; the command-line library, which is slow to import, is told by ``library.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

__all__ = [
    "AccessLog",
    "Anonymous",
    "Argument",
    "DryRun",
    "Endpoint",
    "Json",
    "Option",
    "Parameter",
    "Region",
    "argument",
    "option",
    "parameters",
]


class Option(NamedTuple):
    """An option. A flag turns its default around."""

    flags: tuple[str, ...]
    help: str
    metavar: str | None
    least: float | None
    """Of a number."""
    panel: str | None
    """Under which heading the help shows it."""


class Argument(NamedTuple):
    """What stands without a dash. Of a list there must be ``least``."""

    metavar: str
    help: str
    least: int


def option(
    *flags: str,
    help: str,
    metavar: str | None = None,
    least: float | None = None,
    panel: str | None = None,
) -> Option:
    return Option(flags, help, metavar, least, panel)


def argument(metavar: str, help: str, least: int = 1) -> Argument:
    return Argument(metavar, help, least)


class Parameter(NamedTuple):
    """One parameter of a command's function."""

    name: str
    kind: Any
    """Its type: bool, int, float, str, or list of str; without None."""
    annotation: Any
    default: Any
    """None also where there is none."""
    given: Option | Argument


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Those of a command that are declared here, in their order."""
    plain: Any = function
    names = plain.__code__.co_varnames[: plain.__code__.co_argcount]
    values = plain.__defaults__ or ()
    defaults = dict(zip(names[len(names) - len(values) :], values, strict=True))
    found = []
    for name, hint in get_type_hints(function, include_extras=True).items():
        for annotation in (hint, *get_args(hint)):  # Python 3.10 puts Optional around what defaults to None.
            metadata = getattr(annotation, "__metadata__", (None,))
            if isinstance(metadata[0], Option | Argument):
                base = get_args(annotation)[0]
                kinds = [kind for kind in get_args(base) if kind is not type(None)]
                kind = base if base in (bool, int, float, str) or get_origin(base) is list else kinds[0]
                found.append(Parameter(name, kind, annotation, defaults.get(name), metadata[0]))
                break
    return found


Endpoint = Annotated[
    str | None,
    option("--endpoint", metavar="URL", help="S3 endpoint, such as http://127.0.0.1:9000.", panel="Store"),
]
Region = Annotated[str | None, option("--region", help="Region, such as eu-central-1.", panel="Store")]
Anonymous = Annotated[
    bool, option("--anonymous", help="Send requests unsigned, for public buckets.", panel="Store")
]
AccessLog = Annotated[
    str | None,
    option(
        "--access-log",
        metavar="FILE",
        help="Append a line for every request to a store; default: HEADRACE_ACCESS_LOG.",
        panel="Store",
    ),
]
Json = Annotated[bool, option("--json", help="Print JSON on stdout instead of text.")]
DryRun = Annotated[bool, option("--dry-run", help="Say what would be done; change nothing.")]
