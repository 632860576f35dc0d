"""mv: removes from the source what has arrived. Imports nothing that is slow to import."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from headrace import _native
from headrace.cli.base import is_local, is_web, local_path
from headrace.cli.plan import Job
from headrace.cli.remove import Links, Remover, remove_directories
from headrace.errors import ChangedError, HeadraceError, InvalidArgumentError

__all__ = ["Arrived", "check_moves"]

Event = tuple[str, str, str, int, str]
"""(kind, from, to, bytes, ETag of what was copied) of CopyJob.take_events()."""

WRITTEN = "was written to while it was moved: an earlier version was copied"
CHUNK = 32
"""Objects that are looked at, one after the other, and then removed together."""


def check_moves(jobs: list[Job]) -> None:
    """Raises InvalidArgumentError where copying and removing would lose what is to be moved."""
    for job in jobs:
        if is_web(job.source.url):
            raise InvalidArgumentError(
                f"{job.source.url}: nothing can be removed there; to copy it: headrace cp"
            )
        for source, target, is_tree, strip, _ in job.tasks:
            replaced = os.fsdecode(os.fsencode(source)[:strip]) if is_tree else source
            if _is_same(job, replaced, target):
                raise InvalidArgumentError(
                    f"{job.source.url}/{source} and {job.target.url}/{target} are the same: nothing to move"
                )


def _is_same(job: Job, from_key: str, to_key: str) -> bool:
    """Whether two names are one object: then removing the first would remove the copy."""
    if not (is_local(job.source.url) and is_local(job.target.url)):
        return _native.is_same_object(job.source._native, from_key, job.target._native, to_key)
    try:
        return os.path.samefile(_path(job.source.url, from_key), _path(job.target.url, to_key))
    except OSError:  # One of them is not there.
        return False


def _path(root: str, key: str) -> str:
    return os.path.join(local_path(root), key)


class Arrived:
    """Removes the sources of a job as their copies arrive.

    An object that cannot be removed, or that was written to meanwhile, stays and is a failure: each is looked
    at just before it goes.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._root = local_path(job.source.url) if is_local(job.source.url) else None
        self._remover = Remover(job.source)
        self._links = Links(self._root) if self._root else None
        self._empty_links: dict[str, None] = {}
        """Links to directories from which something was moved."""
        self._began = time.time_ns()
        self._stays: list[tuple[str, str, str]] = []

    def add(self, events: Iterable[Event]) -> None:
        arrived = [
            (from_key, etag)
            for kind, from_key, to_key, _, etag in events
            if kind == "copy" and self._may_go(from_key, to_key)
        ]
        for first in range(0, len(arrived), CHUNK):
            chunk = arrived[first : first + CHUNK]
            self._remover.add([key for key, _ in chunk], [etag for _, etag in chunk])

    def _may_go(self, from_key: str, to_key: str) -> bool:
        if _is_same(self._job, from_key, to_key):
            self._keep(from_key, "source and target are the same file")
            return False
        if self._root is None or self._links is None:
            return True
        link = self._links.above(from_key)
        if link:
            self._empty_links[link] = None
            return False
        try:
            written = os.stat(_path(self._root, from_key)).st_mtime_ns
        except FileNotFoundError:
            return False
        if self._began < written <= time.time_ns():
            self._keep(from_key, WRITTEN)
            return False
        return True

    def _keep(self, key: str, why: str) -> None:
        self._stays.append((key, "changed", f"{key} stays: {why}"))

    def wait(self) -> None:
        """Until what has arrived so far is removed."""
        self._remover.finish()

    def finish(self, is_complete: bool) -> list[tuple[str, str, str]]:
        """Waits for the last removals; returns what stays, as CopyJob.failures(). Complete: everything below
        the sources was copied, so that links and directories may go, too."""
        try:
            self.wait()
            if is_complete and not self._stays and not self._remover.failures:
                if self._empty_links:
                    self._remover.add(list(self._empty_links))
            else:
                for link in self._empty_links:
                    self._keep(link, "not all that lies behind this link was moved")
            self.wait()
        finally:
            self._remover.close()
        for key, error in self._remover.failures:
            if isinstance(error, ChangedError):
                self._keep(key, WRITTEN)
                continue
            code = error.code if isinstance(error, HeadraceError) else "internal"
            self._stays.append((key, code, f"copied, but not removed: {error}"))
        if is_complete and not self._stays:
            self._remove_directories()
        return self._stays

    def _remove_directories(self) -> None:
        """Those of trees that were moved as a whole and are empty now."""
        for source, _, is_tree, _, pattern in self._job.tasks:
            if self._root and is_tree and not pattern:
                remove_directories(_path(self._root, source))

    @property
    def removed(self) -> int:
        return self._remover.deleted
