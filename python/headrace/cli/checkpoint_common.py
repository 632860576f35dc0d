"""What the ``headrace ckpt`` commands share."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from headrace.checkpoint.place import Place, read_key
from headrace.cli.bar import make_bar
from headrace.cli.declare import Where, option
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.store.store import Store
from headrace.store.urls import local_path

__all__ = ["CheckpointWhere", "many", "need_directory", "opened", "progress_bar", "step_of"]


class CheckpointWhere(Where):
    """How the checkpoints of a command are reached and read."""

    encryption_key: Annotated[
        str | None,
        option(
            "--encryption-key",
            metavar="SOURCE",
            help="Of encrypted checkpoints: file:PATH, env:NAME or command:PROGRAM name the key.",
            panel="Store",
        ),
    ] = None


@contextmanager
def opened(url: str, where: CheckpointWhere) -> Iterator[Place]:
    options = where.as_dict()
    key = read_key(options.pop("encryption_key", None))
    place = Place(Store(url, **options), key)
    try:
        yield place
    finally:
        place.close()


def need_directory(url: str) -> None:
    """Raises NotFoundError for a local directory that is not there: nothing to do in one whose name is wrong
    is no success."""
    path = local_path(url)
    if path is not None and not os.path.isdir(path):
        raise NotFoundError(f"{url}: no such directory")


def step_of(place: Place, text: str) -> int:
    """Of a number, or "latest"."""
    if text != "latest":
        if not text.isdecimal():
            raise InvalidArgumentError(f"step {text!r}: expected a number, or latest")
        return int(text)
    candidates = place.candidates()
    if not candidates:
        raise NotFoundError(f"{place.url}: has no checkpoint")
    return candidates[0]


@contextmanager
def progress_bar(what: str, total: int | Callable[[], int], done: Callable[[], int]) -> Iterator[None]:
    """A bar of bytes on stderr while something runs; nothing when stderr is no terminal. ``total`` may become
    known on the way."""
    if not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    with make_bar() as bar:
        how_many = total if callable(total) else lambda: total
        task = bar.add_task(what, total=how_many())

        def follow() -> None:
            while not ended.wait(0.1):
                bar.update(task, total=how_many(), completed=min(done(), how_many()))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
