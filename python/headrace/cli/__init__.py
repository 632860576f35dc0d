"""The command line: ``headrace``. Thin over the package; every command has ``--json`` and one-line errors."""

from __future__ import annotations

import sys
from typing import Any

import typer

from headrace.cli import bench, common, data, objects, serve, store

__all__ = ["app", "main"]

app = typer.Typer(
    name="headrace",
    help="Training data from object storage: look, copy, pack, index, measure.",
    epilog="URLs: s3://bucket/key, file:///path, or a plain path. Endpoint, region and credentials are found as the AWS command "
    "line finds them (AWS_ENDPOINT_URL_S3, AWS_PROFILE, ~/.aws), or given by options. `headrace COMMAND --help` has examples.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for module in (objects, data, bench, serve, store):
    module.register(app)


def main(arguments: list[str] | None = None) -> Any:
    """Entry point: runs a command and ends the process with its exit code."""
    code = common.run(app, sys.argv[1:] if arguments is None else arguments)
    # What is left in stdout's buffer may have no reader (`headrace ls | head`): that is no error of ours.
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        common.reader_left()
    sys.exit(code)
