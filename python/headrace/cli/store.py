"""``headrace store``: what a store is and who it takes us for."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from headrace import _native
from headrace.cli.common import print_json
from headrace.cli.declare import Json, Where
from headrace.cli.library import add
from headrace.store.store import profile_environment

app = typer.Typer(no_args_is_help=True, help="Look at how a store is reached, and as whom.")


def describe(url: str, options: dict[str, Any], *, fetch: bool = True, check: bool = False) -> dict[str, Any]:
    """Who the store at ``url`` takes us for; see Identity in headrace/whoami.h. Holds no secrets."""
    given = {name: value for name, value in options.items() if value is not None}
    environment = profile_environment(given.pop("profile", None))
    return _native.describe_identity(url, given, environment, fetch, check)


def whoami(
    url: Annotated[str, typer.Argument(metavar="URL", help="Bucket, prefix or directory.")],
    *,
    check: Annotated[
        bool,
        typer.Option("--check", help="Also ask the store: list one object, and the vendor's name for us."),
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only look at variables and files: ask no service.")
    ] = False,
    where: Where,
    json: Json = False,
) -> int:
    """Say which credential is used for a URL, where it was found, and where else was looked.

    Secrets are never shown; of ids only the first and last characters. Exit code 1 when there is no usable
    credential, or when `--check` failed.

    Examples:

    * `headrace store whoami s3://bucket/train`

    * `headrace store whoami --check gs://bucket --json`
    """
    identity = describe(url, where.as_dict(), fetch=not offline, check=check)
    text = identity.pop("text")
    if json:
        print_json(identity)
    else:
        sys.stdout.write(text)
    return 1 if identity["problem"] or identity["can_list"] is False else 0


def register(parent: typer.Typer) -> None:
    add(app, whoami)
    parent.add_typer(app, name="store")
