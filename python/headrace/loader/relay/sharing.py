"""A torch loader as the dataset of a DataLoader with workers."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidArgumentError
from headrace.loader.frameworks import BATCHES, begins_epoch, find_lost_state, find_wrapper, is_evaluated
from headrace.loader.mapping.chain import Bad
from headrace.loader.mapping.functions import pack
from headrace.loader.mapping.mapped import MappedLoader
from headrace.loader.relay.hooks import count_retaken, find_iterator, group_of, share
from headrace.loader.relay.relay import Refusal
from headrace.loader.relay.remote import Job, Remote

if TYPE_CHECKING:
    from headrace.loader.loader import Loader
    from headrace.loader.relay.relay import Group

__all__ = ["InWorkers"]

_NOT_THE_DATASET = (
    "a headrace.torch.Loader is read by the process that opened it, and this one is a DataLoader worker (or "
    "another copy) for which it does not read: give the loader itself to the DataLoader, DataLoader(loader, "
    "batch_size=None, num_workers=...), not within another dataset; or use num_workers=0"
)
_ON_DEVICE = (
    "device= and pin_memory= belong to the process of the training loop, and a DataLoader's workers are "
    "others: leave them out and give pin_memory=True to the DataLoader, or iterate the loader itself, which "
    "reads with threads and needs no workers"
)
_IN_ORDER = (
    "a headrace.torch.Loader delivers its batches in their order: leave out in_order=False, or iterate the "
    "loader itself"
)
_COMPACT = (
    'filter(holes="compact") may leave batches out, and a DataLoader takes those of its workers in turn, so '
    "that others would come in "
    'another order: use holes="mask", or num_workers=0, or iterate the loader itself'
)
_OLD_SNAPSHOT = (
    "Lightning begins an epoch, and the StatefulDataLoader's state is of {count} batches before the end of "
    "the last one, which it would take out of the new one: save checkpoints with snapshot_every_n_steps=1 "
    "(the default), or give the loader itself to fit(); one that was written within an epoch can be gone on "
    "with"
)


class InWorkers:
    """What a loader needs for that. Functions of ``map()`` run in the DataLoader's workers, whatever was said
    about where."""

    _loader: Loader | MappedLoader
    _remote: Remote | Exception | None = None
    """In a forked worker: what it gets batches from, or why it gets none."""

    def _worker_conversion(self) -> Callable[[Any], Any]:
        """What is delivered of a batch in a worker; can be pickled."""
        raise NotImplementedError

    def _is_on_device(self) -> bool:
        raise NotImplementedError

    def _recipe(self) -> Any:
        """What a pickle holds that is for no worker."""
        raise NotImplementedError

    def _is_at_start(self) -> bool:
        raise NotImplementedError

    @property
    def _base(self) -> Loader:
        return self._loader._loader if isinstance(self._loader, MappedLoader) else self._loader

    def _share(self) -> None:
        """Once the loader is made."""
        self._owner_pid = os.getpid()
        share(self)

    def begin_sharing(self, iterator: Any) -> Group:
        stacks, is_ordered = iterator._auto_collation, getattr(iterator, "_in_order", True)
        return group_of(
            iterator, self._base._for_workers(), lambda: self._check(stacks, is_ordered), self._book
        )

    def _check(self, stacks: bool, is_ordered: bool) -> Refusal:
        """Before a loop over workers."""
        if error := self._find_error(stacks, is_ordered):
            return Refusal(error)
        try:
            self._find_place()
            self._base._settle_rank()
            anew = find_lost_state() if self._is_at_start() else None
            begins = begins_epoch(is_placed=True)
            if begins and (count := count_retaken()):
                return Refusal(InvalidArgumentError(_OLD_SNAPSHOT.format(count=count)))
            return Refusal(None, anew, begins)
        except Exception as error:
            return Refusal(error)

    def _find_place(self) -> None:
        """Goes to where the loop that is about to begin wants to: the start of this epoch, or of the next."""
        if is_evaluated():
            if not self._loader._is_placed:
                self._loader.reset()
        elif begins_epoch(self._loader._is_placed) and self._loader.state_dict()["batches"]:
            self._loader.reset(self._loader.epoch + 1)

    def _find_error(self, stacks: bool, is_ordered: bool) -> Exception | None:
        if stacks:
            return InvalidArgumentError(BATCHES)
        if not is_ordered:
            return InvalidArgumentError(_IN_ORDER)
        if self._is_on_device():
            return InvalidArgumentError(_ON_DEVICE)
        if self._loader._may_skip:
            return InvalidArgumentError(_COMPACT)
        return find_wrapper()

    def _book(self, bad: list[tuple[int, str]]) -> None:
        if isinstance(self._loader, MappedLoader):
            self._loader._book([Bad(*each) for each in bad])

    def job(self) -> Job:
        plan = self._loader._plan() if isinstance(self._loader, MappedLoader) else None
        return Job(plan, self._worker_conversion(), self._loader._dataset.url)

    def become(self, remote: Remote | Exception) -> None:
        self._remote = remote

    def _in_worker(self) -> Remote:
        """In another process than the loader was opened in: what it gets batches from."""
        if isinstance(self._remote, Remote):
            return self._remote
        raise self._remote or InvalidArgumentError(_NOT_THE_DATASET)

    @property
    def _is_elsewhere(self) -> bool:
        return os.getpid() != self._owner_pid

    def __reduce__(self) -> Any:
        """For a worker that is spawned: what :meth:`become` is for one that is forked. Else how it was
        made."""
        if self._is_elsewhere:
            raise InvalidArgumentError(_NOT_THE_DATASET)
        iterator = None if get_spawning_popen() is None else find_iterator()
        if iterator is None:
            return self._recipe()
        if iterator._dataset is not self:
            raise InvalidArgumentError(_NOT_THE_DATASET)
        job = self.job()
        channel = self.begin_sharing(iterator).add()
        plan = None if job.plan is None else pack(job.plan)
        return _remote, (DupFd(channel.other.fileno()), plan, job.convert, job.url)


def _remote(connection: Any, plan: bytes | None, convert: Callable[[Any], Any], url: str) -> Remote:
    job = Job(None if plan is None else pickle.loads(plan), convert, url)
    return Remote(socket.socket(fileno=connection.detach()), job)
