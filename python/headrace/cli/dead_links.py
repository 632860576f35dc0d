"""Links in local trees that lead nowhere: the engine's listings pass them over, a copy must not be silent about
them. Imports nothing that is slow to import."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from headrace import _native
from headrace.cli.base import is_local, local_path
from headrace.cli.plan import Job

__all__ = ["dead_links"]


def dead_links(job: Job, names: _native.NameFilter) -> Iterator[str]:
    """Those among what a job takes from a directory, as keys."""
    if not is_local(job.source.url):
        return
    root = local_path(job.source.url)
    for prefix, _, is_tree, strip, pattern in job.tasks:
        if not is_tree:
            continue
        matches = _native.Glob(pattern).matches if pattern else None
        base = prefix[: prefix.rfind("/") + 1]
        for key in _below(root, base, ()):
            below = os.fsdecode(os.fsencode(key)[strip:])
            if key.startswith(prefix) and (matches is None or matches(key)) and names.accepts(below):
                yield key


def _below(root: str, base: str, above: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """Dead links below a directory; ``above`` are those on the way to it, which a link may lead back to."""
    try:
        here = os.stat(os.path.join(root, base))
        entries = list(os.scandir(os.path.join(root, base)))
    except OSError:  # The listing says so.
        return
    identity = (here.st_dev, here.st_ino)
    if identity in above:
        return
    for entry in entries:
        if entry.is_symlink() and _is_dead(entry):
            yield base + entry.name
        elif entry.is_dir():
            yield from _below(root, f"{base}{entry.name}/", (*above, identity))


def _is_dead(entry: os.DirEntry[str]) -> bool:
    try:
        entry.stat()
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
    return False
