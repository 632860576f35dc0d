"""What all commands share: options, errors, output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from headrace._store import Store
from headrace.errors import HeadraceError, InvalidArgumentError

if TYPE_CHECKING:
    from rich.progress import Progress

Endpoint = Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="S3 endpoint, such as http://127.0.0.1:9000.", rich_help_panel="Store")]
Region = Annotated[str | None, typer.Option("--region", help="Region, such as eu-central-1.", rich_help_panel="Store")]
Anonymous = Annotated[bool, typer.Option("--anonymous", help="Send requests unsigned, for public buckets.", rich_help_panel="Store")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout instead of text.")]
Memory = Annotated[str, typer.Option("--memory", help="Limit of the memory for data.", rich_help_panel="Store")]
Format = Annotated[str, typer.Option("--format", help="auto, mds, webdataset or raw.")]

CANCELLED = 130


def console() -> Console:
    """For tables and text on stdout."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def fail(message: str) -> int:
    """One line on stderr; returns the exit code."""
    sys.stderr.write("headrace: " + " ".join(message.split()) + "\n")
    return 1


def reader_left() -> int:
    """The reader of our output left (`| head`): no error of ours. What is still in stdout's buffer goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def run(app: typer.Typer, arguments: list[str]) -> int:
    """Runs the command line. 0: done, 1: failed, 2: wrong usage, 130: Ctrl-C. Never lets a traceback out."""
    try:
        result = app(args=arguments, prog_name="headrace", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except HeadraceError as error:
        return fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        return CANCELLED
    except typer.Exit as exit_:
        return exit_.exit_code
    except BrokenPipeError:
        return reader_left()
    except SystemExit as exit_:
        # The command-line library may have met the broken pipe first and made it its own exit.
        if isinstance(exit_.__context__, BrokenPipeError):
            return reader_left()
        return exit_.code if isinstance(exit_.code, int) else 1
    except OSError as error:
        return fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
                return 2
            hint = getattr(error, "ctx", None)
            path = hint.command_path if hint is not None else "headrace"
            fail(f"{error.format_message()} (see {path} --help)")
            return 2
        if os.environ.get("HEADRACE_DEBUG"):
            raise
        return fail(f"internal error: {type(error).__name__}: {error}; please report it (HEADRACE_DEBUG=1 shows where)")


def split_url(url: str) -> tuple[str, str]:
    """(root, key): the bucket and the key in it, or the directory and the name of a file.

    A local directory is its own root; a trailing slash always means a directory.
    """
    if "://" not in url or url.startswith("file://"):
        path = url.removeprefix("file://")
        if path.endswith("/") or os.path.isdir(path):
            return path.rstrip("/") or "/", ""
        head, name = os.path.split(path)
        return head or ".", name
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise InvalidArgumentError(f"{url}: no bucket; expected {scheme}://bucket/key")
    return f"{scheme}://{bucket}", key


class Stores:
    """The stores of one command, one a root, closed together."""

    def __init__(self, endpoint: str | None, region: str | None, anonymous: bool, memory: str = "256MiB") -> None:
        self.options: dict[str, Any] = {"endpoint": endpoint, "region": region, "anonymous": anonymous}
        self._memory = memory
        self._open: dict[str, Store] = {}

    def open(self, root: str) -> Store:
        if root not in self._open:
            self._open[root] = Store(root, memory=self._memory, **self.options)
        return self._open[root]

    def split(self, url: str) -> tuple[Store, str]:
        root, key = split_url(url)
        return self.open(root), key

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._open.values():
            store.close()


@contextmanager
def status_line(text: str) -> Iterator[None]:
    """Shows `text` with a spinner on stderr while something runs; nothing when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(text):
        yield


@contextmanager
def transfer_bar(description: str, total_bytes: int | None) -> Iterator[Any]:
    """A bar of bytes on stderr; yields ``advance(bytes)``. Nothing is shown when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(True), TransferSpeedColumn(), TimeRemainingColumn())
    bar: Progress = Progress(*columns, console=Console(stderr=True), transient=True)
    with bar:
        task = bar.add_task(description, total=total_bytes)
        yield lambda count: bar.advance(task, count)
