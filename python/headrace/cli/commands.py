"""All commands with their help, for the command-line library."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace import __version__
from headrace.base import log
from headrace.cli import bench, cache, checkpoint, data, index, serve, store, verify
from headrace.cli.library import add
from headrace.cli.quick import COMMANDS

app = typer.Typer(
    name="headrace",
    help="Training data from object storage: look, copy, pack, index, measure.",
    epilog="URLs: s3://bucket/key, file:///path, or a plain path. Endpoint, region and credentials are found "
    "as the AWS command line finds them (AWS_ENDPOINT_URL_S3, AWS_PROFILE, ~/.aws), or given by options. "
    "`headrace COMMAND --help` has examples.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    version: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, help="Say on stderr what the engine does; -vv: all of it."
        ),
    ] = 0,
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level",
            envvar="HEADRACE_LOG",
            show_envvar=True,
            help=f"The same by name: {', '.join(log.LEVELS)}. Default: warnings only.",
        ),
    ] = "",
) -> None:
    level = {0: log_level, 1: "info"}.get(verbose, "debug")
    if level:
        log.show(level)


for name, function in COMMANDS.items():
    add(app, function, name)
for module in (data, index, verify, bench, serve, store, cache, checkpoint):
    module.register(app)
