"""Where a DataLoader starts its workers: what they get to reach the process that reads, and how deliveries
are counted there.

torch tells a dataset nothing of all this. What it does: it starts workers within the constructor of its
iterator, which is on the stack then, by fork() (for which Python has hooks) or by pickling the dataset; and
each loop ends in ``next()`` of that iterator.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from torch.utils.data.dataloader import _BaseDataLoaderIter

from headrace.errors import InvalidArgumentError
from headrace.loader.relay.relay import Group, Refusal, Relay
from headrace.loader.relay.remote import Job, Remote

__all__ = ["Shared", "count_retaken", "find_iterator", "group_of", "share"]


class Shared(Protocol):
    """A dataset that workers may have."""

    def begin_sharing(self, iterator: Any) -> Group:
        """The group of an iterator's workers, into which one more is to be taken."""

    def job(self) -> Job:
        """What each worker is to do."""

    def become(self, remote: Remote) -> None:
        """In a forked worker: this is the dataset there."""


_OVER = "this loop over a DataLoader has ended with an error, begin a new one: {error}"

_shared: weakref.WeakSet[Any] = weakref.WeakSet()
_forking = threading.local()


def share(dataset: Shared) -> None:
    """Lets forked workers of DataLoaders over ``dataset`` find their way."""
    _shared.add(dataset)


def _find_start() -> dict[str, Any]:
    """Local variables of the constructor of a DataLoader's iterator that is starting workers in this thread;
    empty: there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__":
            found = frame.f_locals
            if isinstance(found.get("self"), _BaseDataLoaderIter):
                return found
        frame = frame.f_back
    return {}


def find_iterator() -> Any:
    """The iterator of a DataLoader that is starting workers in this thread; None: there is none."""
    return _find_start().get("self")


def count_retaken() -> int:
    """Batches that the iterator which is starting workers will take for itself: those between the last
    snapshot of a StatefulDataLoader and its state."""
    return int((_find_start().get("next_iter_state") or {}).get("_steps_since_snapshot", 0))


class _Counting:
    """What the iterator of a DataLoader becomes: it also counts what it delivers.

    After an error it has no batch: those that workers have ready would leave a hole.
    """

    _headrace_group: Group

    def __next__(self) -> Any:
        group = self._headrace_group
        if group.error:
            raise InvalidArgumentError(_OVER.format(error=group.error))
        group.before = None
        try:
            # Python runs signal handlers behind calls of C, so within note_delivered() too.
            data = super().__next__()  # type: ignore[misc]
            group.note_delivered()
        except StopIteration:
            group.note_ended()
            raise
        except BaseException as error:
            group.take_back()
            # Not the error: its traceback has this iterator, and so its workers.
            group.error = f"{type(error).__name__}: {str(error).strip()[-500:]}"
            raise
        return data

    def _reset(self, loader: Any, first_iter: bool = False, **more: Any) -> Any:
        if not first_iter:
            self._headrace_group.prepare()
        return super()._reset(loader, first_iter, **more)  # type: ignore[misc]

    def _shutdown_workers(self) -> None:
        self._headrace_group.close()  # Those that wait for a batch would not hear torch.
        super()._shutdown_workers()  # type: ignore[misc]


_kinds: dict[type, type] = {}


def _counting(kind: type) -> type:
    """The type that also counts."""
    if kind not in _kinds:
        _kinds[kind] = type(kind.__name__, (_Counting, kind), {"__module__": kind.__module__})
    return _kinds[kind]


def group_of(
    iterator: Any, relay: Relay, check: Callable[[], Refusal], on_bad: Callable[[Any], None]
) -> Group:
    """The group of an iterator's workers, made when it starts its first one."""
    group: Group | None = vars(iterator).get("_headrace_group")
    if group is None:
        group = iterator._headrace_group = Group(relay, iterator._num_workers, check, on_bad)
        iterator.__class__ = _counting(type(iterator))
        weakref.finalize(iterator, group.close).atexit = False
    return group


def _before_fork() -> None:
    _forking.pending = None
    if not _shared:
        return
    iterator = find_iterator()
    dataset: Any = getattr(iterator, "_dataset", None)
    if dataset not in _shared:
        return
    try:
        channel = dataset.begin_sharing(iterator).add()
        _forking.pending = dataset, dataset.job(), channel.other.dup(), None
    except Exception as error:  # What is raised here is only printed.
        _forking.pending = dataset, None, None, error


def _after_fork_in_parent() -> None:
    pending, _forking.pending = getattr(_forking, "pending", None), None
    if pending is not None and pending[2] is not None:
        pending[2].close()


def _after_fork_in_child() -> None:
    pending, _forking.pending = getattr(_forking, "pending", None), None
    if pending is not None:
        dataset, job, connection, error = pending
        dataset.become(Remote(connection, job) if error is None else error)


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
