"""What the engine's listings of local trees pass over: links that lead nowhere, fifos, sockets, devices. A
command must not be silent about them. Imports nothing that is slow to import."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator

from headrace import _native
from headrace.cli.base import fail, is_local, local_path
from headrace.cli.plan import Job

__all__ = ["LEADS_NOWHERE", "dead_links", "name_dead_links"]

LEADS_NOWHERE = "the link leads nowhere"
NO_FILE = "neither a file nor a directory"


def dead_links(job: Job, names: _native.NameFilter) -> Iterator[tuple[str, str]]:
    """(key, what it is) of those among what a job takes from a directory."""
    if not is_local(job.source.url):
        return
    root = local_path(job.source.url)
    for prefix, _, is_tree, strip, pattern in job.tasks:
        if not is_tree:
            continue
        matches = _native.Glob(pattern).matches if pattern else None
        base = prefix[: prefix.rfind("/") + 1]
        beyond = pattern[len(base) :]
        is_deep = not pattern or "/" in beyond or "**" in beyond
        for key, what in _below(root, base, (), is_deep):
            below = os.fsdecode(os.fsencode(key)[strip:])
            if key.startswith(prefix) and (matches is None or matches(key)) and names.accepts(below):
                yield key, what


def name_dead_links(url: str, accepts: Callable[[str], bool]) -> int:
    """Names those below a directory on stderr that a command would take; returns the exit code of one that
    has left them out."""
    code = 0
    if is_local(url):
        for key, what in _below(local_path(url), "", ()):
            if not accepts(key):
                continue
            code = fail(f"{os.path.join(local_path(url), key)}: {what}")
    return code


def _below(
    root: str, base: str, above: tuple[tuple[int, int], ...], is_deep: bool = True
) -> Iterator[tuple[str, str]]:
    """Those below a directory, or right in it; ``above`` are the directories on the way to it, which a link
    may lead back to."""
    try:
        here = os.stat(os.path.join(root, base))
        entries = list(os.scandir(os.path.join(root, base)))
    except OSError:  # The listing says so.
        return
    identity = (here.st_dev, here.st_ino)
    if identity in above:
        return
    for entry in entries:
        if what := _what_is_passed_over(entry):
            yield base + entry.name, what
        elif is_deep and entry.is_dir():
            yield from _below(root, f"{base}{entry.name}/", (*above, identity))


def _what_is_passed_over(entry: os.DirEntry[str]) -> str:
    """Empty: nothing, the listing has it."""
    if not entry.is_symlink() and (entry.is_file() or entry.is_dir()):
        return ""
    try:
        mode = os.stat(entry.path).st_mode
    except OSError as error:
        is_dead = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        return LEADS_NOWHERE if is_dead and entry.is_symlink() else ""
    return "" if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else NO_FILE
